"""Figures of write-backs, as pure functions over the columns of a trace (seed S2: Tables 9 and 10, Figs. 3 and 4).

A *write-back* is one `writeback_start`: the flusher sets out to write a bunch of pages, for a reason. It does so
several times on one errand, an *episode* (`tare.traces.writeback`), and intervals are those between episodes. What is
written outside the flusher (fsync, overwrites in place, direct I/O, the journal) has none, and is counted by pages
beside it.

Episodes of write-back: which `writeback_start` events are one and the same errand of the flusher.

The kernel writes `writeback_start` for every round that it makes: a periodic write-back has a second one that finds
nothing left, and a `sync` has three to seven within 20 ms (for each super block, for what others have dirtied, for what
came in meanwhile). A round belongs to the episode before it where device, control group and reason are the same and it
sets out within `APART_S` of the end of the round before. Seen on kernel 6.18: 0 to 20 ms within an errand, 120 ms and
more between two of them.

An episode that wrote pages, and none but tare's own (the spool, the raw trace), is left out: without tare it would not
have been. One that wrote ours beside others' stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.traces.page_writes import OUTSIDE
from tare.traces.roles import TARE

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
    inside = ~_are(written, "reason", OUTSIDE)
    pids, t_ns = (np.asarray(written[name])[inside] for name in ("pid", "t_ns"))
    is_tare = _are(written, "role", TARE)[inside]
    for pid in np.unique(start["pid"]):
        rounds, pages = np.flatnonzero(start["pid"] == pid), pids == pid
        place = np.searchsorted(start["t_ns"][rounds], t_ns[pages], side="right") - 1
        known = place >= 0
        episode = start["episode"][rounds[place[known]]]
        ours[episode[is_tare[pages][known]]] = True
        others[episode[~is_tare[pages][known]]] = True
    alone: npt.NDArray[np.bool_] = (ours & ~others)[start["episode"]]
    return alone


Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
Floats: TypeAlias = npt.NDArray[np.float64]

HOT = 0.01  # the hottest hundredth of the pages
_STRETCHES = 3  # early is the first third of the time, late the last


class Concentration(NamedTuple):
    """How unevenly the page writes of stretches of time are spread over the pages that were written in them."""

    t_ns: npt.NDArray[np.int64]  # where each stretch begins
    writes: npt.NDArray[np.int64]
    pages: npt.NDArray[np.int64]  # different ones
    gini: Floats
    hot_share: Floats  # of the writes: those of the hottest hundredth of the pages


def counts(words: npt.NDArray[Any]) -> dict[str, int]:
    """How often each word is there: reasons, roles."""
    found: Counter[str] = Counter()
    for word, count in Counter(words.tolist()).items():
        found[str(word)] += count
    return dict(sorted(found.items()))


def by_reason(start: Columns) -> dict[str, int]:
    """Write-backs by reason: background, periodic, sync, ..."""
    return counts(start["reason"])


def intervals_s(start: Columns) -> Floats:
    """Times from the beginning of one episode of a device to that of the next; `start` as `episodes.started` has it."""
    _, first = np.unique(start["episode"], return_index=True)
    t_ns = start["t_ns"][first]
    devices = np.asarray(start["bdi"][first] if "bdi" in start else np.zeros(len(first))).astype(str)
    gaps = [np.diff(np.sort(t_ns[devices == device])) / 1e9 for device in np.unique(devices)]
    return np.concatenate(gaps) if gaps else np.empty(0)


def episode_count(start: Columns) -> int:
    """How many errands these write-backs were."""
    return len(np.unique(start["episode"]))


def flusher_pages(tables: Mapping[str, Columns]) -> int | None:
    """Pages that the flusher says it wrote, ours among them; None where the trace does not tell."""
    if "writeback_pages_written" in tables:
        return int(tables["writeback_pages_written"]["pages"].sum())
    if "writeback_single_inode" in tables:
        return int(tables["writeback_single_inode"]["wrote"].astype(np.int64).sum())
    return None


def our_flusher_pages(page_writes: Columns) -> int:
    """Page writes of tare's own that the flusher did."""
    ours = _are(page_writes, "role", TARE) if "role" in page_writes else np.False_
    return int(np.count_nonzero(ours & ~_are(page_writes, "reason", OUTSIDE)))


def pages_outside(page_writes: Columns) -> int:
    """Page writes that the flusher had no part in."""
    return int(np.count_nonzero(_are(page_writes, "reason", OUTSIDE)))


def without_ours(page_writes: Columns) -> Columns:
    """Without what tare itself wrote: the trace that it keeps is written back beside the workload's pages."""
    if "role" not in page_writes:
        return page_writes
    kept = ~_are(page_writes, "role", TARE)
    return {name: np.asarray(column)[kept] for name, column in page_writes.items()}


