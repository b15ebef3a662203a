"""The figures that need a store of their own kind: each has the right numbers, and is absent where it has none."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import some_weighings as some
from figure_stores import drawn, evidence_of, figures_of, mode_store, parts_figures, phased_store, traced_store
from hostile import PAYLOADS
from metered import BARE, DOCKER, idle_trials, kept, trials
from some_fleets import Board, boards, fleet_store
from some_records import MEMORY
from tare.analysis.resources.modes import front_sections, power_sections, predicted_sections
from tare.kernel.sections import traced_figures
from tare.papers.pages.claims import claims_figures
from tare.records.store import Store
from tare.report.figure import Figure, as_file, compiled, safe_json

MAKERS = {"phased": phased_store, "modes": mode_store, "traced": traced_store}


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Figure]]:
    """Every figure of each kind of store."""
    with TemporaryDirectory(dir=MEMORY) as folder:
        return {name: figures_of(make(Path(folder, name))) for name, make in MAKERS.items()}


def values(figure: Figure, place: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = figure.chart["layer"][place]["data"]["values"]
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_the_library_takes_every_chart_of_a_store_and_draws_something(made: Any, name: str) -> None:
    for figure in made[name].values():
        svg = as_file(figure, "svg").decode()
        assert svg.count("<path") + svg.count("<rect") + svg.count("<line") > 3, figure.name
        assert "NaN" not in svg
        assert figure.reading.endswith(".")
        assert all(len(row) == len(figure.headers) for row in figure.rows)


@pytest.mark.parametrize("name", MAKERS)
def test_every_number_of_a_table_leads_to_its_trials(made: Any, name: str) -> None:
    new = {"training-parts", "energy", "time-energy", "counters", "page-faults", "write-backs", "write-back-intervals"}
    for figure in [made[name][each] for each in new & made[name].keys()]:
        assert all(any(cell.href for cell in row) for row in figure.rows), figure.name


def test_time_and_power_are_drawn_by_each_resource_with_a_line_through_what_differs_in_it_alone(made: Any) -> None:
    """S3, figures 11 and 13 to 16."""
    power = {name: each for name, each in made["modes"].items() if name.startswith("time-power-")}
    assert {name.removesuffix("-lenet-5-training") for name in power if "lenet" in name} == {
        "time-power-gpu-mhz", "time-power-cores",
    }  # fmt: skip
    figure = next(each for name, each in power.items() if name.startswith("time-power-gpu-mhz"))
    lines, points = values(figure, 0), values(figure, 3)
    assert len(points) == len(lines) == 15  # five clocks on 1, 2 and 4 cores
    assert {point["series"] for point in points} == {f"GPU {mhz} MHz" for mhz in (345, 705, 1065, 1425, 1785)}
    assert len({line["line"] for line in lines}) == 3
    fastest = min(points, key=lambda point: point["x"])
    slowest = max(points, key=lambda point: point["x"])
    assert (fastest["series"], slowest["series"]) == ("GPU 1785 MHz", "GPU 345 MHz") and fastest["y"] > slowest["y"]
    assert re.search(r"time goes from .* ms to .* ms and power from .* W to .* W;", figure.reading)
    assert not any(name.startswith("time-power-") for name in made["phased"])  # nobody measured power there


def test_time_and_power_are_drawn_of_the_kept_store_of_the_gpu_server() -> None:
    kept_store = Path(__file__).parents[3] / "studies-results" / "h200" / "s3-power-modes.tare"
    with Store.open(kept_store) as store:
        jobs = evidence_of(store).by_job()
        found = [each for job in jobs for each in drawn(power_sections(job.used, "step")).values()]
    assert [figure.name for figure in found] == ["time-power-cores"] * 2  # LeNet-5 was too short for its power
    assert all("From 2 cores to 8 cores time goes from" in figure.reading for figure in found)
    assert "NaN" not in as_file(found[0], "svg").decode()


def test_phases_are_stacked_in_their_order_with_what_they_took(made: Any) -> None:
    training, request = made["phased"]["training-parts"], made["phased"]["request-parts"]

    bars = {(bar["level"], bar["part"]): bar for bar in values(training)}
    assert bars["bare", "backward pass"]["value"] == pytest.approx(0.8)  # ms
    assert bars["docker", "optimiser step"]["order"] == 2
    assert [cell.text for cell in request.rows[0][1:]] == ["2.00 ms", "8.00 ms", "500 µs"]
    assert training.reading == "Medians of the trials. Optimiser step: 20 % (bare) to 24.5 % (docker)."


def test_without_marks_of_the_phases_there_is_no_figure_of_them() -> None:
    assert parts_figures(some.weighing()).keys() == {"step-parts", "phases"}


def test_energy_is_split_into_what_the_idle_device_draws_and_the_rest(tmp_path: Path) -> None:
    kept(tmp_path / "store-baseload", idle_trials(BARE, DOCKER))
    figure = figures_of(kept(tmp_path / "store", trials(BARE, DOCKER)))["energy"]
    bars = {(bar["level"], bar["part"].partition(":")[0]): bar["value"] for bar in values(figure)}
    assert bars["bare", "baseload"] == pytest.approx(1.0, rel=0.02)  # 10 W for 0.1 s
    assert bars["bare", "incremental"] == pytest.approx(2.0, rel=0.02)
    assert bars["docker", "baseload"] == pytest.approx(1.32, rel=0.02)
    assert figure.reading.startswith("The idle device takes 33.4 % [")


def test_energy_without_a_baseload_is_shown_whole_and_says_what_is_missing(tmp_path: Path) -> None:
    figure = figures_of(kept(tmp_path / "store", trials(BARE, DOCKER)))["energy"]
    assert {bar["part"] for bar in values(figure)} == {"not split: no baseload is known"}
    assert "tare device baseload" in figure.reading


def test_the_front_is_of_one_job_and_has_what_no_other_beats_in_both(made: Any) -> None:
    fronts = [figure for name, figure in made["modes"].items() if name.startswith("time-energy")]
    assert len(fronts) == 2  # of each network its own
    for figure in fronts:
        mine = [
            (point["x"], point["y"], row[-1].text) for point, row in zip(values(figure, 3), figure.rows, strict=True)
        ]
        assert len(mine) == 15
        for x, y, on_front in mine:
            assert any(other[0] < x and other[1] < y for other in mine) == (on_front == "no")


def test_training_and_inference_of_one_model_are_two_jobs_with_a_front_each(tmp_path: Path) -> None:
    with Store.open(mode_store(tmp_path / "modes")) as store:
        evidence = evidence_of(store)
        half = {
            each.trial: {**each.settings, "workload": "torch_infer"} if n % 2 else each.settings
            for n, each in enumerate(evidence.records)
        }
        records = [replace(each, settings=half[each.trial]) for each in evidence.records]
        (figure,) = drawn(front_sections(replace(evidence, records=records).used, "step")).values()

    assert {row[0].text for row in figure.rows} == {
        f"{work}, {model}" for work in ("torch_train", "torch_infer") for model in ("LeNet-5", "ResNet-18")
    }
    best = {row[0].text for row in figure.rows if row[-1].text == "yes"}
    assert len(best) == 4  # each job has its own


def test_batches_are_compared_by_the_sample_and_language_models_by_the_token() -> None:
    """A larger batch takes longer for a step; by the step the smallest would always win."""
    with TemporaryDirectory(dir=MEMORY) as folder, Store.open(mode_store(Path(folder, "modes"))) as store:
        evidence = evidence_of(store)
        plain = [
            replace(
                each,
                settings={"platform": "bare", "workload": "torch_train", "workload.batch": batch},
                metrics={"step_s": 1.0 + batch / 100, "energy_step_j": 10.0 + batch},
            )
            for each, batch in zip(evidence.records, (1, 1, 8, 8, 64, 64), strict=False)
        ]
        (samples,) = drawn(front_sections(plain, "step")).values()
        of_token = {"time_token_s": 1.0, "energy_token_j": 5.0}
        batches = [
            replace(each, metrics=each.metrics | {n: v / each.settings["workload.batch"] for n, v in of_token.items()})
            for each in plain
        ]
        (tokens,) = drawn(front_sections(batches, "step")).values()
        pixels = [
            replace(each, settings={"platform": "bare", "workload.pixels": each.settings["workload.batch"]})
            for each in plain
        ]

        assert front_sections(pixels, "step") == []  # what a step holds is not known
    for figure, called in ((tokens, "time per token"), (samples, "time per sample")):
        assert called in figure.headers[2]
        assert [row[1].text for row in figure.rows if row[-1].text == "yes"] == ["batch 64"]


def test_predictions_are_of_modes_that_were_held_out_and_are_near(made: Any) -> None:
    time, energy = made["modes"]["predicted-time"], made["modes"]["predicted-energy"]

    points = values(time, 3)
    assert len(points) == 2 * (15 - 4)
    assert all(0.7 < point["y"] / point["x"] < 1.4 for point in points)
    assert "From 4 measured modes" in energy.reading
    assert {row[0].text for row in time.rows} == {"LeNet-5", "ResNet-18"}


def test_modes_of_which_only_the_time_was_measured_have_predictions_of_it(tmp_path: Path) -> None:
    with Store.open(mode_store(tmp_path / "modes")) as store:
        evidence = evidence_of(store)
        timed = [replace(each, metrics={"step_s": each.metrics["step_s"]}) for each in evidence.records]
        found = drawn(predicted_sections(timed, evidence.store.path, "step"))

    assert found.keys() == {"predicted-time"}
    points = values(found["predicted-time"], 3)
    assert len(points) == 2 * (15 - 4)
    assert all(0.5 < point["y"] / point["x"] < 2 for point in points)


def test_one_mode_has_neither_a_front_nor_predictions(tmp_path: Path) -> None:
    with Store.open(kept(tmp_path / "store", trials(BARE, DOCKER))) as store:
        evidence = evidence_of(store)

        assert front_sections(evidence.used, "step") == []  # two configurations are a comparison
        assert predicted_sections(evidence.used, store.path, "step") == []


def test_counters_are_ratios_to_bare_metal_with_the_daemons_in_the_table(made: Any) -> None:
    figure = made["traced"]["counters"]

    ratios = {point["lane"]: point["ratio"] for point in values(figure, 4)}
    assert ratios == {"page-faults, docker": 2.0, "context-switches, docker": 1.0}
    assert figure.headers[:4] == ("where", "event", "process", "daemons")


def test_counters_without_bare_metal_are_shares_of_the_roles() -> None:
    from tare.kernel.charts import counters_figure
    from traced_trials import traced

    counts = {
        "t_ns": [0, 0], "role": ["workload", "daemon"], "event": ["page-faults"] * 2, "count": [300, 100],
        "time_enabled": [1.0, 1.0], "time_running": [1.0, 1.0],
    }  # fmt: skip
    figure = counters_figure([traced("docker", {("perf", "counters"): counts})], {})

    assert figure is not None
    assert {piece["role"]: piece["value"] for piece in values(figure, 1)} == {"process": 300, "daemons": 100}
    assert "No bare metal" in figure.reading
    as_file(figure, "svg")


def test_faults_and_write_backs_are_stacked_by_cause_and_reason(made: Any) -> None:
    faults, reasons = made["traced"]["page-faults"], made["traced"]["write-backs"]

    assert {bar["part"]: bar["value"] for bar in values(faults) if bar["level"] == "docker, workload"} == {
        "allocator": 10, "copy": 10, "heap": 10, "other": 10,
    }  # fmt: skip
    assert {bar["part"]: bar["value"] for bar in values(reasons) if bar["level"] == "bare"} == {
        "background": 14, "periodic": 13, "sync": 13,
    }  # fmt: skip


def test_intervals_rise_from_none_to_all(made: Any) -> None:
    figure = made["traced"]["write-back-intervals"]

    for cell in ("bare", "docker"):
        shares = [point["share"] for point in figure.chart["layer"][1]["data"]["values"] if point["cell"] == cell]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_a_store_without_traces_has_none_of_these(tmp_path: Path) -> None:
    with Store.open(kept(tmp_path / "store", trials(BARE, DOCKER))) as store:
        assert traced_figures(evidence_of(store)) == []


def test_take_aways_that_were_measured_are_drawn_and_all_are_listed(made: Any) -> None:
    figure = made["modes"]["claims"]

    assert len(figure.rows) >= 68
    assert {lane["word"] for lane in values(figure, 1)} == {"does not hold here"}
    assert "67 not measured" in figure.reading
    assert figure.rows[0][2].text != "not measured"  # those that say something come first


def test_the_take_aways_of_a_fleet_name_devices_that_differ_and_no_path(tmp_path: Path) -> None:
    other = Board("odd", slower=0.2, facts={"kernel": "6.1.0"})
    root = fleet_store(tmp_path / "store", [*boards(2), other], blocks=2)

    lanes = values(figures_of(root)["claims"], 1)

    assert {lane["told"].rpartition("inference ")[2] for lane in lanes} >= {"(odd)", "(orin-1, orin-2)"}
    assert str(root) not in str(lanes)


def test_a_store_that_speaks_to_no_take_away_has_no_figure_of_them(tmp_path: Path) -> None:
    alone = [replace(each, metrics={"step_s": each.metrics["step_s"]}) for each in trials(BARE, n=2)]
    with Store.open(kept(tmp_path / "store", alone)) as store:
        assert claims_figures(evidence_of(store)) == []


@pytest.mark.parametrize("payload", PAYLOADS[1:3])  # tags and quotes; test_hostile_labels.py has all, in pages
def test_hostile_labels_stay_text_in_every_chart(tmp_path: Path, payload: str) -> None:
    found = figures_of(traced_store(tmp_path / "traced", payload, blocks=1, pages=20))
    found |= figures_of(mode_store(tmp_path / "modes", payload))

    text = safe_json({name: compiled(figure) for name, figure in found.items()})
    assert not set("<>&") & set(text)
    assert payload.replace("<", "\\u003c").replace(">", "\\u003e")[:12].replace('"', '\\"') in text
