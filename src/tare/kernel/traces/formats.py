"""What an event of this kernel looks like, from the kernel's own format files: nothing about fields is known by heart.

`events/<system>/<event>/format` names each field with offset, size and sign; `events/header_page` says where a page of
the ring buffer keeps its time stamp, its length and its events. Both differ between kernels 4.9 and 6.18.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from tare.base.errors import TareError

_FIELD = re.compile(r"^\s*field\s*:\s*(.+?)\s*;\s*offset:(\d+);\s*size:(\d+);(?:\s*signed:(\d+);)?", re.MULTILINE)
_ARRAY = re.compile(r"^(.*?)\s*(\w+)\s*\[([^\]]*)\]$")  # `char comm[16]`, `char comm[TASK_COMM_LEN]`
_DYNAMIC = re.compile(r"^(__data_loc|__rel_loc)\s+(.+?)\s*(?:\[\s*\])?\s+(\w+)$")  # `__data_loc char[] cmd`
_SYMBOLIC = re.compile(r"__print_symbolic\(\s*REC->(\w+)\s*,((?:\s*\{[^{}]*\}\s*,?)+)\s*\)")
_PAIR = re.compile(r'\{\s*(-?(?:0[xX][0-9a-fA-F]+|\d+))[uUlL]*\s*,\s*"([^"]*)"\s*\}')
_ELEMENT_BYTES = {"char": 1, "u8": 1, "__u8": 1, "bool": 1, "short": 2, "u16": 2, "__u16": 2, "int": 4, "u32": 4,
                  "__u32": 4, "u64": 8, "__u64": 8, "long long": 8}  # fmt: skip

Placed = Literal["inline", "data_loc", "rel_loc"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an event, as its format file declares it."""

    name: str
    type: str  # as in C, without the array: `unsigned long`
    offset: int
    size: int  # in the record; of a dynamic field these are the four bytes that say where it is
    signed: bool
    count: int = 1  # elements; more than one is an array
    placed: Placed = "inline"

    @property
    def is_text(self) -> bool:
        """An array of characters; a single `char` is a small number."""
        kind = self.type.removeprefix("const ").removeprefix("unsigned ").removeprefix("signed ")
        return kind == "char" and (self.placed != "inline" or self.count > 1)

    @property
    def element_bytes(self) -> int:
        return self.size // self.count

    def dtype(self) -> np.dtype[np.generic]:
        """How numpy reads it inside the record."""
        if self.placed != "inline":
            return np.dtype("<u4")
        if self.is_text:
            return np.dtype(f"S{self.size}")
        kind = "i" if self.signed else "u"
        wide = self.element_bytes
        element = np.dtype(f"<{kind}{wide}") if wide in (1, 2, 4, 8) else np.dtype(f"V{wide}")
        return element if self.count == 1 else np.dtype((element, (self.count,)))


@dataclass(frozen=True)
class EventFormat:
    """One event: its number in this kernel's pages, its fields, and words for the values of some of them."""

    system: str
    name: str
    id: int
    fields: tuple[Field, ...]
    symbols: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    @property
    def common(self) -> tuple[Field, ...]:
        return tuple(one for one in self.fields if one.name.startswith("common_"))

    @property
    def own(self) -> tuple[Field, ...]:
        return tuple(one for one in self.fields if not one.name.startswith("common_"))

    @property
    def size(self) -> int:
        """Bytes of the fixed part of a record."""
        return max((one.offset + one.size for one in self.fields), default=0)

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """The fixed part of a record, whole words long."""
        return np.dtype(
            {
                "names": [one.name for one in self.fields],
                "formats": [one.dtype() for one in self.fields],
                "offsets": [one.offset for one in self.fields],
                "itemsize": -(-self.size // 4) * 4,
            }
        )


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Where things are in one page of the ring buffer."""

    page_bytes: int = 4096
    commit_offset: int = 8
    commit_bytes: int = 8
    data_offset: int = 16


def parse_event(text: str, system: str = "") -> EventFormat:
    """The format file of one event."""
    name = re.search(r"^name:\s*(\S+)", text, re.MULTILINE)
    number = re.search(r"^ID:\s*(\d+)", text, re.MULTILINE)
    if name is None or number is None:
        raise TareError(f"this is not an event's format file; it begins with {text[:40]!r}.")
    fields = tuple(
        _field(declared, int(offset), int(size), sign) for declared, offset, size, sign in _FIELD.findall(text)
    )
    if not fields:
        raise TareError(f"the format of the event {name[1]} names no fields.")
    return EventFormat(system, name[1], int(number[1]), fields, _symbols(text))


def parse_header_page(text: str, page_bytes: int | None = None) -> PageLayout:
    """`events/header_page`; `page_bytes` where a sub-buffer is larger than the file says."""
    found = {declared.split()[-1]: (int(offset), int(size)) for declared, offset, size, _ in _FIELD.findall(text)}
    if "commit" not in found or "data" not in found:
        raise TareError(f"this is not a header_page file of tracefs; it begins with {text[:40]!r}.")
    data_offset, data_bytes = found["data"]
    commit_offset, commit_bytes = found["commit"]
    return PageLayout(page_bytes or data_offset + data_bytes, commit_offset, commit_bytes, data_offset)


def _field(declared: str, offset: int, size: int, sign: str) -> Field:
    signed = sign == "1"
    if dynamic := _DYNAMIC.match(declared):
        placed: Placed = "data_loc" if dynamic[1] == "__data_loc" else "rel_loc"
        return Field(dynamic[3], dynamic[2].strip(), offset, size, signed, placed=placed)
    if array := _ARRAY.match(declared):
        kind = array[1].strip()
        return Field(array[2], kind, offset, size, signed, count=_count(kind, array[3], size))
    kind, _, name = declared.rpartition(" ")
    pointed = name.lstrip("*")
    return Field(pointed, kind.strip() + "*" * (len(name) - len(pointed)), offset, size, signed)


def _count(kind: str, written: str, size: int) -> int:
    """Elements of an array; older kernels write a constant's name for how many, so that the size decides."""
    if written.strip().isdigit() and int(written) > 0 and size % int(written) == 0:
        return int(written)
    plain = kind.removeprefix("unsigned ").removeprefix("signed ")
    wide = _ELEMENT_BYTES.get(plain, 8 if "long" in plain else 1)
    return max(1, size // wide)


def _symbols(text: str) -> dict[str, dict[int, str]]:
    """Words for numbers, where the print format has plain ones: `reason` 3 is `periodic` in this kernel."""
    return {
        name: {int(number, 0): word for number, word in _PAIR.findall(pairs)} for name, pairs in _SYMBOLIC.findall(text)
    }
