"""Figures of write-backs, as pure functions over the columns of a trace (seed S2: Tables 9 and 10, Figs. 3 and 4).

A *write-back* is one `writeback_start`: the flusher sets out to write a bunch of pages, for a reason. It does so
several times on one errand, an *episode*, and intervals are those between episodes. What is
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
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.base.errors import TareError
from tare.kernel.traces.decode import Columns
from tare.kernel.traces.roles import TARE, Ints, Timeline

# Which pages were written to a disk, when, why and for whom: the block layer's word, joined with the write-back's.
#
# No event of a stock kernel says "this page of this file was written". What is exact is `block_bio_queue`: a stretch of
# sectors that the file system hands down, by whichever path (flusher, fsync, journal, direct I/O, reclaim). From it:
#
# - `page` is the number of the page *on the device* (sector x 512 / page size), so that a file that is overwritten in
#   place is the same page again, and one that is written anew is another;
# - `reason` is that of the write-back in which the same task was at that time (between its `writeback_start` and
#   `writeback_written`), or `outside` where it was in none: fsync, direct I/O, the journal;
# - `inode` is that of the `writeback_single_inode_start` ... `writeback_single_inode` around it; 0, which no file has,
#   where there is none;
# - `role` is that of whoever dirtied a page of that inode last before; where nobody is known to have, that of the task
#   that wrote.

SECTOR_BYTES = 512
OUTSIDE = "outside"  # of the flusher
USED = ("block_bio_queue", "writeback_start", "writeback_single_inode_start", "writeback_dirty_folio")  # their fields
MOST_SECTORS = (1 << 23) - 1  # of one write: the kernel counts its bytes in 32 bits
_LAST_SECTOR = 1 << 54  # of a device whose bytes 63 bits can count
# A file of so many writes may be so many rows: more than any kernel's writes are on average, and a few large ones.
_MOST_PAGES_EACH, _MOST_PAGES = 4096, 1 << 22
_ROWS_AT_ONCE = 1 << 19
_MIX = np.int64(0x1E3779B97F4A7C15)


class PageWrites:
    """Joins the tables of one piece after another; what is open at the end of a piece goes on in the next."""

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        self._pages_left = _MOST_PAGES
        self._reasons, self._roles, self._files = _Codes(), _Codes(), _Codes()
        self._why, self._which, self._whose = Timeline(), Timeline(), Timeline()

    def piece(self, tables: Mapping[str, Columns]) -> Iterator[Columns]:
        """The pages that were written in this piece, one row each, in tables of bounded size."""
        self._learn(tables)
        if (queued := tables.get("block_bio_queue")) is not None:
            yield from self._written(queued)
        ends = [int(columns["t_ns"][-1]) for columns in tables.values() if len(columns["t_ns"])]
        for line in (self._why, self._which, self._whose):
            line.forget_before(max(ends, default=0))

    def _learn(self, tables: Mapping[str, Columns]) -> None:
        if (start := tables.get("writeback_start")) is not None:
            self._why.add(start["pid"], start["t_ns"], self._reasons.of(start["reason"]))
        if (done := tables.get("writeback_written")) is not None:
            self._why.add(done["pid"], done["t_ns"], np.full(len(done["pid"]), -1))
        if (begin := tables.get("writeback_single_inode_start")) is not None:
            self._which.add(begin["pid"], begin["t_ns"], self._files.of_pairs(begin["dev"], begin["inode"]))
        if (end := tables.get("writeback_single_inode")) is not None:
            self._which.add(end["pid"], end["t_ns"], np.full(len(end["pid"]), -1))
        if (dirtied := tables.get("writeback_dirty_folio")) is not None and "role" in dirtied:
            files = self._files.of_pairs(dirtied["dev"], dirtied["inode"])
            self._whose.add(files, dirtied["t_ns"], self._roles.of(dirtied["role"]))

    def _written(self, queued: Columns) -> Iterator[Columns]:
        rows = np.flatnonzero(is_page_write(queued["rwbs"]) & (queued["nr_sector"] > 0))
        if not len(rows):
            return
        t_ns, pid = queued["t_ns"][rows], queued["pid"][rows]
        files = self._which.at(pid, t_ns)
        owner = np.where(files >= 0, self._whose.at(files, t_ns), -1)
        role = queued["role"][rows].copy() if "role" in queued else np.full(len(rows), "host", object)
        role[owner >= 0] = self._roles.words(owner[owner >= 0])
        why = self._why.at(pid, t_ns)
        reason = np.full(len(rows), OUTSIDE, object)
        reason[why >= 0] = self._reasons.words(why[why >= 0])
        inode = np.zeros(len(rows), np.int64)
        inode[files >= 0] = [self._files.known[file][1] for file in files[files >= 0].tolist()]
        columns: Columns = {
            "t_ns": t_ns, "cpu": queued["cpu"][rows], "pid": pid, "dev": queued["dev"][rows].astype(np.int64),
            "inode": inode, "reason": reason, "role": role,
        }  # fmt: skip
        if "comm" in queued:
            columns["comm"] = queued["comm"][rows]
        first, count = self._stretches(t_ns, queued["sector"][rows], queued["nr_sector"][rows])
        ends = np.cumsum(count)
        for begin in range(0, int(ends[-1]), _ROWS_AT_ONCE):
            place = np.arange(begin, min(begin + _ROWS_AT_ONCE, int(ends[-1])))
            row = np.searchsorted(ends, place, side="right")
            page: Ints = first[row] + place - (ends - count)[row]
            yield {**{name: column[row] for name, column in columns.items()}, "page": page}

    def _stretches(self, t_ns: Ints, sector: npt.NDArray[Any], sectors: npt.NDArray[Any]) -> tuple[Ints, Ints]:
        """The first page of each write and how many it touches; what no kernel writes is damage, and not expanded."""
        wrong = np.flatnonzero((sector < 0) | (sector > _LAST_SECTOR) | (sectors > MOST_SECTORS))
        if len(wrong):
            at = int(wrong[0])
            raise TareError(
                f"a write of {int(sectors[at])} sectors at sector {int(sector[at])}, {int(t_ns[at])} ns by its clock, "
                "is one that no kernel makes: the file is damaged."
            )
        begin = sector.astype(np.int64) * SECTOR_BYTES
        first = begin // self._page_bytes
        count = (begin + sectors.astype(np.int64) * SECTOR_BYTES - 1) // self._page_bytes - first + 1
        self._pages_left += len(count) * _MOST_PAGES_EACH - int(count.sum())
        if self._pages_left < 0:
            raise TareError(
                f"its writes touch more than {_MOST_PAGES_EACH} pages each, {int(t_ns[-1])} ns by its clock, which no "
                "kernel's do: the file is damaged."
            )
        return first, count


def is_page_write(rwbs: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """`WS`, `FWFS`: writes; not `D` (discard) nor `WZ` (zeroes without data)."""
    words = rwbs.tolist()
    writes = {word: "W" in str(word) and not {"D", "Z"} & set(str(word)) for word in set(words)}
    return np.fromiter(map(writes.__getitem__, words), bool, len(words))


class _Codes:
    """Small numbers for words, or for pairs of numbers, in the order in which they come."""

    def __init__(self) -> None:
        self.known: list[Any] = []
        self._codes: dict[Any, int] = {}

    def of(self, words: npt.NDArray[Any]) -> Ints:
        several = words.tolist()
        codes = {word: self._code(str(word)) for word in set(several)}
        return np.fromiter(map(codes.__getitem__, several), np.int64, len(several))

    def of_pairs(self, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Ints:
        """A file is its device and its inode."""
        left, right = left.astype(np.int64), right.astype(np.int64)
        with np.errstate(over="ignore"):
            mixed = right * _MIX ^ left
        begins = np.ones(len(mixed), bool)  # of runs of one file, whose pages come one after another
        begins[1:] = mixed[1:] != mixed[:-1]
        runs = np.flatnonzero(begins)
        _, first, which = np.unique(mixed[runs], return_index=True, return_inverse=True)
        pairs = zip(left[runs[first]].tolist(), right[runs[first]].tolist(), strict=True)
        codes: Ints = np.array([self._code(pair) for pair in pairs], np.int64)[which]
        return np.asarray(codes[np.cumsum(begins) - 1])

    def words(self, codes: Ints) -> npt.NDArray[np.object_]:
        return np.array(self.known, dtype=object)[codes]

    def _code(self, thing: Any) -> int:
        if thing not in self._codes:
            self._codes[thing] = len(self.known)
            self.known.append(thing)
        return self._codes[thing]


STARTS, ENDS, PAGE_WRITES = "writeback_start", "writeback_written", "page_writes"
TABLES = (STARTS, ENDS, PAGE_WRITES)
APART_S = 0.1
_SAME = ("bdi", "cgroup_ino", "reason")


def started(tables: Mapping[str, Rows]) -> Rows | None:
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


def _episodes(start: Rows, ends: Rows | None) -> Ints:
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


def _streams(rows: Rows) -> npt.NDArray[np.str_]:
    """One word a row, the same for rounds that may be of one errand."""
    columns = [np.asarray(rows[name]).astype(str).tolist() for name in _SAME if name in rows]
    if not columns:
        return np.full(len(rows["t_ns"]), "")
    return np.array([" ".join(words) for words in zip(*columns, strict=True)], str)


def _is_ours(start: Rows, written: Rows) -> npt.NDArray[np.bool_]:
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


Rows: TypeAlias = Mapping[str, npt.NDArray[Any]]
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


def by_reason(start: Rows) -> dict[str, int]:
    """Write-backs by reason: background, periodic, sync, ..."""
    return counts(start["reason"])


def intervals_s(start: Rows) -> Floats:
    """Times from the beginning of one episode of a device to that of the next; `start` as `episodes.started` has it."""
    _, first = np.unique(start["episode"], return_index=True)
    t_ns = start["t_ns"][first]
    devices = np.asarray(start["bdi"][first] if "bdi" in start else np.zeros(len(first))).astype(str)
    gaps = [np.diff(np.sort(t_ns[devices == device])) / 1e9 for device in np.unique(devices)]
    return np.concatenate(gaps) if gaps else np.empty(0)


def episode_count(start: Rows) -> int:
    """How many errands these write-backs were."""
    return len(np.unique(start["episode"]))


def flusher_pages(tables: Mapping[str, Rows]) -> int | None:
    """Pages that the flusher says it wrote, ours among them; None where the trace does not tell."""
    if "writeback_pages_written" in tables:
        return int(tables["writeback_pages_written"]["pages"].sum())
    if "writeback_single_inode" in tables:
        return int(tables["writeback_single_inode"]["wrote"].astype(np.int64).sum())
    return None


def our_flusher_pages(page_writes: Rows) -> int:
    """Page writes of tare's own that the flusher did."""
    ours = _are(page_writes, "role", TARE) if "role" in page_writes else np.False_
    return int(np.count_nonzero(ours & ~_are(page_writes, "reason", OUTSIDE)))


