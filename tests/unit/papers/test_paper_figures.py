"""Figures that a record does not hold by itself, from a real store: medians, means of epoch 0, counts, page faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import recorded_stores
from some_records import draft
from tare.analysis.derived import SOURCES, TrialData, late_figures, with_figures
from tare.base.units import Channel
from tare.records.parquet import TableFiles, TableName
from tare.records.spool import SpoolWriter
from tare.records.store import Store

FIGURES = late_figures()
SECOND = 1_000_000_000
CHANNELS = (
    Channel("gpu.util", "share", "gauge"),
    Channel("cpu.busy_s", "s", "counter"),
    Channel("memory.available_bytes", "bytes", "gauge"),
    Channel("gpu.power_w", "W", "gauge"),
)
METRICS = {"step_s": 1.5, "warm_up_steps": 3.0, "step_mean_s": 10.0, "stall_mean_s": 3.0, "compute_mean_s": 5.0}
STEPS_S = ((3.0, 4.0), (4.0, 5.0), (5.0, 6.0), (6.5, 8.5), (8.5, 9.5))  # three of epoch 0, then two
FIRST_TEN = sorted(f"f{number}" for number in range(20))[:10]  # as often as each other, so by their names
EARLY_FETCHES_S = (0.9, 0.0, 0.0)


def marks() -> list[tuple[int, str, str, int]]:
    made = []
    for number, (begin, end) in enumerate(STEPS_S):
        fetch_s = EARLY_FETCHES_S[number] if number < len(EARLY_FETCHES_S) else 0.1
        made += [(begin, "step", "begin", number), (begin, "fetch", "begin", number)]
        made += [(begin + fetch_s, "fetch", "end", number), (end, "step", "end", number)]
    made.append((9.6, "step", "begin", 5))  # cut off
    return [(round(t_s * SECOND), name, edge, step) for t_s, name, edge, step in made]


def ticks() -> list[tuple[float, float, float, float]]:
    """One a second: idle up to the end of epoch 0, then at work, then idle again."""
    idle, busy_s = (0.0, 900.0, 10.0), 0.0
    made = []
    for second in range(12):
        util, available, power = (0.1 * (second - 1), 600.0, 40.0) if 7 <= second <= 9 else idle
        made.append((util, busy_s, available, power))
        busy_s += 2.0 if 7 <= second <= 8 else 0.1
    return made


def counters() -> dict:
    """Of the workload 30 faults in two rows, of the daemon 7; a counter that ran half of the time."""
    return {
        "t_ns": np.arange(4, dtype=np.int64),
        "role": ["workload", "workload", "daemon", "workload"],
        "event": ["page-faults", "page-faults", "page-faults", "block_rq_issue"],
        "count": np.array([10, 20, 7, 50], np.int64),
        "time_enabled": np.array([1.0, 1.0, 1.0, 2.0]),
        "time_running": np.array([1.0, 1.0, 1.0, 1.0]),
    }


def page_faults() -> dict:
    """Twenty functions of one file, half of them in the daemon, with one fault each; the host's own have a hundred."""
    count = 120
    return {
        "t_ns": np.arange(count, dtype=np.int64),
        "role": ["workload"] * 10 + ["daemon-dockerd"] * 10 + ["host"] * 100,
        "comm": ["python"] * count,
        "file": ["/usr/bin/python"] * count,
        "function": [f"f{number}" for number in range(20)] + ["busy"] * 100,
        "cause": ["heap"] * count,
    }


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", {"study": "s2-events"}, "study: s2-events\n") as opened:
        begun = draft(facts={"device": {"cores": 4, "memory_bytes": 1000}})
        writer = opened.begin(begun)
        with SpoolWriter(writer.spool) as spool:
            spool.channels(CHANNELS)
            for second, values in enumerate(ticks()):
                names = (channel.name for channel in CHANNELS)
                readings = [(second * SECOND, name, value) for name, value in zip(names, values, strict=True)]
                spool.tick(second * SECOND, readings)
        with TableFiles(writer.tables) as files:
            files.add(TableName("perf", "counters"), counters())
            files.add(TableName("perf", "faults"), page_faults())
            files.write()
        writer.seal(replace(begun, state="ok", metrics=METRICS), marks(), "", "")
        yield opened


