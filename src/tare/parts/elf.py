"""What a program or library says about the libraries it needs: read from its own bytes, without running it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

_MAGIC = b"\x7fELF"
_BIG_ENDIAN = 2
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3  # kinds of program headers
_END, _NEEDED, _STRINGS, _RPATH, _RUNPATH = 0, 1, 5, 15, 29  # tags of the dynamic section


@dataclass(frozen=True, slots=True)
class Elf:
    """The part of an ELF file that the loader goes by."""

    kind: tuple[int, int]  # 32 or 64 bits, and the processor: libraries of one process share it
    interpreter: str | None = None
    needed: tuple[str, ...] = ()
    search: tuple[str, ...] = ()  # RPATH or RUNPATH, with $ORIGIN in it


class _Shape(NamedTuple):
    """How the numbers of a file are laid out."""

    header: struct.Struct  # from e_type on
    program: struct.Struct
    entry: struct.Struct


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def read(path: Path | str) -> Elf | None:
    """What an ELF file needs; None for any other file, and for one that is cut off or broken."""
    try:
        with Path(path).open("rb") as file:
            return _read(file)
    except (struct.error, ValueError):
        return None


def _read(file: BinaryIO) -> Elf | None:
    start = file.read(16)
    if start[:4] != _MAGIC or len(start) < 16:
        return None
    bits, order = start[4], ">" if start[5] == _BIG_ENDIAN else "<"
    shape = _shape(bits, order)
    _, machine, _, _, at, _, _, _, size, count, *_ = shape.header.unpack(file.read(shape.header.size))
    segments = [
        _segment(bits, shape.program.unpack(_bytes(file, at + i * size, shape.program.size))) for i in range(count)
    ]
    interpreter: str | None = None
    needed: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    for segment in segments:
        if segment.kind == _INTERPRETER:
            interpreter = _bytes(file, segment.offset, segment.size).rstrip(b"\0").decode()
        elif segment.kind == _DYNAMIC:
            needed, search = _dynamic(file, shape, segment, segments)
    return Elf((bits, machine), interpreter, needed, search)


def _shape(bits: int, order: str) -> _Shape:
    if bits == 2:
        return _Shape(
            struct.Struct(f"{order}HHIQQQIHHHHHH"), struct.Struct(f"{order}IIQQQQQQ"), struct.Struct(f"{order}qQ")
        )
    return _Shape(
        struct.Struct(f"{order}HHIIIIIHHHHHH"), struct.Struct(f"{order}IIIIIIII"), struct.Struct(f"{order}iI")
    )


def _segment(bits: int, fields: tuple[int, ...]) -> _Segment:
    if bits == 2:
        kind, _, offset, address, _, size, *_ = fields
    else:
        kind, offset, address, _, size, *_ = fields
    return _Segment(kind, offset, address, size)


def _dynamic(
    file: BinaryIO, shape: _Shape, segment: _Segment, segments: list[_Segment]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of needed libraries, and where to look for them."""
    tags = list(_tags(_bytes(file, segment.offset, segment.size), shape.entry))
    table = next((value for tag, value in tags if tag == _STRINGS), None)
    if table is None:
        return (), ()
    strings = _offset(segments, table)
    needed = tuple(_text(file, strings + value) for tag, value in tags if tag == _NEEDED)
    # Where both are given the loader goes by RUNPATH alone.
    for wanted in (_RUNPATH, _RPATH):
        if found := [_text(file, strings + value) for tag, value in tags if tag == wanted]:
            return needed, tuple(folder for text in found for folder in text.split(":") if folder)
    return needed, ()


def _tags(data: bytes, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    for at in range(0, len(data) - entry.size + 1, entry.size):
        tag, value = entry.unpack_from(data, at)
        if tag == _END:
            return
        yield tag, value


def _offset(segments: list[_Segment], address: int) -> int:
    """Where in the file lies what is loaded at this address."""
    for segment in segments:
        if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
            return segment.offset + address - segment.address
    raise ValueError("an address outside of every segment")


def _bytes(file: BinaryIO, at: int, size: int) -> bytes:
    file.seek(at)
    data = file.read(size)
    if len(data) < size:
        raise ValueError("the file ends too early")
    return data


def _text(file: BinaryIO, at: int) -> str:
    file.seek(at)
    return file.read(4096).partition(b"\0")[0].decode()
