"""A device without tare: as a host, whose commands, files and jobs go to its agent, and as something to be sampled.

It is what a virtual machine is to its device (`drivers.guests.place`), with a longer line and a kernel that is not
ours: marks come back and are moved to our time. Its sampler keeps the texts of files, which our probes read afterwards.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePath
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from tare.base.errors import LineLost, TrialError
from tare.base.host import Completed, Job, LocalHost, Process, Scope, Site
from tare.base.rulings import Ruling
from tare.drivers.guests.channel import GuestClock, GuestGone, GuestSilent, Link, sight
from tare.drivers.guests.place import GuestPlace, Workdir
from tare.drivers.places import SOURCE
from tare.drivers.storage.checkpoints import checkpoints_of_site
from tare.fleet.inventory import Device
from tare.fleet.ssh import (
    ARRIVING,
    Unreachable,
    code_of,
    command_line,
    ended,
    ended_after,
    last_words,
    whole,
    why_silent,
)
from tare.parts.probes.cgroup import Cgroup
from tare.parts.protocols import Feed, Json, Periodic, Probe
from tare.records.spool import SpoolWriter
from tare.trial.sampler import Watch
from tare.trial.sampler_report import SamplerReport, Tick

UP_WITHIN_S = 60.0
BEATS_UNHEARD = 3  # after so many the agent takes us for gone
_RETRY_S = 5.0
_MOST_NOISE_LINES = 1000
_MOST_LINE_BYTES = 1 << 20
_HAS, _WANTS, _READY = b"tare-agent has\n", b"tare-agent wants\n", b"tare-agent\n"

# Keeps the package beside the user's other caches, under the hash of what is in it; reads it from standard input where
# it is not there, or is not whole. What runs is a copy of it in memory, which goes with the agent, also where a signal
# ends that before it has begun.
_BOOT = f"""{ARRIVING}
import hashlib, io, shutil, signal, tempfile, zipfile
name, size, silent_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
path = os.path.join(cache, "inside-" + name + ".zip")
data = kept(path)
there = hashlib.sha256(data).hexdigest() == name
os.write(1, b"tare-agent has\\n" if there else b"tare-agent wants\\n")
if not there:
    data = arrived(size)
    keep(path, data)
for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: sys.exit(0))
memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
folder = tempfile.mkdtemp(prefix="tare-lean-", dir=memory)
try:
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        package.extractall(folder)
    sys.path.insert(0, folder)
    from tare_inside.agents.lean import main
    main(silent_s, folder)
finally:
    shutil.rmtree(folder, ignore_errors=True)
"""


@dataclass(frozen=True)
class Line:
    """An agent that has said what the device is, and how to ask it."""

    device: Device
    link: Link
    said: dict[str, Any]
    alive_s: float  # how often each side hears of the other


@contextmanager
def opened(device: Device, patience_s: float) -> Iterator[Line]:
    """A line, for which a device that is out of reach is waited for as long as our patience lasts."""
    end_s = time.monotonic() + patience_s
    alive_s = max(1.0, min(10.0, patience_s / 4))
    while True:
        with ExitStack() as stack:
            try:
                line = stack.enter_context(_opened(device, alive_s))
            except Unreachable:
                if time.monotonic() + min(_RETRY_S, alive_s) > end_s:
                    raise
                time.sleep(min(_RETRY_S, alive_s))
                continue
            yield line
            return


@contextmanager
def _opened(device: Device, alive_s: float) -> Iterator[Line]:
    package = whole()
    # -I: what lies in the home folder there, or in PYTHONPATH, is not ours to run.
    boot = [device.python, "-I", "-B", "-c", _BOOT, hashlib.sha256(package).hexdigest(), str(len(package))]
    with tempfile.TemporaryDirectory(prefix="tare-ssh-") as folder, tempfile.TemporaryFile() as err:
        argv = command_line(device, [*boot, str(BEATS_UNHEARD * alive_s + 1)], alive_s, folder)
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, bufsize=0)
        with ended(child):
            with ended_after(child, UP_WITHIN_S):
                up = _started(child, package)
            if not up:
                raise _why(device, child, err)
            link = Link(_Pipes(child))
            try:
                said = link.hello(UP_WITHIN_S)
            except (GuestGone, GuestSilent) as error:
                raise _why(device, child, err) from error
            with _beating(link, alive_s):
                yield Line(device, link, said, alive_s)
            _say_goodbye(child)


def _started(child: subprocess.Popen[bytes], package: bytes) -> bool:
    """Whether the agent is up; what a login script says before it is passed over."""
    assert child.stdin is not None
    assert child.stdout is not None
    for _ in range(_MOST_NOISE_LINES):
        line = child.stdout.readline(_MOST_LINE_BYTES)
        if line == _WANTS:
            with suppress(OSError):  # that nobody reads is seen at the next line
                _write(child.stdin.fileno(), package)
        elif line == _READY:
            return True
        elif not line:
            return False
    return False


def _why(device: Device, child: subprocess.Popen[bytes], err: IO[bytes]) -> Exception:
    assert child.stdin is not None
    with suppress(OSError):
        child.stdin.close()
    return why_silent(device, code_of(child), last_words(err))


def _say_goodbye(child: subprocess.Popen[bytes]) -> None:
    """A closed line is the agent's sign to clean up; it is given the time for that, so that the next finds it done."""
    assert child.stdin is not None
    with suppress(OSError, subprocess.TimeoutExpired):
        child.stdin.close()
        child.wait(UP_WITHIN_S)


