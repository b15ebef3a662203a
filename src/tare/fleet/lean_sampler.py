"""Probes on a device without tare: the device keeps the texts of the files, and the probes read them afterwards, here.

The same probes as everywhere find out over the line which files they want; from then on nothing of it crosses the
network until the trial has ended (`tare_inside.agents.lean_sampler`). Then each probe is shown what it would have
read.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, NamedTuple, Self

from tare.base.errors import TrialError
from tare.base.host import Completed, Job, Process, Scope
from tare.base.rulings import Ruling
from tare.fleet.lean_host import LeanHost
from tare.parts.probes.cgroup import Cgroup
from tare.parts.protocols import Feed, Periodic, Probe
from tare.records.spool import SpoolWriter
from tare.trial.sampler import Watch
from tare.trial.sampler_report import SamplerReport, Tick

_PIECE_BYTES = 1 << 16
_SLOW_S = 1.0  # how often a file is read that a probe does not read at each tick, unless the probe says
_NEVER_SLOW_NS = 1 << 62  # texts are shown in no time; what the device took to read them is in its lateness
_NO_SWITCHES = Ruling(
    "probe.limited", "note", "cgroup", "cgroup: the switches of single threads are not counted on a lean device."
)
_ENDED_EARLY = Ruling(
    "sampler.ended",
    "note",
    "sampler",
    "sampler: it ended early on the device (no memory left there?); what it had kept by then is here.",
)


class RequestedFile(NamedTuple):
    """A file as the probes asked for it."""

    path: str
    period_ns: int  # 0: at each tick


class LeanSampler:
    """`trial.sampler.Sampler` for such a device."""

    def __init__(self, host: LeanHost, probes: Sequence[Probe], spool: Path, period_s: float) -> None:
        self._host = host
        # Threads come and go, and each has files of its own: these cannot be named beforehand.
        self._probes = [
            each.model_copy(update={"switches": False}) if isinstance(each, Cgroup) else each for each in probes
        ]
        self._lost = [_NO_SWITCHES] if self._probes != list(probes) else []
        self._spool = spool
        self._period_ns = round(period_s * 1e9)
        self._learnt = Learning(host)
        self._asked: list[RequestedFile] = []
        self._scope = Scope()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The sampler there ends with the line, if not before."""

    def begin(self, scope: Scope, neighbours: Sequence[Scope] = ()) -> None:
        self._scope = scope
        self._asked = self._learnt.files(self._probes, scope)
        order = {"period_ns": self._period_ns, "files": [list(file) for file in self._asked]}
        with self._host.answering("start its sampler") as link:
            link.ask("sample", json.dumps(order).encode())

    def end(self) -> SamplerReport:
        with self._host.answering("hand over its samples") as link:
            size = int(link.ask("sampled").header["bytes"])
            data = bytearray()
            while len(data) < size:
                piece = link.ask("samples", at=len(data)).data
                if not piece:
                    raise TrialError(f"{self._host.name}: the samples end after {len(data)} of {size} bytes.")
                data += piece
        shown = Replayed([file.path for file in self._asked], self._learnt.texts, self._host.guest_clock.to_device_ns)
        report = _replayed(shown, bytes(data), self._probes, self._scope, SpoolWriter(self._spool))
        report.lost.extend(self._lost)
        return report


