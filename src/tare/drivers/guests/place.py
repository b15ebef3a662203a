"""Inside a virtual machine: a host whose commands, files and time come over the line to the guest's agent.

A folder that the device and a guest keep alike: pushed before a command, pulled after it.

Inside it lies in the guest's own memory, since marks are written through a mapping in the timed loop.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NamedTuple, Self, TypeAlias

from tare.base import untrusted
from tare.base.errors import TrialError
from tare.base.host import Completed, Exit, Host, Job, Process, Scope, Site
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.job import with_oom_note
from tare.drivers.guests.channel import Frame, GuestClock, GuestGone, GuestSilent, Link, checked, sight
from tare.drivers.places import PATH, Phases
from tare.parts.protocols import Json
from tare_inside.agents.guest_jobs import names

_CHUNK_BYTES = 4 << 20
_MOST_BYTES = 1 << 30  # a job that leaves more in its workdir must not fill the device's memory
_MOST_FILES = 100_000
_Looks: TypeAlias = tuple[int, int, int]  # mode, size, time of the last change


class Workdir:
    """One such folder. Only folders and plain files travel; a link on it stays where it is."""

    def __init__(self, link: Link, folder: Path) -> None:
        self.folder = folder
        self._link = link
        self._known: dict[str, _Looks] = {}
        self._lock = threading.Lock()
        mode = stat.S_IMODE(folder.stat().st_mode)
        link.ask("workdir", path=str(folder), mode=mode)

    def holds(self, path: str) -> bool:
        return PurePosixPath(path).is_relative_to(self.folder)

    def know(self, below: str) -> None:
        """Take it that what is below here is there already, the same."""
        found = _scan(self.folder)
        self._known |= {name: looks for name, looks in found.items() if PurePosixPath(name).is_relative_to(below)}

    def push(self) -> None:
        """Send what is new or changed on the device."""
        with self._lock:
            scanned = _scan(self.folder)
            changed = {name: looks for name, looks in scanned.items() if self._known.get(name) != looks}
            # All are on their way before the first answer is waited for: an emulated guest answers slowly.
            requested = [number for name, looks in changed.items() for number in self._send(name, looks)]
            for number in requested:
                self._link.answer(number)
            self._known |= changed

    def pull(self) -> None:
        """Fetch what is new or changed in the guest, and remove what is gone there."""
        with self._lock:
            changed, gone = _changes(self._link.ask("changes", workdir=str(self.folder)).header)
            total = sum(each.size for each in changed)
            if total > _MOST_BYTES:
                raise TrialError(f"the job left {total} bytes in its workdir {self.folder}; {_MOST_BYTES} is the most.")
            for each in changed:
                self._fetch(each)
            for name in gone:
                self._known.pop(name, None)
                untrusted.remove(self.folder, name)

    def _send(self, name: str, looks: _Looks) -> Iterator[int]:
        mode, size, _ = looks
        common: dict[str, Any] = {"workdir": str(self.folder), "name": name, "mode": stat.S_IMODE(mode)}
        if stat.S_ISDIR(mode):
            yield self._link.begin("put", folder=True, **common)
            return
        with untrusted.opened(self.folder, name) as file:
            for at in range(0, max(size, 1), _CHUNK_BYTES):
                yield self._link.begin("put", os.pread(file, _CHUNK_BYTES, at), at=at, **common)

    def _fetch(self, each: _Changed) -> None:
        if each.folder:
            untrusted.put_folder(self.folder, each.name, each.mode)
        else:
            untrusted.put(self.folder, each.name, self._parts(each), each.mode)
        self._known[each.name] = _looks(self.folder / each.name)

    def _parts(self, each: _Changed) -> Iterator[bytes]:
        for at in range(0, each.size, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, each.size - at)
            yield self._link.ask("get", workdir=str(self.folder), name=each.name, at=at, size=size).data[:size]


class _Changed(NamedTuple):
    name: str
    mode: int
    size: int
    folder: bool


def _changes(reported: Mapping[str, Any]) -> tuple[list[_Changed], list[str]]:
    """What a guest reports of its workdir, if it is that; names are looked at where they are used."""
    try:
        changed = [
            _Changed(str(each["name"]), int(each["mode"]), max(0, int(each["size"])), bool(each["folder"]))
            for each in reported["changed"][: _MOST_FILES + 1]
        ]
        gone = [str(name) for name in reported["gone"][: _MOST_FILES + 1]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TrialError(f"the guest's report of its workdir makes no sense ({error!r}).") from error
    if len(changed) + len(gone) > _MOST_FILES:
        raise TrialError(f"the job left more than {_MOST_FILES} files in its workdir.")
    return changed, gone


def _scan(folder: Path) -> dict[str, _Looks]:
    """Folders before what is in them."""
    return {name: _looks(folder / name) for name in names(str(folder))}  # type: ignore[no-untyped-call]


def _looks(path: Path) -> _Looks:
    seen = path.lstat()
    is_folder = stat.S_ISDIR(seen.st_mode)
    return seen.st_mode, 0 if is_folder else seen.st_size, 0 if is_folder else seen.st_mtime_ns


_ENV = {"PATH": PATH, "HOME": "/root"}  # of short commands; a job brings its own
_DIES_WITHIN_S = 15.0
_CLOSES_WITHIN_S = 15.0


class GuestPlace:
    """A running guest. Its clock is the device's, as for every host; `guest_clock` moves what was marked inside."""

    runs_others = False  # so that memory that ran out there ran out for our job

    def __init__(self, host: Host, name: str, link: Link, scope: Scope, last_words: Callable[[], str]) -> None:
        self.name = name
        self.clock = host.clock
        self.python = host.python
        self.facts: dict[str, Json] = {}
        self.phases = Phases(host.clock)
        self.guest_clock = GuestClock()
        self.shares_workdir = False  # what is written on it comes home when a command has ended
        self._env = _ENV
        self._link = link
        self._scope = scope
        self._last_words = last_words
        self._workdirs: list[Workdir] = []
        self._made = ExitStack()

    def keep(self, made: ExitStack) -> Self:
        """From here on, closing the place removes what was made for it."""
        self._made = made
        return self

    def prepare_workdir(self, site: Site) -> None:
        """Folders for what may be written: scratch space of the guest's own, and workdirs that are kept alike."""
        with self._alive("make folders"):
            self._link.ask("workdir", path=str(site.scratch), mode=0o700)
            self._workdirs = [Workdir(self._link, folder) for folder in site.writes]
        self._push()

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        self._push()
        ended = self._start(argv, self._env, "/", stdin.encode()).wait(limit_s)
        if ended.timed_out:
            return Completed(tuple(argv), 124, ended.out, f"{ended.err}\nended by tare: no answer within {limit_s:g} s")
        return Completed(tuple(argv), ended.code, ended.out, ended.err)

    def spawn(self, job: Job) -> Process:
        self._push()
        self.look_at_clock()
        return self._start(job.argv, {**job.env, tree.NAME_VARIABLE: self.name}, job.cwd, b"", clocked=True)

    def read(self, path: PurePath | str) -> str:
        self._push(path)
        with self._alive(f"read {path}"):
            return _here(path, lambda: self._link.ask("read", path=str(path)).data).decode("utf-8", "replace")

    def write(self, path: PurePath | str, text: str) -> None:
        with self._alive(f"write {path}"):
            _here(path, lambda: self._link.ask("write", text.encode(), path=str(path)))
        self.pull(path)

    def scope(self) -> Scope:
        return self._scope

    def close(self) -> None:
        with self.phases.timed("close.stop"):
            self._made.close()

    def look_at_clock(self) -> None:
        """Compare the guest's clock with the device's."""
        with self._alive("report its time"):
            self.guest_clock.add(sight(self.clock.now_ns, lambda: int(self._link.ask("clock").header["ns"])))

    def pull(self, path: PurePath | str | None = None) -> None:
        """Bring home what was written in the workdirs, or on the one that holds `path`."""
        with self._alive("hand over its workdir"):
            for workdir in self._workdirs:
                if path is None or workdir.holds(str(path)):
                    workdir.pull()

    def _push(self, path: PurePath | str | None = None) -> None:
        with self._alive("take its workdir"):
            for workdir in self._workdirs:
                if path is None or workdir.holds(str(path)):
                    workdir.push()

    def _start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes, *, clocked: bool = False
    ) -> GuestProcess:
        start_ns = self.clock.now_ns()
        number = self._link.begin("spawn", stdin, argv=list(argv), env=dict(env), cwd=cwd)
        return GuestProcess(self, self._link, number, start_ns, clocked=clocked)

    @contextmanager
    def _alive(self, doing: str) -> Iterator[None]:
        """A guest that has ended, or does not answer, as an error with its last words."""
        try:
            yield
        except (GuestGone, GuestSilent) as error:
            raise self.lost(doing, error) from error

    def lost(self, doing: str, error: Exception) -> TrialError:
        ending = "has ended" if isinstance(error, GuestGone) else f"does not answer ({error})"
        return TrialError(
            f"the virtual machine {self.name} {ending} and could not {doing}.\n{self._last_words()}".rstrip()
        )


