"""Figures that a record does not hold by itself, from a real store: medians of series, counts of events."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from some_records import draft
from tare.analysis.papers.figures import with_figures
from tare.measures import Channel
from tare.records.spool import SpoolWriter
from tare.records.store import Store
from tare.records.tables import TableFiles, TableName

SECOND = 1_000_000_000
CHANNELS = (
    Channel("gpu.util", "share", "gauge"),
    Channel("cpu.busy_s", "s", "counter"),
    Channel("memory.available_bytes", "bytes", "gauge"),
    Channel("gpu.power_w", "W", "gauge"),
)


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


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", {"study": "s2-events"}, "study: s2-events\n") as opened:
        begun = draft(facts={"device": {"cores": 4, "memory_bytes": 1000}})
        writer = opened.begin(begun)
        with SpoolWriter(writer.spool) as spool:
            spool.channels(CHANNELS)
            for tick, util in enumerate((0.1, 0.9, 0.7)):
                values = (util, 2.0 * tick, 600.0, 40.0)
                readings = [
                    (tick * SECOND, channel.name, value) for channel, value in zip(CHANNELS, values, strict=True)
                ]
                spool.tick(tick * SECOND, readings)
        with TableFiles(writer.tables) as files:
            files.add(TableName("perf", "counters"), counters())
            files.write()
        writer.seal(replace(begun, state="ok", metrics={"step_s": 1.0}), [], "", "")
        yield opened


def test_medians_and_counts_stand_beside_the_records_own_figures(store):
    found = with_figures(store, store.records()[0]).metrics
    assert found == {
        "step_s": 1.0,
        "gpu_util_share": pytest.approx(0.7),
        "cpu_busy_share": pytest.approx(0.5),  # 2 s of CPU time in a second, on four cores
        "memory_median_bytes": pytest.approx(400.0),
        "power_median_w": pytest.approx(40.0),
        "count_page_faults": 30.0,
        "count_block_rq_issue": 100.0,
    }


def test_a_trial_that_ended_badly_is_left_as_it_is(store):
    failed = replace(store.records()[0], state="failed")
    assert with_figures(store, failed) is failed


def test_without_the_number_of_cores_or_the_size_of_the_memory_there_is_no_share(store):
    bare = replace(store.records()[0], facts={})
    assert not {"cpu_busy_share", "memory_median_bytes"} & set(with_figures(store, bare).metrics)
