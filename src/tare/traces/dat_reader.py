"""The bytes of a trace.dat: numbers, texts and blocks, and the sections of version 7 with what unpacks them."""

from __future__ import annotations

import importlib
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeAlias

from tare.errors import TareError

Unpack: TypeAlias = Callable[[bytes], bytes]

_COMPRESSED = 1


class Reader:
    """Little-endian numbers, texts and blocks of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def take(self, size: int) -> bytes:
        try:
            data = self.file.read(size)
        except (MemoryError, OverflowError):  # a length that no file has
            data = b""
        if len(data) < size:
            raise EOFError(f"it ends {size - len(data)} bytes early")
        return data

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        found = bytearray()
        while (byte := self.take(1)) != b"\0":
            found += byte
        return found.decode("utf-8", "replace")

    def block(self, width: int) -> str:
        """A text with its length before it."""
        return self.take(self.number(width)).decode("utf-8", "replace")

    def to(self, offset: int) -> Reader:
        self.file.seek(offset)
        return self


class Section(Reader):
    """The content of one section of version 7."""


def section(reader: Reader, unpack: Unpack) -> Section:
    """Its content, unpacked; the file stands at its header."""
    _id, flags, _description, size = struct.unpack("<HHIQ", reader.take(16))
    if not flags & _COMPRESSED:
        return Section(io.BytesIO(reader.take(size)))
    return Section(io.BytesIO(b"".join(chunks(reader, unpack))))


def is_packed(reader: Reader) -> bool:
    flags: int = struct.unpack("<HHIQ", reader.take(16))[1]
    return bool(flags & _COMPRESSED)


def chunks(reader: Reader, unpack: Unpack) -> Iterator[bytes]:
    for _ in range(reader.number(4)):
        packed, plain = reader.number(4), reader.number(4)
        data = unpack(reader.take(packed))
        if len(data) != plain:
            raise ValueError("a compressed piece has another length than it says")
        yield data


def codec(name: str) -> Unpack:
    """What unpacks a file's sections; one that Python has not is refused when something was packed with it."""
    known: dict[str, Unpack] = {"none": bytes, "zlib": zlib.decompress}
    if name == "zstd":
        try:
            decompress: Unpack = importlib.import_module("compression.zstd").decompress
            return decompress
        except ImportError:
            pass
    if name not in known:
        raise TareError(
            f"this trace.dat is compressed with {name}, which this Python cannot read; "
            "`trace-cmd convert --compression none -i FILE -o NEW` makes one that it can."
        )
    return known[name]