def test_figures_are_of_the_measured_steps_and_stand_beside_the_records_own(store):
    found = with_figures(store, store.records()[0]).metrics
    assert found == {
        **METRICS,
        "gpu_util_share": pytest.approx(0.7),  # of 0.6, 0.7 and 0.8; nothing of the start and of epoch 0
        "cpu_busy_share": pytest.approx(0.5),  # 2 s of CPU time in a second, on four cores
        "memory_median_bytes": pytest.approx(400.0),
        "power_median_w": pytest.approx(40.0),
        "epoch0_stall_mean_s": pytest.approx(0.3),  # the median of these steps is nothing
        "epoch0_step_mean_s": pytest.approx(1.0),
        "copy_and_overhead_mean_s": pytest.approx(2.0),
        "count_page_faults": 30.0,
        "count_block_rq_issue": 100.0,
        "daemon_page_faults": 7.0,
        "fault_top10_place_share": pytest.approx(0.5),  # by files alone it would be all
        **{f"fault_place{rank}_share": pytest.approx(0.05) for rank in range(1, 11)},
    }
    assert store.records()[0].metrics == METRICS


def test_a_median_says_which_channel_it_comes_from(store):
    assert with_figures(store, store.records()[0]).facts[SOURCES] == {
        "gpu_util_share": "from gpu.util",
        "cpu_busy_share": "from cpu.busy_s: mean of all cores (one busy thread takes one of them)",
        "memory_median_bytes": "from memory.available_bytes",
        "power_median_w": "from gpu.power_w: the GPU alone",
        **{f"fault_place{rank}_share": f"python python {name} (heap)" for rank, name in enumerate(FIRST_TEN, start=1)},
    }


def test_with_workers_the_mean_of_epoch_0_leaves_their_start_out_and_says_so(store):
    record = store.records()[0]
    wanted = ["epoch0_stall_mean_s", "epoch0_step_mean_s"]
    none, some = (
        with_figures(store, replace(record, settings={**record.settings, "workload.workers": workers}), wanted)
        for workers in (0, 2)
    )
    assert none.metrics["epoch0_stall_mean_s"] == pytest.approx(0.3)
    assert none.facts[SOURCES] == {}
    assert some.metrics["epoch0_stall_mean_s"] == 0.0
    assert some.metrics["epoch0_step_mean_s"] == pytest.approx(1.0)
    assert set(some.facts[SOURCES]) == set(wanted)
    assert "start of the workers" in some.facts[SOURCES]["epoch0_step_mean_s"]
    short = replace(some, metrics={**METRICS, "warm_up_steps": 1.0})
    assert "epoch0_stall_mean_s" not in with_figures(store, short, wanted).metrics


def test_on_a_cpu_nothing_lies_between_stall_and_compute_and_this_is_said(store):
    record = store.records()[0]
    for device, said in (("cpu", True), ("cuda", False)):
        there = replace(record, settings={**record.settings, "workload.device": device})
        sources = with_figures(store, there, ["copy_and_overhead_mean_s"]).facts[SOURCES]
        assert ("copy_and_overhead_mean_s" in sources) is said


def test_only_what_is_asked_for_is_made(store):
    record = store.records()[0]
    assert with_figures(store, record, ["step_s"]) is record
    assert set(with_figures(store, record, ["step_s", "gpu_util_share"]).metrics) == {*METRICS, "gpu_util_share"}


def test_a_channel_without_a_reading_in_the_measured_steps_gives_no_figure_and_says_so(store):
    late = replace(store.records()[0], metrics={**METRICS, "warm_up_steps": 4.0})
    one = with_figures(store, late, ["cpu_busy_share"])  # a single reading of a counter tells no rate
    assert "cpu_busy_share" not in one.metrics
    assert one.facts[SOURCES] == {"cpu_busy_share": "no reading of cpu.busy_s fell into the measured steps"}


