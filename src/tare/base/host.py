"""The one door to the machine: commands, files and time go through a `Host`, and so a test needs no machine.

`LocalHost` is the device itself. Platforms turn a host into another host (a container, a guest).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import IO, Any, Protocol, TypeAlias, runtime_checkable

from tare.base.errors import TareError


class Clock(Protocol):
    """Monotonic time of one machine. All stored times are its nanoseconds."""

    def now_ns(self) -> int: ...
    def sleep_until(self, t_ns: int) -> None: ...


class MonotonicClock:
    """CLOCK_MONOTONIC: the same for every process and container of one kernel."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def sleep_until(self, t_ns: int) -> None:
        wait_ns = t_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)


_LINGER_S = 2.0  # how long the output of something that has ended is waited for
Heard: TypeAlias = Callable[[bytes], None]
LISTENER: ContextVar[Heard | None] = ContextVar("LISTENER", default=None)
"""Who hears what a job prints while it runs; whoever starts a process takes it over from the thread that spawns."""
OUTPUT_LIMIT_BYTES = 1 << 20  # a workload that prints gigabytes must not fill the disk or our memory


@dataclass(frozen=True, slots=True)
class Completed:
    """What a short command left behind."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    def checked(self) -> Completed:
        """Itself if the command succeeded, otherwise an error that quotes it."""
        if self.code != 0:
            said = (self.err or self.out).strip()[-2000:] or "it printed nothing"
            raise TareError(f"`{' '.join(self.argv)}` failed with code {self.code}:\n{said}")
        return self


@dataclass(frozen=True, slots=True)
class Job:
    """What a workload wants to have run: the same on every platform."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # the whole environment, not an addition to ours
    cwd: str = "/"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a job ended, as seen from outside."""

    code: int
    seconds: float
    out: str = ""
    err: str = ""
    timed_out: bool = False
    truncated: bool = False  # the output was longer than we keep
    oom_killed: bool = False  # the kernel killed a process of it because memory ran out
    waiting: str = ""  # at the limit: what its processes were doing, in words
    counted: Mapping[str, float] = field(default_factory=dict)  # by who ran it, where the launcher could not


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a host's processes are found on the device: a pid there, and its folder in each cgroup hierarchy."""

    pid: int | None = None
    cgroups: Mapping[str, str] = field(default_factory=dict)  # v1: controller -> folder; v2: "" -> folder


class Process(Protocol):
    """A job that runs."""

    def wait(self, limit_s: float) -> Exit: ...  # past the limit it is killed and `timed_out` is set
    def kill(self) -> None: ...


