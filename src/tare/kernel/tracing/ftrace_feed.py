"""The `ftrace` probe while it records: raw pages from each core's buffer to a file, and what is needed to read them.

Pages are moved by `splice`, which copies them once and wakes nobody; nothing is decoded here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tare.base.errors import TareError, TrialError
from tare.base.host import Host, Scope
from tare.base.rulings import probe_note
from tare.base.units import Channel
from tare.ext.parts import Reading
from tare.kernel.traces.recording import names_of_tasks, write_formats, write_meta
from tare.kernel.traces.roles import Snapshot
from tare.kernel.tracing import tracefs
from tare.kernel.tracing.tracefs import Instance

READ = Channel("ftrace.read_bytes", "bytes", "counter", "raw trace that was copied to disk")
LOST = Channel("ftrace.lost_events", "1", "counter", "events that the kernel overwrote before they were read")

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PIPE_BYTES = 1 << 20
_SECOND_NS = 1_000_000_000
_LOOK_PERIOD_NS = _SECOND_NS
_OVERRUN = re.compile(r"^(overrun|dropped events): (\d+)$", re.MULTILINE)


class RawPages:
    """The page pipes of all cores, and the files that they go to."""

    def __init__(self, instance: Instance, folder: Path) -> None:
        self.bytes = 0
        self.page_bytes = _subbuffer_bytes(instance)
        with contextlib.ExitStack() as stack:
            self._pairs = [_opened(stack, instance, folder, cpu) for cpu in instance.cores()]
            self._out, self._in = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, self._out)
            stack.callback(os.close, self._in)
            with contextlib.suppress(OSError):  # a smaller pipe only takes more calls
                fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            self._open = stack.pop_all()

    def drain(self) -> None:
        """Copy every page that is full."""
        for raw, file in self._pairs:
            while moved := _spliced(raw, self._in):
                self.bytes += moved
                while moved:
                    moved -= os.splice(self._out, file, moved)

    def finish(self) -> None:
        """Copy the last page of each core, which is not full; call it when nothing more is traced."""
        self.drain()
        for raw, file in self._pairs:
            while page := _page(raw, self.page_bytes):
                # The kernel gives as much of the page as holds events; the file is made of whole ones.
                self.bytes += os.write(file, page.ljust(self.page_bytes, b"\0"))

    def close(self) -> None:
        self._open.close()


class TraceFeed:
    """A trace that runs. Closing it removes the instance, whatever else goes wrong."""

    channels: tuple[Channel, ...] = (READ, LOST)

    def __init__(
        self, host: Host, scopes: Sequence[Scope], folder: Path, instance: Instance, *, limit_bytes: int, probe: str
    ) -> None:
        self._probe = probe
        self.lost = [probe_note("probe.disturbed", probe, sentence) for sentence in instance.others()]
        self._host, self._scopes, self._folder, self._instance = host, scopes, folder, instance
        self._limit_bytes = limit_bytes
        self._cores = instance.cores()
        self._look_due_ns = 0
        self._stopped = self._disk_is_full = self._silenced = False
        self._start = tracefs.snapshot(host, scopes)
        self._sightings: list[tuple[int, int, str]] = []
        self._pages = RawPages(instance, folder)
        self._keep()
        instance.write("tracing_on", "1")

    def poll(self) -> list[Reading]:
        self._guarded(self._pages.drain)
        now_ns = self._host.clock.now_ns()
        if now_ns < self._look_due_ns:
            return [Reading(now_ns, READ.name, self._pages.bytes)]
        self._look_due_ns = now_ns + _LOOK_PERIOD_NS
        self._look()
        self._check()
        return self._readings()

    def close(self) -> list[Reading]:
        """The rest of the pages, what was lost, who was there; then the instance goes."""
        try:
            self._check()
            self._stop()
            self._look()
            self._guarded(self._pages.finish)
            self._guarded(self._keep)  # what was written at the start stands where there is no room any more
            readings = self._readings()
            lost = sum(self._overruns().values())
            if lost:
                sentence = (
                    f"the trace buffer was full, and {lost} events were lost: what is counted from this "
                    "trace is at least so much. A larger `buffer` holds more."
                )
                self.lost.append(probe_note("probe.overflow", self._probe, sentence))
            return readings
        finally:
            self._pages.close()
            self._instance.remove()

    def _stop(self) -> None:
        self._stopped = True
        self._instance.write("tracing_on", "0")

    def _guarded(self, copy: Callable[[], None]) -> None:
        """A full disk, or a trace that outgrows its limit, ends the recording and not the trial."""
        if self._disk_is_full:  # what a page began must not be followed by another one
            return
        try:
            copy()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._disk_is_full = True
            self._end_early(f"the disk of {self._folder} is full")
        if self._pages.bytes > self._limit_bytes:
            self._end_early(f"it reached its limit of {self._limit_bytes >> 20} MiB")

    def _end_early(self, why: str) -> None:
        if not self._stopped:
            self._stop()
            sentence = f"the trace ends early, because {why}; what is counted from it is at least so much."
            self.lost.append(probe_note("probe.ended", self._probe, sentence))

    def _look(self) -> None:
        """Who is in the tenants' groups now: some are born there, and no event says so."""
        known = {pid for _, pid, _ in self._sightings}
        self._sightings += tracefs.sightings(self._host, self._scopes, known)

    def _check(self) -> None:
        """Whether the kernel still records: another's tool may switch off every instance, ours with it."""
        if self._stopped or self._silenced:
            return
        instance = self._instance  # it may be on, with no event left on: `0`
        if instance.read("tracing_on").strip() != "1" or instance.read("events/enable").strip() == "0":
            self._silenced = True
            sentence = (
                "someone else switched our tracing off while it ran; what is counted from this trace is at "
                "least so much."
            )
            self.lost.append(probe_note("probe.disturbed", self._probe, sentence))

    def _readings(self) -> list[Reading]:
        now_ns = self._host.clock.now_ns()
        return [
            Reading(now_ns, READ.name, self._pages.bytes),
            Reading(now_ns, LOST.name, sum(self._overruns().values())),
        ]

    def _overruns(self) -> dict[int, int]:
        stats = {cpu: self._instance.read(f"per_cpu/cpu{cpu}/stats") for cpu in self._cores}
        return {cpu: sum(int(count) for _, count in _OVERRUN.findall(text)) for cpu, text in stats.items()}

    def _keep(self) -> None:
        try:
            names = (self._instance.root / "saved_cmdlines").read_text(errors="backslashreplace")
        except OSError:
            names = ""
        comms = names_of_tasks(names.splitlines())  # as far as the kernel remembers any
        roles = Snapshot(self._start.tasks, self._start.groups, self._start.makers, tuple(self._sightings))
        write_meta(
            self._folder,
            {
                "clock": "mono",
                "page_bytes": os.sysconf("SC_PAGE_SIZE"),
                "subbuffer_bytes": self._pages.page_bytes,
                "roles": roles.as_json(),
                "comms": comms,
                "lost": self._overruns(),
                "ended": self._stopped,
                "notes": [str(note) for note in self.lost],
            },
        )


