"""The clocks of a Jetson as its nvpmodel.conf names them: which files they are, how they stand, what they can be.

nvpmodel.conf: which files of a Jetson hold its clocks and cores, and what each of its power modes puts there.

< PARAM TYPE=CLOCK NAME=GPU >          a thing that can be set, and the files that it is made of
MAX_FREQ /sys/devices/…/max_freq
< POWER_MODEL ID=1 NAME=5W >           a mode, and a value for each of them; -1 is the highest that there is
GPU MAX_FREQ 640000000
< PM_CONFIG DEFAULT=0 >
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tare.base.errors import TareError
from tare.base.host import Host
from tare.drivers.power.backend import OFF
from tare.drivers.power.hotplug import online

_HEADER = re.compile(r"<\s*([A-Z_]+)((?:\s+[A-Z_0-9]+=\S+?)*)\s*>")
_PAIR = re.compile(r"([A-Z_0-9]+)=(\S+)")
_NAME = re.compile(r"[A-Za-z0-9_.()|+-]{1,64}")
CPU_ONLINE = "CPU_ONLINE"


@dataclass(frozen=True)
class Param:
    """A thing that a mode sets: its files, by what nvpmodel calls them (`MAX_FREQ`, `CORE_0`)."""

    name: str
    kind: str  # FILE or CLOCK
    files: Mapping[str, str] = field(default_factory=dict)


class Value(NamedTuple):
    """What a mode puts into one file of a param."""

    param: str
    key: str
    text: str


@dataclass(frozen=True)
class PowerModel:
    """One mode of the board."""

    id: int
    name: str
    values: tuple[Value, ...] = ()

    def cores(self) -> dict[int, bool]:
        """Which cores the mode switches on, and which off."""
        named = [value for value in self.values if value.param == CPU_ONLINE]
        return {int(value.key.rpartition("_")[2]): value.text != "0" for value in named}


@dataclass(frozen=True)
class Conf:
    """The whole file."""

    params: Mapping[str, Param]
    models: tuple[PowerModel, ...]
    default: int | None = None

    def model(self, wanted: str) -> PowerModel | None:
        """The mode of this name or id. Names are told apart by case last: `maxn` is MAXN."""
        exact = [one for one in self.models if wanted in (one.name, str(one.id))]
        near = [one for one in self.models if wanted.lower() == one.name.lower()]
        return next(iter(exact or near), None)


def parse(text: str) -> Conf:
    """What the file says; raises `TareError` with the line where it cannot be read."""
    reader = _Reader()
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if line:
            try:
                reader.take(line)
            except ValueError as error:
                raise TareError(f"nvpmodel.conf, line {number}: {error}.") from None
    models = [PowerModel(one.id, one.name, tuple(values)) for one, values in reader.models]
    return Conf(reader.params, tuple(models), reader.default)


class _Reader:
    """Line by line; blocks that say nothing about power (fans, for one) are passed over."""

    def __init__(self) -> None:
        self.params: dict[str, Param] = {}
        self.models: list[tuple[PowerModel, list[Value]]] = []
        self.default: int | None = None
        self._block = ""
        self._files: dict[str, str] = {}

    def take(self, line: str) -> None:
        if line.startswith("<"):
            header = _HEADER.fullmatch(line)
            if header is None:
                raise ValueError(f"{line!r} is not the head of a block")
            self._begin(header[1], dict(_PAIR.findall(header[2])))
        elif self._block == "PARAM":
            self._file(line)
        elif self._block == "POWER_MODEL":
            self._value(line)

    def _begin(self, block: str, pairs: Mapping[str, str]) -> None:
        self._block = block
        try:
            if block == "PARAM":
                self._files = {}
                self.params[pairs["NAME"]] = Param(_named(pairs["NAME"]), pairs["TYPE"], self._files)
            elif block == "POWER_MODEL":
                self.models.append((PowerModel(int(pairs["ID"]), _named(pairs["NAME"])), []))
            elif block == "PM_CONFIG":
                self.default = int(pairs["DEFAULT"])
        except KeyError as missing:
            raise ValueError(f"a {block} needs {missing}") from None

    def _file(self, line: str) -> None:
        words = line.split()
        if len(words) != 2:
            raise ValueError(f"{line!r} is not KEY and PATH")
        if words[1].startswith("/sys/") and ".." not in words[1].split("/"):  # whatever else it names, we do not write
            self._files[_named(words[0])] = words[1]

    def _value(self, line: str) -> None:
        words = line.split()
        if len(words) != 3:
            raise ValueError(f"{line!r} is not PARAM, KEY and VALUE")
        self.models[-1][1].append(Value(_named(words[0]), _named(words[1]), words[2]))


def _named(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name")
    return text


CONF = "/etc/nvpmodel.conf"
EMC_TABLES = (  # L4T r32 and later; older ones
    "/sys/kernel/debug/bpmp/debug/emc/possible_rates",
    "/sys/kernel/debug/clock/emc/possible_rates",
)
HIGH, LOW, TABLE = "MAX_FREQ", "MIN_FREQ", "FREQ_TABLE"
_CPU = re.compile(r"/sys/devices/system/cpu/cpu(\d+)/")
_NEXT_KERNEL = "_KNEXT"  # newer kernels have the same file elsewhere, and the configuration names both


@dataclass(frozen=True)
class Clock:
    """One clock of the board, and its files."""

    param: str
    field: str | None  # of a request: cpu_mhz, gpu_mhz, mem_mhz; None for what only modes set
    core: int | None  # the core in whose folder the files lie
    files: Mapping[str, str]

    def key(self, end: str) -> str:
        return f"jetson.{self.param}.{end}"

    @property
    def per_mhz(self) -> int:
        return 1000 if self.core is not None else 1_000_000  # cpufreq counts in kHz, everything else in Hz


def board(host: Host) -> Conf | None:
    """What the board's configuration says; None where there is none, and so no Jetson."""
    try:
        text = host.read(CONF)
    except OSError:
        return None
    return parse(text)


