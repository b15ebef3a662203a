"""Write-backs by reason, for one and for many tenants (S2, Tables 9 and 10), and what the flusher had no part in.

The paper compares one container with four. Four of anything dirty more pages than one, so each cell has a control that
the paper lacks: as many plain processes of the host, under the same settings otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tare.analysis.kernel.model import Cell, Column, Section, Traced, at_least, baseline_of, by_label
from tare.traces.page_writes import OUTSIDE
from tare.traces.writeback import by_reason, counts, flusher_pages

PROBE, STARTS, WRITTEN, PAGE_WRITES = "ftrace", "writeback_start", "writeback_written", "page_writes"
_FLUSHER_TABLES = ("writeback_pages_written", "writeback_single_inode")
ALL = "all"

COLUMNS = (
    Column("cell", "where"),
    Column("reason", "reason"),
    Column("count", "write-backs", "number"),
    Column("share", "share", "share"),
    Column("control", "plain processes", "number"),
    Column("ratio", "ratio", "ratio"),
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
    recorded = [trial for trial in trials if trial.table(PROBE, STARTS) is not None or _saw_none(trial)]
    if not recorded:
        return None
    found = {label: _median_reasons(group) for label, group in by_label(recorded).items()}
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        control = _control(group[0], recorded, found)
        total = found[label][ALL]
        for reason, count in found[label].items():
            theirs = control.get(reason, 0.0) if control is not None else None
            rows.append((label, reason, count, count / total if total else None, theirs, _ratio(count, theirs)))
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
        start = trial.table(PROBE, STARTS)
        reasons = {} if start is None else by_reason(start)
        counted.append({**reasons, ALL: sum(reasons.values())})
    names = dict.fromkeys(name for one in counted for name in sorted(one) if name != ALL)
    return {name: float(median(one.get(name, 0) for one in counted)) for name in (*names, ALL)}


def _pages(trial: Traced) -> dict[str, float]:
    tables = {name: table for name in _FLUSHER_TABLES if (table := trial.table(PROBE, name)) is not None}
    flusher, written = flusher_pages(tables), trial.table(PROBE, PAGE_WRITES)
    found = {} if flusher is None else {"flusher": float(flusher)}
    if written is not None:
        found["written"] = float(len(written["t_ns"]))
        found["outside"] = float(counts(written["reason"]).get(OUTSIDE, 0))
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
