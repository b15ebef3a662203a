"""A run as it was timed from outside, and how much of it its marked steps cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tare.figures.steps import TURNS, without_stops
from tare.parts.protocols import Mark
from tare.records.intervals import intervals, mark_columns

FACT = "outside"  # when the job began and ended, as the device saw it: trial/outside.py
WHOLE, COVERED, AT_ONCE = "outside_s", "steps_s", "steps_at_once"
FIGURES = (WHOLE, COVERED, AT_ONCE)


def outside_metrics(marks: Sequence[Mark], facts: Mapping[str, Any]) -> dict[str, float]:
    """Of a program that is not tare's own: seconds from outside, less those in which the device itself held the job
    back; seconds in which a step was going on; and how many were, on average.
    """
    seen = facts.get(FACT)
    if not isinstance(seen, Mapping) or not seen["judges"]:
        return {}
    spent_s = facts[TURNS]["outside_s"] if TURNS in facts else seen["seconds"]
    metrics = {WHOLE: float(spent_s) - float(seen["launch_s"])}
    whole = intervals(mark_columns(without_stops(marks, {}, facts)[0])).named("step")
    order = np.argsort(whole.begin_ns, kind="stable")
    begin_ns, end_ns = whole.begin_ns[order], np.maximum.accumulate(whole.end_ns[order])
    until_ns = np.concatenate((begin_ns[:1], end_ns[:-1]))
    if covered_ns := int(np.maximum(end_ns - np.maximum(begin_ns, until_ns), 0).sum()):
        metrics |= {COVERED: covered_ns / 1e9, AT_ONCE: int((whole.end_ns - whole.begin_ns).sum()) / covered_ns}
    return metrics