def start(
    host: Host,
    scopes: Sequence[Scope],
    folder: Path,
    instance: Instance,
    events: Sequence[str],
    *,
    buffer_bytes: int,
    limit_bytes: int,
    probe: str = "ftrace",
) -> TraceFeed:
    """Set the instance up and begin; if that fails, it is gone again."""
    try:
        instance.write("tracing_on", "0")
        instance.write("trace_clock", "mono")
        instance.write("buffer_size_kb", str(max(1, buffer_bytes >> 10)))
        for event in events:
            instance.write(f"events/{event}/enable", "1")
        texts = {
            (system, name): instance.read(f"events/{system}/{name}/format")
            for system, _, name in (event.partition("/") for event in events)
        }
        write_formats(folder, instance.read("events/header_page"), texts)
        return TraceFeed(host, scopes, folder, instance, limit_bytes=limit_bytes, probe=probe)
    except BaseException as error:
        instance.remove()
        if isinstance(error, OSError) and not isinstance(error, TareError):
            raise TrialError(f"the kernel cannot be traced: {error}.") from error
        raise


def _opened(stack: contextlib.ExitStack, instance: Instance, folder: Path, cpu: int) -> tuple[int, int]:
    raw = os.open(instance.path / f"per_cpu/cpu{cpu}/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    stack.callback(os.close, raw)
    file = os.open(folder / f"cpu{cpu}.raw", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    stack.callback(os.close, file)
    return raw, file


def _spliced(raw: int, into: int) -> int:
    try:
        return os.splice(raw, into, _PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK)
    except BlockingIOError:
        return 0


def _page(raw: int, size: int) -> bytes:
    try:
        return os.read(raw, size)
    except BlockingIOError:
        return b""


def _subbuffer_bytes(instance: Instance) -> int:
    """Kernels from 6.8 on can have larger pages in a buffer; before that the header page tells."""
    if instance.has("buffer_subbuf_size_kb"):
        return int(instance.read("buffer_subbuf_size_kb").split()[0]) << 10
    return os.sysconf("SC_PAGE_SIZE")
