"""Several workloads on one device at once: opened side by side, started together, and ended together if one dies."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from tare.base import untrusted
from tare.base.errors import TrialError
from tare.base.host import Clock, Exit, Host, Job, Process, shares_workdir
from tare.parts.protocols import Mark, Workload
from tare_inside.serve import DONE, LISTENS

_LOOK_EVERY_NS = 20_000_000
_PATIENCE_S = 60.0  # for one that was killed
_driven: list[Path] = []  # the work folders of servers that run now


@dataclass
class Tenant:
    """One tenant of a trial: where it runs, and what came of it."""

    workload: Workload
    place: Host
    workdir: Path
    job: Job
    exit: Exit | None = None
    result: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    died: bool = False  # before the others were done, and not because we ended it
    drive: Callable[[], Process] | None = None  # starts what drives it from outside

    def waiting_job(self) -> Job:
        """The job, held at the barrier."""
        env = {**self.job.env, "TARE_BARRIER": str(self.workdir), "TARE_BARRIER_AT": self.workload.meets}
        return replace(self.job, env=env)


Watched: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[None]]


def run_together(tenants: Sequence[Tenant], limit_s: float, clock: Clock, watched: Watched | None = None) -> None:
    """Start all, let them go at one moment, and wait; whoever dies takes the others with it.

    `watched` is entered while they run, with what ends all of them.
    """
    watched = watched or (lambda _stop: nullcontext())
    if len(tenants) == 1:
        process = tenants[0].place.spawn(tenants[0].job)
        with not_left_alone(tenants[0], process), driven(tenants[0], limit_s), watched(process.kill):
            tenants[0].exit = process.wait(limit_s)
        return
    runs = [Run(tenant, limit_s) for tenant in tenants]
    try:
        for run in runs:
            run.start()
        with watched(lambda: kill_all(runs)):
            if _until_ready(runs, clock):
                for run in runs:
                    run.let_go()
                _until_ended(runs, clock)
    finally:
        end_all(runs)


@contextmanager
def not_left_alone(tenant: Tenant, process: Process) -> Iterator[None]:
    """Where what is done with it fails before it has ended, it is ended: nobody would wait for it any more."""
    try:
        yield
    except Exception:
        if tenant.exit is None:
            with suppress(Exception):
                process.kill()
                process.wait(_PATIENCE_S)
        raise


def is_starting() -> bool:
    """Whether a server is waited for that is not ready yet: nothing is measured, and nothing lost by ending it."""
    return any(not (workdir / LISTENS).exists() for workdir in _driven)


@contextmanager
def driven(tenant: Tenant, limit_s: float) -> Iterator[None]:
    """Meanwhile its driver runs, if it has one; when that ends the tenant is told so, and the other way round."""
    if tenant.drive is None:
        yield
        return
    driver, ended, lost = tenant.drive(), [], []

    def wait() -> None:
        try:
            ended.append(driver.wait(limit_s))
        except Exception as error:  # it is raised where the tenant is waited for
            lost.append(error)
        with suppress(OSError, untrusted.Refused):
            untrusted.make(tenant.workdir, DONE)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    _driven.append(tenant.workdir)
    try:
        yield
    finally:
        _driven.remove(tenant.workdir)
        stopped = waiting.is_alive()
        with suppress(OSError):
            driver.kill()
        waiting.join(_PATIENCE_S)
    if lost and not stopped:
        raise lost[0]
    if ended and ended[0].code != 0 and not stopped:
        last = ended[0].err.strip().splitlines()[-1:]
        raise TrialError(f"the load ended with code {ended[0].code}{': ' + last[0] if last else ''}")


def kill_all(runs: Sequence[Run]) -> None:
    for run in runs:
        run.kill()


def end_all(runs: Sequence[Run]) -> None:
    """End those that still run, all of them, whatever one of them does; what went wrong is said after that."""
    errors: list[BaseException] = []
    for step in (Run.kill, Run.join):  # nobody runs on alone while another is waited for
        for run in runs:
            try:
                step(run)
            except Exception as error:
                errors.append(error)
    errors += [run.error for run in runs if run.error is not None]
    if errors and sys.exception() is None:  # whatever is being raised already tells more
        raise errors[0]


class Run:
    """One tenant's process, waited for in a thread of its own."""

    def __init__(self, tenant: Tenant, limit_s: float) -> None:
        self.tenant = tenant
        self.over = threading.Event()
        self._limit_s = limit_s
        self._process: Process | None = None
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self.error: BaseException | None = None
        self.let = False  # the barrier was opened for it, by us

    def start(self, *, waits: bool = True) -> None:
        """`waits`: at the barrier, until it is let go."""
        self._process = self.tenant.place.spawn(self.tenant.waiting_job() if waits else self.tenant.job)
        self._thread.start()

    def _wait(self) -> None:
        assert self._process is not None
        try:
            with not_left_alone(self.tenant, self._process), driven(self.tenant, self._limit_s):
                self.tenant.exit = self._process.wait(self._limit_s)
        except BaseException as error:  # it is raised again where the trial is run
            self.error = error
        finally:
            self.over.set()

    @property
    def ended(self) -> bool:
        return self._process is not None and not self._thread.is_alive()

    @property
    def failed(self) -> bool:
        found = self.tenant.exit
        return self.ended and (self.error is not None or found is None or found.code != 0 or found.timed_out)

    def is_ready(self) -> bool:
        return _is_there(self.tenant.place, self.tenant.workdir, "ready")

    def let_go(self) -> None:
        _make(self.tenant.place, self.tenant.workdir, "go")
        self.let = True

    def kill(self) -> None:
        if self._thread.is_alive() and self._process is not None:
            with suppress(OSError, TrialError):
                self._process.kill()

    def join(self) -> None:
        """Wait for its end; one that cannot be ended here is the platform's to end."""
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE_S)


def _until_ready(runs: Sequence[Run], clock: Clock) -> bool:
    """Wait until all are at the barrier; False if one ended before, by itself or at its limit."""
    waiting = list(runs)
    while waiting:
        if any(run.ended for run in runs):
            _blame(runs)
            return False
        waiting = [run for run in waiting if not run.is_ready()]
        clock.sleep_until(clock.now_ns() + _LOOK_EVERY_NS)
    return True


def _until_ended(runs: Sequence[Run], clock: Clock) -> None:
    while not all(run.ended for run in runs):
        if any(run.failed for run in runs):
            _blame(runs)
            return
        clock.sleep_until(clock.now_ns() + _LOOK_EVERY_NS)
    _blame(runs)


def _blame(runs: Iterable[Run]) -> None:
    for run in runs:
        run.tenant.died = run.failed or (run.ended and not run.let)


def _is_there(place: Host, workdir: Path, name: str) -> bool:
    """Whether the file is there: on the device, where the workdir is one with it, otherwise asked for inside."""
    if shares_workdir(place):
        return untrusted.is_there(workdir, name)
    return place.run(["test", "-e", str(workdir / name)]).code == 0


def _make(place: Host, workdir: Path, name: str) -> None:
    untrusted.make(workdir, name)
    if not shares_workdir(place):
        place.run(["touch", str(workdir / name)]).checked()


def renamed(marks: Iterable[Mark], tenant: int) -> list[Mark]:
    """A neighbour's marks as the record keeps them, beside those of the workload that is measured."""
    return [mark._replace(name=f"tenant{tenant}.{mark.name}") for mark in marks]
