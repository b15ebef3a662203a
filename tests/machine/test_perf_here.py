"""The `perf` probe on the real kernel: faults are counted and found, by role, and nothing is left behind."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from recorder_here import opened, recorded

from tare.base.host import LocalHost
from tare.kernel.parts.probes.ftrace import Perf
from tare.kernel.tracing import tracefs
from tare.parts.platforms.bare import Bare
from tare.parts.platforms.docker import Docker

pytestmark = [pytest.mark.machine("perf", "root"), pytest.mark.holds("tracing")]

TOUCH = """
import mmap, sys
pages = int(sys.argv[1])
memory = mmap.mmap(-1, max(1, pages) * mmap.PAGESIZE)
if hasattr(mmap, "MADV_NOHUGEPAGE"):
    memory.madvise(mmap.MADV_NOHUGEPAGE)
for page in range(pages):
    memory[page * mmap.PAGESIZE] = 1
"""
PAGES = 20_000


def touching(pages: int) -> tuple[str, ...]:
    return (sys._base_executable, "-I", "-S", "-c", TOUCH, str(pages))


def of_role(table, role, column="count", **wanted):
    chosen = np.asarray(table["role"]) == role
    for name, value in wanted.items():
        chosen &= np.asarray(table[name]) == value
    return np.asarray(table[column])[chosen]


@pytest.mark.machine("tracefs")
def test_faults_of_fresh_pages_are_as_many_as_pages_counted_and_recorded(tmp_path):
    probe = Perf(callgraphs=None)
    with opened(Bare(), tmp_path) as place:
        none = recorded(probe, place, tmp_path / "none", touching(0))
        many = recorded(probe, place, tmp_path / "many", touching(PAGES))
    counted = [of_role(one["counters"], "workload", event="page-faults").sum() for one in (none, many)]
    found = [len(of_role(one["faults"], "workload", "cause")) for one in (none, many)]
    # On a busy machine the start of an interpreter, some 800 faults, may be over before one of the two is watched.
    assert counted[1] - counted[0] == pytest.approx(PAGES, rel=0.05)
    assert found[1] - found[0] == pytest.approx(PAGES, rel=0.05)
    assert found == pytest.approx(counted, abs=PAGES / 20)  # a process that starts is counted before it is recorded
    assert "lost" not in many
    touched = of_role(many["faults"], "workload", "cause")
    assert (touched == "heap").sum() == pytest.approx(PAGES, rel=0.02)


@pytest.mark.machine("docker")
def test_in_a_container_the_job_is_the_workload_and_the_engine_the_daemon(tmp_path):
    probe = Perf(callgraphs=None)
    with opened(Docker(), tmp_path) as place:
        tables = recorded(probe, place, tmp_path / "raw", touching(PAGES))
    assert of_role(tables["counters"], "workload", event="page-faults").sum() > PAGES
    faults = tables["faults"]
    assert (of_role(faults, "workload", "comm") == "runc").sum() == 0
    daemons = set(of_role(faults, "daemon", "comm").tolist())
    assert any(name.startswith(("runc", "containerd-shim", "dockerd")) for name in daemons)
    assert not any(name.startswith("python") for name in daemons)


def test_a_figure_is_there_for_what_was_counted(tmp_path):
    probe = Perf(callgraphs=None)
    with opened(Bare(), tmp_path) as place:
        tables = recorded(probe, place, tmp_path / "raw", touching(100))
    figures = probe.figures(tables, 10)
    assert 0 < figures["fault_top10_share"] <= 1
    hardware = "cycles" in set(tables["counters"]["event"].tolist())
    assert ("cycles" in figures) == hardware


def test_a_recording_that_grows_too_large_says_so_and_stops(tmp_path):
    from tare.base.host import Scope, WatchingHost

    (tmp_path / "raw").mkdir()
    host = WatchingHost()
    feed = Perf(callgraphs=None, limit=1).record(host, [Scope()], tmp_path / "raw")
    for _ in range(3):
        LocalHost().run([sys._base_executable, "-c", "bytearray(10 << 20)"])
        feed.poll()
    feed.close()
    host.close()
    assert any("end early" in sentence for sentence in map(str, feed.lost))
    assert any("stop early" in sentence for sentence in map(str, feed.lost))


@pytest.mark.machine("tracefs")
def test_nothing_is_left_behind(tmp_path):
    before = tracefs.mounted_at(LocalHost())
    with opened(Bare(), tmp_path) as place:
        recorded(Perf(faults=False), place, tmp_path / "raw", ("/bin/true",))
    assert tracefs.mounted_at(LocalHost()) == before
    assert not [left for left in tracefs.leftovers(LocalHost()) if left.site.endswith("-perf")]
