"""Times between write-backs (S2, Fig. 3): host, one container, four, against how often the kernel is told to look.

From the beginning of one errand of the flusher to that of the next: the rounds that it makes on one are not told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tare.analysis.kernel.model import Cell, Column, Section, Traced, at_least, by_label
from tare.analysis.kernel.starts import PROBE, starts_of
from tare.traces.writeback import intervals_s

QUANTILES = (0.1, 0.5, 0.9)
COLUMNS = (
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


def section(trials: Sequence[Traced]) -> Section | None:
    """The intervals of a cell's trials together; each device's by themselves, as its flusher has them."""
    recorded = [trial for trial in trials if starts_of(trial) is not None]
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        gaps = gaps_of(group)
        if len(gaps):
            rows.append((label, *_figures(gaps), *_against(gaps, group)))
    if not rows:
        return None
    notes = (*at_least(recorded, PROBE), *_told(recorded))
    return Section("writeback_intervals", "Times between write-backs", COLUMNS, tuple(rows), notes)


def gaps_of(group: Sequence[Traced]) -> Any:
    """All intervals of some trials, in seconds."""
    return np.concatenate([np.empty(0), *(intervals_s(start) for trial in group if (start := starts_of(trial)))])


def _figures(gaps: Any) -> tuple[Cell, ...]:
    deviation = float(gaps.std(ddof=1)) if len(gaps) > 1 else None
    low, middle, high = (float(each) for each in np.quantile(gaps, QUANTILES))
    return len(gaps), float(gaps.mean()), deviation, low, middle, high, float(gaps.max())


def _against(gaps: Any, group: Sequence[Traced]) -> tuple[Cell, Cell]:
    """The period of the kernel's own timer, and the share of intervals that are shorter by more than a tenth."""
    period_s = _seconds(group[0], _PERIOD)
    if not period_s or any(_seconds(trial, _PERIOD) != period_s for trial in group):
        return None, None
    return period_s, float((gaps < 0.9 * period_s).mean())


def _seconds(trial: Traced, name: str) -> float | None:
    """A setting of the kernel: as the study held it, else as the trial found it."""
    held = trial.record.settings.get(_HELD[name])
    if isinstance(held, int | float):
        return float(held)
    text = str(trial.record.facts.get("device", {}).get(name, "")).strip()
    return int(text) / 100 if text.isdigit() else None


def _told(trials: Sequence[Traced]) -> list[str]:
    expiries = {expiry for trial in trials if (expiry := _seconds(trial, _EXPIRY)) is not None}
    if len(expiries) != 1:
        return []
    return [f"a page that is dirty for {expiries.pop():g} s is written when the kernel looks next ({_EXPIRY})."]
