"""Tenants on fake places: the barrier, the overlap, and what happens when one of them dies."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tare_inside
from tare.base.errors import TrialError
from tare.base.host import Exit, Job, LocalHost, MonotonicClock
from tare.base.untrusted import Refused
from tare.figures.evidence import overlap_ns, shared_metrics, within
from tare.parts.protocols import Mark
from tare.parts.workloads.idle import Null
from tare.trial.tenants import Tenant, renamed, run_together

LAUNCH = Path(tare_inside.__file__).parent / "launch.py"


def tenant(workdir: Path, *argv: str) -> Tenant:
    """A tenant whose command waits at the launcher, as a user's own does."""
    workdir.mkdir()
    line = (sys.executable, "-I", "-S", str(LAUNCH), str(workdir / "result.json"), "--", *argv)
    return Tenant(Null(), LocalHost(), workdir, Job(line, {"PATH": "/usr/bin:/bin"}, str(workdir)))


def steps(begin_ms: int, count: int, length_ms: int = 10) -> list[Mark]:
    made = []
    for number in range(count):
        at_ns = (begin_ms + number * length_ms) * 1_000_000
        made += [Mark(at_ns, "step", "begin", number), Mark(at_ns + length_ms * 1_000_000, "step", "end", number)]
    return made


def beside(marks: list[Mark], **result: Any) -> Tenant:
    return Tenant(Null(), LocalHost(), Path("/nowhere"), Job(("true",)), marks=marks, result=result)


def test_nobody_starts_before_all_are_ready(tmp_path: Path) -> None:
    both = [tenant(tmp_path / name, "true") for name in "ab"]

    run_together(both, 30, MonotonicClock())

    assert [one.exit.code for one in both if one.exit is not None] == [0, 0]
    assert not any(one.died for one in both)
    assert all((one.workdir / "go").exists() for one in both)


def test_a_link_called_go_makes_no_file_elsewhere(tmp_path: Path) -> None:
    """An image whose own program waits in no launcher can put a link where tare lets it go."""
    target = tmp_path / "made-by-root"
    both = [tenant(tmp_path / name) for name in "ab"]
    for each in both:
        line = f"ln -s {target} {each.workdir}/go; : > {each.workdir}/ready; sleep 30"
        each.job = replace(each.job, argv=("sh", "-c", line))

    with pytest.raises(Refused, match="only tare makes it"):
        run_together(both, 60, MonotonicClock())

    assert not target.exists()


def test_one_that_dies_ends_the_others_and_is_named(tmp_path: Path) -> None:
    patient, dying = tenant(tmp_path / "a", "sleep", "30"), tenant(tmp_path / "b", "false")

    run_together([patient, dying], 60, MonotonicClock())

    assert (patient.died, dying.died) == (False, True)
    assert patient.exit is not None
    assert patient.exit.code != 0
    assert patient.exit.seconds < 20


def test_one_that_ends_before_the_start_is_blamed_even_if_it_says_that_all_is_well(tmp_path: Path) -> None:
    waiting = tenant(tmp_path / "a", "true")
    (tmp_path / "b").mkdir()
    gone = Tenant(Null(), LocalHost(), tmp_path / "b", Job(("/bin/true",), {}, "/"))

    run_together([waiting, gone], 30, MonotonicClock())

    assert (waiting.died, gone.died) == (False, True)


def test_tenants_that_never_get_ready_are_ended_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    deaf = [Tenant(Null(), LocalHost(), tmp_path / name, Job(("/bin/sleep", "60"), {}, "/")) for name in "ab"]

    run_together(deaf, 0.2, MonotonicClock())

    assert all(one.exit is not None and one.exit.seconds < 30 for one in deaf)
    assert any(one.died and one.exit is not None and one.exit.timed_out for one in deaf)


def test_a_single_tenant_waits_for_nobody(tmp_path: Path) -> None:
    alone = tenant(tmp_path / "a", "true")

    run_together([alone], 30, MonotonicClock())

    assert alone.exit is not None
    assert alone.exit.code == 0
    assert not (alone.workdir / "ready").exists()