class Learning:
    """A host that notes what is read of it, and what that said."""

    def __init__(self, host: LeanHost) -> None:
        self.name, self.clock, self.python = host.name, host.clock, host.python
        self.texts: dict[str, str | int] = {}  # an errno where there was no text
        self._host = host
        self._read: list[str] = []

    def files(self, probes: Iterable[Probe], scope: Scope) -> list[RequestedFile]:
        """What these probes read: some files at each tick, others now and then."""
        found: dict[str, int] = {}
        for probe in probes:
            try:
                feed = probe.open(self, scope)
            except (OSError, ValueError, LookupError):
                continue  # it says so itself when it is shown the same again
            slow_ns = round(_slow_s(probe) * 1e9)
            once, again = self._heard(feed.poll), self._heard(feed.poll)
            for path in once:
                found[path] = min(found.get(path, slow_ns), 0 if path in again else slow_ns)
            self._heard(feed.close)
        return [RequestedFile(path, period_ns) for path, period_ns in found.items()]

    def _heard(self, step: Callable[[], Iterable[Any]]) -> list[str]:
        self._read = []
        list(step())
        return list(dict.fromkeys(self._read))

    def read(self, path: PurePath | str) -> str:
        self._read.append(str(path))
        try:
            text = self._host.read(path)
        except OSError as error:
            self.texts.setdefault(str(path), error.errno or errno.ENOENT)
            raise
        self.texts.setdefault(str(path), text)
        return text

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        return Completed(tuple(argv), 127, "", "probes run no commands on a lean device")

    def spawn(self, job: Job) -> Process:
        raise TrialError("probes start nothing on a lean device.")

    def write(self, path: PurePath | str, text: str) -> None:
        raise TrialError(f"probes write nothing on a lean device, and not {path}.")

    def scope(self) -> Scope:
        return self._host.scope()

    def close(self) -> None:
        """The line is the trial's."""


def _slow_s(probe: Probe) -> float:
    if isinstance(probe, Cgroup):
        return probe.slow_period_s
    return probe.period if isinstance(probe, Periodic) else _SLOW_S


class Replayed(Learning):
    """The device as it was at each tick: a file's text is the last that was read, at the time when it was read."""

    def __init__(self, paths: Sequence[str], first: dict[str, str | int], to_our_ns: Callable[[int], int]) -> None:
        self.name, self.python = "device", ""
        self.clock: Any = self
        self.spent_s = 0.0
        self.is_whole = True  # the sampler there ended as it was told to
        self._now_ns = 0
        self._paths = paths
        self._texts = dict(first)
        self._read_at_ns: dict[str, int] = {}
        self._to_our_ns = to_our_ns

    def ticks(self, data: bytes) -> Iterator[Tick]:
        """Be the device at one tick after the other."""
        lines, self.is_whole = _unpacked(data)
        for line in lines:
            due_ns, late_ns, missed, self.spent_s, read = json.loads(line)
            t_ns = due_ns + late_ns
            self._read_at_ns |= {self._paths[number]: self._to_our_ns(t_ns + after_ns) for number, after_ns, *_ in read}
            self._texts |= {self._paths[number]: text[0] for number, _, *text in read if text}
            self._now_ns = self._to_our_ns(t_ns)
            yield Tick(self._now_ns - late_ns, late_ns, missed)

    def now_ns(self) -> int:
        return self._now_ns

    def sleep_until(self, t_ns: int) -> None:
        """Time passes by the ticks alone."""

    def read(self, path: PurePath | str) -> str:
        found = self._texts.get(str(path), errno.ENOENT)
        if isinstance(found, int):
            raise OSError(found, os.strerror(found), str(path))
        self._now_ns = self._read_at_ns.get(str(path), self._now_ns)
        return found

    def scope(self) -> Scope:
        return Scope()


class _Shown(Watch):
    """Feeds that are shown texts; none of them can block."""

    def _add(self, name: str, opened: Callable[[], Feed], may_block: bool) -> None:
        super()._add(name, opened, False)


def _replayed(shown: Replayed, data: bytes, probes: Sequence[Probe], scope: Scope, spool: SpoolWriter) -> SamplerReport:
    """Show the probes every tick, and keep what they make of it."""
    grid = shown.ticks(data)
    first = next(grid, None)
    watch = _Shown(spool, shown, _NEVER_SLOW_NS, lambda: shown.spent_s)
    watch.open(probes, scope)
    for tick in () if first is None else chain([first], grid):
        watch.take(tick)
    report = watch.close(None)
    report.lost.extend([] if shown.is_whole else [_ENDED_EARLY])
    return report


def _unpacked(data: bytes) -> tuple[list[bytes], bool]:
    """The lines that are whole, and whether the stream is: who was ended could not finish it."""
    unpacker, text = zlib.decompressobj(), bytearray()
    with suppress(zlib.error):
        for start in range(0, len(data), _PIECE_BYTES):
            text += unpacker.decompress(data[start : start + _PIECE_BYTES])
    return bytes(text).split(b"\n")[:-1], unpacker.eof
