"""A feed that reads a handful of kernel files at each poll: most probes are a list of these files.

One file that cannot be read never costs the others: a file that is gone is lost from then on and said so once,
a value that makes no sense is counted and left out. Nothing is ever replaced by zero.

The text formats that the kernel uses in /proc and cgroup files, read without regular expressions: they are
parsed ten times a second beside someone's measurement.

Each parser is made from the first text of its file and declares only the channels found there.

Folders of sensors in /sys, which the kernel numbers anew at each boot: found by what is written in them.
"""

from __future__ import annotations

import errno
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle, probe_note
from tare.base.units import Channel
from tare.parts.protocols import Reading

_GONE = {errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.ENOTDIR}
_LATER = {errno.EAGAIN, errno.EBUSY, errno.EIO}  # a sensor that sleeps with its hardware, and will be there again


class Parser(Protocol):
    """Turns the text of one file into readings of the channels that it declares."""

    @property
    def channels(self) -> tuple[Channel, ...]: ...

    def __call__(self, t_ns: int, text: str) -> list[Reading]: ...


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A file, and how to read it: `parser_for` looks at its first text, so that it declares only what is there."""

    path: str
    parser_for: Callable[[str], Parser]
    slow: bool = False  # once a second and at the end is enough: it matters as a sum, or changes seldom


class FileFeed:
    """The files of one probe, while they are watched."""

    def __init__(
        self, probe: str, host: Host, files: Iterable[KernelFile], slow_period_ns: int = 1_000_000_000
    ) -> None:
        self.channels: tuple[Channel, ...] = ()
        self.lost: list[Ruling] = []  # what could not be watched to the end
        self.errors: Counter[str] = Counter()  # file name -> reads that gave nothing usable
        self._probe, self._host, self._slow_period_ns = probe, host, slow_period_ns
        self._start_ns = self._slow_due_ns = host.clock.now_ns()
        self._each_poll: dict[str, Parser] = {}
        self._now_and_then: dict[str, Parser] = {}
        self._taken: list[tuple[Parser, str, int, str]] = []  # read, and not parsed yet
        for file in files:
            self._watch(file)

    @property
    def due_ns(self) -> int:
        """Before this there is nothing to read."""
        return 0 if self._each_poll else self._slow_due_ns

    def poll(self) -> list[Reading]:
        self.take()
        return self.taken()

    def take(self) -> None:
        """Read what is due, and nothing more: what runs once in a tick runs on cold caches."""
        self._take(self._each_poll)
        now_ns = self._host.clock.now_ns()
        if now_ns >= self._slow_due_ns:
            self._slow_due_ns = now_ns + self._slow_period_ns
            self._take_slow()

    def taken(self) -> list[Reading]:
        """Parse what was read since the last time."""
        taken, self._taken = self._taken, []
        readings: list[Reading] = []
        for parser, path, t_ns, text in taken:
            try:
                readings += parser(t_ns, text)
            except Exception:  # a parser of somebody else's may raise anything: the other ticks are kept
                self.errors[_name(path)] += 1
        return readings

    def close(self) -> list[Reading]:
        """The slow files once more: the counters' end matters."""
        self._take_slow()
        self._each_poll.clear()
        self._now_and_then.clear()
        return self.taken()

    def _take_slow(self) -> None:
        self._take(self._now_and_then)

    def _take(self, files: dict[str, Parser]) -> None:
        read, now_ns, keep = self._host.read, self._host.clock.now_ns, self._taken.append
        gone = []
        for path, parser in files.items():
            try:
                text = read(path)
                keep((parser, path, now_ns(), text))
            except OSError as error:
                if is_gone(error):
                    gone.append(path)
                else:
                    self.errors[_name(path)] += 1
        for path in gone:
            names = ", ".join(channel.name for channel in files.pop(path).channels)
            sentence = f"{_name(path)} vanished at {self._age_s():.1f} s, and with it {names}."
            self.lost.append(probe_note("probe.file-gone", self._probe, sentence))

    def _watch(self, file: KernelFile) -> None:
        parser: Parser | None
        try:
            parser = file.parser_for(self._host.read(file.path))
        except FileNotFoundError:
            return  # this kernel does not have it: its channels are absent
        except OSError as error:
            parser = file.parser_for("") if error.errno in _LATER else None
            if parser is None or not parser.channels:
                sentence = f"{file.path} cannot be read here: {error.strerror or error}."
                self.lost.append(probe_note("probe.file-unreadable", self._probe, sentence))
                return
            self.errors[_name(file.path)] += 1
        # Kernels keep the same figure in several files, old ways and new: the first one listed has it.
        if parser.channels and set(parser.channels).isdisjoint(self.channels):
            (self._now_and_then if file.slow else self._each_poll)[file.path] = parser
            self.channels += parser.channels

    def _age_s(self) -> float:
        return (self._host.clock.now_ns() - self._start_ns) / 1e9


