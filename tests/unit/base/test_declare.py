"""The declarations for stores from before there were any: whole, and with names that say the same as they do."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from golden_files import FOLDER
from tare.analysis.directions import Direction, direction_of, kind_of
from tare.base import declare
from tare.base.declare import Declared, before, learn, learnt
from tare.base.text import has_unit, metric_name, quantity_text
from tare.base.units import Channel
from tare.records.model import Record

UNITS = {"s": "s", "j": "J", "w": "W", "bytes": "bytes", "share": "share", "hz": "Hz"}


def test_a_declared_unit_is_the_one_that_the_name_ends_in():
    for each in (*before().metrics.values(), *before().families):
        end = UNITS[each.name.rpartition("_")[2]] if has_unit(each.name) else "1/s" if "_per_" in each.name else "1"
        assert each.unit == end, each.name


def test_the_file_of_names_covers_all_that_is_declared():
    kept = [json.loads(line) for line in (FOLDER / "names.jsonl").read_text(encoding="utf-8").splitlines()]
    assert before().metrics.keys() <= {line.get("metric") for line in kept}
    assert before().parts.keys() <= {f"{kind}.{line.get('part')}" for line in kept for kind in ("platform", "workload")}
    parts_of_names = {line["setting"].rpartition(".")[2] for line in kept if "setting" in line}
    assert {name.rpartition(".")[2] for name in before().settings} <= parts_of_names


def test_only_the_declared_words_of_a_step_are_put_into_the_words_of_a_metric():
    for each in before().metrics.values():
        for step in ("step", *before().times):
            assert "{" not in metric_name(each.name, step), each.name


def test_a_family_has_one_field_behind_a_literal_prefix():
    for family in before().families:
        assert family.name.count("{") == 1 and family.name.index("{") > 1, family.name


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("tenant0_step_s", "tenant{n}_step_s"),
        ("own_tokenise_s", "own_{mark}_s"),
        ("energy_gpu0_j", "energy_{source}_j"),
        ("energy_gpu0_disagreement_share", "energy_{source}_disagreement_share"),
        ("energy_step_j", "energy_step_j"),  # a name of its own
        ("writeback_interval_sd_s", "writeback_{what}_s"),
        ("tenant_step_s", None),
        ("their_own_s", None),
    ],
)
def test_a_metric_of_a_record_is_known_by_its_name_and_then_by_its_family(name, family):
    found = before().metric(name)
    assert (found and found.name) == family


def test_a_metric_is_worded_by_what_a_step_is():
    declared = Declared.of_json(
        {
            "metrics": {"load_s": {"words": "{step} with its {time}", "unit": "s", "said": {"page": "a page"}}},
            "families": {}, "settings": {}, "parts": {}, "times": {"request": "latency", "page": "time"},
        }
    )  # fmt: skip
    words = {step: declared.words(declared.metrics["load_s"], step) for step in ("step", "request", "page", "epoch")}
    assert words == {
        "step": "step with its step", "request": "request with its latency", "page": "a page",
        "epoch": "step with its step",
    }  # fmt: skip


def test_the_declarations_are_read_when_they_are_first_asked_for():
    code = "import tare.analysis.labels, tare.base.declare as it; print(it.before.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "0\n"


def test_what_a_probe_declares_goes_before_what_is_known_of_the_name():
    sealed = {"name": "gpu.util", "unit": "share", "kind": "gauge", "group": "Accelerators", "rank": 5}
    assert before().channel(sealed) == Channel("gpu.util", "share", "gauge", group="Accelerators", rank=5)


@pytest.mark.parametrize("rank", [7, None, "first"])
def test_a_channel_of_anybody_is_read_as_far_as_it_makes_sense(rank):
    strange = {"name": "a.b", "unit": 3, "kind": ["?"], "group": "g" * 200, "words": {"no": "words"}, "rank": rank}
    found = Channel.of(strange)
    assert (found.kind, found.unit, len(found.group)) == ("gauge", "3", 80)
    assert found.rank == (7 if rank == 7 else 100)


def test_only_what_a_channel_declares_is_sealed():
    plain = Channel("a.b", "s", "counter", "about it")
    assert (plain.declared(), plain.drawn_unit) == ({}, "1")
    assert replace(plain, unit="bytes", group="G", rank=3).declared() == {"group": "G", "rank": 3}
    assert [replace(plain, unit=unit).drawn_unit for unit in ("J", "bytes", "1")] == ["W", "bytes/s", "1/s"]


@pytest.fixture
def nothing_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declare, "_learnt", {})


FAN = {"words": "fan", "unit": "Hz", "better": "lower"}


@pytest.mark.usefixtures("nothing_learnt")
def test_a_metric_that_a_record_declares_has_its_words_unit_and_direction():
    learn({"board.fan": FAN, "board.air": {"words": "air", "unit": "bytes/s", "better": "higher"}})
    assert (metric_name("board.fan"), quantity_text("board.fan", 1200.0)) == ("fan", "1.20 kHz")
    assert quantity_text("board.air", 2e6) == "2.00 MB/s"
    assert [direction_of(name) for name in ("board.fan", "board.air")] == [
        Direction(False, "name"),
        Direction(True, "name"),
    ]
    assert [kind_of(name) for name in ("board.fan", "board.air")] == ["amount", "speed"]


@pytest.mark.usefixtures("nothing_learnt")
def test_no_record_gives_other_words_to_a_metric_of_tare():
    learn({"step_s": {"words": "nothing to see", "unit": "bytes", "better": "higher"}})
    assert (metric_name("step_s"), quantity_text("step_s", 0.002)) == ("median step", "2.00 ms")
    assert not direction_of("step_s").rises


@pytest.mark.usefixtures("nothing_learnt")
def test_the_later_of_two_records_has_the_words_and_a_contradiction_leaves_a_bare_number():
    learn({"board.fan": FAN})
    learn({"board.fan": FAN | {"words": "fan of the board"}})
    assert (metric_name("board.fan"), quantity_text("board.fan", 1200.0)) == ("fan of the board", "1.20 kHz")
    learn({"board.fan": FAN | {"better": "higher"}})
    assert quantity_text("board.fan", 1200.0) == "1,200"
    assert not direction_of("board.fan").settled


@pytest.mark.usefixtures("nothing_learnt")
@pytest.mark.parametrize(
    "told",
    [
        ["board.fan"],
        {"board.fan": "fan"},
        {"Board Fan": FAN},
        {"board.fan\n": FAN},
        {"board.fan": FAN | {"words": "w" * 81}},
        {"board.fan": FAN | {"words": ""}},
        {"board.fan": FAN | {"unit": "m{0}s"}},
        {"board.fan": FAN | {"better": "faster"}},
        {"board.fan": FAN | {"better": ["lower"]}},
        {f"board.fan{number}": FAN for number in range(4001)},
    ],
)
def test_a_record_that_declares_what_is_no_metric_is_refused(told):
    with pytest.raises(ValueError, match="declare"):
        Record.from_json({"trial": "t", "attempt": 1, "study": "s", "block": 0, "position": 0, "twin": 0,
                          "settings": {}, "state": "ok", "declared": told})  # fmt: skip


@pytest.mark.usefixtures("nothing_learnt")
def test_records_together_declare_no_more_than_one_may():
    for number in range(3):
        learn({f"board{number}.fan{each}": FAN for each in range(2000)})
    assert learnt("board1.fan1999") and not learnt("board2.fan0")


@pytest.mark.usefixtures("nothing_learnt")
def test_words_that_would_steer_a_terminal_are_written_out():
    learn({"board.fan": FAN | {"words": "fan\x1b[2J {step} {0}"}})
    assert metric_name("board.fan") == "fan\\x1b[2J step {0}"


def test_a_record_without_declarations_has_the_keys_that_it_had():
    plain = Record("t", 1, "s", 0, 0, 0, {}, "ok")
    assert "declared" not in plain.as_json()
    assert Record.from_json(replace(plain, declared={"board.fan": FAN}).as_json()).declared == {"board.fan": FAN}
