"""A trace as it lies on disk, whoever recorded it: pages by core, formats of its events, names and roles of tasks.

Decoded events as tables that people can read: words for codes, one name across kernels, and whose each row was.

What differs between kernels ends here: `writeback_dirty_page` (until 5.17) and `writeback_dirty_folio` are one table,
a bdi's name becomes a device number, `ino` is `inode`, a reason is its word in that kernel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tare.base.errors import TareError
from tare.traces.decode import Columns, Events, Source, coded, pieces, words_of
from tare.traces.formats import EventFormat, PageLayout, parse_event, parse_header_page
from tare.traces.roles import HOST, Roles, Snapshot
from tare.traces.writeback import PageWrites

_ID = re.compile(r"^ID:\s*(\d+)", re.MULTILINE)
META, HEADER, FORMATS = "trace.json", "header_page", "formats"


class Formats(Mapping[int, EventFormat]):
    """Events by their number; a format is parsed when it is first asked for: a kernel has two thousand."""

    def __init__(self, texts: Mapping[tuple[str, str], str]) -> None:
        self._texts: dict[int, tuple[str, str]] = {}
        for (system, _), text in texts.items():
            if number := _ID.search(text):
                self._texts[int(number[1])] = (system, text)
        self._parsed: dict[int, EventFormat] = {}

    def __getitem__(self, number: int) -> EventFormat:
        if number not in self._parsed:
            system, text = self._texts[number]
            self._parsed[number] = parse_event(text, system)
        return self._parsed[number]

    def __contains__(self, number: object) -> bool:
        return number in self._texts

    def __iter__(self) -> Iterator[int]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


@dataclass(frozen=True)
class Recording:
    """What is needed to decode a trace."""

    layout: PageLayout
    formats: Mapping[int, EventFormat]
    sources: tuple[Source, ...]
    clock: str = "mono"
    roles: Snapshot = field(default_factory=Snapshot)
    comms: Mapping[int, str] = field(default_factory=dict)  # names of tasks, as last known
    page_bytes: int = 4096  # of memory, not of the ring buffer
    lost: Mapping[int, int] = field(default_factory=dict)  # core -> events that the kernel says were overwritten
    notes: tuple[str, ...] = ()


def write_meta(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace what is known of the recording as a whole, in one step."""
    fresh = folder / f"{META}.new"
    fresh.write_text(json.dumps(content))
    fresh.replace(folder / META)


def write_formats(folder: Path, header_page: str, texts: Mapping[tuple[str, str], str]) -> None:
    """Keep the kernel's descriptions beside the pages: another kernel's would not fit them."""
    (folder / HEADER).write_text(header_page)
    for (system, name), text in texts.items():
        path = folder / FORMATS / system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def open_folder(folder: Path) -> Recording:
    """The raw files that the `ftrace` probe left; one that was cut off has pages, and perhaps no last words."""
    try:
        header = (folder / HEADER).read_text()
        texts = {(path.parent.name, path.name): path.read_text() for path in sorted((folder / FORMATS).glob("*/*"))}
    except OSError as error:
        raise TareError(f"{folder} holds no recorded trace: {error}.") from error
    meta = json.loads((folder / META).read_text()) if (folder / META).exists() else {}
    sources = sorted(Source(int(path.stem.removeprefix("cpu")), path) for path in folder.glob("cpu*.raw"))
    return Recording(
        layout=parse_header_page(header, meta.get("subbuffer_bytes")),
        formats=Formats(texts),
        sources=tuple(sources),
        clock=meta.get("clock", "mono"),
        roles=Snapshot.from_json(meta.get("roles", {})),
        comms={int(pid): name for pid, name in meta.get("comms", {}).items()},
        page_bytes=meta.get("page_bytes", 4096),
        lost={int(cpu): count for cpu, count in meta.get("lost", {}).items()},
        notes=tuple(meta.get("notes", ())),
    )


ABOUT_TASKS = ("sched_process_fork", "cgroup_attach_task", "task_rename")
_ONE_NAME = {"writeback_dirty_page": "writeback_dirty_folio"}
_RENAMED = {"ino": "inode", "index": "page", "name": "bdi"}
_OF_DISKS = ("writeback_", "wbc_", "block_")
_NUMBERS = re.compile(r"(\d+):(\d+)")


class Chunk(NamedTuple):
    """Some rows of one table."""

    name: str
    columns: Columns


def device_number(major: int, minor: int) -> int:
    """As the kernel's events number devices: 20 bits for the minor."""
    return major << 20 | minor


def tables(recording: Recording, without: Collection[str] = ()) -> Iterator[Chunk]:
    """Every event of a recording, and each page that was written (`page_writes`), in pieces of bounded size."""
    roles = Roles(_with_names(recording))
    writes = PageWrites(recording.page_bytes)
    for piece in pieces(recording.sources, recording.layout, recording.formats):
        roles.learn({events.format.name: events.columns for events in piece})
        found = {chunk.name: chunk for chunk in (labelled(events, roles) for events in piece)}
        yield from (chunk for name, chunk in found.items() if name not in without)
        written = writes.piece({name: chunk.columns for name, chunk in found.items()})
        yield from (Chunk("page_writes", columns) for columns in written)
        roles.forget_before(max(int(events.columns["t_ns"][-1]) for events in piece))


def labelled(events: Events, roles: Roles) -> Chunk:
    """The rows of one event, with the name and the role of the task that was running."""
    name = events.format.name
    columns = {key: column for key, column in events.columns.items() if not key.startswith("args_")}
    if name.startswith(_OF_DISKS):
        columns = of_disks(columns)
    if "reason" in columns:
        columns["reason"] = _as_words(columns["reason"], events.format.symbols.get("reason", {}))
    for key, column in columns.items():
        if column.dtype.kind == "S":
            columns[key] = words_of(column)
    if "pid" in columns:
        columns["comm"] = roles.comms(columns["pid"], columns["t_ns"])
        columns["role"] = roles.of(columns["pid"], columns["t_ns"])
    return Chunk(_ONE_NAME.get(name, name), columns)


def of_disks(columns: Columns) -> Columns:
    """Columns of a write-back or block event under their common names, with the number of the device."""
    named = {_RENAMED.get(key, key): column for key, column in columns.items()}
    if "bdi" in named and "dev" not in named:
        words, codes = coded(named["bdi"])
        named["dev"] = np.array([bdi_number(word) for word in words], np.int64)[codes]
    return {
        key: column.astype(np.int64) if key in ("dev", "inode", "page") else column for key, column in named.items()
    }


def bdi_number(bdi: str) -> int:
    """`254:0` as a number; 0, which no device has, for a bdi that is called otherwise (btrfs, a network drive)."""
    found = _NUMBERS.fullmatch(bdi)
    return device_number(int(found[1]), int(found[2])) if found else 0


def _as_words(codes: npt.NDArray[Any], words: Mapping[int, str]) -> npt.NDArray[np.object_]:
    different, which = np.unique(codes, return_inverse=True)
    return np.array([words.get(code, str(code)) for code in different.tolist()], dtype=object)[which]


def _with_names(recording: Recording) -> Any:
    """The snapshot, with names of tasks that only the kernel's list of names knows."""
    known = {pid for pid, _, _ in recording.roles.tasks}
    more = [(pid, name, HOST) for pid, name in recording.comms.items() if pid not in known]
    return replace(recording.roles, tasks=(*recording.roles.tasks, *more))
