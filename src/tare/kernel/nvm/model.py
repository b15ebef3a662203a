"""What is simulated (a layer in front of a disk), and what a run over a trace has found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


DISK_S = 8e-3  # the paper's disk (Toshiba DT01ACA1), one access
NVM_S = 350e-9  # its phase-change memory, one write
PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Policy:
    """Which page makes room, if there is a buffer at all."""

    name: str
    about: str
    buffers: bool = True


@dataclass(frozen=True, slots=True)
class Destage:
    """Who waits when a page of a full buffer is written to the disk."""

    name: str
    about: str
    waits: bool  # the write-back that needs the place pays for the disk access


POLICIES: Mapping[str, Policy] = {
    each.name: each
    for each in (
        Policy("none", "no buffer: every write-back goes to the disk", buffers=False),
        Policy("lru", "the page that was written back longest ago makes room"),
    )
}
DESTAGES: Mapping[str, Destage] = {
    each.name: each
    for each in (
        Destage("sync", "the write-back that needs the place waits for the disk", waits=True),
        Destage("async", "the disk always keeps up in the background, and nobody waits", waits=False),
    )
}


@dataclass(frozen=True, slots=True)
class Layer:
    """A buffer of `nvm_bytes` (None: unlimited) in front of a disk."""

    policy: Policy
    nvm_bytes: int | None
    destage: Destage = DESTAGES["sync"]
    disk_s: float = DISK_S
    nvm_s: float = NVM_S

    def pages(self, page_bytes: int, shares: int = 1) -> int | None:
        """Whole pages of one share of the buffer; None where it is unlimited."""
        if not self.policy.buffers:
            return 0
        return None if self.nvm_bytes is None else self.nvm_bytes // page_bytes // shares


@dataclass(frozen=True, slots=True)
class Writes:
    """Write-backs by what became of them: each is counted once."""

    absorbed: int = 0  # the page was in the buffer
    taken: int = 0  # into a free place
    evicting: int = 0  # into the place of a page that was written to the disk for it
    direct: int = 0  # past the buffer, to the disk

    @property
    def total(self) -> int:
        return self.nvm + self.direct

    @property
    def nvm(self) -> int:
        return self.absorbed + self.taken + self.evicting

    def __add__(self, other: Writes) -> Writes:
        return Writes(self.absorbed + other.absorbed, self.taken + other.taken, self.evicting + other.evicting,
                      self.direct + other.direct)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Latency:
    """How long write-backs took, each by itself: service times, without queueing."""

    writes: Writes
    layer: Layer

    @property
    def total_s(self) -> float:
        waited = self.writes.evicting if self.layer.destage.waits else 0
        return self.writes.nvm * self.layer.nvm_s + (self.writes.direct + waited) * self.layer.disk_s

    @property
    def disk_only_s(self) -> float:
        return self.writes.total * self.layer.disk_s

    @property
    def improvement(self) -> float:
        """The share of the disk-only latency that is gone; nothing was written, nothing improved."""
        return 1 - self.total_s / self.disk_only_s if self.disk_only_s else 0.0

    def percentile_s(self, share: float) -> float | None:
        """The nearest-rank percentile; None of no writes."""
        writes, layer = self.writes, self.layer
        evicting_s = layer.nvm_s + (layer.disk_s if layer.destage.waits else 0.0)
        kinds = [(layer.nvm_s, writes.absorbed + writes.taken), (evicting_s, writes.evicting),
                 (layer.disk_s, writes.direct)]  # fmt: skip
        rank, seen = math.ceil(share * writes.total), 0
        for latency_s, count in sorted(kinds):
            seen += count
            if seen >= rank > 0:
                return latency_s
        return None


@dataclass(frozen=True, slots=True)
class Run:
    """One layer over one trace."""

    layer: Layer
    tenants: Mapping[str, Writes]
    destaged: int  # pages that left the buffer for the disk, waited for or not
    left: int  # pages that are in the buffer at the end, and still have to go to the disk some day
    pages: int | None  # of the buffer; None: unlimited
    trace: str = ""
    duration_s: float = 0.0  # from the first write-back to the last
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the trial whose trace this is

    @property
    def writes(self) -> Writes:
        return sum(self.tenants.values(), Writes())

    @property
    def latency(self) -> Latency:
        return Latency(self.writes, self.layer)

    @property
    def disk_writes(self) -> int:
        return self.writes.direct + self.destaged

    @property
    def disk_busy(self) -> float | None:
        """Share of the trace's time that the disk writes: above 1 it could not have kept up; None without a span."""
        return self.disk_writes * self.layer.disk_s / self.duration_s if self.duration_s else None

    def as_json(self) -> dict[str, Any]:
        """The keys that the issue names, and what else is known."""
        writes, latency, layer = self.writes, self.latency, self.layer
        found: dict[str, Any] = {
            "policy": layer.policy.name,
            "nvm_bytes": layer.nvm_bytes if layer.policy.buffers else 0,
            "page_writes": writes.total,
            "disk_writes": self.disk_writes,
            "nvm_writes": writes.nvm,
            "latency_s": latency.total_s,
            "latency_disk_only_s": latency.disk_only_s,
            "improvement": latency.improvement,
            "p99_s": latency.percentile_s(0.99),
            "latency_mean_s": latency.total_s / writes.total if writes.total else None,
            "destage": layer.destage.name,
            "nvm_pages": self.pages,
            "absorbed": writes.absorbed,
            "direct_writes": writes.direct,
            "waited_writes": writes.evicting if layer.destage.waits else 0,
            "destaged_writes": self.destaged,
            "destage_s": self.destaged * layer.disk_s,
            "avoided_disk_writes": writes.total - self.disk_writes,
            "left_in_nvm": self.left,
            "disk_busy_share": self.disk_busy,
        }
        if len(self.tenants) > 1:
            found["tenants"] = {name: _tenant_json(each, layer) for name, each in self.tenants.items()}
        if self.trace:
            found["trace"] = self.trace
        return found


