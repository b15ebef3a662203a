"""nvpmodel.conf: which files of a Jetson hold its clocks and cores, and what each of its power modes puts there.

< PARAM TYPE=CLOCK NAME=GPU >          a thing that can be set, and the files that it is made of
MAX_FREQ /sys/devices/…/max_freq
< POWER_MODEL ID=1 NAME=5W >           a mode, and a value for each of them; -1 is the highest that there is
GPU MAX_FREQ 640000000
< PM_CONFIG DEFAULT=0 >
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tare.base.errors import TareError

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
