"""The workloads of a trial: opened side by side, started together, and ended together if one dies.

And its folders: each workload's workdir (the same path inside every platform), and the scratch on the device.
"""

from __future__ import annotations

import math
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import tare_inside
from tare.base import processes, untrusted
from tare.base.errors import TareError, TrialError
from tare.base.host import LISTENER, Clock, Exit, Heard, Host, Job, LocalHost, Process, shares_workdir
from tare.base.processes import mounts
from tare.drivers.storage import checkpoints
from tare.parts.protocols import Mark, Workload
from tare.trial.outside import Outside
from tare_inside.jobs import remove_tree
from tare_inside.serve import DONE, LISTENS
from tare_inside.turns import GRANT, REPORT, paths

_LOOK_EVERY_NS = 20_000_000
_PATIENCE_S = 60.0  # for one that was killed
SHARED_MEMORY = Path("/dev/shm")
OUTPUT_FILE = "output.txt"  # the last of what the workload printed, while it runs
_KEPT_BYTES = 4096
_EVERY_S = 0.5
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
    outside: dict[str, Any] | None = None  # when it began and ended, as the device saw it

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
        with seen_from_outside(tenants[0]):
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
def seen_from_outside(tenant: Tenant) -> Iterator[None]:
    """Meanwhile its job is started and waited for; its begin and end are noted as the device sees them."""
    seen = Outside(tenant.workdir, tenant.place.clock, shared=shares_workdir(tenant.place))
    try:
        yield
    finally:
        tenant.outside = seen.close(tenant.exit)


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
        self._seen = ExitStack()
        self.error: BaseException | None = None
        self.let = False  # the barrier was opened for it, by us

    def start(self, *, waits: bool = True) -> None:
        """`waits`: at the barrier, until it is let go."""
        self._seen.enter_context(seen_from_outside(self.tenant))
        with self._seen.pop_all() as seen:
            self._process = self.tenant.place.spawn(self.tenant.waiting_job() if waits else self.tenant.job)
            self._seen = seen.pop_all()
        self._thread.start()

    def _wait(self) -> None:
        assert self._process is not None
        try:
            with not_left_alone(self.tenant, self._process), driven(self.tenant, self._limit_s):
                self.tenant.exit = self._process.wait(self._limit_s)
        except BaseException as error:  # it is raised again where the trial is run
            self.error = error
        finally:
            self._seen.close()
            self.over.set()

    @property
    def ended(self) -> bool:
        return self._process is not None and not self._thread.is_alive()

    @property
    def failed(self) -> bool:
        found = self.tenant.exit
        return self.ended and (self.error is not None or found is None or found.code != 0 or found.timed_out)

    def is_ready(self) -> bool:
        """Whether it is at the barrier: by its workdir, where that is one with the device's, otherwise asked inside."""
        place, workdir = self.tenant.place, self.tenant.workdir
        if shares_workdir(place):
            return untrusted.is_there(workdir, "ready")
        return place.run(["test", "-e", str(workdir / "ready")]).code == 0

    def let_go(self) -> None:
        place, workdir = self.tenant.place, self.tenant.workdir
        untrusted.make(workdir, "go")
        if not shares_workdir(place):
            place.run(["touch", str(workdir / "go")]).checked()
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


def renamed(marks: Iterable[Mark], tenant: int) -> list[Mark]:
    """A neighbour's marks as the record keeps them, beside those of the workload that is measured."""
    return [mark._replace(name=f"tenant{tenant}.{mark.name}") for mark in marks]


# Folders, and what is printed.


class Grants:
    """The granting end of the two FIFOs in a work folder: both are held open, so that neither end ever blocks there."""

    def __init__(self, workdir: Path, stack: ExitStack) -> None:
        folder = workdir.stat()
        self._ends: list[int] = []
        for path in paths(str(workdir)):  # type: ignore[no-untyped-call]
            os.mkfifo(path, 0o600)
            os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)
            Path(path).chmod(folder.st_mode & 0o666)  # for whoever may write in the folder
            self._ends.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
            stack.callback(os.close, self._ends[-1])

    def grant(self, steps: int) -> None:
        os.write(self._ends[0], GRANT.pack(steps))

    def report(self, seconds: float) -> tuple[int, int, int] | None:
        """The number of the next step, begin and end of the turn; None where none comes within this time."""
        if not select.select([self._ends[1]], [], [], seconds)[0]:
            return None
        told = os.read(self._ends[1], REPORT.size)
        if len(told) != REPORT.size:
            raise TrialError("the work folder's `turn.report` holds something that is no report of a turn.")
        following, begin_ns, end_ns, _ = REPORT.unpack(told)
        return following, begin_ns, end_ns


