"""Write-backs by reason, for one and for many tenants (S2, Tables 9 and 10), and what the flusher had no part in.

The paper compares one container with four. Four of anything dirty more pages than one, so each cell has a control that
the paper lacks: as many plain processes of the host, under the same settings otherwise. What tare itself wrote is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from tare.analysis.kernel.model import Cell, Column, Section, Traced, at_least, baseline_of, by_label
from tare.analysis.kernel.starts import PROBE, starts_of
from tare.traces.writeback import (
    by_reason,
    episode_count,
    flusher_pages,
    our_flusher_pages,
    pages_outside,
    without_ours,
)

PAGE_WRITES = "page_writes"
_FLUSHER_TABLES = ("writeback_pages_written", "writeback_single_inode")
ALL = "all"

COLUMNS = (
    Column("cell", "where"),
    Column("reason", "reason"),
    Column("count", "write-backs", "number"),
    Column("share", "share", "share"),
    Column("control", "plain processes", "number"),
    Column("ratio", "ratio", "ratio"),
    Column("episodes", "episodes", "number"),
)
PAGE_COLUMNS = (
    Column("cell", "where"),
    Column("flusher", "pages, by the flusher", "number"),
    Column("written", "pages, by the disk", "number"),
    Column("outside", "outside the flusher", "number"),
    Column("outside_share", "share", "share"),
    Column("control", "plain processes", "number"),
    Column("ratio", "ratio", "ratio"),
)
_NO_CONTROL = (
    "no plain processes of the host with the same settings and tenants were traced: what is the container's, and what "
    "that of more writers, cannot be told apart. Add `bare` to the platforms of the study."
)


def section(trials: Sequence[Traced]) -> Section | None:
    """Medians over trials; a reason that a trial did not have is zero there."""
    recorded = [trial for trial in trials if starts_of(trial) is not None or _saw_none(trial)]
    if not recorded:
        return None
    found = {label: _median_reasons(group) for label, group in by_label(recorded).items()}
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        control = _control(group[0], recorded, found)
        total, episodes = found[label][ALL], _median_episodes(group)
        for reason, count in found[label].items():
            theirs = control.get(reason, 0.0) if control is not None else None
            share = count / total if total else None
            rows.append((label, reason, count, share, theirs, _ratio(count, theirs), episodes[reason]))
    notes = (*at_least(recorded, PROBE), *_missing_controls(recorded))
    return Section("writebacks", "Write-backs by reason", COLUMNS, tuple(rows), notes)


def pages(trials: Sequence[Traced]) -> Section | None:
    """Pages that the flusher wrote, all that reached the disk, and those past the flusher: fsync, the journal."""
    recorded = [trial for trial in trials if _pages(trial)]
    if not recorded:
        return None
    found = {label: _median_of([_pages(trial) for trial in group]) for label, group in by_label(recorded).items()}
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        mine, control = found[label], _control(group[0], recorded, found)
        written, outside = mine.get("written"), mine.get("outside")
        share = outside / written if outside is not None and written else None
        theirs = control.get("written") if control is not None else None
        rows.append((label, mine.get("flusher"), written, outside, share, theirs, _ratio(written, theirs)))
    notes = (*at_least(recorded, PROBE), *_missing_controls(recorded))
    return Section("writeback_pages", "Pages written back", PAGE_COLUMNS, tuple(rows), notes)


def _saw_none(trial: Traced) -> bool:
    """Whether the write-back events were on, and there was none."""
    return trial.record.metrics.get("writeback_count") == 0


def _median_reasons(group: Sequence[Traced]) -> dict[str, float]:
    counted: list[Mapping[str, float]] = []
    for trial in group:
        start = starts_of(trial)
        reasons = {} if start is None else by_reason(start)
        counted.append({**reasons, ALL: sum(reasons.values())})
    names = dict.fromkeys(name for one in counted for name in sorted(one) if name != ALL)
    return {name: float(median(one.get(name, 0) for one in counted)) for name in (*names, ALL)}


def _median_episodes(group: Sequence[Traced]) -> dict[str, float]:
    """How many errands of the flusher its write-backs were, by reason."""
    starts = [{} if (start := starts_of(trial)) is None else start for trial in group]
    names = dict.fromkeys(name for start in starts if start for name in (*by_reason(start), ALL))
    return {name: float(median(_episodes(start, name) for start in starts)) for name in names} or {ALL: 0.0}


def _episodes(start: Mapping[str, Any], reason: str) -> int:
    if not start:
        return 0
    chosen = np.full(len(start["t_ns"]), True) if reason == ALL else np.asarray(start["reason"]) == reason
    return episode_count({"episode": start["episode"][chosen]})


def _pages(trial: Traced) -> dict[str, float]:
    tables = {name: table for name in _FLUSHER_TABLES if (table := trial.table(PROBE, name)) is not None}
    flusher, written = flusher_pages(tables), trial.table(PROBE, PAGE_WRITES)
    ours = 0 if written is None else our_flusher_pages(written)
    found = {} if flusher is None else {"flusher": float(flusher - ours)}
    if written is not None:
        theirs = without_ours(written)
        found["written"] = float(len(theirs["t_ns"]))
        found["outside"] = float(pages_outside(theirs))
    return found


def _median_of(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for one in found for name in one)
    return {name: float(median(one[name] for one in found if name in one)) for name in names}


def _control(
    trial: Traced, trials: Sequence[Traced], found: Mapping[str, Mapping[str, float]]
) -> Mapping[str, float] | None:
    """What as many plain processes did; None for those themselves, and where there are none."""
    label = None if trial.is_bare else baseline_of(trial, trials)
    return None if label is None else found.get(label)


def _ratio(count: float | None, control: float | None) -> float | None:
    return count / control if count is not None and control else None


def _missing_controls(trials: Sequence[Traced]) -> list[str]:
    lacking = [trial for trial in trials if not trial.is_bare and baseline_of(trial, trials) is None]
    return [_NO_CONTROL] if lacking else []
