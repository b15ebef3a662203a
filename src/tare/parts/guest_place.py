"""Inside a virtual machine: a host whose commands, files and time come over the line to the guest's agent."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path, PurePath
from typing import Self

from tare.errors import TrialError
from tare.host import Completed, Exit, Host, Job, Process, Scope, Site
from tare.parts import strays
from tare.parts.group import with_oom_note
from tare.parts.guest_channel import Frame, GuestGone, GuestSilent, Link, checked
from tare.parts.guest_clock import GuestClock, sight
from tare.parts.guest_desk import Desk
from tare.parts.guest_relay import relayed
from tare.parts.oci import PATH
from tare.parts.phases import Phases
from tare.parts.protocols import Json

_ENV = {"PATH": PATH, "HOME": "/root"}  # of short commands; a job brings its own
_DIES_WITHIN_S = 15.0
_CLOSES_WITHIN_S = 15.0


class GuestPlace:
    """A running guest. Its clock is the device's, as for every host; `guest_clock` moves what was marked inside."""

    def __init__(
        self, host: Host, name: str, link: Link, scope: Scope, last_words: Callable[[], str], *, folder: Path
    ) -> None:
        self.name = name
        self.clock = host.clock
        self.python = host.python
        self.facts: dict[str, Json] = {}
        self.phases = Phases(host.clock)
        self.guest_clock = GuestClock()
        self.desk_is_the_devices = False  # what is written on it comes home when a command has ended
        self._env = _ENV
        self._link = link
        self._scope = scope
        self._last_words = last_words
        self._folder = folder  # on the device, the machine's own
        self._desks: list[Desk] = []
        self._made = ExitStack()

    def keep(self, made: ExitStack) -> Self:
        """From here on, closing the place removes what was made for it."""
        self._made = made
        return self

    def furnish(self, site: Site) -> None:
        """Folders for what may be written: scratch space of the guest's own, and desks that are kept alike."""
        with self._alive("make folders"):
            self._link.ask("desk", path=str(site.scratch), mode=0o700)
            self._desks = [Desk(self._link, folder) for folder in site.writes]
        self._push()

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        self.lay_out(clocked=False)
        ended = self._start(argv, self._env, "/", stdin.encode()).wait(limit_s)
        if ended.timed_out:
            return Completed(tuple(argv), 124, ended.out, f"{ended.err}\nended by tare: no answer within {limit_s:g} s")
        return Completed(tuple(argv), ended.code, ended.out, ended.err)

    def spawn(self, job: Job) -> Process:
        self.lay_out(clocked=True)
        return self._start(job.argv, {**job.env, strays.VARIABLE: self.name}, job.cwd, b"", clocked=True)

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

    def reach(self, path: str) -> AbstractContextManager[str]:
        return relayed(self._link, path, self._folder)

    def lay_out(self, *, clocked: bool) -> None:
        self._push()
        if clocked:
            self.look_at_clock()

    def bring_home(self, *, clocked: bool) -> None:
        if clocked:
            self.look_at_clock()
        self.pull()

    def close(self) -> None:
        with self.phases.timed("close.stop"):
            self._made.close()

    def look_at_clock(self) -> None:
        """Compare the guest's clock with the device's."""
        with self._alive("tell its time"):
            self.guest_clock.add(sight(self.clock.now_ns, lambda: int(self._link.ask("clock").header["ns"])))

    def pull(self, path: PurePath | str | None = None) -> None:
        """Bring home what was written on the desks, or on the one that holds `path`."""
        with self._alive("hand over its desk"):
            for desk in self._desks:
                if path is None or desk.holds(str(path)):
                    desk.pull()

    def _push(self, path: PurePath | str | None = None) -> None:
        with self._alive("take its desk"):
            for desk in self._desks:
                if path is None or desk.holds(str(path)):
                    desk.push()

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
        self._place.bring_home(clocked=self._clocked)
        seen = Exit(
            code=int(ended.header["ended"]),
            seconds=(end_ns - self._start_ns) / 1e9,
            out=_text(self._streams["out"]),
            err=_text(self._streams["err"]),
            timed_out=timed_out,
            truncated=bool(closed.header["truncated"]),
        )
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