def _tenant_json(writes: Writes, layer: Layer) -> dict[str, Any]:
    latency = Latency(writes, layer)
    return {
        "page_writes": writes.total,
        "nvm_writes": writes.nvm,
        "latency_s": latency.total_s,
        "latency_disk_only_s": latency.disk_only_s,
        "improvement": latency.improvement,
        "p99_s": latency.percentile_s(0.99),
    }


# Page writes in the order in which they came, in pieces: a key for each page, who wrote it, and when.

MOST_KEYS = 1 << 63  # as a BIGINT of DuckDB
MOST_TENANTS = 256


class Piece(NamedTuple):
    """Consecutive page writes, as columns."""

    keys: npt.NDArray[np.uint64]  # equal where device, file and page are
    tenants: npt.NDArray[np.uint8]  # places in `Trace.tenants`
    times_ns: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """A trace that can be gone through, without being held."""

    name: str
    writes: int
    tenants: tuple[str, ...]  # one without a name where none are told apart
    span: int  # keys are below this
    pieces: Callable[[], Iterator[Piece]]
    duration_s: float = 0.0
    page_bytes: int | None = None  # where the trace says it
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the trial that was traced


def trace_of(
    name: str, columns: Mapping[str, Any], who: tuple[Sequence[str], npt.NDArray[Any]] | None = None, **known: Any
) -> Trace:
    """Columns in memory: t_ns (or t_s), page, and dev, inode and tenant where there are such.

    `who`: names of tenants, and which of them each write has, in place of the last.
    """
    pages = np.asarray(columns["page"], np.uint64)
    keys, span = pages, int(pages.max(initial=0)) + 1
    for column in ("inode", "dev"):
        if column in columns and len(named := np.unique(columns[column])) > 1:
            # `unique` has the places too, but takes five times as long then.
            keys = keys + np.searchsorted(named, columns[column]).astype(np.uint64) * np.uint64(span)
            span *= len(named)
    if who is None and "tenant" in columns:
        words, places = np.unique(np.asarray(columns["tenant"]).astype(str), return_inverse=True)
        who = words.tolist(), places
    tenants: tuple[str, ...] = ("",)
    codes = np.zeros(len(pages), np.uint8)
    if who is not None and len(pages):
        names, places = who
        used = sorted(np.flatnonzero(np.bincount(places)).tolist(), key=lambda place: names[place])
        order = np.zeros(len(names), np.uint8)
        order[used] = np.arange(len(used))
        tenants, codes = tuple(str(names[place]) for place in used), order[places]
    if "t_ns" in columns:
        times_ns = np.asarray(columns["t_ns"], np.int64)
    else:
        times_ns = np.rint(np.asarray(columns["t_s"], float) * 1e9).astype(np.int64)
    duration_s = float(times_ns[-1] - times_ns[0]) / 1e9 if len(times_ns) else 0.0
    piece = Piece(keys, codes, times_ns)
    return Trace(name, len(pages), tenants, span, lambda: iter([piece]), duration_s, **known)
