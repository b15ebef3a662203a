"""Counters that moved between two sides: what the kernel counted, and what the sides say of themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.compare import Contest, judge
from tare.analysis.model import Measurement
from tare.analysis.stats import FLOOR, median_estimate
from tare.records.model import Record

# What may say why a time changed, in the order in which people should look.
COUNTERS = (
    "cgroup_nr_throttled", "cgroup_throttled_s", "minor_faults_training", "major_faults_training", "minor_faults",
    "major_faults", "system_calls", "voluntary_switches", "involuntary_switches", "migrations_training", "cpu_s",
)  # fmt: skip
STATES = ("process.Seccomp", "process.Speculation_Store_Bypass", "process.NoNewPrivs", "torch.threads")
_LEAST = 0.10  # a smaller change explains no change of time


@dataclass(frozen=True, slots=True)
class Moved:
    """One counter, or one word about the software, on both sides."""

    name: str
    before: float | str
    after: float | str
    share: float | None = None  # by how much it changed; None for words, and from nothing


def moved(ours: Sequence[Record], theirs: Sequence[Record]) -> tuple[Moved, ...]:
    """Counters whose change is sure and not small, and words that differ."""
    found = [each for name in COUNTERS if (each := _counter(name, ours, theirs)) is not None]
    return tuple(found + _words(ours, theirs))


def _counter(name: str, ours: Sequence[Record], theirs: Sequence[Record]) -> Moved | None:
    after, before = _values(name, ours), _values(name, theirs)
    if min(len(after), len(before)) < FLOOR:
        return None
    high, low = (
        median_estimate([one.value - 1 for one in after]).value,
        median_estimate([one.value - 1 for one in before]).value,
    )
    (tested,) = judge([Contest("after", "before", after, before)], margin=_LEAST, metric=name, resamples=0)
    if tested.low is None or tested.high is None or tested.low <= 0 <= tested.high:
        return None
    share = high / low - 1 if low > 0 else None
    return Moved(name, low, high, share) if share is None or abs(share) >= _LEAST else None


def _values(name: str, records: Sequence[Record]) -> list[Measurement]:
    """One more than what was counted: a ratio needs more than nothing, and nothing is a common count."""
    return [
        Measurement("", record.metrics[name] + 1, str(record.block))
        for record in records
        if not record.twin and math.isfinite(record.metrics.get(name, math.nan))
    ]


def _words(ours: Sequence[Record], theirs: Sequence[Record]) -> list[Moved]:
    found = []
    for name in STATES:
        after, before = _said(name, ours), _said(name, theirs)
        if after is not None and before is not None and after != before:
            found.append(Moved(name.rpartition(".")[2], before, after))
    return found


def _said(name: str, records: Sequence[Record]) -> str | None:
    for record in records:
        value: Any = record.facts.get("inside", {})
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return str(value)
    return None