def is_gone(error: OSError) -> bool:
    """Whether the file will not come back: an open file of a removed cgroup says ENODEV, of an ended process ESRCH."""
    return error.errno in _GONE or isinstance(error, FileNotFoundError)


def unreadable(host: Host, path: str) -> list[Ruling]:
    """An obstacle if `path` cannot be read on this host, otherwise nothing."""
    try:
        host.read(path)
    except OSError as error:
        return [
            obstacle(
                "needs.kernel", f"{path} cannot be read on {host.name}: {error.strerror or 'there is no such file'}."
            )
        ]
    return []


def _name(path: str) -> str:
    return path.rpartition("/")[2]


# Skips the Python frame of `Reading(...)`: half the cost, and there are some fifty a tick.
make_reading: Callable[[tuple[int, str, float]], Reading] = partial(tuple.__new__, Reading)


class Field(NamedTuple):
    """One value of a file: the kernel's name for it, our channel, and what to multiply with for the base unit."""

    key: str
    channel: Channel
    scale: float = 1


def whole(text: str) -> int:
    """A count as the kernel prints it: zero or more, in 64 bits. Anything else is garbage."""
    value = int(text)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is not a count")
    return value


class Keyed:
    """Chosen lines of a file made of `name value` lines, such as /proc/vmstat or memory.stat."""

    def __init__(self, fields: Sequence[Field], text: str, *, after: str = " ", unit: str = "") -> None:
        keys = [f"\n{field.key}{after}" for field in fields]
        found = [(key, field) for key, field in zip(keys, fields, strict=True) if key in "\n" + text]
        self.channels = tuple(field.channel for _, field in found)
        self._wanted = [(key, len(key), field.channel.name, field.scale) for key, field in found]
        self._unit = unit

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        lines = f"\n{text}\n"
        find, unit, unit_width = lines.find, self._unit, len(self._unit)
        readings = []
        end = 0
        for key, width, channel, scale in self._wanted:
            # The fields are listed in the kernel's order, so that all of them are found in one pass.
            found = find(key, end)
            if found < 0 and (found := find(key)) < 0:
                continue
            end = find("\n", found + width)
            if unit and not lines.startswith(unit, end - unit_width):
                raise ValueError(f"{lines[found:end]!r} is not in{unit}")
            value = whole(lines[found + width : end - unit_width])
            readings.append(make_reading((t_ns, channel, value * scale)))
        return readings


def keyed(*fields: Field, after: str = " ", unit: str = "") -> Callable[[str], Keyed]:
    """`Keyed`, waiting for the first text of its file."""
    return lambda text: Keyed(fields, text, after=after, unit=unit)


class Number:
    """A file that is one number."""

    def __init__(self, channel: Channel, scale: float) -> None:
        self.channels = (channel,)
        self._name, self._scale = channel.name, scale

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        return [make_reading((t_ns, self._name, whole(text) * self._scale))]


def number(channel: Channel, scale: float = 1) -> Callable[[str], Number]:
    """`Number`, in the same shape as `keyed`."""
    return lambda _text: Number(channel, scale)


class Pressure:
    """A pressure file: `some avg10=0.00 avg60=0.00 avg300=0.00 total=5796829`, the total in microseconds."""

    def __init__(self, channel: Channel) -> None:
        self.channels = (channel,)
        self._name = channel.name

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        some, _, _ = text.partition("\n")
        _, _, total = some.partition("total=")
        return [make_reading((t_ns, self._name, whole(total) / 1e6))]


def pressure(channel: Channel) -> Callable[[str], Pressure]:
    """`Pressure`, in the same shape as `keyed`."""
    return lambda _text: Pressure(channel)


class Rising:
    """Keeps a counter from falling: some of the kernel's are sums that may lose a little between two reads."""

    def __init__(self) -> None:
        self._highest = 0.0

    def __call__(self, value: float) -> float:
        self._highest = max(self._highest, value)
        return self._highest


MOST_FOLDERS = 96  # numbers have holes where a driver was unbound, so that all of them are tried

T = TypeVar("T")


class Folder(NamedTuple):
    """One numbered folder, and the name that its driver gave it."""

    path: str
    name: str


def folders(host: Host, pattern: str, names_file: str = "name") -> Iterator[Folder]:
    """Those of `/sys/class/hwmon/hwmon{}` and the like that exist, in the order of their numbers."""
    for number in range(MOST_FOLDERS):
        path = pattern.format(number)
        if (name := text_of(host, f"{path}/{names_file}")) is not None:
            yield Folder(path, name)


def text_of(host: Host, path: str) -> str | None:
    """The text of a small file without its ends; None where it cannot be read."""
    try:
        return host.read(path).strip().strip("\0")
    except OSError:
        return None


