"""A trace of someone's own, whatever it was made with: which reader takes it, and what is in it as a whole."""

from __future__ import annotations

import importlib
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TypeAlias

import numpy as np

from tare.base.errors import NoSuchInput, StudyError, TareError, damage_named
from tare.kernel.traces.decode import Source, lost_events
from tare.kernel.traces.formats import parse_header_page
from tare.kernel.traces.recording import HEADER, Chunk, Formats, Recording, names_of_tasks, open_folder, tables
from tare.kernel.traces.text import is_text_trace, text_tables
from tare.kernel.traces.writeback import counts

# trace-cmd's own files, `trace.dat` of versions 6 and 7: the same pages and formats as in tracefs, in one file.
#
# Version 7 may be compressed, in chunks; `zlib` and (from Python 3.14 on) `zstd` can be read, each core's pages through
# a temporary file so that memory stays bounded.

Unpack: TypeAlias = Callable[[bytes], bytes]

_COMPRESSED = 1
_MOST_CHUNK_BYTES = 64 << 20


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
        try:
            self.file.seek(offset)
        except (OSError, OverflowError) as error:
            raise ValueError(f"it points to byte {offset}, where no file reaches") from error
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


def _inflated(data: bytes) -> bytes:
    """At most `_MOST_CHUNK_BYTES`: a few bytes can stand for gigabytes."""
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(data, _MOST_CHUNK_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError(f"a compressed piece is larger than {_MOST_CHUNK_BYTES} bytes")
    return plain


def codec(name: str) -> Unpack:
    """What unpacks a file's sections; one that Python has not is refused when something was packed with it."""
    known: dict[str, Unpack] = {"none": bytes, "zlib": _inflated}
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


MAGIC = b"\x17\x08\x44tracing"
_DONE, _BUFFER, _CLOCK = 0, 3, 4
_HEADER, _FTRACE, _EVENTS, _CMDLINES = 16, 17, 18, 21


def is_trace_dat(path: Path) -> bool:
    """Whether a file begins as trace-cmd's do."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def open_trace_dat(path: Path, spill: Path) -> Recording:
    """What is in a trace.dat; `spill` is a folder for what must be unpacked."""
    with path.open("rb") as file, damage_named(f"{path}: this trace.dat", where=lambda: f"byte {file.tell()}"):
        return _opened(Reader(file), path, spill)


@dataclass
class _Found:
    """What has been read so far."""

    header_page: str = ""
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    cmdlines: str = ""
    clock: str = ""
    buffers: list[list[tuple[int, int, int]]] = field(default_factory=list)  # (cpu, offset, size) of each


def _opened(reader: Reader, path: Path, spill: Path) -> Recording:
    if reader.take(len(MAGIC)) != MAGIC:
        raise TareError(f"{path} is not a trace.dat of trace-cmd.")
    version = reader.text()
    if version not in _VERSIONS:
        raise TareError(f"{path} is a trace.dat of version {version}; tare reads {' and '.join(_VERSIONS)}.")
    if reader.number(1):
        raise TareError(f"{path} was recorded on a big-endian machine, which tare does not read.")
    reader.take(1)  # the width of a long, which the header page says too
    page_bytes = reader.number(4)
    found, unpacked = _VERSIONS[version](reader)
    if not found.buffers:
        raise TareError(
            f"{path} holds no recorded pages (it may be one of a latency tracer, or of events' formats only)."
        )
    largest = max(found.buffers, key=lambda cores: sum(size for *_, size in cores))
    layout = parse_header_page(found.header_page)
    sources = tuple(unpacked(path, cpu, offset, size, spill) for cpu, offset, size in largest if size)
    there = path.stat().st_size
    missing = sum(max(0, source.offset + (source.size or 0) - there) for source in sources)
    # As much of a core's pages as the file has.
    sources = tuple(
        source if source.size is None else source._replace(size=max(0, min(source.size, there - source.offset)))
        for source in sources
    )
    notes = (
        [f"{path.name} is cut off: {missing} bytes of pages are missing, and counts are at least."] if missing else []
    )
    notes += (
        [f"{len(found.buffers)} buffers are in {path.name}; the largest is read."] if len(found.buffers) > 1 else []
    )
    return Recording(
        layout, Formats(found.texts), sources, _clock(found.clock), comms=names_of_tasks(found.cmdlines.splitlines()),
        page_bytes=page_bytes, notes=tuple(notes),
    )  # fmt: skip


_Unpack = Callable[[Path, int, int, int, Path], Source]


def _version_6(reader: Reader) -> tuple[_Found, _Unpack]:
    """One thing after another, then options, then where each core's pages are."""
    found = _Found()
    _read_header(reader, found)
    _read_ftrace(reader, found)
    _read_events(reader, found)
    reader.take(reader.number(4))  # kallsyms
    reader.take(reader.number(4))  # formats of trace_printk
    found.cmdlines = reader.block(8)
    cpus = reader.number(4)
    buffers: list[int] = []
    while (section := reader.take(10)) != b"flyrecord\0":
        if section != b"options  \0":
            raise ValueError(f"a section {section!r} is not known")
        for option, data in _options(reader):
            if option == _CLOCK:
                found.clock = data.decode("utf-8", "replace").rstrip("\0")
            elif option == _BUFFER:
                buffers.append(int.from_bytes(data[:8], "little"))
    found.buffers.append(_places(reader, cpus))
    for offset in buffers:
        if reader.to(offset).take(10) == b"flyrecord\0":
            found.buffers.append(_places(reader, cpus))
    return found, _in_place


def _version_7(reader: Reader) -> tuple[_Found, _Unpack]:
    """Sections, each found by an option that holds its place."""
    named = reader.text()
    reader.text()  # the codec's version
    following = reader.number(8)
    unpack = codec(named)
    found = _Found()
    packed = False
    while following:
        offset, following = following, 0
        for option, data in _options(section(reader.to(offset), unpack)):
            place = int.from_bytes(data[:8], "little")
            if option == _DONE:
                following = place
            elif option == _BUFFER:
                found.buffers.append(_buffer_7(data, found))
                packed |= is_packed(reader.to(place))
            elif option in _SECTIONS:
                _SECTIONS[option](section(reader.to(place), unpack), found)
    return found, (_unpacked_by(unpack) if packed else _in_place)


def _read_header(reader: Reader, found: _Found) -> None:
    if reader.text() != "header_page":
        raise ValueError("the layout of its pages is missing")
    found.header_page = reader.block(8)
    reader.text()  # header_event
    reader.block(8)


def _read_ftrace(reader: Reader, found: _Found) -> None:
    for index in range(reader.number(4)):
        found.texts["ftrace", str(index)] = reader.block(8)


def _read_events(reader: Reader, found: _Found) -> None:
    for _ in range(reader.number(4)):
        system = reader.text()
        for index in range(reader.number(4)):
            found.texts[system, str(index)] = reader.block(8)


def _read_cmdlines(reader: Reader, found: _Found) -> None:
    found.cmdlines = reader.block(8)


_SECTIONS: dict[int, Callable[[Reader, _Found], None]] = {
    _HEADER: _read_header, _FTRACE: _read_ftrace, _EVENTS: _read_events, _CMDLINES: _read_cmdlines,
}  # fmt: skip


def _options(reader: Reader) -> Iterator[tuple[int, bytes]]:
    """Options up to the last one; version 7's last one says where more of them are."""
    while True:
        option = reader.number(2)
        if option == _DONE:
            ending = reader.file.read(12)
            size = int.from_bytes(ending[:4], "little")
            if len(ending) == 12 and size == 8 and isinstance(reader, Section):
                yield _DONE, ending[4:]
            else:
                reader.file.seek(-len(ending), 1)
            return
        yield option, reader.take(reader.number(4))


def _buffer_7(data: bytes, found: _Found) -> list[tuple[int, int, int]]:
    """Place, name, clock, page size, and for each core where its pages are."""
    name, _, rest = data[8:].partition(b"\0")
    clock, _, rest = rest.partition(b"\0")
    if not found.clock or not name:
        found.clock = clock.decode("utf-8", "replace")
    _page_bytes, cpus = struct.unpack_from("<II", rest)
    return [struct.unpack_from("<IQQ", rest, 8 + 20 * index) for index in range(cpus)]


def _places(reader: Reader, cpus: int) -> list[tuple[int, int, int]]:
    return [(cpu, reader.number(8), reader.number(8)) for cpu in range(cpus)]


def _in_place(path: Path, cpu: int, offset: int, size: int, _spill: Path) -> Source:
    return Source(cpu, path, offset, size)


def _unpacked_by(unpack: Unpack) -> _Unpack:
    def unpacked(path: Path, cpu: int, offset: int, _size: int, spill: Path) -> Source:
        into = spill / f"cpu{cpu}.raw"
        with path.open("rb") as file, into.open("wb") as out:
            file.seek(offset)
            for data in chunks(Reader(file), unpack):
                out.write(data)
        return Source(cpu, into)

    return unpacked


def _clock(text: str) -> str:
    """`local global [mono]` names all clocks and marks one; newer files have that one alone."""
    words = text.split()
    marked = [word.strip("[]") for word in words if word.startswith("[")]
    return marked[0] if marked else (words[0] if len(words) == 1 else "local")


_VERSIONS: dict[str, Callable[[Reader], tuple[_Found, _Unpack]]] = {"6": _version_6, "7": _version_7}


@dataclass
class Opened:
    """A trace that can be read, once, and what is known of it before."""

    kind: str  # in words
    clock: str
    chunks: Iterator[Chunk]
    notes: tuple[str, ...] = ()
    lost: dict[int, int] = field(default_factory=dict)


@dataclass
class Summary:
    """What was in a trace."""

    rows: dict[str, int] = field(default_factory=dict)  # by table
    roles: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)  # of write-backs
    lost: dict[int, int] = field(default_factory=dict)  # by core, at least
    first_ns: int | None = None
    last_ns: int | None = None

    def add(self, chunk: Chunk) -> None:
        columns = chunk.columns
        if chunk.name == "lost":
            self.lost |= dict(zip(columns["cpu"].tolist(), columns["events"].tolist(), strict=True))
            return
        self.rows[chunk.name] = self.rows.get(chunk.name, 0) + len(columns["t_ns"])
        if chunk.name == "page_writes":  # made of rows that are counted already
            return
        _count(self.roles, columns["role"] if "role" in columns else np.empty(0))
        if chunk.name == "writeback_start" and "reason" in columns:
            _count(self.reasons, columns["reason"])
        first, last = int(columns["t_ns"].min()), int(columns["t_ns"].max())
        self.first_ns = first if self.first_ns is None else min(first, self.first_ns)
        self.last_ns = last if self.last_ns is None else max(last, self.last_ns)

    @property
    def seconds(self) -> float:
        return 0.0 if self.first_ns is None or self.last_ns is None else (self.last_ns - self.first_ns) / 1e9


