"""Decoded events as tables that people can read: words for codes, one name across kernels, and whose each row was.

What differs between kernels ends here: `writeback_dirty_page` (until 5.17) and `writeback_dirty_folio` are one table,
a bdi's name becomes a device number, `ino` is `inode`, a reason is its word in that kernel.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tare.traces.decode import Columns, Events, pieces
from tare.traces.page_writes import PageWrites
from tare.traces.recording import Recording
from tare.traces.roles import HOST, Roles
from tare.traces.texts import coded, words_of

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
        if written is not None:
            yield Chunk("page_writes", written)
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