def waking_clock(host: Host) -> str | None:
    """The folder of the first clock whose alarm can wake the device, and may."""
    clocks = [found.path for found in folders(host, "/sys/class/rtc/rtc{}", "wakealarm")]
    return next((path for path in clocks if text_of(host, f"{path}/device/power/wakeup") == "enabled"), None)


def alarm_of(host: Host, clock: str | None) -> str:
    """When the alarm is set for, in seconds of that clock; empty where it is not set."""
    return (text_of(host, f"{clock}/wakealarm") or "").removeprefix("0") if clock else ""


def channel_word(name: str) -> str:
    """A sensor's name as a part of a channel's: `CPU-therm` is `cpu_therm`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "unnamed"


def told_apart(names: Iterable[str]) -> list[str]:
    """The names as words of channels; a second one of the same name gets a number."""
    words: list[str] = []
    for word in map(channel_word, names):
        same_name = sum(other == word or re.fullmatch(rf"{re.escape(word)}_\d+", other) is not None for other in words)
        words.append(word if not same_name else f"{word}_{same_name + 1}")
    return words


def within(limit_s: float, ask: Callable[[], T]) -> T:
    """What `ask` returns; TimeoutError where it takes longer. A sensor that hangs holds a thread then, but not us."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append((ask(), None))
        except Exception as error:
            answer.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not answer:
        raise TimeoutError(f"no answer within {limit_s:g} s")
    value, error = answer[0]
    if error is not None:
        raise error
    found: T = value
    return found


ZONES = "/sys/class/thermal/thermal_zone{}"
_HWMON = "/sys/class/hwmon/hwmon{}"
_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_MOST_SENSORS = 16  # of one chip: the package and its first cores
_MOST_TRIPS = 16
_ABSENT_MILLI_C = -100_000  # a zone that is switched off says -256000
_LEAST_MILLI_C, _MOST_MILLI_C = 200, 200_000  # nearer to zero it is in degrees, beyond it is no temperature


class Sensor(NamedTuple):
    """Where one temperature is read, in thousandths of a degree, and what it is called."""

    path: str
    name: str
    critical_c: float | None  # where the device saves itself


def sensors_of(host: Host) -> Iterator[Sensor]:
    """The thermal zones; a processor's own sensors where no zone is there."""
    zones = [*folders(host, ZONES, "type")]
    for path, name in zones:
        # The PMIC's zone says 100 °C on every board that has one: it only has a threshold to tell of.
        if not name.upper().startswith("PMIC"):
            yield Sensor(f"{path}/temp", name, _critical_c(host, path))
    for path, chip in folders(host, _HWMON) if not zones else ():
        if chip in _CHIPS:
            for number in range(1, _MOST_SENSORS + 1):
                if text_of(host, f"{path}/temp{number}_input") is not None:
                    label = text_of(host, f"{path}/temp{number}_label") or f"temp{number}"
                    critical = _celsius(text_of(host, f"{path}/temp{number}_crit"))
                    yield Sensor(f"{path}/temp{number}_input", f"{chip} {label}", critical)


def _critical_c(host: Host, zone: str) -> float | None:
    """The lowest trip point at which the kernel switches the device off."""
    trips = [f"{zone}/trip_point_{number}" for number in range(_MOST_TRIPS)]
    deadly = [trip for trip in trips if text_of(host, f"{trip}_type") in ("critical", "hot")]
    degrees = [_celsius(text_of(host, f"{trip}_temp")) for trip in deadly]
    return min((each for each in degrees if each is not None), default=None)


def _celsius(text: str | None) -> float | None:
    try:
        return None if text is None else milli_celsius(text)
    except ValueError:
        return None


def milli_celsius(text: str) -> float | None:
    """Degrees from thousandths; None for a sensor that is switched off. Raises ValueError for garbage."""
    value = int(text)
    if value <= _ABSENT_MILLI_C:
        return None
    if not _LEAST_MILLI_C <= abs(value) <= _MOST_MILLI_C:
        raise ValueError(f"{value} is not a temperature in thousandths of a degree")
    return value / 1000


def sensors_by_word(host: Host) -> dict[str, Sensor]:
    """Every sensor by the word in its channel. Looking for them takes hundreds of files: keep what this returns."""
    sensors = list(sensors_of(host))
    return dict(zip(told_apart(sensor.name for sensor in sensors), sensors, strict=True))


def temperatures_c(host: Host, sensors: Mapping[str, Sensor]) -> dict[str, float]:
    """The temperatures now; one that cannot be read is absent."""
    now = {word: _celsius(text_of(host, sensor.path)) for word, sensor in sensors.items()}
    return {word: degrees for word, degrees in now.items() if degrees is not None}