@contextmanager
def opened(path: Path, whole: bool = True) -> Iterator[Opened]:
    """A trace.dat, a text trace, or a folder of raw pages; what is unpacked goes when it is left.

    Of a text that is not read as a `whole`, events that page writes do not follow from have no columns of their own.
    """
    if not path.exists():
        raise NoSuchInput(f"{path}: no such file or folder.")
    if not path.is_file() and not path.is_dir():
        raise StudyError(f"{path} is a pipe or a device, and a trace is read more than once: write it to a file first.")
    with TemporaryDirectory(prefix="tare-trace-") as spill:
        if path.is_dir():
            if not (path / HEADER).exists():
                raise StudyError(f"{path} is a folder without a raw trace in it.")
            with damage_named(path):
                raw = _raw(path, "raw pages", open_folder(path))
            yield raw
        elif is_trace_dat(path):
            with damage_named(path):
                raw = _raw(path, "trace.dat of trace-cmd", open_trace_dat(path, Path(spill)))
            yield raw
        elif is_text_trace(path):
            note = "A text has times of microseconds, and names no clock."
            yield Opened("text", "unknown", text_tables(path, whole=whole), (note,))
        else:
            raise StudyError(
                f"{path} is no trace that tare reads: neither a trace.dat of trace-cmd, nor a text as `cat trace` or "
                "`trace-cmd report` print it, nor a folder of raw pages."
            )


def _raw(path: Path, kind: str, recording: Recording) -> Opened:
    notes = recording.notes
    if recording.clock != "mono":
        notes += (
            f"Its times are of the clock '{recording.clock}', and not of CLOCK_MONOTONIC (`trace-cmd record -C mono`): "
            "they cannot be aligned with other series of the device.",
        )
    lost = {source.cpu: lost_events(source, recording.layout) for source in recording.sources}
    counted = {cpu: found.events + found.uncounted for cpu, found in lost.items() if any(found)}

    def chunks() -> Iterator[Chunk]:
        read = 0
        with damage_named(path, where=lambda: f"after {read} tables of its pages"):
            for chunk in tables(recording):
                yield chunk
                read += 1

    return Opened(kind, recording.clock, chunks(), notes, counted)


def _count(into: dict[str, int], words: np.ndarray) -> None:
    for word, number in counts(words).items():
        into[word] = into.get(word, 0) + number
