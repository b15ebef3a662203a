"""Episodes of write-back: which `writeback_start` events are one and the same errand of the flusher.

The kernel writes `writeback_start` for every round that it makes: a periodic write-back has a second one that finds
nothing left, and a `sync` has three to seven within 20 ms (for each super block, for what others have dirtied, for what
came in meanwhile). A round belongs to the episode before it where device, control group and reason are the same and it
sets out within `APART_S` of the end of the round before. Seen on kernel 6.18: 0 to 20 ms within an errand, 120 ms and
more between two of them.

An episode that wrote pages, and none but tare's own (the spool, the raw trace), is left out: without tare it would not
have been. One that wrote ours beside others' stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.traces.page_writes import OUTSIDE
from tare.traces.roles import TARE

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
Ints: TypeAlias = npt.NDArray[np.int64]

STARTS, ENDS, PAGE_WRITES = "writeback_start", "writeback_written", "page_writes"
TABLES = (STARTS, ENDS, PAGE_WRITES)
APART_S = 0.1
_SAME = ("bdi", "cgroup_ino", "reason")


def started(tables: Mapping[str, Columns]) -> Columns | None:
    """The rows of `writeback_start` in order of time, with the number of the `episode`; without tare's own episodes.

    None where the event was not traced.
    """
    if (rows := tables.get(STARTS)) is None:
        return None
    order = np.argsort(np.asarray(rows["t_ns"]), kind="stable")
    start = {name: np.asarray(column)[order] for name, column in rows.items()}
    start["episode"] = _episodes(start, tables.get(ENDS))
    written = tables.get(PAGE_WRITES)
    if written is None or "pid" not in start or not {"role", "pid"} <= written.keys():
        return start
    kept = ~_is_ours(start, written)
    return {name: column[kept] for name, column in start.items()}


def _episodes(start: Columns, ends: Columns | None) -> Ints:
    """Episodes are numbered in the order of their beginnings."""
    streams, end_streams = _streams(start), None if ends is None else _streams(ends)
    begins = np.zeros(len(start["t_ns"]), bool)
    first = np.zeros(len(begins), np.int64)  # of each round: that which began its episode
    for stream in np.unique(streams):
        at = np.flatnonzero(streams == stream)
        ended = np.empty(0, np.int64) if ends is None else np.sort(ends["t_ns"][end_streams == stream])
        begins[at] = _begin_an_episode(start["t_ns"][at], ended)
        first[at] = at[np.maximum.accumulate(np.where(begins[at], np.arange(len(at)), 0))]
    return (np.cumsum(begins) - 1)[first] if len(begins) else first


def _begin_an_episode(t_ns: Ints, ended_ns: Ints) -> npt.NDArray[np.bool_]:
    """Of the rounds of one stream, in order: whether the one before was over for long enough."""
    following = np.append(t_ns[1:], np.iinfo(np.int64).max)
    place = np.searchsorted(ended_ns, t_ns)
    end = np.append(ended_ns, following[-1])[place]
    over = np.where(end <= following, end, t_ns)  # a round whose end was lost lasted no time
    return np.append(True, t_ns[1:] - over[:-1] > APART_S * 1e9)


def _streams(rows: Columns) -> npt.NDArray[np.str_]:
    """One word a row, the same for rounds that may be of one errand."""
    columns = [np.asarray(rows[name]).astype(str).tolist() for name in _SAME if name in rows]
    if not columns:
        return np.full(len(rows["t_ns"]), "")
    return np.array([" ".join(words) for words in zip(*columns, strict=True)], str)


def _is_ours(start: Columns, written: Columns) -> npt.NDArray[np.bool_]:
    """Of each round, whether the pages of its episode were all tare's; one that wrote none is not ours."""
    count = int(start["episode"].max()) + 1 if len(start["episode"]) else 0
    ours, others = np.zeros(count, bool), np.zeros(count, bool)
    inside = np.asarray(written["reason"]) != OUTSIDE
    pids, t_ns, roles = (np.asarray(written[name])[inside] for name in ("pid", "t_ns", "role"))
    is_tare = roles == TARE
    for pid in np.unique(start["pid"]):
        rounds, pages = np.flatnonzero(start["pid"] == pid), pids == pid
        place = np.searchsorted(start["t_ns"][rounds], t_ns[pages], side="right") - 1
        known = place >= 0
        episode = start["episode"][rounds[place[known]]]
        ours[episode[is_tare[pages][known]]] = True
        others[episode[~is_tare[pages][known]]] = True
    alone: npt.NDArray[np.bool_] = (ours & ~others)[start["episode"]]
    return alone