@contextmanager
def _beating(link: Link, every_s: float) -> Iterator[None]:
    """While this lasts the agent hears from us, whatever else is said."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every_s):
            link.tell("beat")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Pipes:
    """The two pipes of an ssh as one wire."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._says, self._hears = child.stdin, child.stdout

    def recv(self, size: int, /) -> bytes:
        return os.read(self._hears.fileno(), size)

    def sendall(self, data: bytes, /) -> None:
        try:
            _write(self._says.fileno(), data)
        except ValueError as error:  # it was closed by whoever leaves
            raise BrokenPipeError from error

    def close(self) -> None:
        self._says.close()


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


DRIVEN = "lean"
_SETTLED = "/sys/class/"  # what is not there now does not appear during a trial, and is asked for a hundred times
_NOT_LOOKED_AT = "whether a power manager (nvpmodel, tlp, tuned) runs on the device"


class LeanClock(GuestClock):
    """The device's clock against ours, and how long the device slept between the sightings."""

    def __init__(self) -> None:
        super().__init__()
        self._slept_s: list[float] = []

    def note_sleep(self, slept_s: float) -> None:
        """Once a sighting: the one before the job is kept, and the latest."""
        self._slept_s = [*self._slept_s[-1:], slept_s]

    def facts(self) -> dict[str, Json]:
        return {**super().facts(), "slept_s": self._slept_s[-1] - self._slept_s[0]}


class LeanWorkdir(Workdir):
    """A workdir whose copy of `tare_inside` is made on the device, from the one that is there."""

    def __init__(self, link: Link, folder: Path) -> None:
        super().__init__(link, folder)
        link.ask("copied", workdir=str(folder))
        self.know("inside")


class LeanHost(GuestPlace):
    """The device at the other end of a line. Its `machine_facts` are what a record says of it."""

    runs_others = True

    def __init__(self, line: Line) -> None:
        reported = line.said
        here = LocalHost(python=str(reported["executable"]))
        super().__init__(here, line.device.name, line.link, Scope(), lambda: "")
        self.line = line
        self.gone = False  # the line broke
        self.guest_clock: LeanClock = LeanClock()
        self.facts = {"driven": DRIVEN, "unchecked": [_NOT_LOOKED_AT]}
        self.machine_facts: dict[str, Json] = {
            **{name: reported[name] for name in ("kernel", "machine", "cores")},
            "driven": DRIVEN,
        }
        self._env = {
            name: reported["environ"][name] for name in ("PATH", "HOME", "LANG") if name in reported["environ"]
        }
        self._absent: set[str] = set()
        self._slept_s = 0.0  # since its boot, when it was asked last

    def prepare_workdir(self, site: Site) -> None:
        """The workdir, there and here alike. Whatever is made under the site's name goes with the line."""
        with self._alive("make folders"):
            folders = [str(checkpoints_of_site(site.name))]
            self._link.ask("site", name=site.name, folders=folders)
            self._workdirs += [LeanWorkdir(self._link, folder) for folder in site.writes]
        self._push()

    def run(self, argv: Sequence[str], *, limit_s: float = 60, stdin: str = "") -> Completed:
        return replace(super().run(self._there(argv), limit_s=limit_s, stdin=stdin), argv=tuple(argv))

    def spawn(self, job: Job) -> Process:
        return super().spawn(replace(job, argv=tuple(self._there(job.argv))))

    def read(self, path: PurePath | str) -> str:
        if str(path) in self._absent:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        try:
            return super().read(path)
        except FileNotFoundError:
            if str(path).startswith(_SETTLED):
                self._absent.add(str(path))
            raise

    def look_at_clock(self) -> None:
        with self._alive("report its time"):
            self.guest_clock.add(sight(self.clock.now_ns, self._its_ns))
            self.guest_clock.note_sleep(self._slept_s)

    def lost(self, doing: str, error: Exception) -> LineLost:
        self.gone = True
        how = "broke" if isinstance(error, GuestGone) else f"is silent ({error})"
        return LineLost(
            f"{self.name}: the line to the device {how}, and it could not {doing}. Its agent ends what runs there."
        )

    @contextmanager
    def answering(self, doing: str) -> Iterator[Link]:
        """The line itself, for questions that a host does not have."""
        with self._alive(doing):
            yield self._link

    def _its_ns(self) -> int:
        reported = self._link.ask("clock").header
        self._slept_s = float(reported["slept_s"])
        return int(reported["ns"])

    def _there(self, argv: Sequence[str]) -> list[str]:
        """A command line of ours, with the files of `tare_inside` where the device has them."""
        inside: Any = self.line.said["inside"]
        return [f"{inside}{word.removeprefix(str(SOURCE))}" if word.startswith(str(SOURCE)) else word for word in argv]


# Probes on a device without tare: the device keeps the texts of the files, and the probes read them afterwards, here.
#
# The same probes as everywhere find out over the line which files they want; from then on nothing of it crosses the
# network until the trial has ended (`tare_inside.agents.lean_sampler`). Then each probe is shown what it would have
# read.

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
