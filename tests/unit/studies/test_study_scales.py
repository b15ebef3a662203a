"""A study in several sizes: what a scale changes, and what is said where it cannot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stand_in_parts import stand_ins
from tare.base.errors import StudyError
from tare.studies.load import at_every_scale, from_plain, loads
from tare.studies.model import Study

WHOLE = """study: sizes
platform: [bare, docker]
workload: [{torch_train: {batch: 16}}, "null"]
repeat: 6
compare: {margin: 5%}
"""


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with stand_ins():
        yield


def scaled(scales: str, scale: str | None = "smoke") -> Study:
    return loads(f"{WHOLE}scales:\n{scales}", "sizes.yaml", scale=scale)


def refused(scales: str, scale: str | None = "smoke") -> str:
    with pytest.raises(StudyError) as refusal:
        scaled(scales, scale)
    return str(refusal.value)


def test_a_key_of_a_scale_replaces_the_studys() -> None:
    study = scaled("  smoke: {repeat: 1, aa: false}\n")

    assert (study.scale, study.repeat.max, study.aa) == ("smoke", 1, False)


def test_a_dotted_key_sets_a_field_of_every_part_that_has_it() -> None:
    study = scaled("  smoke: {workload.batch: [4, 8], platform.cpus: 1}\n")

    assert study.as_plain()["workload"] == [{"torch_train": {"batch": [4, 8]}}, "null"]
    assert study.as_plain()["platform"] == ["bare", {"docker": {"cpus": 1}}]


def test_a_dotted_key_can_name_the_part() -> None:
    study = scaled("  smoke: {workload.torch_train.batch: 4}\n")

    assert study.as_plain()["workload"] == [{"torch_train": {"batch": 4}}, "null"]


def test_a_dotted_key_of_a_mapping_sets_one_entry() -> None:
    assert scaled("  smoke: {compare.margin: 10%}\n").compare.margin == 0.1


def test_without_a_name_the_study_is_the_whole_and_says_so() -> None:
    study = scaled("  smoke: {repeat: 1}\n", None)

    assert (study.scale, study.repeat.max) == ("full", 6)
    assert scaled("  smoke: {repeat: 1}\n", "full") == study


def test_what_is_stored_says_the_scale_and_makes_the_same_study_again() -> None:
    study = scaled("  smoke: {repeat: 1}\n")

    assert study.as_plain()["scale"] == "smoke"
    assert from_plain(study.as_plain()) == study


def test_a_misspelt_scale_is_told_with_the_near_one() -> None:
    assert refused("  smoke: {repeat: 1}\n", "smok") == (
        "sizes.yaml:6: no scale 'smok' here.\n  Did you mean 'smoke'?\n  Scales: smoke, full."
    )


def test_a_study_without_scales_refuses_one() -> None:
    with pytest.raises(StudyError, match=r"sizes\.yaml:1: this study has no scales"):
        loads(WHOLE, "sizes.yaml", scale="smoke")


def test_a_wrong_value_in_a_scale_is_told_at_its_own_line() -> None:
    said = refused("  smoke:\n    repeat: 1\n    workload.batch: many\n")

    assert said == "sizes.yaml:9: torch_train.batch must be a whole number, not 'many'."


def test_a_field_that_no_part_has_is_told_with_the_near_one() -> None:
    said = refused("  smoke: {workload.bach: 4}\n")

    assert said.startswith("sizes.yaml:7: 'bach' changes nothing: no workload here has such a field.")
    assert said.endswith("Did you mean 'batch'?")


@pytest.mark.parametrize(
    "scales, why",
    [
        ("  smoke: {study: other}\n", "sizes.yaml:7: a scale cannot change 'study'."),
        ("  full: {repeat: 1}\n", "sizes.yaml:7: the file itself is the scale 'full'"),
        ("  smoke: 3\n", "sizes.yaml:7: the scale 'smoke' must be a mapping"),
        ("  - smoke\n", "sizes.yaml:7: scales must be a mapping"),
        ("  smoke: {control.page_cache: cold}\n", "sizes.yaml:7: 'control.page_cache' changes nothing"),
        ("  smoke: {repeat.max: 3}\n", "sizes.yaml:7: 'repeat.max' changes nothing: 'repeat' is no mapping here."),
        ("  smoke: {rounds: 3}\n", "sizes.yaml:7: a study has no key 'rounds'."),
    ],
)
def test_what_a_scale_cannot_be_is_refused_with_its_line(scales: str, why: str) -> None:
    assert refused(scales).startswith(why)


def test_every_scale_can_be_had_at_once(tmp_path) -> None:
    file = tmp_path / "sizes.yaml"
    file.write_text(f"{WHOLE}scales: {{smoke: {{repeat: 1}}, small: {{repeat: 3}}}}\n")

    found = at_every_scale(file, trust=True)

    assert {scale: study.repeat.max for scale, study in found.items()} == {"smoke": 1, "small": 3, "full": 6}


def test_endings_are_verbs_with_their_options_and_nothing_else() -> None:
    assert loads(f"{WHOLE}ends_in: [energy, claims --paper s0]\n").ends_in == ("energy", "claims --paper s0")
    with pytest.raises(StudyError, match="ends_in must be a list of verbs"):
        loads(f"{WHOLE}ends_in: ['claims; rm -rf /']\n")
