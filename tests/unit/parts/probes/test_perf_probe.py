"""What the tracers say where they cannot work, and the figures that they make of their tables."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from tare.kernel.parts.probes.ftrace import Perf, Syscalls
from tare.testing import FakeHost


def counters(rows: dict[tuple[str, str], int], running: float = 1.0):
    roles, events, numbers = zip(*((*key, count) for key, count in rows.items()), strict=True)
    return {
        "role": np.array(roles, object),
        "event": np.array(events, object),
        "count": np.array(numbers),
        "time_enabled": np.ones(len(rows)),
        "time_running": np.full(len(rows), running),
    }


def test_without_root_there_is_a_sentence():
    assert any("root" in sentence for sentence in map(str, Perf().obstacles(FakeHost())))
    assert Syscalls().obstacles(FakeHost())


def test_the_program_is_needed_only_for_faults_and_call_graphs():
    def needs(probe: Perf) -> bool:
        return any("linux-perf" in sentence for sentence in map(str, probe.obstacles(_without_perf(FakeHost()))))

    assert needs(Perf())
    assert not needs(Perf(faults=False, callgraphs=None))


def _without_perf(host: FakeHost) -> FakeHost:
    usual = host.run

    def run(argv, **how):
        done = usual(argv, **how)
        return done.__class__(tuple(argv), 127, "", "no such command") if argv[0] == "perf" else done

    host.run = run
    return host


@pytest.mark.parametrize("event", ["block_rq_issue", "--help", "block:x;rm", "a:b:c", ""])
def test_an_event_that_is_no_event_is_refused(event):
    with pytest.raises(ValidationError):
        Perf(callgraphs=event)


def test_cycles_of_all_kinds_of_cores_are_one_figure_and_scaled():
    table = counters(
        rows={("workload", "cpu_core/cycles"): 10, ("workload", "cpu_atom/cycles"): 5, ("host", "cpu_core/cycles"): 99},
        running=0.5,
    )
    assert Perf().figures({"counters": table}, 10) == {"cycles": 30.0, "cycles_step": 3.0}


def test_without_hardware_counters_there_is_no_cycles_figure():
    assert Perf().figures({"counters": counters(rows={("workload", "page-faults"): 10})}, 10) == {}


def test_the_concentration_of_faults_is_that_of_the_workload_and_its_engine():
    faults = {
        "role": np.array(["workload"] * 3 + ["daemon"] + ["host"] * 50, object),
        "file": np.array(["libc", "libc", "libtorch", "dockerd"] + [f"f{n}" for n in range(50)], object),
    }
    assert Perf().figures({"faults": faults}, None) == {"fault_top10_share": 1.0}


def test_system_calls_are_the_workloads():
    table = {"role": np.array(["workload", "daemon", "workload"], object), "count": np.array([3, 100, 4])}
    assert Syscalls().figures({"syscalls": table}, 7) == {"system_calls": 7.0, "system_calls_step": 1.0}
    assert Syscalls().figures({"syscalls": table}, None) == {"system_calls": 7.0}