class Host(Protocol):
    """A place where commands run: the device, a container, a guest."""

    @property
    def name(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def python(self) -> str: ...  # the interpreter that built-in workloads use there

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed: ...
    def spawn(self, job: Job) -> Process: ...
    def read(self, path: PurePath | str) -> str: ...
    def write(self, path: PurePath | str, text: str) -> None: ...
    def scope(self) -> Scope: ...
    def close(self) -> None: ...


class InsideClock(Protocol):
    """A clock that is not the device's, compared with it."""

    def to_device_ns(self, guest_ns: int) -> int: ...
    def facts(self) -> dict[str, Any]: ...  # offset, drift, and how far off a moved time can be


@runtime_checkable
class InnerHost(Host, Protocol):
    """A host that is not the device itself, as platforms make them; one has all of these or none."""

    @property
    def facts(self) -> dict[str, Any]: ...  # for the record; those of the host around it included
    @property
    def phases(self) -> Mapping[str, float]: ...  # seconds of the parts of opening and closing it
    @property
    def guest_clock(self) -> InsideClock | None: ...  # None: times inside are device times
    @property
    def shares_workdir(self) -> bool: ...  # False: files written inside reach the device when a command has ended


@runtime_checkable
class RemoteDevice(Host, Protocol):
    """A device that is not the machine that this runs on."""

    @property
    def machine_facts(self) -> Mapping[str, Any]: ...  # what a record says of the device instead of this machine

    def prepare_workdir(self, site: Site) -> None: ...  # make the folders of a trial there


@runtime_checkable
class OwnDevice(Host, Protocol):
    """The device that this process runs on: its files and processes are ours too, and a call does what takes others
    a command. See `make_file`, `existing`, `kill` and the like below, which ask any host.
    """

    def file(self, path: PurePath | str) -> Path: ...  # as this process opens it
    def kill(self, pids: Iterable[int]) -> None: ...  # SIGKILL; one that is gone already is no error
    def node_name(self) -> str: ...


@runtime_checkable
class Served(Protocol):
    """A place that processes of the device keep open and serve from outside: an engine and what belongs to it."""

    def helpers(self) -> Collection[int]: ...  # their pids on the device


@runtime_checkable
class RunsOwn(Host, Protocol):
    """A place that runs one command of its own, which is known before any job is."""

    def job(self, hooks: Mapping[str, str]) -> Job: ...  # that command, with the variables that tare's hook needs


def facts_of(host: Host) -> dict[str, Any]:
    """What a record should say about this host, as a new dict."""
    return dict(host.facts) if isinstance(host, InnerHost) else {}


def clock_inside(host: Host) -> InsideClock | None:
    """The clock that marks made on this host are in; None: the device's own."""
    return host.guest_clock if isinstance(host, InnerHost) else None


def shares_workdir(host: Host) -> bool:
    """Whether a file in the working directory is at once seen on both sides."""
    return not isinstance(host, InnerHost) or host.shares_workdir


# What any host can do, by a command; on the device itself it is done at once, since each command takes a millisecond.


def make_file(host: Host, path: str, text: str) -> None:
    """A new file; `Host.write` never makes one."""
    if isinstance(host, OwnDevice):
        host.file(path).write_text(text, encoding="utf-8")
    else:
        host.run(["dd", f"of={path}", "status=none"], stdin=text).checked()


def existing(host: Host, paths: Sequence[str]) -> list[str]:
    """The paths that are there, and where their links lead: a link on the root may point to another disk."""
    if isinstance(host, OwnDevice):
        there: dict[str, None] = {}
        for path in paths:
            file = host.file(path)
            if os.path.exists(file):  # noqa: PTH110  (`Path.exists` raises where we may not look)
                there |= dict.fromkeys((path, os.path.realpath(file)))
        return list(there)
    script = 'for path do if [ -e "$path" ]; then printf "%s\\n" "$path"; readlink -f -- "$path"; fi; done'
    return list(dict.fromkeys(host.run(["sh", "-c", script, "existing", *paths]).out.splitlines()))


def kill(host: Host, pids: Collection[int]) -> None:
    """SIGKILL; one that is gone already is no error."""
    if isinstance(host, OwnDevice):
        host.kill(pids)
    elif pids:
        host.run(["sh", "-c", 'kill -KILL "$@"', "kill", *(str(pid) for pid in sorted(pids))])


def node_name(host: Host) -> str:
    """The device's own name, which a container has too: scripts write it into the names of files."""
    return (host.node_name() if isinstance(host, OwnDevice) else host.run(["uname", "-n"]).out.strip()) or "tare"


def may_write(host: Host, path: str) -> bool:
    """Whether a file of this device may be written by us; other hosts only say so when it is tried."""
    return not isinstance(host, OwnDevice) or os.access(host.file(path), os.W_OK)


def lacks_root(host: Host) -> bool:
    """Whether this is the device itself, and we are not root there; other hosts only say so when it is tried."""
    return isinstance(host, OwnDevice) and os.geteuid() != 0


@dataclass(frozen=True, slots=True)
class Site:
    """What a platform is told when it opens: its name, and what must be visible inside.

    Everything a platform makes (container, cgroup, mount, folder) is made under `name`, so that
    `sweep(name)` finds all of it after a crash.
    """

    name: str
    scratch: Path  # an existing folder of this trial's own, on the device
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    layered: bool = False  # all files are seen and may be written, by layers that go with the trial
    saves: bool = False  # it writes checkpoints to a folder of its root
    folder: Path | None = None  # where its workload is started, on the device
    keep: Path | None = None  # a folder of the device: what was written to the layers is copied there


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image sets for whatever runs in it."""

    env: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = ""
    entry: tuple[str, ...] = ()  # goes before the command


def image_of(host: Host) -> ImageConfig | None:
    """The image whose files a place has; None where they are the device's."""
    return getattr(host, "image", None)


class _Child(subprocess.Popen[bytes]):
    """The kernel tells its end: with a limit, Popen looks every 0.5 to 50 ms, which is late and disturbs the job."""

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None or self.returncode is not None:
            return super().wait(timeout)
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # an older kernel, or no handle left
            return super().wait(timeout)
        try:
            ready, _, _ = select.select([handle], [], [], max(0.0, timeout))
        except (ValueError, OverflowError):  # a handle beyond what select takes, or a limit without an end
            return super().wait(timeout)
        finally:
            os.close(handle)
        return super().wait(None if ready else 0)


class LocalProcess:
    """A child of ours, in a session of its own so that its whole group can be ended."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str, clock: Clock) -> None:
        self._clock = clock
        self._start_ns = clock.now_ns()
        self._child = _Child(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._out = _Tap(self._child.stdout)
        self._err = _Tap(self._child.stderr)

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait(self, limit_s: float) -> Exit:
        timed_out = False
        try:
            code = self._child.wait(limit_s)
        except subprocess.TimeoutExpired:
            timed_out = True
            self.kill()
            code = self._child.wait()
        end_ns = self._clock.now_ns()
        out, err = self._out.text(), self._err.text()
        return Exit(
            code=code,
            seconds=(end_ns - self._start_ns) / 1e9,
            out=out,
            err=err,
            timed_out=timed_out,
            truncated=self._out.truncated or self._err.truncated,
        )

    def kill(self) -> None:
        """End the whole process group, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)