def test_a_trial_that_ended_badly_is_left_as_it_is(store):
    failed = replace(store.records()[0], state="failed")
    assert with_figures(store, failed) is failed


def test_without_marked_steps_or_among_several_tenants_there_is_no_time_to_take_a_median_over(store):
    record = store.records()[0]
    unmarked = replace(record, metrics={"wall_s": 1.0})
    shared = replace(record, settings={**record.settings, "tenants": 4})
    for each in (unmarked, shared):
        made = set(with_figures(store, each).metrics) & set(FIGURES)
        assert not made & {"gpu_util_share", "power_median_w", "epoch0_stall_mean_s"}
        assert "count_page_faults" in made


def test_without_the_number_of_cores_or_the_size_of_the_memory_there_is_no_share(store):
    bare = replace(store.records()[0], facts={})
    assert not {"cpu_busy_share", "memory_median_bytes"} & set(with_figures(store, bare).metrics)


def test_the_measured_steps_are_those_that_a_real_trials_energy_is_of():
    with Store.open(recorded_stores.ENERGY) as recorded:
        told = [each for each in recorded.records() if {"energy_window_s", "warm_up_steps"} <= each.metrics.keys()]
        assert len(told) == 5
        for record in told:
            begin_ns, end_ns = TrialData(recorded, record).measured_ns
            assert (end_ns - begin_ns) / 1e9 == pytest.approx(record.metrics["energy_window_s"])
            median_w = with_figures(recorded, record, ["power_median_w"]).metrics["power_median_w"]
            assert median_w == pytest.approx(record.metrics["power_mean_w"], rel=0.1)


@pytest.mark.parametrize("reason", ["background", "periodic", "sync"])
def test_where_write_backs_were_traced_and_none_had_a_reason_its_count_is_zero(store, reason):
    name = f"writeback_{reason}_count"
    record = store.records()[0]
    traced = replace(record, metrics={**METRICS, "writeback_count": 4.0})
    counted = replace(record, metrics={**METRICS, "writeback_count": 4.0, name: 3.0})
    assert with_figures(store, traced, [name]).metrics[name] == 0.0
    assert with_figures(store, counted, [name]).metrics[name] == 3.0
    assert name not in with_figures(store, record, [name]).metrics


def beside(readings=(), marks=(), tables=None, **settings):
    """A trial with these series, epochs and tables, in place of a store."""
    from types import SimpleNamespace

    epochs = [
        (t, "epoch", edge, n) for n, span in enumerate(marks) for t, edge in zip(span, ("begin", "end"), strict=True)
    ]
    columns = zip(*sorted(epochs), strict=True) if epochs else ((), (), (), ())
    made = dict(zip(("t_ns", "name", "edge", "step"), map(np.array, columns), strict=True))
    return SimpleNamespace(
        readings=dict(readings), marks=made, warm_up=1, measured_ns=(0, 100 * SECOND),
        record=SimpleNamespace(settings=settings), table=lambda probe, name: (tables or {}).get(name),
    )  # fmt: skip


def series(*values):
    return np.arange(len(values), dtype=np.int64) * SECOND, np.array(values, dtype=float)


def test_the_share_of_the_flusher_is_of_the_inserted_requests_alone():
    graphs = {
        "event": np.array(["block:block_rq_insert", "block:block_rq_insert", "block:block_rq_issue"], dtype=object),
        "stack": np.array(["kthread;worker_thread;wb_workfn;x", "main;write", "kthread;wb_workfn"], dtype=object),
        "count": np.array([1, 3, 50]),
    }
    found = FIGURES["flusher_insert_share"](beside(tables={"callgraphs": graphs}))
    assert found.value == pytest.approx(0.25)
    assert FIGURES["flusher_insert_share"](beside()) is None


