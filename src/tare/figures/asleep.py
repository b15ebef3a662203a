"""Joules of a suspended device, from the counter of a meter at the socket: it goes on, and nothing of ours does.

Such a counter may be coarse (1 Wh) or renewed once a minute, so that it is known exactly only when it moves. It is read
at its last move before the sleep and at its first one after it, and what the device drew awake between the two is taken
off: the meter's power then, over the time on the clock that stands still in a sleep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tare.base.rulings import Ruling
from tare.base.units import METER_J, METER_W
from tare.figures.evidence import Evidence, steps_ns
from tare.figures.power_series import SCOPES, Times, Values, Window
from tare.figures.thresholds import THRESHOLDS

STALE_S = 5.0  # after waking, a meter's program may first hand over what came in while nobody took it


def asleep(evidence: Evidence) -> tuple[dict[str, float], dict[str, Any]]:
    """The figures of the sleep, if they may be claimed, and what is known of it, as facts."""
    slept_s = evidence.facts.get("slept_s", 0.0)
    found = drawn(evidence.series, steps_ns(evidence.marks), slept_s)
    facts = {"source": "external", "scope": SCOPES["external"], "window": "the time asleep", "window_s": slept_s,
             "claimed": not isinstance(found, str), "doubts": [], "suspicions": []}  # fmt: skip
    if isinstance(found, str):
        return {}, {**facts, "doubts": [Ruling("energy.asleep", "note", "external", found).as_json()]}
    joules, bound_j = found
    metrics = {"energy_j": joules, "energy_bound_share": bound_j / joules, "energy_window_s": slept_s,
               "power_mean_w": joules / slept_s}  # fmt: skip
    return metrics, {**facts, "sources": {"external": {"by": "counter", "counter_j": joules, "bound_j": bound_j}}}


def drawn(
    series: Mapping[str, tuple[Times, Values]], window: Window | None, slept_s: float
) -> tuple[float, float] | str:
    """Joules, and how far off they may be; a sentence where the series do not tell. `window`: of the whole sleep."""
    if window is None or slept_s <= THRESHOLDS.sleep_s:
        return "the device did not sleep."
    if METER_J not in series:
        return "no meter at the socket counted on while the device slept (`external: {energy: COLUMN}`)."
    (t_ns, joules), (power_ns, watts) = series[METER_J], series[METER_W]
    if (np.diff(joules) < 0).any():
        return "the meter's counter fell back (reset?)."
    awake_ns = window[1] + round(STALE_S * 1e9)
    moves = np.flatnonzero(np.diff(joules)) + 1  # the readings that have a new value
    before, after = moves[t_ns[moves] <= window[0]], moves[t_ns[moves - 1] >= awake_ns]
    if not len(before) or not len(after):
        return (
            f"the meter's counter did not move {'after' if len(before) else 'before'} the sleep: make `settle` longer."
        )
    first, last = before[-1], after[0]
    seen = (power_ns >= t_ns[first]) & ((power_ns <= window[0]) | (power_ns >= awake_ns)) & (power_ns <= t_ns[last])
    highest_w = float(watts[(power_ns >= t_ns[first]) & (power_ns <= t_ns[last])].max())  # also while it woke up
    if joules[-1] - joules[last] > 2 * highest_w * (t_ns[-1] - t_ns[last]) / 1e9 + (joules[last] - joules[last - 1]):
        return "after the sleep the meter first handed over old values of its counter."
    unseen_ns = power_ns[power_ns >= awake_ns].min() - power_ns[power_ns <= window[0]].max()
    drawn_j = float(joules[last] - joules[first]) - float(watts[seen].mean()) * float(t_ns[last] - t_ns[first]) / 1e9
    bound_j = highest_w * float(2 * np.median(np.diff(t_ns)) + unseen_ns) / 1e9
    if drawn_j * THRESHOLDS.energy_bound_share < bound_j:
        return f"too short: the edges leave {bound_j:.0f} J of {drawn_j:.0f} J open; make `duration` longer."
    return drawn_j, bound_j