def prepare_workdir(name: str, scratch: Path) -> Path:
    """A folder with a copy of `tare_inside` for one trial.

    It lies in memory where there is a tmpfs: the marks are written there during the timed loop,
    and the kernel must not write them back to a disk that is being measured.
    """
    processes.lease_name(name)
    workdir = (SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else scratch) / f"{name}-workdir"
    workdir.mkdir(mode=0o700)
    source = Path(tare_inside.__file__).parent
    shutil.copytree(
        source,
        workdir / "inside" / "tare_inside",
        ignore=shutil.ignore_patterns("__pycache__"),
        copy_function=shutil.copy,  # nobody looks at the times
    )
    return workdir


def remove_folders(name: str, scratch_root: Path) -> None:
    """Remove the workdir, scratch folder and checkpoints of the trial called `name`; nothing there is no error."""
    scratch = scratch_root / name
    if mounted := _mounted_in(scratch):
        # What is mounted there may be the device's own root: never delete through it.
        raise TareError(f"{mounted[0]} is still mounted, so {scratch} was left alone; `umount {mounted[0]}` frees it.")
    left = [SHARED_MEMORY / f"{name}-workdir", checkpoints.checkpoints_of_site(name), scratch]
    for folder in left:
        remove_tree(folder)  # type: ignore[no-untyped-call]
    if still := [str(folder) for folder in left if os.path.lexists(folder)]:
        raise TareError(f"{still[0]} could not be removed; `tare device restore` tries again.")
    processes.drop_name(name)


def _mounted_in(folder: Path) -> list[str]:
    """Where something is mounted in this folder; who cannot tell must not delete."""
    mounted = mounts(LocalHost())
    if not mounted:
        raise TareError(f"/proc/self/mountinfo does not say what is mounted, so {folder} was left alone.")
    # The table is read as text, where a byte that is no text has become the replacement character: so here too.
    legible = os.fsencode(folder.absolute()).decode("utf-8", "replace")
    return [mount.point for mount in mounted if Path(mount.point).is_relative_to(legible)]


def read_json(text: str) -> dict[str, Any]:
    """What the workload's side printed, or nothing: its output is data, and may be missing or broken."""
    try:
        return untrusted.as_object(text)
    except RecursionError:
        return {}


class Tail:
    """Hears what a workload prints, passes it on, and keeps its end in a file of the workdir for `tare watch`."""

    def __init__(
        self, workdir: Path, heard: Heard | None = None, scrub: Callable[[str], str] = lambda text: text
    ) -> None:
        self._workdir = workdir
        self._heard = heard
        self._scrub = scrub
        self._kept = bytearray()
        self._written_s = -math.inf
        self._lock = Lock()  # two pipes are drained side by side

    def __call__(self, chunk: bytes) -> None:
        if self._heard is not None:
            self._heard(chunk)
        with self._lock:
            self._kept = (self._kept + chunk)[-_KEPT_BYTES:]
            if time.monotonic() - self._written_s > _EVERY_S:
                self._written_s = time.monotonic()
                with suppress(OSError, untrusted.Refused):  # the workdir may be gone: it is only for those who watch
                    kept = self._scrub(self._kept.decode("utf-8", "replace")).encode("utf-8", "replace")
                    untrusted.replace(self._workdir, OUTPUT_FILE, kept)


@contextmanager
def heard_by(listener: Heard) -> Iterator[None]:
    """Whatever is spawned in this thread meanwhile is heard."""
    before = LISTENER.set(listener)
    try:
        yield
    finally:
        LISTENER.reset(before)
