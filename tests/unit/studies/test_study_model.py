"""A study as a value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from stand_in_parts import Command, CpuControl, Docker, TorchTrain, stand_ins
from tare.studies.fields import levels_of, unit_example
from tare.studies.model import Repeat, Study


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with stand_ins():
        yield


def study(**keys: Any) -> Study:
    return Study.model_validate({"study": "s", "platform": ["bare", "docker"], "workload": "torch_train"} | keys)


@pytest.mark.parametrize(
    ("part", "field", "value", "levels"),
    [
        (TorchTrain, "batch", 16, [16]),
        (TorchTrain, "batch", [16, 64], [16, 64]),
        (TorchTrain, "threads", [1, "all"], [1, "all"]),
        (Command, "argv", ["ls", "-l"], [["ls", "-l"]]),
        (Command, "argv", [["ls"], ["du", "-s"]], [["ls"], ["du", "-s"]]),
        (Command, "env", {"A": "1"}, [{"A": "1"}]),
        (Command, "env", [{"A": "1"}, {"A": "2"}], [{"A": "1"}, {"A": "2"}]),
        (CpuControl, "online", [0, 1], [[0, 1]]),
        (CpuControl, "online", [[0], [0, 1]], [[0], [0, 1]]),
        (Docker, "image", ["a", "b"], ["a", "b"]),
    ],
)
def test_a_list_is_a_factor_where_the_field_takes_no_list(part: Any, field: str, value: Any, levels: list[Any]) -> None:
    assert levels_of(part.model_fields[field], value)[0] == levels


def test_a_field_of_any_type_takes_every_list_as_it_is() -> None:
    assert levels_of(None, [[1], [2]]) == ([[[1], [2]]], False)


def test_only_quantities_need_a_unit() -> None:
    assert unit_example(Docker.model_fields["memory"]) == "2 GiB"
    assert unit_example(Docker.model_fields["cpus"]) is None
    assert unit_example(TorchTrain.model_fields["batch"]) is None


def test_defaults() -> None:
    made = study()

    assert [choice.name for choice in made.probes] == ["cpu", "memory", "disk", "cgroup"]
    assert (made.repeat.min, made.repeat.max, made.repeat.until) == (6, 6, None)
    assert (made.compare.by, made.compare.against, made.compare.margin) == ("platform", {"platform": "bare"}, 0.05)
    assert made.compare.metric is None
    assert (made.aa, made.limit_s, made.period_s, made.order.shuffle) == (True, 600.0, 0.1, True)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"platform": ["bare", {"docker": {"image": "my:tag", "memory": "2 GiB"}}, ["qemu", "docker"]]},
        {"platform": {"docker": {"cpus": [1, 2.5]}}, "workload": {"torch_train": {"batch": [16, 64], "lr": 0.1}}},
        {"workload": [{"command": {"argv": ["ls"], "env": {"A": "1"}}}, "null"]},
        {"workload": {"command": {"argv": [["ls"], ["du"]]}}},
        {"control": {"page_cache": ["cold", "warm"], "cpu": [{"online": [0]}, {"online": [0, 1]}]}},
        {"control": {"cpu": {"online": [[0], [0, 1]]}}, "compare": {"by": "control.cpu.online"}},
        {"repeat": {"min": 6, "max": 20, "until": "2%", "within": "140 s"}, "probes": []},
        {"repeat": 10, "order": {"shuffle": False, "seed": 3}, "aa": False, "limit": "1.5 h", "period": "7 ms"},
        {"platform": ["bare", "docker"], "exclude": {"platform": "docker"}, "about": "why?"},
        {"platform": [{"docker": {"cpus": 1}}, {"docker": {"cpus": 2}}]},
    ],
)
def test_a_study_written_as_plain_data_is_equal_when_it_is_read_again(keys: dict[str, Any]) -> None:
    made = study(**keys)

    text = json.dumps(made.as_plain(), allow_nan=False)
    again = Study.model_validate(json.loads(text))

    assert again == made
    assert hash(again) == hash(made)
    assert again.as_plain() == made.as_plain()


def test_a_study_cannot_be_changed_nor_through_the_data_it_was_made_from() -> None:
    keys: dict[str, Any] = {"study": "s", "platform": ["bare"], "workload": {"command": {"argv": ["ls"]}}}
    made = Study.model_validate(keys)
    keys["workload"]["command"]["argv"].append("-l")

    assert made.as_plain()["workload"] == [{"command": {"argv": ["ls"]}}]
    with pytest.raises(ValidationError):
        made.study = "other"  # type: ignore[misc]


def test_studies_that_say_something_else_are_not_equal() -> None:
    assert study() != study(aa=False)
    assert study(workload={"torch_train": {"batch": 16}}) != study(workload={"torch_train": {"batch": 64}})


@pytest.mark.parametrize(
    ("written", "least", "most", "until"),
    [
        (10, 10, 10, None),
        ({"min": 8}, 8, 8, None),
        ({"max": 8}, 8, 8, None),
        ({"until": "2%"}, 6, 20, 0.02),
        ({"min": 30, "until": "2%"}, 30, 30, 0.02),
        ({"min": 6, "max": 20, "until": 0.025}, 6, 20, 0.025),
        ({"min": 2, "max": 20, "within": "3 min"}, 2, 20, None),
    ],
)
def test_the_stop_rule(written: Any, least: int, most: int, until: float | None) -> None:
    rule = Repeat.model_validate(written)

    assert (rule.min, rule.max, rule.until) == (least, most, until)


def test_the_stop_rule_in_words() -> None:
    assert Repeat.model_validate(6).sentence() == "exactly 6 blocks."
    rule = Repeat.model_validate({"min": 6, "max": 20, "until": "2.5%", "within": "140 s"})
    assert rule.sentence() == (
        "at least 6 and at most 20 blocks, until every interval is within ±2.5 %; no block that would end after 140 s."
    )


@pytest.mark.parametrize(
    ("keys", "by", "against"),
    [
        ({}, "platform", {"platform": "bare"}),
        ({"compare": {"against": "docker"}}, "platform", {"platform": "docker"}),
        (
            {"platform": "bare", "workload": {"torch_train": {"batch": [16, 64]}}},
            "workload.batch",
            {"workload.batch": 16},
        ),
        ({"compare": {"by": "workload"}, "workload": ["null", "torch_train"]}, "workload", {"workload": "null"}),
        (
            {"control": {"page_cache": ["cold", "warm"]}, "compare": {"against": {"control.page_cache": "warm"}}},
            "control.page_cache.state",
            {"control.page_cache.state": "warm"},
        ),
        ({"platform": [["qemu", "docker"], "bare"]}, "platform", {"platform": "qemu+docker"}),
        ({"platform": "bare"}, "platform", {"platform": "bare"}),
    ],
)
def test_what_is_compared_with_what(keys: dict[str, Any], by: str, against: dict[str, Any]) -> None:
    made = study(**keys)

    assert (made.compare.by, made.compare.against) == (by, against)


def test_the_first_of_two_levels_with_one_name_is_named_whole() -> None:
    made = study(platform=[{"docker": {"cpus": 1}}, {"docker": {"cpus": 2}}, "bare"])

    assert made.compare.against == {"platform": {"docker": {"cpus": 1}}}


def test_the_factors_are_what_takes_several_values() -> None:
    made = study(workload={"torch_train": {"batch": [16, 64, 128], "epochs": [3]}})

    assert made.factors.varied() == {"platform": 2, "workload.batch": 3}


def test_a_field_may_have_a_validator_of_its_own_that_takes_other_forms() -> None:
    for online in ([0, 1], "0-1"):
        made = study(control={"cpu": {"online": online}})
        assert made.controls[0][0].samples[0].fields() == {"online": [0, 1]}


@pytest.mark.parametrize(
    "fields", [{"batch": "16"}, {"batch": True}, {"batch": 16.0}, {"phases": 1}, {"phases": "no"}, {"lr": "0.1"}]
)
def test_types_are_taken_at_their_word(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="must be"):
        study(workload={"torch_train": fields})


def test_a_time_without_a_unit_is_refused_in_code_too() -> None:
    for keys in ({"limit": 600}, {"limit": 600.0}, {"platform": {"docker": {"memory": 512}}}):
        with pytest.raises(ValidationError, match="unit"):
            study(**keys)
