"""What the dashboard is told of a store: while it runs, when it is done, when there is nothing, when it is broken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import some_weighings as some
from hostile import PAYLOADS
from pretended_run import new_store, run
from some_records import because
from tare.report.layout import thinned
from tare.report.live.running import clock_text, live_marks, live_series, sensor_texts, step_parts, step_series
from tare.report.live.screen import screen, spark
from tare.report.live.snapshot import Watched


def nothing_changed() -> dict[str, Any]:
    return {}


def watched(root: Path) -> Watched:
    return Watched(root, nothing_changed)


def test_a_store_that_fills_is_told_as_it_is(tmp_path: Path) -> None:
    trials = some.records()
    eye = watched(tmp_path / "store")
    with new_store(tmp_path / "store", trials) as store:
        before = eye.look()
        assert before["progress"]["words"] == "0 of 36 trials; 36 not run yet"
        assert (before["running"], before["verdicts"]) == (None, [])
        going = run(store, trials, seconds=0.1)
        for _ in range(24):
            next(going)
        store.begin(replace(trials[24], state="running"))
        look = eye.look()
    assert look["progress"]["state"] == "running"
    assert look["progress"]["done"] == 24
    assert look["progress"]["left"].startswith("about ")
    assert look["running"]["label"] in ("bare", "docker")
    assert [verdict["level"] for verdict in look["verdicts"]] == ["docker"]
    assert len(look["newest"]) == 8
    json.dumps(look, allow_nan=False)


def test_whoever_comes_late_sees_how_the_verdicts_tightened(tmp_path: Path) -> None:
    trials = some.records()
    with new_store(tmp_path / "store", trials) as store:
        list(run(store, trials, seconds=0))
    history = watched(tmp_path / "store").look()["history"]
    widths = [point["high"] - point["low"] for point in history if point.get("low") is not None]
    assert len(history) == 12
    assert len(widths) >= 6
    assert widths[-1] < widths[0]


def test_invalid_trials_are_there_with_their_reasons(tmp_path: Path) -> None:
    trials = [
        replace(record, state="invalid", reasons=(because("the machine swapped."),)) for record in some.records()[:2]
    ]
    with new_store(tmp_path / "store", trials) as store:
        list(run(store, trials, seconds=0))
    look = watched(tmp_path / "store").look()
    assert [trial["reasons"] for trial in look["newest"]] == [["the machine swapped."]] * 2


def test_a_folder_that_is_no_store_is_an_answer_too(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    look = watched(tmp_path / "folder").look()
    assert "trouble" in look


@pytest.mark.parametrize("payload", PAYLOADS)
def test_labels_come_out_as_text_that_a_terminal_survives(payload: str, tmp_path: Path) -> None:
    trials = [replace(record, settings={**record.settings, "platform": payload}) for record in some.records()[:3]]
    with new_store(tmp_path / "store", trials) as store:
        list(run(store, trials, seconds=0))
    look = watched(tmp_path / "store").look()
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(screen([look], 80))
    assert not set("\x00\x07\x1b\u202e\ud800") & set(console.export_text() + json.dumps(look, ensure_ascii=False))


def test_what_is_changed_on_the_device_is_shown(tmp_path: Path) -> None:
    new_store(tmp_path / "store", some.records()).close()
    row = {"knob": "cpu", "baseline": {"online": [0, 1]}, "now": {"online": [0]}, "owner": "pid 7", "age": "5 s"}
    look = Watched(tmp_path / "store", lambda: {"changed": [row], "restored": "1 setting changed"}).look()
    assert look["changed"][0]["knob"] == "cpu"
    assert "0" in look["changed"][0]["now"]
    assert look["device"][-1] == {"what": "restored", "now": "1 setting changed"}


def test_the_state_of_a_device_that_reports_nothing_has_no_blank_cell(tmp_path: Path) -> None:
    new_store(tmp_path / "store", some.records()).close()
    rows = watched(tmp_path / "store").look()["device"]
    assert [row["what"] for row in rows] == ["clocks", "temperature", "power", "restored"]
    assert all(row["now"].strip() for row in rows)


def test_sensors_of_the_running_trial_come_before_those_of_the_machine() -> None:
    t = np.array([0, 10**9])
    readings = {
        "frequency.cpu0_hz": (t, np.array([1e9, 1.2e9])), "frequency.cpu1_hz": (t, np.array([1e9, 2.4e9])),
        "gpu.clock_hz": (t, np.array([1.9e9, 1.98e9])), "gpu.temperature_c": (t, np.array([50.0, 61.0])),
        "temperature.soc_c": (t, np.array([40.0, 42.0])), "power_rapl.total_j": (t, np.array([5.0, 25.0])),
    }  # fmt: skip
    assert sensor_texts(readings) == {
        "clocks": "cores 1.20 GHz to 2.40 GHz, gpu 1.98 GHz",
        "temperature": "61 °C (gpu, the hottest of 2)",
        "power": "processor and memory 20.0 W",
    }
    assert sensor_texts({}) == {}
    assert clock_text({"frequency.cpu0_hz": 3e9}) == "cores 3.00 GHz"


def test_an_error_that_every_trial_has_is_one_line_with_a_count_before_any_verdict(tmp_path: Path) -> None:
    trials = [replace(each, state="failed", reasons=(because("no such file.", "failed"),)) for each in some.records()]
    with new_store(tmp_path / "store", trials) as store:
        list(run(store, trials, seconds=0))
    (error,) = watched(tmp_path / "store").look()["errors"]
    assert error["count"] == len(trials)
    assert "no such file." in error["text"]


def test_what_is_known_to_be_impossible_is_shown_before_the_first_trial(tmp_path: Path) -> None:
    from tare.records.store import Store

    known = because("there is no runc here.", "obstacle").as_json()
    study = {"study": "weigh", "left_out": [known, "old text."]}
    Store.create(tmp_path / "store", study, "").close()
    assert watched(tmp_path / "store").look()["not_measured"] == ["there is no runc here.", "old text."]


def test_counters_become_rates_and_gauges_stay() -> None:
    t = np.arange(5) * 10**9
    channels = [
        {"name": "gpu.power_w", "unit": "W", "kind": "gauge"},
        {"name": "cgroup.cpu_s", "unit": "s", "kind": "counter"},
        {"name": "board.fan", "unit": "1", "kind": "gauge", "words": "turns", "group": "Fan", "rank": 15},
        {"name": "board.lamp", "unit": "1", "kind": "gauge"},
    ]
    seen = {"cgroup.cpu_s": np.array([0, 1, 2, 3, 5.0]), "gpu.power_w": np.full(5, 40.0), "board.fan": np.full(5, 7.0)}
    series = live_series({name: (t, values) for name, values in seen.items()}, channels)
    assert [(one["title"], one["unit"], one["points"][-1]) for one in series] == [
        ("CPU of the workload", "cores", [0.0, 2.0]),
        ("Fan", "turns", [0.0, 7.0]),
        ("Power", "W", [0.0, 40.0]),
    ]


def test_steps_are_read_from_the_marks_of_a_workload_that_runs(tmp_path: Path) -> None:
    from tare_inside import marks

    marks.open_marks(str(tmp_path / "marks.bin"), 100)
    try:
        for step in range(4):
            marks.interval("step", step, 10**9 * step + 1, 10**9 * step + 5_000_001)
        marks.begin("step", 4)  # it is in the middle of one
    finally:
        marks.close_marks()
    (series,) = step_series(live_marks(tmp_path / "marks.bin"))
    assert [value for _, value in series["points"]] == [5.0] * 4
    assert step_series(live_marks(tmp_path / "none")) == []
    assert step_parts(live_marks(tmp_path / "marks.bin")) == []  # no part is marked


def test_the_parts_of_the_newest_steps_add_up(tmp_path: Path) -> None:
    from tare_inside import marks

    marks.open_marks(str(tmp_path / "marks.bin"), 100)
    try:
        for step in range(4):
            start = 10**9 * (step + 1)
            marks.interval("fetch", step, start, start + 2_000_000)
            marks.interval("compute", step, start + 2_000_000, start + 9_000_000)
            marks.interval("step", step, start, start + 10_000_000)
    finally:
        marks.close_marks()
    assert [(one["part"], one["time"], one["share"]) for one in step_parts(live_marks(tmp_path / "marks.bin"))] == [
        ("fetch stall", "2.00 ms", "20 %"), ("compute", "7.00 ms", "70 %"), ("the rest of the step", "1.00 ms", "10 %"),
    ]  # fmt: skip


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000), st.integers(10, 200))
def test_fewer_points_keep_the_extremes(values: list[float], most: int) -> None:
    times, kept = thinned(np.arange(len(values)), np.array(values), most)
    assert len(kept) <= max(most, len(values) if len(values) <= most else most)
    assert kept.min() == min(values)
    assert kept.max() == max(values)
    assert list(times) == sorted(times)


def test_a_line_of_bars_is_as_wide_as_there_is_room() -> None:
    assert spark([0.0, 1.0, 8.0], 10) == "▁▂█"
    assert len(spark(list(range(1000)), 40)) == 40
    assert spark([], 10) == ""