def clocks(host: Host) -> Iterator[Clock]:
    """The clocks of the board that have an upper limit which can be written."""
    conf = board(host)
    for param in conf.params.values() if conf else ():
        if HIGH not in param.files:
            continue
        found = _CPU.match(param.files[HIGH])
        field = "cpu_mhz" if found else {"GPU": "gpu_mhz", "EMC": "mem_mhz"}.get(param.name)
        clock = Clock(param.name, field, int(found[1]) if found else None, _present_files(host, param.files))
        if field or (param.kind == "CLOCK" and _text(host, clock.files[HIGH]) is not None):
            yield clock


def _present_files(host: Host, files: Mapping[str, str]) -> dict[str, str]:
    """The file of each name that this kernel has."""
    chosen = {}
    for name in (HIGH, LOW, TABLE):
        places = [files[key] for key in (name, f"{name}{_NEXT_KERNEL}") if key in files]
        if places:
            chosen[name] = next((path for path in places if _text(host, path) is not None), places[0])
    return chosen


def stands(host: Host, clock: Clock, end: str) -> str:
    """One limit as it is."""
    return OFF if is_off(host, clock) else host.read(clock.files[end]).strip()


def is_off(host: Host, clock: Clock) -> bool:
    """Whether its core is offline, and its files with it."""
    return clock.core is not None and clock.core not in online(host)


def mhz(host: Host, clock: Clock) -> list[float]:
    """The same as `table`, as people write it."""
    return [value / clock.per_mhz for value in table(host, clock)]


def table(host: Host, clock: Clock) -> list[int]:
    """The values that the hardware has, ascending: from its own list, or wherever else they can be learnt."""
    own = _text(host, clock.files.get(TABLE, "")) if not is_off(host, clock) else None
    if own is None and clock.field == "cpu_mhz":
        identical = (one for one in clocks(host) if one.field == "cpu_mhz" and not is_off(host, one))
        own = next((found for one in identical if (found := _text(host, one.files.get(TABLE, "")))), None)
    if own is None and clock.field == "mem_mhz":
        return sorted({_hertz(value) for value in _numbers(_memory_clocks(host, clock))})
    return sorted(set(_numbers(own or "")))


def _memory_clocks(host: Host, clock: Clock) -> str:
    """The memory controller's list; a board without one (Nano) can have what its modes mention."""
    for path in EMC_TABLES:
        if (text := _text(host, path)) is not None:
            return text
    conf = board(host)
    values = [value for model in conf.models for value in model.values] if conf else []
    return " ".join(value.text for value in values if value.param == clock.param and value.text not in ("0", "-1"))


def _numbers(text: str) -> list[int]:
    return [int(word) for word in re.findall(r"\b\d+\b", text)]


def _hertz(value: int) -> int:
    """Lists of memory clocks come in kHz or in Hz; no memory runs below 10 MHz or above 10 GHz."""
    return value if value >= 10_000_000 else value * 1000


def _text(host: Host, path: str) -> str | None:
    try:
        return host.read(path) if path else None
    except OSError:
        return None
