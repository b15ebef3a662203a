"""Write-backs by reason, for one and for many tenants (S2, Tables 9 and 10), and what the flusher had no part in.

The paper compares one container with four. Four of anything dirty more pages than one, so each cell has a control that
the paper lacks: as many plain processes of the host, under the same settings otherwise. What tare itself wrote is left
out.

Times between write-backs (S2, Fig. 3): host, one container, four, against how often the kernel is told to look.

From the beginning of one errand of the flusher to that of the next: the rounds that it makes on one are not told apart.

Which pages are written again and again, and whether that grows (S2, Fig. 4): page by time, Gini, the hottest 1 %.

What tare itself wrote is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tare.kernel.model import (
    Cell,
    Column,
    Columns,
    Section,
    TrialTraces,
    at_least,
    baseline_of,
    by_label,
    having,
)
from tare.kernel.traces.writeback import (
    TABLES,
    by_reason,
    concentration,
    edges_ns,
    episode_count,
    flusher_pages,
    intervals_s,
    our_flusher_pages,
    page_keys,
    pages_outside,
    started,
    without_ours,
)

PROBE = "ftrace"


def starts_of(trial: TrialTraces) -> Columns | None:
    """One row a write-back, in order of time; None where the trial has no such event."""
    return started({name: table for name in TABLES if (table := trial.table(PROBE, name)) is not None})


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


def section(trials: Sequence[TrialTraces]) -> Section | None:
    """Medians over trials; a reason that a trial did not have is zero there."""
    # A trial whose write-back events were on, and that had none, counts too.
    recorded = [
        trial for trial in trials if starts_of(trial) is not None or trial.record.metrics.get("writeback_count") == 0
    ]
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


def pages(trials: Sequence[TrialTraces]) -> Section | None:
    """Pages that the flusher wrote, all that reached the disk, and those past the flusher: fsync, the journal."""
    recorded = [trial for trial in trials if _pages(trial)]
    if not recorded:
        return None
    found = {label: _median_pages(group) for label, group in by_label(recorded).items()}
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        mine, control = found[label], _control(group[0], recorded, found)
        written, outside = mine.get("written"), mine.get("outside")
        share = outside / written if outside is not None and written else None
        theirs = control.get("written") if control is not None else None
        rows.append((label, mine.get("flusher"), written, outside, share, theirs, _ratio(written, theirs)))
    notes = (*at_least(recorded, PROBE), *_missing_controls(recorded))
    return Section("writeback_pages", "Pages written back", PAGE_COLUMNS, tuple(rows), notes)


def _median_reasons(group: Sequence[TrialTraces]) -> dict[str, float]:
    counted: list[Mapping[str, float]] = []
    for trial in group:
        start = starts_of(trial)
        reasons = {} if start is None else by_reason(start)
        counted.append({**reasons, ALL: sum(reasons.values())})
    names = dict.fromkeys(name for one in counted for name in sorted(one) if name != ALL)
    return {name: float(median(one.get(name, 0) for one in counted)) for name in (*names, ALL)}


def _median_episodes(group: Sequence[TrialTraces]) -> dict[str, float]:
    """How many errands of the flusher its write-backs were, by reason."""
    starts = [{} if (start := starts_of(trial)) is None else start for trial in group]
    names = dict.fromkeys(name for start in starts if start for name in (*by_reason(start), ALL))
    return {name: float(median(_episodes(start, name) for start in starts)) for name in names} or {ALL: 0.0}


def _episodes(start: Mapping[str, Any], reason: str) -> int:
    if not start:
        return 0
    chosen = np.full(len(start["t_ns"]), True) if reason == ALL else np.asarray(start["reason"]) == reason
    return episode_count({"episode": start["episode"][chosen]})


def _pages(trial: TrialTraces) -> dict[str, float]:
    tables = {name: table for name in _FLUSHER_TABLES if (table := trial.table(PROBE, name)) is not None}
    flusher, written = flusher_pages(tables), trial.table(PROBE, PAGE_WRITES)
    ours = 0 if written is None else our_flusher_pages(written)
    found = {} if flusher is None else {"flusher": float(flusher - ours)}
    if written is not None:
        theirs = without_ours(written)
        found["written"] = float(len(theirs["t_ns"]))
        found["outside"] = float(pages_outside(theirs))
    return found


def _median_pages(group: Sequence[TrialTraces]) -> dict[str, float]:
    found = [_pages(trial) for trial in group]
    names = dict.fromkeys(name for one in found for name in one)
    return {name: float(median(one[name] for one in found if name in one)) for name in names}


def _control(
    trial: TrialTraces, trials: Sequence[TrialTraces], found: Mapping[str, Mapping[str, float]]
) -> Mapping[str, float] | None:
    """What as many plain processes did; None for those themselves, and where there are none."""
    label = None if trial.is_bare else baseline_of(trial, trials)
    return None if label is None else found.get(label)


def _ratio(count: float | None, control: float | None) -> float | None:
    return count / control if count is not None and control else None


def _missing_controls(trials: Sequence[TrialTraces]) -> list[str]:
    lacking = [trial for trial in trials if not trial.is_bare and baseline_of(trial, trials) is None]
    return [_NO_CONTROL] if lacking else []


QUANTILES = (0.1, 0.5, 0.9)
INTERVAL_COLUMNS = (
    Column("cell", "where"),
    Column("count", "intervals", "count"),
    Column("mean_s", "mean", "seconds"),
    Column("sd_s", "deviation", "seconds"),
    Column("p10_s", "10 %", "seconds"),
    Column("median_s", "median", "seconds"),
    Column("p90_s", "90 %", "seconds"),
    Column("max_s", "longest", "seconds"),
    Column("period_s", "kernel looks every", "seconds"),
    Column("sooner_share", "sooner", "share"),
)
_PERIOD = "vm.dirty_writeback_centisecs"
_EXPIRY = "vm.dirty_expire_centisecs"
_HELD = {_PERIOD: "control.dirty.writeback", _EXPIRY: "control.dirty.expire"}  # where a study sets it, in seconds


def intervals_section(trials: Sequence[TrialTraces]) -> Section | None:
    """The intervals of a cell's trials together; each device's by themselves, as its flusher has them."""
    recorded = [trial for trial in trials if starts_of(trial) is not None]
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        gaps = gaps_of(group)
        if len(gaps):
            rows.append((label, *_figures(gaps), *_against(gaps, group)))
    if not rows:
        return None
    notes = at_least(recorded, PROBE)
    expiries = {expiry for trial in recorded if (expiry := _seconds(trial, _EXPIRY)) is not None}
    if len(expiries) == 1:
        age = f"{expiries.pop():g} s"
        notes.append(f"a page that is dirty for {age} is written when the kernel looks next ({_EXPIRY}).")
    return Section("writeback_intervals", "Times between write-backs", INTERVAL_COLUMNS, tuple(rows), tuple(notes))


def gaps_of(group: Sequence[TrialTraces]) -> Any:
    """All intervals of some trials, in seconds."""
    return np.concatenate([np.empty(0), *(intervals_s(start) for trial in group if (start := starts_of(trial)))])


def _figures(gaps: Any) -> tuple[Cell, ...]:
    deviation = float(gaps.std(ddof=1)) if len(gaps) > 1 else None
    low, middle, high = (float(each) for each in np.quantile(gaps, QUANTILES))
    return len(gaps), float(gaps.mean()), deviation, low, middle, high, float(gaps.max())


def _against(gaps: Any, group: Sequence[TrialTraces]) -> tuple[Cell, Cell]:
    """The period of the kernel's own timer, and the share of intervals that are shorter by more than a tenth."""
    period_s = _seconds(group[0], _PERIOD)
    if not period_s or any(_seconds(trial, _PERIOD) != period_s for trial in group):
        return None, None
    return period_s, float((gaps < 0.9 * period_s).mean())