def test_a_clock_is_below_its_peak_by_the_mode_that_was_asked_for_else_by_the_highest_reading():
    clocks = [("frequency.cpu0_hz", series(1e9, 2e9, 2e9, 1.95e9))]
    assert FIGURES["cpu_below_peak_share"](beside(clocks)).value == pytest.approx(0.25)
    asked = beside(clocks, **{"control.power_mode.cpu_mhz": 3000})
    assert FIGURES["cpu_below_peak_share"](asked).value == 1.0
    assert FIGURES["memory_below_peak_share"](beside(clocks)) is None


def test_the_kinds_of_cores_are_counted_apart_and_together():
    from types import SimpleNamespace

    counted = SimpleNamespace(shared=lambda make: {
        ("workload", "cpu_core/cycles"): 5.0, ("workload", "cpu_atom/cycles"): 2.0,
        ("daemon", "cpu_core/cycles"): 0.5, ("daemon", "cpu_atom/cycles"): 0.25,
    })  # fmt: skip
    assert FIGURES["core_cycles"](counted).value == 5.0
    assert FIGURES["atom_cycles"](counted).value == 2.0
    assert FIGURES["daemon_cycles"](counted).value == 0.75
    assert FIGURES["core_instructions"](counted) is None


@pytest.mark.parametrize(("power", "farthest"), [([10.0] * 30, 0.0), ([10.0] * 20 + [20.0] * 10, 1 / 3)])
def test_the_epoch_whose_energy_is_farthest_from_the_mean_after_epoch_0(power, farthest):
    spans = [(first * SECOND, (first + 9) * SECOND) for first in (0, 10, 20)]
    trial = beside([("gpu.power_w", series(*power))], spans)
    assert FIGURES["energy_epoch_farthest_share"](trial).value == pytest.approx(farthest)
    seldom = beside([("gpu.power_w", (np.array([0, 15 * SECOND]), np.array([10.0, 10.0])))], spans)
    assert FIGURES["energy_epoch_farthest_share"](seldom).value is None


def _epochs(fetches_s: list[list[float]]) -> list[tuple[int, str, str, int]]:
    """Epochs of steps of one second each, of which the fetch takes so much; half a second lies between two epochs."""
    made, now, number = [], 10.0, 0
    for fetches in fetches_s:
        made.append((now, "epoch", "begin", -1))
        for fetch_s in fetches:
            made += [(now, "step", "begin", number), (now, "fetch", "begin", number)]
            made += [(now + fetch_s, "fetch", "end", number), (now + 1.0, "step", "end", number)]
            now, number = now + 1.0, number + 1
        made.append((now + 0.25, "epoch", "end", -1))
        now += 0.5
    return [(round(t_s * SECOND), name, edge, step) for t_s, name, edge, step in made]


@pytest.fixture
def of_epochs(tmp_path):
    with Store.create(tmp_path / "epochs", {"study": "s1-workers"}, "study: s1-workers\n") as opened:
        writer = opened.begin(draft())
        sealed = replace(draft(), state="ok", metrics={"warm_up_steps": 2.0})
        writer.seal(sealed, _epochs([[0.9, 0.3], [0.1, 0.2], [0.2, 0.3]]), "", "")
        yield opened


def test_seconds_of_an_epoch_are_those_of_whole_epochs_and_the_first_is_kept_apart(of_epochs):
    found = with_figures(of_epochs, of_epochs.records()[0]).metrics
    assert found["epoch_s"] == pytest.approx(2.25)  # two steps, and what lies in no step
    assert found["epoch_stall_s"] == pytest.approx((0.3 + 0.5) / 2)
    assert found["epoch0_epoch_stall_s"] == pytest.approx(1.2)
    assert found["epoch0_epoch_s"] == pytest.approx(2.25)
    assert "epoch_compute_s" not in found  # no such mark


def test_with_workers_the_first_fetch_of_the_first_epoch_counts_as_the_others(of_epochs):
    record = of_epochs.records()[0]
    there = replace(record, settings={**record.settings, "workload.workers": 2})
    found = with_figures(of_epochs, there, ["epoch0_epoch_stall_s"])
    assert found.metrics["epoch0_epoch_stall_s"] == pytest.approx(2 * 0.3)
    assert "start of the workers" in found.facts[SOURCES]["epoch0_epoch_stall_s"]
