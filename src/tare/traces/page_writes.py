"""Which pages were written to a disk, when, why and for whom: the block layer's word, joined with the write-back's.

No event of a stock kernel says "this page of this file was written". What is exact is `block_bio_queue`: a stretch of
sectors that the file system hands down, by whichever path (flusher, fsync, journal, direct I/O, reclaim). From it:

- `page` is the number of the page *on the device* (sector x 512 / page size), so that a file that is overwritten in
  place is the same page again, and one that is written anew is another;
- `reason` is that of the write-back in which the same task was at that time (between its `writeback_start` and
  `writeback_written`), or `outside` where it was in none: fsync, direct I/O, the journal;
- `inode` is that of the `writeback_single_inode_start` ... `writeback_single_inode` around it; 0, which no file has,
  where there is none;
- `role` is that of whoever dirtied a page of that inode last before; where nobody is known to have, that of the task
  that wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tare.base.errors import TareError
from tare.traces.decode import Columns
from tare.traces.roles import Ints, Timeline

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
