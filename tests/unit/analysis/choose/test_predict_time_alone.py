"""Prediction where no power sensor was there: time alone is enough, and nothing is said of energy."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.predictions import command as benchmark
from benchmarks.predictions import evaluate, evaluate_designs, methods_of, outcomes_text
from made_up_modes import CORES, KINDS, pipeline, write
from tare.analysis.choose.designs import first_modes
from tare.analysis.choose.fit import fit
from tare.analysis.choose.law import coordinates
from tare.analysis.choose.modes import TIME_ALONE, Columns, ModeTable, read_modes
from tare.analysis.choose.predictions import predict, predictions_answer
from tare.analysis.choose.surface import joint_covariance
from tare.cli.choose import predict as command
from tare.report.sections import answer_text

HEADER = "model,gpu_mhz,cores,ms"
FEATURES = ("gpu_mhz", "cores")
FEW = (1, 4)  # numbers of cores: the paper's search over all subsets is long with more modes
TIMES = [(mhz, cores, 9000 / mhz + 20 / cores, 2 + mhz / 400) for mhz in (500, 700, 900) for cores in (1, 2, 4)]


def timed(path: Path, *kinds: str, cores: tuple[int, ...] = CORES) -> Path:
    """Pipelines of these kinds, their energy left out."""
    rows = [row for place, kind in enumerate(kinds) for row in pipeline(kind, 0.01, place)]
    return write(path, [row[:4] for row in rows if row[2] in cores], HEADER)


def table_of(folder: Path, *kinds: str, cores: tuple[int, ...] = CORES) -> ModeTable:
    return read_modes(timed(folder / "modes.csv", *kinds, cores=cores), Columns(FEATURES, "ms", group="model"))


def said(path: Path, *more: str, by: click.Command = command) -> str:
    words = [str(path), "--features", "gpu_mhz,cores", "--columns", "time=ms", "--group", "model", *more]
    done = CliRunner().invoke(by, words)
    assert done.exception is None, done.output
    return done.stdout


# What is found by its usual name


@pytest.mark.parametrize(
    ("header", "energy", "power"),
    [
        ("gpu_mhz,cores,ms,joules", "joules", None),
        ("gpu_mhz,cores,ms,energy_step_j", "energy_step_j", None),  # of what the time is, its name does not say
        ("gpu_mhz,cores,step_s,energy_step_j", "energy_step_j", None),
        ("gpu_mhz,cores,epoch_s,energy_epoch_j", "energy_epoch_j", None),
        ("gpu_mhz,cores,epoch_s,power_mean_w", None, "power_mean_w"),
        ("gpu_mhz,cores,epoch_s,energy_step_j", None, None),  # an epoch's time and a step's energy make no power
        ("gpu_mhz,cores,ms,celsius", None, None),
    ],
)
def test_an_energy_that_is_not_named_is_found_by_its_usual_name(
    tmp_path: Path, header: str, energy: str | None, power: str | None
) -> None:
    path = write(tmp_path / "modes.csv", TIMES, header)
    columns = read_modes(path, Columns(FEATURES, header.split(",")[2])).columns
    assert (columns.energy, columns.power) == (energy, power)


def test_a_feature_is_not_taken_for_the_power(tmp_path: Path) -> None:
    path = write(tmp_path / "modes.csv", TIMES, "gpu_mhz,power_w,ms,celsius")
    assert not read_modes(path, Columns(("gpu_mhz", "power_w"), "ms")).columns.powered


def test_an_energy_that_is_found_gives_what_it_gives_when_named(tmp_path: Path) -> None:
    path = write(tmp_path / "modes.csv", [*TIMES, (800, 2, "", "")], "gpu_mhz,cores,ms,joules")
    named, found = (predict(read_modes(path, Columns(FEATURES, "ms", name))) for name in ("joules", None))
    assert named == found


# What is predicted


def test_modes_without_energy_have_times_alone(tmp_path: Path) -> None:
    table = table_of(tmp_path, "compute")
    assert table.columns.names == {"time": "ms"}
    assert table.workloads[0].energy is None
    assert table.notes == (TIME_ALONE,)
    for answer in predict(table, ("tare", "linear"), measured=8):
        assert answer.errors is not None and answer.errors.keys() == {"time"}
        assert all(each.figures.keys() == {"time"} for each in answer.predictions)
        assert all(each.measured is not None and each.measured.keys() == {"time"} for each in answer.predictions)


def test_times_are_near_inside_their_interval_and_better_than_a_line(tmp_path: Path) -> None:
    table = table_of(tmp_path, *KINDS)
    outcomes = evaluate(table, ["tare", "linear"], (8,), splits=15)
    ours, paper = ([each.time_mape for each in outcomes if each.method == name] for name in ("tare", "linear"))
    assert len(ours) == len(paper) == len(KINDS)
    assert max(ours) < 0.15
    assert np.mean(ours) < np.mean(paper)
    inside = [
        time.low < each.measured["time"] < time.high  # type: ignore[operator]
        for answer in predict(table, measured=8, count_next=0)
        for each in answer.predictions
        if each.measured is not None
        for time in [each.figures["time"]]
    ]
    assert len(inside) == 32 * len(KINDS)
    assert np.mean(inside) > 0.7


def test_other_workloads_teach_times_as_well(tmp_path: Path) -> None:
    rows = [row[:4] for kind in ("compute", "fetch", "mixed") for row in pipeline(kind, 0.01, 4)]
    known = {(345, 1), (1980, 8), (1065, 2), (525, 4)}
    few = [row[:4] if row[1:3] in known else (*row[:3], "") for row in pipeline("launch", 0.01, 5)]
    path = write(tmp_path / "modes.csv", [*rows, *few], HEADER)
    (answer,) = predict(read_modes(path, Columns(FEATURES, "ms", group="model")))
    assert (answer.group, answer.method) == ("launch", "tare+transfer")
    assert len(answer.predictions) == 36
    assert all(0 < each.figures["time"].value < np.inf for each in answer.predictions)


def test_the_next_modes_are_those_that_remove_most_doubt_about_time(tmp_path: Path) -> None:
    table = table_of(tmp_path, "mixed")
    (workload,) = table.workloads
    known = workload.take(sorted(first_modes(table.law, workload.modes, 4)))
    resources = table.law.resources
    fitted = fit(table.law, coordinates(resources, known.modes)[None], known.logs[None])
    covariance, noise = joint_covariance(fitted, coordinates(resources, workload.modes))
    assert (len(covariance), len(noise)) == (1, 1)

    (answer,) = predict(table, measured=4, count_next=2)
    assert answer.measured == tuple(map(tuple, known.modes.tolist()))
    places = [place for place, mode in enumerate(workload.modes.tolist()) if tuple(mode) not in answer.measured]
    left = covariance[0][np.ix_(places, places)]
    removed = (left**2).sum(axis=0) / (np.diagonal(left) + noise[0])
    assert answer.next[0].mode == tuple(workload.modes[places[int(np.argmax(removed))]].tolist())
    assert len({each.mode for each in answer.next}) == 2


# How good it is


def test_an_evaluation_tells_the_error_of_time_alone(tmp_path: Path) -> None:
    table = table_of(tmp_path, "compute", "fetch", cores=FEW)
    methods = methods_of(table)
    assert methods == ["tare", "linear", "tare+transfer"]  # linear-own differs in its energy only
    outcomes = [*evaluate(table, [*methods, "linear-own"], (4,), splits=2), *evaluate_designs(table, (4,))]
    assert {each.design for each in outcomes} == {"random", "ours", "paper"}
    assert all(each.time_mape > 0 for each in outcomes)
    assert all(each.power_mape is None and each.energy_mape is None for each in outcomes)


# What is said


def test_texts_have_no_column_for_what_was_not_measured(tmp_path: Path) -> None:
    table = table_of(tmp_path, "compute", "fetch", cores=FEW)
    told = answer_text(predictions_answer(table, predict(table, ("tare", "linear"), measured=6)), 200)
    assert "compute, by tare from 6 measured modes" in told
    assert "Measure next: gpu_mhz" in told and "off by, on average: time" in told
    outcomes = outcomes_text(table, evaluate(table, ["tare"], (4,), 2), evaluate_designs(table, (4,)), 200)
    for text in (told, outcomes):
        assert f"note: {TIME_ALONE}" in text
        assert "power" not in text.replace(TIME_ALONE, "") and "energy" not in text.replace(TIME_ALONE, "")


def test_json_has_neither_power_nor_energy_and_says_why(tmp_path: Path) -> None:
    path = timed(tmp_path / "modes.csv", "compute")
    told = json.loads(said(path, "--measured", "6", "--method", "all", "--json"))
    assert told["units"] == {"time": "ms"}
    assert told["notes"] == [TIME_ALONE]
    for answer in told["predictions"]:
        assert set(answer["errors"]) == {"time"}
        assert all(set(mode) == {"mode", "time", "measured"} for mode in answer["modes"])
    assert len(told["predictions"][0]["next"]) == 3


def test_json_of_an_evaluation_has_the_error_of_time_alone(tmp_path: Path) -> None:
    path = timed(tmp_path / "modes.csv", "compute", "fetch", cores=FEW)
    told = json.loads(said(path, "--splits", "2", "--json", by=benchmark))
    assert {row["method"] for row in told["results"]} == {"tare", "linear", "tare+transfer"}
    for row in [*told["results"], *told["designs"]]:
        assert "time_mape" in row and not {"power_mape", "energy_mape"} & row.keys()
