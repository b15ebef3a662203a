"""Which pages are written again and again, and whether that grows (S2, Fig. 4): page by time, Gini, the hottest 1 %.

What tare itself wrote is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tare.analysis.kernel.model import Cell, Column, Section, Traced, at_least, by_label
from tare.traces.writeback import concentration, page_keys, without_ours

PROBE, TABLE = "ftrace", "page_writes"
STRETCHES = 6
MOST_POINTS = 4000  # of a scatter: more would be a blot
COLUMNS = (
    Column("cell", "where"),
    Column("stretch", "sixth of the time", "count"),
    Column("writes", "page writes", "number"),
    Column("pages", "pages", "number"),
    Column("gini", "Gini", "ratio"),
    Column("hot_share", "hottest 1 %", "share"),
)


@dataclass(frozen=True)
class Scatter:
    """Page writes of one trial: when, and which page in the order of the disk, without the gaps between them."""

    label: str
    seconds: Any
    pages: Any
    reasons: Any
    of: int  # page writes in all; the points are every n-th of them


def section(trials: Sequence[Traced]) -> Section | None:
    """Medians over a cell's trials, sixth by sixth of the time that each was writing."""
    recorded = [trial for trial in trials if trial.table(PROBE, TABLE) is not None]
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        found = [by_stretch(without_ours(trial.table(PROBE, TABLE) or {})) for trial in group]
        for stretch in range(STRETCHES):
            seen = [each[stretch] for each in found if stretch in each]
            if seen:
                rows.append((label, stretch + 1, *(float(median(column)) for column in zip(*seen, strict=True))))
    if not rows:
        return None
    return Section(
        "hot_pages", "How concentrated write-backs become", COLUMNS, tuple(rows), tuple(at_least(recorded, PROBE))
    )


def by_stretch(written: Any) -> dict[int, tuple[int, int, float, float]]:
    """Writes, pages, Gini and share of the hottest pages, by stretch; one without writes is absent."""
    if not len(written["t_ns"]):
        return {}
    found = concentration(written, STRETCHES)
    begin, end = int(written["t_ns"].min()), int(written["t_ns"].max()) + 1
    edges = np.linspace(begin, end, STRETCHES + 1).astype(np.int64)
    places = np.searchsorted(edges, found.t_ns, side="right") - 1
    rows = zip(found.writes.tolist(), found.pages.tolist(), found.gini.tolist(), found.hot_share.tolist(), strict=True)
    return dict(zip(places.tolist(), rows, strict=True))


def scatters(trials: Sequence[Traced]) -> list[Scatter]:
    """Page by time, of the first traced trial of each cell."""
    recorded = [trial for trial in trials if trial.table(PROBE, TABLE) is not None]
    first = {label: group[0].table(PROBE, TABLE) or {} for label, group in by_label(recorded).items()}
    return [_scatter(label, without_ours(written)) for label, written in first.items()]


def _scatter(label: str, written: Any) -> Scatter:
    count = len(written["t_ns"])
    chosen = slice(None, None, max(1, -(-count // MOST_POINTS)))
    _, ranks = np.unique(page_keys(written), return_inverse=True)
    begin_ns = int(written["t_ns"].min()) if count else 0
    return Scatter(
        label,
        (written["t_ns"][chosen] - begin_ns) / 1e9,
        ranks[chosen],
        np.asarray(written["reason"])[chosen].astype(str),
        count,
    )
