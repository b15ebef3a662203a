"""`tare choose predict` as the studies end in it, on stores of machines with and without a power sensor."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from metered import Place, kept, trials
from tare.cli import tare as verbs
from tare.cli.studies import built_in
from tare.studies.load import at_every_scale

QUOTAS = (0.5, 0.75, 1.0, 1.5, 2.0)
PLACES = [
    Place({"platform": "bare", "platform.quota": quota, "workload.model": model}, step_s=size * (0.02 + 0.05 / quota))
    for model, size in (("lenet5", 1.0), ("mobilenet_v3_large", 6.0))
    for quota in QUOTAS
]


def store(root: Path, *, sensor: bool) -> Path:
    """What s3-predict leaves at its small scale."""
    made = [
        replace(each, metrics={**(each.metrics if sensor else {}), "step_mean_s": each.metrics["step_s"]})
        for each in trials(*PLACES, n=6)
    ]
    return kept(root, made, {"study": "s3-predict"})


def ending(scale: str) -> list[str]:
    """The words after `choose predict` with which the study ends at this scale."""
    group, verb, *words = at_every_scale(built_in()["s3-predict"], trust=True)[scale].ends_in[0].split()
    assert (group, verb) == ("choose", "predict")
    return words


def tare(*words: str) -> str:
    done = CliRunner().invoke(verbs, list(words), standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_a_study_of_times_alone_ends_in_predicted_times(tmp_path: Path, scale: str) -> None:
    words = ["choose", "predict", str(store(tmp_path / "store", sensor=False)), *ending(scale)]
    told = json.loads(tare(*words, "--json"))["predictions"]

    assert [each["group"] for each in told] == ["lenet5", "mobilenet_v3_large"]
    for each in told:
        (mode,) = each["modes"]  # five were measured, four are taken as known
        assert mode["time"]["low"] < mode["time"]["value"] < mode["time"]["high"]
        assert set(each["errors"]) == {"time"}
    said = " ".join(tare(*words).split())
    assert "note: no energy was measured, so only times are predicted" in said


def test_the_same_words_take_the_energy_where_there_is_one(tmp_path: Path) -> None:
    words = ["choose", "predict", str(store(tmp_path / "store", sensor=True)), *ending("small"), "--json"]
    told, named = json.loads(tare(*words)), json.loads(tare(*words, "--energy", "energy_step_j"))

    assert told["units"] == {"time": "step_mean_s", "power": "power_w", "energy": "energy_step_j"}
    assert told == named
    assert not any("no energy" in note for note in told["notes"])


def test_no_measured_time_is_given_up_for_an_energy_that_nobody_asked_for(tmp_path: Path) -> None:
    made = [
        replace(each, metrics={"step_mean_s": each.metrics["step_s"], **(each.metrics if each.block else {})})
        for each in trials(*PLACES, n=6)
    ]
    folder = kept(tmp_path / "store", made, {"study": "s3-predict"})

    told = json.loads(tare("choose", "predict", str(folder), *ending("small"), "--json"))

    assert set(told["units"]) == {"time"}
    assert any("some trials have no energy" in note for note in told["notes"])


def test_help_says_that_time_alone_is_enough() -> None:
    assert "Where no energy was measured, time alone is predicted" in " ".join(
        tare("choose", "predict", "--help").split()
    )