def test_the_barrier_leaves_no_trace_in_the_commands_environment(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "TARE_BARRIER": str(tmp_path), "TARE_BARRIER_AT": "launch"}
    (tmp_path / "go").touch()
    line = [sys.executable, "-I", "-S", str(LAUNCH), str(tmp_path / "result.json"), "--", "env"]

    said = subprocess.run(line, env=env, capture_output=True, text=True, check=True).stdout

    assert "TARE_BARRIER" not in said


def test_the_overlap_is_from_the_last_start_to_the_first_end() -> None:
    assert overlap_ns(steps(0, 10), [beside(steps(35, 30))]) == (35_000_000, 100_000_000)


def test_a_neighbour_that_marks_nothing_worked_as_long_as_it_ran() -> None:
    load = beside([], start_ns=20_000_000, end_ns=50_000_000)

    assert overlap_ns(steps(0, 10), [load]) == (20_000_000, 50_000_000)


@pytest.mark.parametrize("neighbour", [beside(steps(200, 5)), beside([])])
def test_tenants_that_never_met_have_no_figures(neighbour: Tenant) -> None:
    assert overlap_ns(steps(0, 10), [neighbour]) is None
    assert shared_metrics(steps(0, 10), [neighbour]) == {}


def test_only_steps_wholly_in_the_overlap_count() -> None:
    kept = within([*steps(0, 10), Mark(1, "epoch", "begin", 0)], (15_000_000, 60_000_000))

    assert sorted({mark.step for mark in kept if mark.name == "step"}) == [2, 3, 4, 5]
    assert any(mark.name == "epoch" for mark in kept)


def test_each_tenants_step_time_is_its_own() -> None:
    metrics = shared_metrics(steps(0, 40, 10), [beside(steps(0, 20, 20)), beside(steps(0, 80, 5))])

    assert metrics["step_s"] == metrics["tenant0_step_s"] == pytest.approx(0.010)
    assert metrics["tenant1_step_s"] == pytest.approx(0.020)
    assert metrics["tenant2_step_s"] == pytest.approx(0.005)
    assert metrics["overlap_s"] == pytest.approx(0.4)


def test_a_neighbours_marks_carry_its_number() -> None:
    assert {mark.name for mark in renamed(steps(0, 2), 3)} == {"tenant3.step"}


def test_an_exit_is_kept_for_each(tmp_path: Path) -> None:
    both = [tenant(tmp_path / "a", "true"), tenant(tmp_path / "b", "sh", "-c", "echo here")]

    run_together(both, 30, MonotonicClock())

    assert isinstance(both[1].exit, Exit)
    assert both[1].exit.out.strip() == "here"


def served(workdir: Path, driver: str) -> Tenant:
    """A tenant that runs until it is told that its driver is done, and is driven by a line of shell."""
    made = tenant(workdir, "sh", "-c", f"until [ -e {workdir}/done ]; do sleep 0.01; done")
    made.drive = partial(LocalHost().spawn, Job(("sh", "-c", driver), {"PATH": "/usr/bin:/bin"}, "/"))
    return made


def test_a_tenant_that_is_driven_runs_beside_others_until_its_driver_is_done(tmp_path: Path) -> None:
    server = served(tmp_path / "a", f"until [ -e {tmp_path}/b/go ]; do sleep 0.01; done; : > {tmp_path}/driven")
    other = tenant(tmp_path / "b", "true")

    run_together([server, other], 60, MonotonicClock())

    assert server.exit is not None
    assert (server.exit.code, server.died, other.died) == (0, False, False)
    assert (tmp_path / "driven").exists()


def test_a_driver_that_fails_ends_the_others_and_is_quoted(tmp_path: Path) -> None:
    server = served(tmp_path / "a", f"until [ -e {tmp_path}/b/go ]; do sleep 0.01; done; echo no route >&2; exit 3")
    patient = tenant(tmp_path / "b", "sleep", "30")

    with pytest.raises(TrialError, match="the load ended with code 3: no route"):
        run_together([server, patient], 60, MonotonicClock())

    assert patient.exit is not None
    assert patient.exit.seconds < 20