def _seconds(trial: TrialTraces, name: str) -> float | None:
    """A setting of the kernel: as the study held it, else as the trial found it."""
    held = trial.record.settings.get(_HELD[name])
    if isinstance(held, int | float):
        return float(held)
    text = str(trial.record.facts.get("device", {}).get(name, "")).strip()
    return int(text) / 100 if text.isdigit() else None


STRETCHES = 6
MOST_POINTS = 4000  # of a scatter: more would be a blot
HOT_PAGES_COLUMNS = (
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


def hot_pages(trials: Sequence[TrialTraces]) -> Section | None:
    """Medians over a cell's trials, sixth by sixth of the time that each was writing."""
    recorded = having(trials, PROBE, PAGE_WRITES)
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        found = [by_stretch(without_ours(trial.table(PROBE, PAGE_WRITES) or {})) for trial in group]
        for stretch in range(STRETCHES):
            seen = [each[stretch] for each in found if stretch in each]
            if seen:
                rows.append((label, stretch + 1, *(float(median(column)) for column in zip(*seen, strict=True))))
    if not rows:
        return None
    return Section(
        "hot_pages",
        "How concentrated write-backs become",
        HOT_PAGES_COLUMNS,
        tuple(rows),
        tuple(at_least(recorded, PROBE)),
    )


def by_stretch(written: Any) -> dict[int, tuple[int, int, float, float]]:
    """Writes, pages, Gini and share of the hottest pages, by stretch; one without writes is absent."""
    if not len(written["t_ns"]):
        return {}
    found = concentration(written, STRETCHES)
    places = np.searchsorted(edges_ns(written["t_ns"], STRETCHES), found.t_ns, side="right") - 1
    rows = zip(found.writes.tolist(), found.pages.tolist(), found.gini.tolist(), found.hot_share.tolist(), strict=True)
    return dict(zip(places.tolist(), rows, strict=True))


def scatters(trials: Sequence[TrialTraces]) -> list[Scatter]:
    """Page by time, of the first traced trial of each cell."""
    recorded = having(trials, PROBE, PAGE_WRITES)
    first = {label: group[0].table(PROBE, PAGE_WRITES) or {} for label, group in by_label(recorded).items()}
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
