"""What a line of the undo journal says, and how it proves that it is whole: one JSON object, its CRC32 last."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tare.parts.protocols import Json

_SEALED = re.compile(rb'^(\{.*),"crc":"([0-9a-f]{8})"\}$', re.DOTALL)
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a record was made, and by whom."""

    boot_id: str
    owner: str  # pid:start time, see `Owner`
    run: str
    time_s: float  # wall clock: the only one that goes on over a reboot


@dataclass(frozen=True, slots=True)
class KnobEntry:
    """A control is about to be changed from `old` to `new`."""

    seq: int
    stamp: Stamp
    control: str
    fields: Mapping[str, Json]
    knob: str  # what `Control.knob()` said: records with the same one share a baseline
    old: Json
    new: Json


@dataclass(frozen=True, slots=True)
class SiteEntry:
    """A platform is about to make things under the name `site`."""

    seq: int
    stamp: Stamp
    platform: str
    site: str


@dataclass(frozen=True, slots=True)
class Retirement:
    """The record `retires` is done with."""

    seq: int
    retires: int


Entry: TypeAlias = KnobEntry | SiteEntry


def seal(content: Mapping[str, Json]) -> bytes:
    """`content` as a line that shows damage. ASCII only, so that a line break is never part of a value."""
    body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return body[:-1] + f',"crc":"{zlib.crc32(body):08x}"}}\n'.encode()


def unseal(line: bytes) -> dict[str, Any] | None:
    """The reverse of `seal`, or None if the line is not as it was written."""
    match = _SEALED.match(line)
    if match is None or f"{zlib.crc32(match[1] + b'}'):08x}" != match[2].decode():
        return None
    content = json.loads(match[1] + b"}")
    return content if isinstance(content, dict) else None


def entry_from(content: Mapping[str, Any]) -> Entry | Retirement:
    """The record that a whole line holds; raises ValueError, KeyError or TypeError if tare never writes such a one."""
    return _READERS[content["kind"]](content)


def _knob(content: Mapping[str, Any]) -> KnobEntry:
    knob = content["knob"]
    return KnobEntry(
        seq=_whole(content["seq"]),
        stamp=_stamp(content),
        control=_name(knob["control"]),
        fields=dict(knob["fields"]),
        knob=_text(knob["id"]),
        old=content["old"],
        new=content["new"],
    )


def _site(content: Mapping[str, Any]) -> SiteEntry:
    return SiteEntry(
        seq=_whole(content["seq"]),
        stamp=_stamp(content),
        platform=_name(content["platform"]),
        site=_name(content["site"]),
    )


def _retirement(content: Mapping[str, Any]) -> Retirement:
    return Retirement(seq=_whole(content["seq"]), retires=_whole(content["retires"]))


_READERS: dict[str, Callable[[Mapping[str, Any]], Entry | Retirement]] = {
    "knob": _knob,
    "site": _site,
    "retire": _retirement,
}


def _stamp(content: Mapping[str, Any]) -> Stamp:
    return Stamp(_text(content["boot_id"]), _text(content["owner"]), _text(content["run"]), float(content["time_s"]))


def _whole(value: object) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a number of a record")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _name(value: object) -> str:
    # Names reach file paths and command lines: nothing that could be read as a path or an option.
    if not NAME.match(_text(value)):
        raise ValueError(f"{value!r} is not a name")
    return _text(value)
