"""The kernel's view: counters, call graphs, faults and system calls as tables.

Write-backs of traced trials in the form of the paper's tables and figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tare.kernel import counters, writebacks
from tare.kernel.charts import hot_pages_figure
from tare.kernel.model import Section, stages_of, traced_trials
from tare.kernel.text import kernel_text, number_text, stack_text
from tare.records.store import Store
from traced_stores import page_writes, traced_store
from traced_trials import Shelf, traced

STEP = [(100, "ready", "point", -1), (200, "train_begin", "point", -1), (900, "train_end", "point", -1)]
FETCH = [(200, "fetch", "begin", 0), (300, "fetch", "end", 0), (500, "fetch", "begin", 1), (600, "fetch", "end", 1)]


def rows_of(section):
    keys = [column.key for column in section.columns]
    return [dict(zip(keys, row, strict=True)) for row in section.rows]


def counted(workload, daemon, *, running=1.0):
    return {
        "t_ns": [0, 0],
        "role": ["workload", "daemon"],
        "event": ["page-faults", "page-faults"],
        "count": [workload, daemon],
        "time_enabled": [1.0, 1.0],
        "time_running": [running, running],
    }


def test_counters_stand_beside_the_daemons_and_bare_metals_per_mini_batch():
    trials = [
        traced("bare", {("perf", "counters"): counted(1000, 5)}, steps=100.0),
        traced("docker", {("perf", "counters"): counted(2000, 50)}, steps=100.0),
    ]
    bare, docker = rows_of(counters.section(trials))
    assert (bare["workload"], bare["host_process"], bare["ratio"]) == (10, None, None)
    assert (docker["workload"], docker["daemon"], docker["host_process"], docker["ratio"]) == (20, 0.5, 10, 2.0)
    assert docker["low"] is None  # one trial has no interval


def test_with_enough_trials_a_ratio_has_its_interval():
    rng = np.random.default_rng(3)
    trials = [
        traced(platform, {("perf", "counters"): counted(int(base * rng.uniform(0.99, 1.01)), 1)}, block=block)
        for block in range(10)
        for platform, base in (("bare", 100_000), ("docker", 150_000))
    ]
    docker = next(row for row in rows_of(counters.section(trials)) if row["cell"] == "docker")
    assert docker["low"] < 1.5 < docker["high"]
    assert docker["low"] > 1.4


def test_a_counter_that_took_turns_is_scaled_up_and_said():
    found = counters.section([traced("bare", {("perf", "counters"): counted(1000, 0, running=0.25)})])
    assert rows_of(found)[0]["workload"] == 4000
    assert any("took turns" in note for note in found.notes)


def test_lost_events_make_counts_at_least():
    tables = {("perf", "counters"): counted(1, 0), ("perf", "lost"): {"what": ["switches"], "events": [12]}}
    assert any(note.startswith("12 events were lost") for note in counters.section([traced("bare", tables)]).notes)


def test_call_graphs_are_ranked_and_whole():
    stack = ";".join(f"f{number}" for number in range(20))
    table = {
        "event": ["block:x"] * 2,
        "role": ["host", "workload"],
        "comm": ["kworker/u40:5-f", "python"],
        "stack": [stack, "a;b"],
        "count": [9, 1],
    }
    found = counters.callgraphs([traced("docker", {("perf", "callgraphs"): table})])
    first, second = rows_of(found)
    assert (first["comm"], first["share"]) == ("kworker", 0.9)
    assert (first["stack"], second["stack"]) == (stack, "a;b")
    assert stack_text(stack) == "f0 > f1 > f2 > f3 > f4 > ... > f18 > f19"


def test_at_80_columns_no_call_graph_and_no_path_is_cut_off():
    graph = ";".join(f"a_function_of_the_kernel_{number}" for number in range(6))
    table = {
        "event": ["block:block_rq_issue"],
        "role": ["workload"],
        "comm": ["python"],
        "stack": [graph],
        "count": [9],
    }
    found = counters.callgraphs([traced("docker", {("perf", "callgraphs"): table})])
    text = kernel_text([found], 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    last = [line.split()[-1] for line in text.splitlines()]
    assert "".join(word for word in last if word not in ("graph", ">")).endswith("a_function_of_the_kernel_5")


FAULTS = {
    "t_ns": [50, 250, 700, 700],
    "role": ["workload", "workload", "workload", "tare"],
    "comm": ["python", "python", "python", "perf"],
    "file": ["libc", "libc", "libc", "perf"],
    "function": ["malloc", "malloc", "memcpy", "f"],
    "cause": ["allocator", "allocator", "copy", "heap"],
}


def test_faults_are_ranked_by_place_without_our_own():
    found = rows_of(counters.faults([traced("docker", {("perf", "faults"): FAULTS})], most=1))
    assert (found[0]["function"], found[0]["count"], found[0]["share"]) == ("malloc", 2, pytest.approx(2 / 3))
    assert found[1]["function"] == "the first 1"


def test_faults_by_stage_and_cause():
    found = rows_of(counters.fault_causes([traced("docker", {("perf", "faults"): FAULTS}, marks=STEP + FETCH)]))
    assert {row["stage"]: (row["allocator"], row["copy"]) for row in found} == {
        "model load": (1, 0),
        "data load": (1, 0),
        "training": (0, 1),
    }


def test_system_calls_are_summed_over_time_and_divided_by_steps():
    table = {
        "t_ns": [0, 100_000_000, 0],
        "role": ["workload", "workload", "daemon"],
        "name": ["read", "read", "futex"],
        "count": [3, 5, 7],
        "total_s": [0.1, 0.2, 0.3],
        "max_s": [0.1, 0.05, 0.3],
        "errors": [0, 1, 0],
    }
    trial = traced("docker", {("syscalls", "syscalls"): table}, steps=4.0)
    daemon, workload = rows_of(counters.syscalls([trial]))
    assert (daemon["name"], daemon["count"]) == ("futex", 7)
    assert (workload["count"], workload["per_step"], workload["max_s"], workload["errors"]) == (8, 2, 0.1, 1)
    assert workload["total_s"] == pytest.approx(0.3)


def test_calls_are_split_between_stages_by_time():
    marks = [(50_000_000, "ready", "point", -1), (50_000_000, "train_begin", "point", -1),
             (500_000_000, "train_end", "point", -1)]  # fmt: skip
    table = {
        "t_ns": [0], "role": ["workload"], "name": ["read"], "count": [10], "total_s": [0.0], "max_s": [0.0],
        "errors": [0],
    }  # fmt: skip
    (row,) = rows_of(counters.syscall_stages([traced("bare", {("syscalls", "syscalls"): table}, marks=marks)]))
    assert (row["model_load"], row["training"]) == (pytest.approx(5), pytest.approx(5))


def test_where_nothing_was_recorded_there_is_no_section():
    trial = traced("bare", {})
    for section in (counters.section, counters.callgraphs, counters.faults, counters.fault_causes, counters.syscalls):
        assert section([trial]) is None


def test_a_moment_belongs_to_the_innermost_stage():
    stages = stages_of(Shelf({}, STEP + FETCH).marks("", 0), 10)
    assert stages.at(np.array([5, 50, 150, 250, 350, 550, 899, 900])).tolist() == [
        "rest", "model load", "rest", "data load", "training", "data load", "training", "rest",
    ]  # fmt: skip


def test_a_workload_that_answers_requests_is_inference():
    marks = [(10, "step", "begin", 0), (12, "inference", "begin", 0), (20, "inference", "end", 0),
             (30, "step", "end", 0), (30, "step", "begin", 1), (40, "step", "end", 1)]  # fmt: skip
    stages = stages_of(Shelf({}, marks).marks("", 0), 0)
    assert stages.at(np.array([5, 15, 25, 35, 45])).tolist() == ["rest", *["inference"] * 3, "rest"]


def test_without_marks_everything_is_rest():
    stages = stages_of(Shelf({}, []).marks("", 0), 0)
    assert stages.at(np.array([1, 2])).tolist() == ["rest", "rest"]


def test_the_text_shows_every_section_and_hides_no_escape():
    tables = {("perf", "counters"): counted(1_234_567, 5), ("perf", "faults"): {**FAULTS, "comm": ["\x1b[31m"] * 4}}
    trials = [traced("bare", tables)]
    text = kernel_text([counters.section(trials), counters.faults(trials)], 120)
    assert "1,234,567" in text
    assert "\x1b" not in text


def test_a_small_number_keeps_its_digits():
    assert [number_text(value) for value in (0.0123, 5.0, 1234.5, 12.34)] == ["0.0123", "5", "1,234", "12.3"]


VM = {"vm.dirty_writeback_centisecs": "500", "vm.dirty_expire_centisecs": "3000"}


def starts(*reasons: str, every_s: float = 5.0) -> dict[str, Any]:
    count = len(reasons)
    return {
        "t_ns": (np.arange(count) * every_s * 1e9).astype(np.int64),
        "bdi": ["8:0"] * count,
        "reason": list(reasons),
    }


def told(section: Section | None) -> list[dict[str, Any]]:
    assert section is not None
    return section.as_json()["rows"]


def cell(platform: str, tenants: int, **tables: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"platform": platform, "tenants": tenants}, tables


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """One container, four, and four plain processes; two trials of the first."""
    one = starts("periodic", "periodic", "background", "periodic")
    another = starts("periodic", "periodic", "sync")
    four = starts(*["background"] * 6, *["periodic"] * 6, every_s=2.0)
    outside = {**page_writes([5, 5]), "reason": ["outside", "periodic"]}
    trials = {
        "aaaa": cell("docker", 1, writeback_start=one, page_writes=outside),
        "bbbb": cell("docker", 1, writeback_start=another),
        "cccc": cell("docker", 4, writeback_start=four, page_writes=page_writes(list(range(60)) + [7] * 60)),
        "dddd": cell("bare", 4, writeback_start=starts(*["periodic"] * 3), page_writes=page_writes([1, 2, 3])),
    }
    with Store.open(traced_store(tmp_path / "store", trials, device=VM)) as opened:
        yield opened


def test_write_backs_are_counted_by_reason_beside_as_many_plain_processes(store: Store) -> None:
    section = writebacks.section(traced_trials(store))
    rows = {(row["cell"], row["reason"]): row for row in told(section)}
    assert rows["docker, tenants 1", "all"]["count"] == 3.5
    assert rows["docker, tenants 1", "periodic"]["count"] == 2.5
    assert rows["docker, tenants 1", "sync"]["count"] == 0.5
    assert rows["docker, tenants 4", "background"]["share"] == 0.5
    assert rows["docker, tenants 4", "all"]["control"] == 3
    assert rows["docker, tenants 4", "all"]["ratio"] == 4
    assert rows["docker, tenants 4", "background"]["ratio"] is None  # the control had none: there is no ratio to zero
    assert rows["docker, tenants 1", "all"]["control"] is None
    assert section is not None and any("no plain processes" in note for note in section.notes)


def test_pages_past_the_flusher_are_counted_beside_it(store: Store) -> None:
    rows = {row["cell"]: row for row in told(writebacks.pages(traced_trials(store)))}
    assert rows["docker, tenants 1"]["outside"] == 1
    assert rows["docker, tenants 1"]["outside_share"] == 0.5
    assert rows["docker, tenants 1"]["flusher"] is None  # its events were not on: absent, and not zero
    assert (rows["docker, tenants 4"]["written"], rows["docker, tenants 4"]["ratio"]) == (120, 40)


def test_intervals_are_held_against_the_kernels_own_period(store: Store) -> None:
    section = writebacks.intervals_section(traced_trials(store))
    rows = {row["cell"]: row for row in told(section)}
    assert rows["docker, tenants 1"]["count"] == 5
    assert rows["docker, tenants 1"]["mean_s"] == rows["docker, tenants 1"]["period_s"] == 5
    assert rows["docker, tenants 1"]["sooner_share"] == 0
    assert (rows["docker, tenants 4"]["median_s"], rows["docker, tenants 4"]["sooner_share"]) == (2, 1)
    assert section is not None and "dirty for 30 s" in section.notes[-1]


def test_a_period_that_the_study_held_goes_before_the_one_that_was_found(tmp_path: Path) -> None:
    settings = {"platform": "bare", "control.dirty.writeback": 1.0}
    trials = {"aaaa": (settings, {"writeback_start": starts("periodic", "periodic", every_s=1.0)})}
    with Store.open(traced_store(tmp_path / "store", trials, device=VM)) as opened:
        (row,) = told(writebacks.intervals_section(traced_trials(opened)))
    assert (row["period_s"], row["sooner_share"], row["sd_s"]) == (1, 0, None)


def test_hot_pages_show_as_a_rising_share(store: Store) -> None:
    rows = [row for row in told(writebacks.hot_pages(traced_trials(store))) if row["cell"] == "docker, tenants 4"]
    assert [row["stretch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[0]["gini"] == pytest.approx(0)
    assert (rows[0]["hot_share"], rows[-1]["hot_share"]) == (pytest.approx(0.05), 1)
    assert (rows[-1]["writes"], rows[-1]["pages"]) == (20, 1)


def test_the_scatter_keeps_the_order_of_pages_and_says_how_many_points_it_has_of_how_many(store: Store) -> None:
    found = {each.label: each for each in writebacks.scatters(traced_trials(store))}["docker, tenants 4"]
    assert found.of == len(found.pages) == 120
    assert found.pages.tolist()[:60] == list(range(60))
    assert found.seconds[-1] == pytest.approx(1.19)
    figure = hot_pages_figure(traced_trials(store))
    assert figure is not None and "120 page writes" in figure.reading


def test_a_trial_without_write_backs_counts_as_none_and_one_without_the_events_is_left_out(tmp_path: Path) -> None:
    root = traced_store(tmp_path / "store", {"aaaa": cell("bare", 1, lost={"count": [0]})})
    with Store.open(root) as opened:
        trials = traced_trials(opened)
        assert writebacks.section(trials) is None
        assert writebacks.intervals_section(trials) is None
        assert writebacks.hot_pages(trials) is None
        assert hot_pages_figure(trials) is None


def test_a_long_trace_is_thinned_for_the_scatter(tmp_path: Path) -> None:
    many = page_writes(list(range(9000)))
    with Store.open(traced_store(tmp_path / "store", {"aaaa": cell("bare", 1, page_writes=many)})) as opened:
        (found,) = writebacks.scatters(traced_trials(opened))
    assert (found.of, len(found.pages)) == (9000, 3000)