def pages_outside(page_writes: Rows) -> int:
    """Page writes that the flusher had no part in."""
    return int(np.count_nonzero(_are(page_writes, "reason", OUTSIDE)))


def without_ours(page_writes: Rows) -> Rows:
    """Without what tare itself wrote: the trace that it keeps is written back beside the workload's pages."""
    if "role" not in page_writes:
        return page_writes
    kept = ~_are(page_writes, "role", TARE)
    return {name: np.asarray(column)[kept] for name, column in page_writes.items()}


def _are(table: Rows, column: str, word: str) -> npt.NDArray[np.bool_]:
    """Which rows have this word: by its number, where the table knows the numbers of its words."""
    words, which = getattr(table, "coded", {}).get(column, ((), None))
    if which is None:
        return np.asarray(np.asarray(table[column]) == word, bool)
    return np.asarray(which == (words.index(word) if word in words else -1))


def page_keys(page_writes: Rows) -> npt.NDArray[np.int64]:
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


def edges_ns(t_ns: Ints, stretches: int) -> Ints:
    """Where each of so many equal stretches of the time of some writes begins, and the end of the last."""
    if not len(t_ns):
        return np.zeros(1, np.int64)
    return np.linspace(t_ns.min(), t_ns.max() + 1, stretches + 1).astype(np.int64)


def moments_ns(page_writes: Rows, stretches: int) -> Ints:
    """What a write must not be moved across, beside the starts of write-backs: then all figures stay as they are."""
    t_ns = without_ours(page_writes)["t_ns"]
    return np.concatenate([t_ns.max(keepdims=True, initial=0), edges_ns(t_ns, stretches), edges_ns(t_ns, _STRETCHES)])


def concentration(page_writes: Rows, stretches: int) -> Concentration:
    """The unevenness in each of so many equal stretches of time; those without a write are left out."""
    t_ns, keys = np.asarray(page_writes["t_ns"]).astype(np.int64), page_keys(page_writes)
    edges = edges_ns(t_ns, stretches)
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


def figures(tables: Mapping[str, Rows]) -> dict[str, float]:
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


def _of_starts(start: Rows) -> dict[str, float]:
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


def _of_pages(written: Rows) -> dict[str, float]:
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
