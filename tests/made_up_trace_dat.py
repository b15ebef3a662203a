"""trace.dat files made from a recorded folder, as trace-cmd's documentation of versions 6 and 7 describes them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

_MAGIC = b"\x17\x08\x44tracing"
_PAGE = 4096


def _block(text: bytes, width: str) -> bytes:
    return struct.pack(width, len(text)) + text


def _header_info(folder: Path) -> bytes:
    page = (folder / "header_page").read_bytes()
    return b"header_page\0" + _block(page, "<Q") + b"header_event\0" + _block(b"# compressed entry header", "<Q")


def _events(folder: Path) -> bytes:
    systems = sorted((folder / "formats").iterdir())
    made = struct.pack("<I", len(systems))
    for system in systems:
        texts = [path.read_bytes() for path in sorted(system.iterdir())]
        made += system.name.encode() + b"\0" + struct.pack("<I", len(texts)) + b"".join(_block(t, "<Q") for t in texts)
    return made


def _cores(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("cpu*.raw"))]


def version_6(folder: Path, *, clock: str = "local global [mono]", buffer: bool = False) -> bytes:
    """One thing after another; `buffer`: the pages are in an instance, and the top one is empty."""
    cores = _cores(folder)
    head = _MAGIC + b"6\0" + bytes([0, 8]) + struct.pack("<I", _PAGE) + _header_info(folder)
    head += struct.pack("<I", 0) + _events(folder)
    head += struct.pack("<I", 3) + b"sym" + struct.pack("<I", 2) + b"pf" + _block(b"12 dd\n13 kworker/u8:1\n", "<Q")
    head += struct.pack("<I", len(cores)) + b"options  \0"
    head += struct.pack("<HI", 4, len(clock)) + clock.encode()
    places_bytes = 16 * len(cores)
    option = struct.pack("<HI", 3, 8 + 4) if buffer else b""
    begin = len(head) + len(option) + (12 if buffer else 0) + 2 + 10 + places_bytes
    second = begin
    data_at = -(-(begin + (10 + places_bytes if buffer else 0)) // _PAGE) * _PAGE
    places = b""
    for core in cores:
        places += struct.pack("<QQ", data_at, len(core))
        data_at += len(core)
    if buffer:
        head += option + struct.pack("<Q", second) + b"ins\0"
    head += struct.pack("<H", 0) + b"flyrecord\0"
    head += struct.pack("<QQ", 0, 0) * len(cores) + b"flyrecord\0" + places if buffer else places
    return head.ljust(-(-len(head) // _PAGE) * _PAGE, b"\0") + b"".join(cores)


def version_7(folder: Path, *, codec: str = "none", clock: str = "mono") -> bytes:
    """Sections that options point to."""
    pack: Callable[[bytes], bytes] | None = zlib.compress if codec == "zlib" else None
    head = _MAGIC + b"7\0" + bytes([0, 8]) + struct.pack("<I", _PAGE) + codec.encode() + b"\0" + b"1\0"
    made = head + struct.pack("<Q", 0)
    options = b""
    names = _block(b"12 dd\n13 kworker/u8:1\n", "<Q")
    for number, content in ((16, _header_info(folder)), (17, struct.pack("<I", 0)), (18, _events(folder)), (21, names)):
        options += struct.pack("<HIQ", number, 8, len(made))
        made += _section(number, content, pack)
    buffer_at = len(made)
    cores = _cores(folder)
    made += _section(3, b"", None, flags=1 if pack else 0)
    made = made.ljust(-(-len(made) // _PAGE) * _PAGE, b"\0")
    places = b""
    for cpu, core in enumerate(cores):
        packed = _chunks(core, pack) if pack else core
        places += struct.pack("<IQQ", cpu, len(made), len(packed))
        made += packed
    buffer = (
        struct.pack("<Q", buffer_at) + b"\0" + clock.encode() + b"\0" + struct.pack("<II", _PAGE, len(cores)) + places
    )
    options += struct.pack("<HI", 3, len(buffer)) + buffer + struct.pack("<HIQ", 0, 8, 0)
    first = len(made)
    made += _section(0, options, pack)
    return made[: len(head)] + struct.pack("<Q", first) + made[len(head) + 8 :]


def _section(number: int, content: bytes, pack: Callable[[bytes], bytes] | None, flags: int = 0) -> bytes:
    packed = _chunks(content, pack) if pack else content
    return struct.pack("<HHIQ", number, 1 if pack else flags, 0, len(packed)) + packed


def _chunks(content: bytes, pack: Callable[[bytes], bytes]) -> bytes:
    pieces = [content[at : at + 10_000] for at in range(0, len(content), 10_000)] or [b""]
    packed = [(pack(piece), len(piece)) for piece in pieces]
    return struct.pack("<I", len(packed)) + b"".join(
        struct.pack("<II", len(data), size) + data for data, size in packed
    )
