"""Prediction of modes: what it takes, what it gives, what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.predictions import Outcome, evaluate, outcomes_text
from benchmarks.predictions import command as benchmark
from made_up_modes import CLOCKS, CORES, every_kind, pipeline, write
from some_records import MARKS, draft
from tare.analysis.choose import learning, predictions
from tare.analysis.choose.designs import adaptive_choice, first_modes
from tare.analysis.choose.law import Law, resources
from tare.analysis.choose.modes import Columns, ModeTable, read_modes
from tare.analysis.choose.predictions import predict, predictions_answer
from tare.analysis.choose.regression import papers_choice, regress
from tare.base.errors import StudyError
from tare.cli.choose import predict as command
from tare.records.spool import SpoolWriter
from tare.records.store import Store
from tare.report.sections import answer_text

H200 = Path(__file__).parents[3] / "recordings/h200/modes.csv"
COLUMNS = Columns(("gpu_mhz", "cores"), "ms", "joules", None, "model")


def h200(name: str = H200.name) -> ModeTable:
    return read_modes(H200.with_name(name), COLUMNS)


def errors_of(outcomes: list[Outcome], method: str, k: int) -> dict[str | None, Outcome]:
    return {each.group: each for each in outcomes if each.method == method and each.k == k}


# What a feature is


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("gpu_mhz", "device clock"),
        ("graphics_clock", "device clock"),
        ("mem_mhz", "memory clock"),
        ("emc_khz", "memory clock"),
        ("cpu_ghz", "host clock"),
        ("cores", "parallelism"),
        ("workload.workers", "parallelism"),
        ("batch", "other"),
    ],
)
def test_a_feature_is_told_by_its_name(name: str, role: str) -> None:
    assert resources([name], np.array([[1.0], [2.0]]))[0].role == role


def test_no_workers_at_all_is_not_a_scarce_worker() -> None:
    assert resources(["workers"], np.array([[0.0], [4.0]]))[0].role == "other"


# On the H200


def test_eight_modes_of_an_h200_predict_the_others_far_better_than_the_linear_method() -> None:
    outcomes = evaluate(h200(), ["tare", "linear", "linear-own"], (4, 8), splits=20)
    for k in (4, 8):
        ours, paper, kinder = (errors_of(outcomes, method, k) for method in ("tare", "linear", "linear-own"))
        for group, outcome in ours.items():
            assert outcome.time_mape < paper[group].time_mape
            assert outcome.energy_mape < min(paper[group].energy_mape, kinder[group].energy_mape)
    at_eight = errors_of(outcomes, "tare", 8).values()
    assert np.median([each.time_mape for each in at_eight]) < 0.08
    assert np.median([each.energy_mape for each in at_eight]) < 0.07
    assert np.median([each.power_mape for each in at_eight]) < 0.05


def test_intervals_hold_the_held_out_modes_of_an_h200_about_as_often_as_they_say() -> None:
    answers = predict(h200(), measured=8)
    inside = [
        {name: each.figures[name].low <= each.measured[name] <= each.figures[name].high for name in each.figures}  # type: ignore[operator]
        for answer in answers
        for each in answer.predictions
        if each.measured is not None
    ]
    assert len(inside) == 6 * 32
    for figure in ("time", "power", "energy"):
        assert 0.8 <= np.mean([each[figure] for each in inside]) <= 0.99


@pytest.mark.parametrize("name", ["modes.csv", "modes-batch-32.csv"])
def test_with_the_eight_modes_that_we_choose_time_and_energy_are_within_6_percent(name: str) -> None:
    """The aim; eight modes at random miss it on the first table, and are worse on both."""
    table = h200(name)
    at_random = evaluate(table, ["tare"], (8,), splits=20)
    chosen = [answer.errors for answer in predict(table, measured=8, count_next=0) if answer.errors is not None]
    for figure in ("time", "energy"):
        by_chance = np.mean([getattr(each, f"{figure}_mape") for each in at_random])
        assert np.mean([errors[figure] for errors in chosen]) < by_chance
        assert np.median([errors[figure] for errors in chosen]) < 0.06


# On pipelines that are known


@pytest.mark.parametrize("noise", [0.01, 0.04])
def test_pipelines_of_every_kind_are_predicted_about_as_well_as_their_noise_allows(
    tmp_path: Path, noise: float
) -> None:
    outcomes = evaluate(read_modes(every_kind(tmp_path / "modes.csv", noise), COLUMNS), ["tare"], (8,), splits=15)
    assert {each.group for each in outcomes} == {"compute", "fetch", "launch", "mixed"}
    for each in outcomes:
        assert each.time_mape < 0.05 + noise
        assert each.energy_mape < 0.05 + noise


def test_measured_modes_that_all_have_one_clock_still_give_sane_predictions(tmp_path: Path) -> None:
    rows = [row if row[1] == 1980 else (*row[:3], "", "") for row in pipeline("compute", 0.01, 3)]
    (answer,) = predict(read_modes(write(tmp_path / "modes.csv", rows), COLUMNS))
    assert len(answer.predictions) == 36
    slowest = next(each for each in answer.predictions if each.mode == (345.0, 8.0))
    time = slowest.figures["time"]
    assert 20 < time.value < 200  # 98 in truth, and no mode says so: the prior does, with a wide interval
    assert time.high is not None and time.high > 1.5 * time.value


def test_other_workloads_of_the_device_teach_the_next_one(tmp_path: Path) -> None:
    rows = [row for kind in ("compute", "fetch", "mixed") for row in pipeline(kind, 0.01, 4)]
    few = [row if (row[1], row[2]) in {(345, 1), (1980, 8), (1065, 2), (525, 4)} else (*row[:3], "", "")
           for row in pipeline("launch", 0.01, 5)]  # fmt: skip
    answers = predict(read_modes(write(tmp_path / "modes.csv", [*rows, *few]), COLUMNS))
    assert [(each.group, each.method) for each in answers] == [("launch", "tare+transfer")]
    assert set(answers[0].taught_by) == {"compute", "fetch", "mixed"}


def test_four_clocks_and_cores_of_a_board_are_fitted(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    rows = []
    for _ in range(40):
        cpu, cores, gpu, emc = (
            rng.choice([1036, 1200, 2100, 2265]), rng.choice([2, 4, 8]), rng.choice([420, 670, 900, 1377]),
            rng.choice([1066, 1333, 1600, 2133]),
        )  # fmt: skip
        time = max(200 * 1377 / gpu + 80 * 2133 / emc, 300 / cores * 2265 / cpu) * np.exp(rng.normal(0, 0.02))
        watts = 7 + 15 * (gpu / 1377) ** 2.5 + 2 * cores / 8 * cpu / 2265 + 2 * emc / 2133
        rows.append((cpu, cores, gpu, emc, time, watts * time))
    header = "cpu_mhz,cores,gpu_mhz,emc_mhz,s,j"
    columns = Columns(("cpu_mhz", "cores", "gpu_mhz", "emc_mhz"), "s", "j")
    outcomes = evaluate(read_modes(write(tmp_path / "m.csv", rows, header), columns), ["tare", "linear"], (12,), 15)
    ours, paper = (errors_of(outcomes, method, 12)[None] for method in ("tare", "linear"))
    assert ours.time_mape < 0.10 and ours.energy_mape < 0.12
    assert ours.time_mape < paper.time_mape


# The paper's method


def test_the_papers_five_unknowns_on_four_modes_are_said_to_be_of_rank_four() -> None:
    e, f, i, j = (8, 2100, 900, 1600), (2, 2100, 900, 1600), (8, 2265, 1377, 1333), (8, 2265, 1377, 1600)
    found = regress(np.array([e, f, i, j], dtype=float), np.array([300.0, 340.0, 280.0, 260.0]))
    assert (int(found.rank), found.unknowns) == (4, 5)
    assert found.at(np.array([e, j], dtype=float)) == pytest.approx([300.0, 260.0])


def test_a_linear_world_is_found_exactly_by_the_linear_method() -> None:
    modes = np.array([(clock, cores) for clock in CLOCKS for cores in CORES], dtype=float)
    times = 50 - 0.01 * modes[:, 0] - 2 * modes[:, 1]
    found = regress(modes[::5], times[::5])
    assert found.at(modes) == pytest.approx(times)
    (chosen, _) = papers_choice(modes, [times, times**2])
    assert len(set(chosen.tolist())) == 4


# Choosing modes


def test_the_first_modes_to_measure_are_spread_over_clocks_and_cores() -> None:
    table = h200()
    law = Law(resources(table.columns.features, table.modes))
    chosen = table.workloads[0].modes[first_modes(law, table.workloads[0].modes, 4)]
    assert len({clock for clock, _ in chosen.tolist()}) >= 2
    assert len({cores for _, cores in chosen.tolist()}) >= 2


def test_a_mode_is_never_chosen_twice() -> None:
    table = h200()
    law = Law(resources(table.columns.features, table.modes))
    chosen = adaptive_choice(law, table.workloads[2], 10)
    assert len(set(chosen)) == 10


# Splits


def test_the_same_seed_gives_the_same_figures_and_another_does_not() -> None:
    once, again, other = (evaluate(h200(), ["tare"], (6,), 5, seed) for seed in (1, 1, 2))
    assert once == again
    assert once != other


def test_counts_that_leave_nothing_to_predict_are_left_out(tmp_path: Path) -> None:
    table = read_modes(write(tmp_path / "modes.csv", pipeline("mixed", 0.02, 1)[:7]), COLUMNS)
    done = CliRunner().invoke(benchmark, [*words(table.source), "--splits", "3", "--json"])
    assert {each["k"] for each in json.loads(done.stdout)["results"]} == {4, 6}


# Bad tables


def words(path: Path) -> list[str]:
    return [str(path), "--features", "gpu_mhz,cores", "--columns", "time=ms,energy=joules"]


GOOD = [(mhz, cores, 9000 / mhz + 20 / cores, 2 + mhz / 400) for mhz in (500, 700, 900) for cores in (1, 2, 4)]
HEADER = "gpu_mhz,cores,ms,joules"


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([*GOOD, (900, 8, "fast", 3)], "row 10, column 'ms': 'fast' is not a number"),
        ([*GOOD, ("high", 8, 3, 3)], "row 10, column 'gpu_mhz': 'high' is not a number"),
        ([*GOOD, ("", 8, 3, 3)], "row 10, column 'gpu_mhz': it is empty"),
        ([*GOOD, (900, 8, "nan", 3)], "'nan' is not a finite number"),
        ([*GOOD, (900, 8, 3, -3)], "joules is -3"),
        ([*GOOD, (900, 8, 0, 3)], "row 10, column 'ms': 0 cannot be"),
        (GOOD[:1], "one mode only"),
        ([GOOD[0], GOOD[0]], "one mode only"),
        ([GOOD[0], (*GOOD[1][:2], "", "")], "one mode only was measured"),
        ([(*row[:2], 5, row[3]) for row in GOOD], "ms is 5 in every mode"),
        ([(row[0], row[0] / 100, *row[2:]) for row in GOOD], "gpu_mhz and cores are collinear"),
    ],
)
def test_a_bad_table_gets_a_sentence(tmp_path: Path, rows: list[tuple[object, ...]], sentence: str) -> None:
    path = write(tmp_path / "modes.csv", rows, HEADER)
    done = CliRunner().invoke(command, words(path))
    assert isinstance(done.exception, StudyError), done.output
    assert sentence in str(done.exception)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--measured", "9"], "9 modes were measured, so 2 to 8"),
        (["--evaluate"], "python -m benchmarks.predictions SOURCE"),
        (["--evaluate", "--splits", "5", "--seed", "3"], "python -m benchmarks.predictions SOURCE"),
        (["--at", "gpu_mhz=800"], "it does not say cores"),
        (["--at", "gpu_mhz=800,corse=2"], "Did you mean 'cores'?"),
        (["--at", "gpu_mhz=0,cores=2"], "must be more than zero"),
        (["--at", "gpu_mhz=fast,cores=2"], "not a finite number"),
        (["--columns", "power=joules"], "'joules' is named twice"),
        (["--group", "cores"], "'cores' is named twice"),
        ([], "every mode of it is measured"),
    ],
)
def test_what_cannot_be_asked_gets_a_sentence(tmp_path: Path, more: list[str], sentence: str) -> None:
    done = CliRunner().invoke(command, [*words(write(tmp_path / "modes.csv", GOOD, HEADER)), *more])
    assert isinstance(done.exception, StudyError), done.output
    assert sentence in str(done.exception)


def test_a_benchmark_refuses_a_count_that_leaves_nothing_to_predict(tmp_path: Path) -> None:
    done = CliRunner().invoke(benchmark, [*words(write(tmp_path / "modes.csv", GOOD, HEADER)), "--measured", "40"])
    assert isinstance(done.exception, StudyError), done.output
    assert "9 modes are measured at most" in str(done.exception)


def test_a_column_that_is_not_there_gets_the_nearest_one(tmp_path: Path) -> None:
    path = write(tmp_path / "modes.csv", GOOD, HEADER)
    with pytest.raises(StudyError, match="Did you mean 'joules'"):
        read_modes(path, Columns(("gpu_mhz", "cores"), "ms", "joule"))


def test_trials_of_one_mode_become_their_median_and_that_is_said(tmp_path: Path) -> None:
    rows = [*GOOD, *((*GOOD[0][:2], GOOD[0][2] * factor, GOOD[0][3]) for factor in (1.01, 50.0))]
    table = read_modes(write(tmp_path / "modes.csv", rows, HEADER), Columns(("gpu_mhz", "cores"), "ms", "joules"))
    assert table.workloads[0].time[0] == pytest.approx(GOOD[0][2] * 1.01)
    assert "modes measured more than once: 1;" in table.notes[0]
    assert "differ up to 50.0-fold" in table.notes[1] and "--group" in table.notes[1]


def test_a_feature_that_never_changes_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    rows = [(*row[:2], 7, *row[2:]) for row in GOOD]
    path = write(tmp_path / "modes.csv", rows, "gpu_mhz,cores,batch,ms,joules")
    table = read_modes(path, Columns(("gpu_mhz", "cores", "batch"), "ms", "joules"))
    assert table.columns.features == ("gpu_mhz", "cores")
    assert "batch is 7 in every row" in table.notes[0]


def test_power_stands_in_for_energy_and_units_are_those_of_the_columns(tmp_path: Path) -> None:
    watts = [(*row[:3], row[3] / row[2] * 1000) for row in GOOD]  # joules a millisecond, in watts
    path = write(tmp_path / "modes.csv", [*watts, (700, 8, "", "")], "gpu_mhz,cores,ms,watts")
    (by_power,) = predict(read_modes(path, Columns(("gpu_mhz", "cores"), "ms", None, "watts")))
    other = write(tmp_path / "other.csv", [*GOOD, (700, 8, "", "")], HEADER)
    (by_energy,) = predict(read_modes(other, Columns(("gpu_mhz", "cores"), "ms", "joules", "power_mw")))
    one, two = by_power.predictions[0].figures, by_energy.predictions[0].figures
    assert one["energy"].value == pytest.approx(two["energy"].value)
    assert one["power"].value == pytest.approx(two["power"].value / 1000)


# What is said


def test_json_of_an_evaluation_has_the_promised_shape(tmp_path: Path) -> None:
    rows = [row for kind in ("compute", "fetch") for row in pipeline(kind, 0.03, 1) if row[2] in (1, 4)]
    path = write(tmp_path / "modes.csv", rows)
    done = CliRunner().invoke(benchmark, [*words(path), "--group", "model", "--splits", "2", "--json"])
    data = json.loads(done.stdout)
    results = data["results"]
    assert {row["method"] for row in results} == {"tare", "linear", "linear-own", "tare+transfer"}
    assert {"group", "k", "method", "splits", "time_mape", "energy_mape", "power_mape"} <= set(results[0])
    asked = {(row["method"], row["k"]) for row in results}
    assert {(method, k) for method in ("tare", "linear") for k in (4, 6, 8, 12)} <= asked
    assert all(
        row["rank"] <= row["unknowns"] == 3 and row["condition"] > 1 for row in results if row["method"] == "linear"
    )
    assert {row["group"] for row in results} == {"compute", "fetch"}
    assert {row["design"] for row in data["designs"]} == {"ours", "paper"}


def test_json_of_predictions_has_an_interval_for_each_figure(tmp_path: Path) -> None:
    path = write(tmp_path / "modes.csv", [*GOOD, (800, 2, "", "")], HEADER)
    done = CliRunner().invoke(command, [*words(path), "--json", "--method", "all"])
    ours, paper = json.loads(done.stdout)["predictions"]
    (mode,) = ours["modes"]
    assert mode["mode"] == {"gpu_mhz": 800.0, "cores": 2.0}
    for figure in ("time", "power", "energy"):
        assert mode[figure]["low"] < mode[figure]["value"] < mode[figure]["high"]
    assert set(paper["modes"][0]["time"]) == {"value"}  # the paper's method says nothing of how sure it is
    assert paper["rank"] == 3


def test_texts_say_method_interval_error_and_what_to_measure_next() -> None:
    table = h200()
    text = answer_text(predictions_answer(table, predict(table, ("tare", "linear"), measured=6)), 100)
    for part in (
        "vgg11, by tare from 6 measured modes", "90 % interval", "Measure next: gpu_mhz",
        "Solved by least squares by singular values", "Rank 3 of 3", "off by",
    ):  # fmt: skip
        assert part in text
    outcomes = evaluate(table, ["tare", "linear"], (4,), splits=2)
    assert "medians over 2 random splits" in outcomes_text(table, outcomes, [], 100)


def test_a_store_is_read_as_a_table_is_and_trials_of_a_mode_are_pooled(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", {"study": "s"}, "study: s\n") as store:
        for mhz, cores, time, joules in GOOD:
            for repeat in range(2):
                trial = f"{mhz:04}{cores:02}{repeat:02}"
                settings = {"control.gpu_clocks.gpu_mhz": mhz, "control.cpu.cores": cores}
                begun = draft(trial, settings=settings)
                writer = store.begin(begun)
                with SpoolWriter(writer.spool):
                    pass
                figures = {"step_s": time, "step_j": joules}
                writer.seal(replace(begun, state="ok", metrics=figures, end_ns=300), MARKS, "", "")
    table = read_modes(tmp_path / "store", Columns(("gpu_mhz", "cores"), "step_s", "step_j"))
    assert len(table.workloads[0].modes) == len(GOOD)
    assert "modes measured more than once: 9;" in table.notes[0]
    (answer,) = predict(table, at=[{"gpu_mhz": 800.0, "cores": 2.0}])
    assert answer.predictions[0].figures["time"].value == pytest.approx(9000 / 800 + 10, rel=0.2)


def test_of_a_table_that_is_finer_than_a_fit_can_use_the_modes_that_were_chosen_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (learning, predictions):
        monkeypatch.setattr(module, "MOST_FITTED", 5)
    path = write(tmp_path / "modes.csv", GOOD, "gpu_mhz,cores,ms,joules")
    table = read_modes(path, Columns(("gpu_mhz", "cores"), "ms", "joules"))

    (answer,) = predict(table, measured=3, count_next=0)

    evenly = {tuple(map(float, GOOD[place][:2])) for place in (0, 2, 4, 6, 8)}
    assert set(answer.measured) <= evenly
    with pytest.raises(StudyError, match="2 to 5 of them"):
        predict(table, measured=6)
