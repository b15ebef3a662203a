"""Page writes in the order in which they came, in pieces: a key for each page, who wrote it, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tare.base.errors import StudyError

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_KEYS = 1 << 63  # a key and one more fit into 64 bits
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


def by_tenant(piece: Piece, trace: Trace) -> Piece:
    """The same writes, with a page of each tenant for itself."""
    count = len(trace.tenants)
    if trace.span * count > MOST_KEYS:
        raise StudyError(f"{trace.name}: its devices, files and pages are too many to tell them apart by tenant.")
    return piece._replace(keys=piece.keys * np.uint64(count) + piece.tenants)


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
    times_ns = _times_ns(columns)
    duration_s = float(times_ns[-1] - times_ns[0]) / 1e9 if len(times_ns) else 0.0
    piece = Piece(keys, codes, times_ns)
    return Trace(name, len(pages), tenants, span, lambda: iter([piece]), duration_s, **known)


def _times_ns(columns: Mapping[str, Any]) -> npt.NDArray[np.int64]:
    if "t_ns" in columns:
        return np.asarray(columns["t_ns"], np.int64)
    return np.rint(np.asarray(columns["t_s"], float) * 1e9).astype(np.int64)