def running(argv: str) -> list[str]:
    """The processes that this command line runs in."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [file.parent.name] * (argv.encode() in file.read_bytes())
    return found


@pytest.mark.parametrize("others", [0, 1])
def test_a_tenant_whose_driver_does_not_start_is_ended(tmp_path: Path, others: int) -> None:
    server = served(tmp_path / "a", "true")
    server.drive = partial(LocalHost().spawn, Job(("/no/such/driver",), {}, "/"))
    patient = [tenant(tmp_path / "b", "sleep", "3600")] * others
    began_s = time.monotonic()

    with pytest.raises(FileNotFoundError):
        run_together([server, *patient], 3600, MonotonicClock())

    assert time.monotonic() - began_s < 3000  # it was killed, and not waited for
    assert not running(f"{tmp_path}/a/done")


class Unwatched:
    """A driver that runs, and that cannot be waited for."""

    def __init__(self, argv: tuple[str, ...]) -> None:
        self.child = subprocess.Popen(argv)
        self.kill = self.child.kill

    def wait(self, limit_s: float) -> Exit:
        raise RuntimeError("the line went away")


def test_a_driver_that_cannot_be_waited_for_is_ended_and_its_tenant_with_it(tmp_path: Path) -> None:
    server, started = served(tmp_path / "a", "true"), []
    server.drive = lambda: started.append(Unwatched(("sleep", "30"))) or started[0]

    with pytest.raises(RuntimeError, match="the line went away"):
        run_together([server], 20, MonotonicClock())

    assert server.exit is not None
    assert (server.exit.code, server.exit.timed_out) == (0, False)
    assert started[0].child.wait(60) != 0


class Unruly:
    """A process that nobody can wait for to the end, and that cannot be killed."""

    def __init__(self, error: Exception, after_s: float) -> None:
        self.error, self.after_s = error, after_s

    def wait(self, limit_s: float) -> Exit:
        time.sleep(self.after_s)
        raise self.error

    def kill(self) -> None:
        raise self.error


class UnrulyHost(LocalHost):
    """A place where every job is such a process."""

    after_s = 0.0

    def spawn(self, job: Job) -> Any:
        return Unruly(RuntimeError("the engine went away"), self.after_s)


class SlowUnrulyHost(UnrulyHost):
    after_s = 0.5


def test_the_others_are_ended_though_one_cannot_be_waited_for(tmp_path: Path) -> None:
    patient = [tenant(tmp_path / name, "sleep", "30") for name in "ac"]
    unruly = replace(tenant(tmp_path / "b", "true"), place=UnrulyHost())

    with pytest.raises(RuntimeError, match="the engine went away"):
        run_together([unruly, *patient], 60, MonotonicClock())

    assert unruly.died
    assert all(one.exit is not None and one.exit.seconds < 20 and not one.died for one in patient)


class StoppedByHand(MonotonicClock):
    """Ctrl-C comes while the tenants are waited for."""

    def sleep_until(self, t_ns: int) -> None:
        raise KeyboardInterrupt


def test_an_interruption_ends_all_and_is_not_hidden_by_what_goes_wrong_then(tmp_path: Path) -> None:
    patient = tenant(tmp_path / "a", "sleep", "30")
    unruly = replace(tenant(tmp_path / "b", "true"), place=SlowUnrulyHost())

    with pytest.raises(KeyboardInterrupt):
        run_together([patient, unruly], 60, StoppedByHand())

    assert patient.exit is not None
    assert patient.exit.seconds < 20


def test_one_that_cannot_be_spawned_ends_those_before_it(tmp_path: Path) -> None:
    patient = tenant(tmp_path / "a", "sleep", "30")
    absent = Tenant(Null(), LocalHost(), tmp_path / "b", Job(("/no/such/program",), {}, "/"))

    with pytest.raises(FileNotFoundError):
        run_together([patient, absent], 60, MonotonicClock())

    assert patient.exit is not None
    assert patient.exit.seconds < 20


def test_a_workload_that_marks_nothing_has_an_overlap_all_the_same() -> None:
    load = beside([], start_ns=20_000_000, end_ns=50_000_000)

    found = shared_metrics([], [load], {"start_ns": 0, "end_ns": 45_000_000})

    assert found == {"overlap_s": pytest.approx(0.025)}
