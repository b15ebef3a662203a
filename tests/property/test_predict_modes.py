"""What holds of a prediction whatever was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.predictions import evaluate
from made_up_modes import CLOCKS, CORES, KINDS, networks, pipeline, write
from tare.analysis.choose.fit import fit
from tare.analysis.choose.law import Law, busy_share, coordinates, resources
from tare.analysis.choose.modes import Columns, ModeTable, Workload, read_modes
from tare.analysis.choose.predictions import Predictions, predict
from tare.analysis.choose.surface import surface

FEATURES = ("gpu_mhz", "cores")
MODES = np.array([(clock, cores) for clock in CLOCKS for cores in CORES], dtype=float)
KNOWN = resources(FEATURES, MODES)


def table_of(rows: list[tuple[str, int, int, float, float]], measured: set[int]) -> ModeTable:
    modes = np.array([row[1:3] for row in rows], dtype=float)
    time, energy = np.array([row[3:] for row in rows]).T
    chosen = sorted(measured)
    left = sorted(set(range(len(rows))) - measured)
    workload = Workload(rows[0][0], modes[chosen], time[chosen], energy[chosen], modes[left])
    return ModeTable(Path("made up"), Columns(FEATURES, "ms", "joules"), (workload,), ())


def only(table: ModeTable) -> Predictions:
    (answer,) = predict(table, count_next=0)
    return answer


some_modes = st.sets(st.integers(0, 39), min_size=4, max_size=10)


@settings(max_examples=15)
@given(kind=st.sampled_from(sorted(KINDS)), measured=some_modes, factor=st.floats(1e-3, 1e3))
def test_another_unit_of_time_gives_the_same_prediction_in_that_unit(
    kind: str, measured: set[int], factor: float
) -> None:
    rows = pipeline(kind, 0.03, 1)
    plain = only(table_of(rows, measured))
    scaled = only(table_of([(*row[:3], row[3] * factor, row[4]) for row in rows], measured))
    for one, other in zip(plain.predictions, scaled.predictions, strict=True):
        np.testing.assert_allclose(other.figures["time"].value, one.figures["time"].value * factor, rtol=0.02)
        np.testing.assert_allclose(other.figures["energy"].value, one.figures["energy"].value, rtol=0.02)


@settings(max_examples=30)
@given(kind=st.sampled_from(sorted(KINDS)), measured=some_modes)
def test_a_prediction_is_finite_positive_and_inside_its_interval(kind: str, measured: set[int]) -> None:
    for each in only(table_of(pipeline(kind, 0.05, 2), measured)).predictions:
        for estimate in each.figures.values():
            assert estimate.low is not None and estimate.high is not None
            assert 0 < estimate.low < estimate.value < estimate.high < np.inf
        figures = {name: estimate.value for name, estimate in each.figures.items()}
        np.testing.assert_allclose(figures["power"] * figures["time"] * 1e-3, figures["energy"], rtol=1e-9)


@settings(max_examples=5)
@given(order=st.permutations(range(40)))
def test_the_order_of_the_rows_does_not_matter(tmp_path_factory: object, order: list[int]) -> None:
    rows = pipeline("mixed", 0.03, 3)
    lines = [",".join(map(str, row)) for row in rows]
    folder = tmp_path_factory.mktemp("rows")  # type: ignore[attr-defined]
    results = []
    for name, chosen in (("plain", range(40)), ("shuffled", order)):
        path = folder / f"{name}.csv"
        path.write_text("\n".join(["model,gpu_mhz,cores,ms,joules", *(lines[place] for place in chosen)]))
        table = read_modes(path, Columns(FEATURES, "ms", "joules"))
        results.append((evaluate(table, ["tare", "linear"], (6,), 3), predict(table, measured=6)[0].measured))
    assert results[0] == results[1]


@settings(max_examples=10)
@given(
    device=st.floats(-1.2, 0.2), launch=st.floats(-1.2, 0.2), loader=st.floats(-0.8, 1.2), share=st.floats(-1.0, 1.0)
)
def test_the_constants_of_a_pipeline_are_recovered(device: float, launch: float, loader: float, share: float) -> None:
    """Where a stage binds somewhere, its time is found again from modes without noise."""
    law = Law(KNOWN)
    constants = np.array([each.mean for each in law.constants])
    constants[:3] = np.log(30.0) + np.array([device, launch, loader])
    constants[law_place(law, "time by gpu_mhz")] = share
    constants[law_place(law, "idle power")] = np.log(60.0)
    modes = coordinates(KNOWN, MODES)
    time, stage = law.log_time(constants, modes)
    power = law.log_power(constants, modes, busy_share(stage, time))
    fitted = fit(law, modes[None], np.stack([time, power])[None])
    found = np.einsum("s,sc->c", fitted.weights[0], fitted.constants[0])
    loader_stage = constants[2] + np.exp(constants[law_place(law, "time by cores")]) * modes[:, 1]
    launch_stage = np.full(len(modes), constants[1])
    for place, mine, others in (
        (0, stage, [launch_stage, loader_stage]),
        (1, launch_stage, [stage, loader_stage]),
        (2, loader_stage, [stage, launch_stage]),
    ):
        if (mine - np.maximum(*others)).max() > 0.4:  # it decides, clearly, in some mode
            assert abs(found[place] - constants[place]) < 0.25, law.constants[place].name
    predicted = surface(fitted, modes)
    assert np.abs(predicted.centre[0] - time).max() < 0.05
    assert np.abs(predicted.centre[1] - power).max() < 0.05


def test_intervals_hold_new_measurements_about_as_often_as_they_say() -> None:
    inside = []
    for kind in sorted(KINDS):
        rows, fresh = pipeline(kind, 0.04, 5), pipeline(kind, 0.04, 6)
        for seed in range(12):
            measured = set(np.random.default_rng(seed).permutation(40)[:8].tolist())
            answer = only(table_of(rows, measured))
            truth = {(float(row[1]), float(row[2])): row[3:] for row in fresh}
            for each in answer.predictions:
                time, energy = truth[each.mode]
                for figure, value in (("time", time), ("energy", energy)):
                    estimate = each.figures[figure]
                    assert estimate.low is not None and estimate.high is not None
                    inside.append(estimate.low <= value <= estimate.high)
    assert 0.85 <= np.mean(inside) <= 0.99


def law_place(law: Law, name: str) -> int:
    return [each.name for each in law.constants].index(name)


# Networks that nothing was learnt from


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2])
def test_networks_of_another_device_are_predicted_and_their_intervals_hold(tmp_path: Path, seed: int) -> None:
    """Priors and settings come from one H200; the device, its 169 modes and its networks are made up."""
    columns = Columns(("gpu_mhz", "cores"), "ms", "joules", None, "model")
    table = read_modes(write(tmp_path / "modes.csv", networks(seed)), columns)
    outcomes = evaluate(table, ["tare", "tare+transfer", "linear"], (8,), splits=8)
    by_method = {
        method: [each for each in outcomes if each.method == method] for method in ("tare", "tare+transfer", "linear")
    }
    for method in ("tare", "tare+transfer"):
        found = by_method[method]
        assert np.median([each.time_mape for each in found]) < 0.06  # of which 3.5 % are noise
        assert np.median([each.energy_mape for each in found]) < 0.065  # 6.2 % on the first device: over the aim of 6 %
        for figure in ("time", "power", "energy"):
            held = np.mean([each.held[figure] for each in found])
            assert 0.88 <= held <= 0.99, (method, figure, held)  # up to 96 % after scaling: too wide rather than narrow
    assert np.median([each.time_mape for each in by_method["linear"]]) > 0.12
    chosen = [answer.errors for answer in predict(table, measured=8, count_next=0) if answer.errors is not None]
    for figure in ("time", "energy"):  # the aim, with the modes that tare chooses
        assert np.median([errors[figure] for errors in chosen]) < 0.06


def test_the_expected_error_is_near_the_one_that_is_found(tmp_path: Path) -> None:
    rows = networks(3, count=4)
    few = {(420, 1), (1980, 13), (1200, 3), (680, 6), (1980, 2), (420, 9), (1590, 5), (940, 1)}
    known = [row if row[0] != "net3" or row[1:3] in few else (*row[:3], "", "") for row in rows]
    truth = {row[1:3]: row[3] for row in rows if row[0] == "net3"}
    columns = Columns(("gpu_mhz", "cores"), "ms", "joules", None, "model")
    (answer,) = predict(read_modes(write(tmp_path / "modes.csv", known), columns))
    off = np.mean([abs(each.figures["time"].value / truth[each.mode] - 1) for each in answer.predictions])
    assert answer.taught_by == ("net0", "net1", "net2")
    assert off / 2 < answer.expected["time"] < 2 * off