class GuestProcess:
    """A job in a guest; it is timed on the device, from the question to the news of its end."""

    def __init__(self, place: GuestPlace, link: Link, number: int, start_ns: int, *, clocked: bool) -> None:
        self._place = place
        self._link = link
        self._number = number
        self._start_ns = start_ns
        self._clocked = clocked
        self._streams = {"out": bytearray(), "err": bytearray()}
        self._ooms_before: int | None = None
        self._exit: Exit | None = None

    def wait(self, limit_s: float) -> Exit:
        if self._exit is None:
            self._exit = self._waited(limit_s)
            self._link.forget(self._number)
        return self._exit

    def kill(self) -> None:
        with self._place._alive("end a job"):
            self._link.ask("kill", job=self._number, within_s=_DIES_WITHIN_S)

    def _waited(self, limit_s: float) -> Exit:
        timed_out = False
        try:
            try:
                ended = self._until("ended", limit_s)
            except GuestSilent:
                timed_out = True
                self.kill()
                ended = self._until("ended", _DIES_WITHIN_S)
            end_ns = self._place.clock.now_ns()
            closed = self._until("closed", _CLOSES_WITHIN_S)
        except (GuestGone, GuestSilent) as error:
            raise self._place.lost("finish the job", error) from error
        if self._clocked:
            self._place.look_at_clock()
        self._place.pull()
        seen = Exit(
            code=int(ended.header["ended"]),
            seconds=(end_ns - self._start_ns) / 1e9,
            out=_text(self._streams["out"]),
            err=_text(self._streams["err"]),
            timed_out=timed_out,
            truncated=bool(closed.header["truncated"]),
        )
        if self._place.runs_others and seen.code == 0:
            return seen
        return with_oom_note(seen, self._ooms_before, ended.header.get("oom_kills"))

    def _until(self, word: str, within_s: float) -> Frame:
        """The answer that has this word; output and other news on the way are kept."""
        end_s = time.monotonic() + within_s
        while True:
            frame = checked(self._link.next(self._number, end_s - time.monotonic()))
            if word in frame.header:
                return frame
            if "stream" in frame.header:
                self._streams[str(frame.header["stream"])] += frame.data
            else:
                self._ooms_before = frame.header.get("oom_kills")


def _text(data: bytearray) -> str:
    return bytes(data).decode("utf-8", "replace")


def _here(path: PurePath | str, ask: Callable[[], object]) -> bytes:
    """What was asked for; the guest's errors are the ones that a file of the device would give."""
    try:
        answer = ask()
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise FileNotFoundError(str(path)) from error
        raise OSError(error.errno, f"{path}: {error.strerror}") from error
    return answer if isinstance(answer, bytes) else b""


def tail(path: Path, lines: int) -> str:
    """The last lines of a console; nothing where there is none."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(kept[-lines:])