class _Tap:
    """Drains a pipe in the background and keeps the first `OUTPUT_LIMIT_BYTES` of it."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.truncated = False
        self._heard = LISTENER.get()
        self._pipe = pipe
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), 65536):
                room = OUTPUT_LIMIT_BYTES - len(self._kept)
                self._kept += chunk[:room]
                self.truncated |= len(chunk) > room
                if self._heard is not None:
                    self._heard(chunk)

    def text(self) -> str:
        # A daemon that the job left behind may hold the pipe open; it must not hold us.
        self._thread.join(timeout=_LINGER_S)
        return bytes(self._kept).decode("utf-8", "replace")


def _ended_late(child: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Kill the child's group and take what it said; what left its group may hold the pipes open, but not us."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        return child.communicate(timeout=_LINGER_S)
    except subprocess.TimeoutExpired as silent:
        return silent.stdout or b"", silent.stderr or b""


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what it never read cannot be delivered any more
                pipe.close()


def _text(data: bytes) -> str:
    """What a command said, with the line breaks that text has."""
    return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


_LONGEST_S = 2e6  # 23 days: a poll takes no more


class LocalHost:
    """The device itself. `root` is `/`, or in tests a folder that looks like one."""

    name = "device"

    def __init__(self, *, clock: Clock | None = None, root: Path = Path("/"), python: str | None = None) -> None:
        self.clock: Clock = clock or MonotonicClock()
        self.root = root
        self.python = python or sys.executable

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        """Run a short command: no shell, no terminal, a deadline, and the whole group dies at it."""
        if shutil.which(argv[0]) is None:
            return Completed(tuple(argv), 127, "", f"{argv[0]}: there is no such command on this machine")
        child = _Child(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = child.communicate(stdin.encode(), timeout=min(limit_s, _LONGEST_S))
        except subprocess.TimeoutExpired:
            out, err = _ended_late(child)
            note = f"\nended by tare: no answer within {limit_s:g} s"
            return Completed(tuple(argv), 124, _text(out), _text(err) + note)
        finally:
            _close_pipes(child)
        return Completed(tuple(argv), child.returncode, _text(out), _text(err))

    def spawn(self, job: Job) -> Process:
        return LocalProcess(job.argv, job.env, job.cwd, self.clock)

    def read(self, path: PurePath | str) -> str:
        return self.file(path).read_text(errors="replace")

    def write(self, path: PurePath | str, text: str) -> None:
        # One write call and no O_CREAT: a kernel file takes a value whole, and is never made by us.
        descriptor = os.open(self.file(path), os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def scope(self) -> Scope:
        return Scope(pid=os.getpid())

    def close(self) -> None:
        pass

    def file(self, path: PurePath | str) -> Path:
        return self.root / str(path).lstrip("/")

    def kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def node_name(self) -> str:
        return os.uname().nodename


class WatchingHost(LocalHost):
    """The device as the sampler sees it: each file that is read again and again keeps its descriptor open."""

    def __init__(self, *, clock: Clock | None = None, root: Path = Path("/")) -> None:
        super().__init__(clock=clock, root=root)
        self._open: dict[str, int] = {}

    def read(self, path: PurePath | str) -> str:
        key = str(path)
        descriptor = self._open.get(key)
        if descriptor is None:
            descriptor = self._open[key] = os.open(self.file(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = chunk = os.pread(descriptor, 65536, 0)
            # A file made of lines may be handed out a page at a time: only less than half a page is surely all of it.
            while len(chunk) >= 2048 and (chunk := os.pread(descriptor, 65536, len(data))):
                data += chunk
        except OSError:  # a process that ended, a cgroup that was removed: its descriptor must not pile up
            os.close(self._open.pop(key))
            raise
        return data.decode("ascii", "replace")

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()