def _are(table: Columns, column: str, word: str) -> npt.NDArray[np.bool_]:
    """Which rows have this word: by its number, where the table knows the numbers of its words."""
    words, which = getattr(table, "coded", {}).get(column, ((), None))
    if which is None:
        return np.asarray(np.asarray(table[column]) == word, bool)
    return np.asarray(which == (words.index(word) if word in words else -1))


def page_keys(page_writes: Columns) -> npt.NDArray[np.int64]:
    """One number for each different page of each device."""
    dev, page = (np.asarray(page_writes[name]).astype(np.int64, copy=False) for name in ("dev", "page"))
    if not len(dev) or (dev == dev[0]).all():
        return page
    _, which = np.unique(dev, return_inverse=True)
    return (which.astype(np.int64) << 44) | page


def writes_by_page(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How often each page was written, the coldest first."""
    return np.sort(np.unique(keys, return_counts=True)[1])


def gini(times: npt.NDArray[np.int64]) -> float | None:
    """0: every page is written equally often; towards 1: a few take all. `times` sorted, as `writes_by_page` has it."""
    total, number = float(times.sum()), len(times)
    if not number or not total:
        return None
    ranks = np.arange(1, number + 1)
    return float((2 * (ranks * times).sum() / total - (number + 1)) / number)


def hot_share(times: npt.NDArray[np.int64], hot: float = HOT) -> float | None:
    """The share of the writes that the hottest pages take: a hundredth of them, at least one."""
    if not len(times):
        return None
    most = max(1, round(hot * len(times)))
    return float(times[-most:].sum() / times.sum())


def concentration(page_writes: Columns, stretches: int) -> Concentration:
    """The unevenness in each of so many equal stretches of time; those without a write are left out."""
    t_ns, keys = np.asarray(page_writes["t_ns"]).astype(np.int64), page_keys(page_writes)
    edges = np.linspace(t_ns.min(), t_ns.max() + 1, stretches + 1).astype(np.int64) if len(t_ns) else np.zeros(1)
    rows = []
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        times = writes_by_page(keys[(t_ns >= begin) & (t_ns < end)])
        spread, hot = gini(times), hot_share(times)
        if spread is not None and hot is not None:
            rows.append((begin, int(times.sum()), len(times), spread, hot))
    begins, writes, pages, ginis, hots = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    return Concentration(
        np.array(begins, np.int64),
        np.array(writes, np.int64),
        np.array(pages, np.int64),
        np.array(ginis, np.float64),
        np.array(hots, np.float64),
    )


def figures(tables: Mapping[str, Columns]) -> dict[str, float]:
    """What goes into a traced trial's record; a figure whose events are not there is absent."""
    found: dict[str, float] = {}
    few = {name: table for name in TABLES if (table := tables.get(name)) is not None}  # each is read once
    if (start := started(few)) is not None:
        found |= _of_starts(start)
    if (pages := flusher_pages(tables)) is not None:
        found["writeback_pages"] = float(pages)
    if (written := few.get(PAGE_WRITES)) is not None:
        found |= _of_pages(written)
    if (dirtied := tables.get("writeback_dirty_folio")) is not None:
        found["dirtied_folios"] = float(len(dirtied["t_ns"]))
    return found


def _of_starts(start: Columns) -> dict[str, float]:
    reasons = by_reason(start)
    found = {"writeback_count": float(sum(reasons.values())), "writeback_episodes": float(episode_count(start))}
    found |= {f"writeback_{reason}_count": float(count) for reason, count in reasons.items()}
    found.setdefault("writeback_background_count", 0.0)  # that there was none is seen, not missing
    gaps = intervals_s(start)
    if len(gaps):
        found["writeback_interval_s"] = float(gaps.mean())
    if len(gaps) > 1:
        found["writeback_interval_sd_s"] = float(gaps.std(ddof=1))
    return found


def _of_pages(written: Columns) -> dict[str, float]:
    """Without what tare itself wrote."""
    kept = ~_are(written, "role", TARE) if "role" in written else slice(None)
    outside = np.count_nonzero(_are(written, "reason", OUTSIDE)[kept])
    written = {name: np.asarray(written[name])[kept] for name in ("t_ns", "dev", "page")}
    count = len(written["t_ns"])
    found = {
        "writeback_pages": float(count - outside),
        "written_pages": float(count),
        "writeback_pages_outside": float(outside),
    }
    times = writes_by_page(page_keys(written))
    if (spread := gini(times)) is not None:
        found["writeback_gini"] = spread
    parts = concentration(written, _STRETCHES)
    if len(parts.t_ns) > 1:
        found["writeback_hot_share_early"] = float(parts.hot_share[0])
        found["writeback_hot_share_late"] = float(parts.hot_share[-1])
    return found
