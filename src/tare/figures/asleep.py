"""Joules of a suspended device, from the counter of a meter at the socket: it goes on, and nothing of ours does.

Such a counter may be coarse (1 Wh) or renewed once a minute, so that it is known exactly only when it moves. It is read
at its last move before the sleep and at its first one after it, and what the device drew awake between the two is taken
off: the meter's power then, over the time on the clock that stands still in a sleep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tare.figures.energy_sources import COUNTER
from tare.figures.power_series import Times, Values, Window
from tare.figures.thresholds import THRESHOLDS

POWER = "external.power_w"
STALE_S = 5.0  # after waking, a meter's program may first hand over what came in while nobody took it


@dataclass(frozen=True)
class Asleep:
    """What was drawn in the sleep, and how far off that may be: what is not known of falling asleep and waking."""

    joules: float
    bound_j: float
    awake_s: float  # between the two moves of the counter
    awake_w: float

    def metrics(self, slept_s: float) -> dict[str, float]:
        return {
            "energy_j": self.joules,
            "energy_bound_share": self.bound_j / self.joules,
            "energy_window_s": slept_s,
            "power_mean_w": self.joules / slept_s,
        }

    def as_json(self) -> dict[str, Any]:
        return {"by": "counter", "channels": [POWER, COUNTER], "counter_j": self.joules, "bound_j": self.bound_j,
                "awake_s": self.awake_s, "awake_w": self.awake_w}  # fmt: skip


def asleep(series: Mapping[str, tuple[Times, Values]], window: Window | None, slept_s: float) -> Asleep | str:
    """From the series of the meter; a sentence where they do not tell. `window`: falling asleep, and awake again."""
    if window is None or slept_s <= THRESHOLDS.sleep_s:
        return "the device did not sleep."
    if COUNTER not in series or POWER not in series:
        return (
            "no meter at the socket counted on while the device slept: power that is read now and then says nothing "
            "of it. Name the column of the meter's counter, `external: {energy: ...}`."
        )
    t_ns, joules = series[COUNTER]
    if (np.diff(joules) < 0).any():
        return "the meter's counter fell back (reset?)."
    awake_ns = window[1] + round(STALE_S * 1e9)
    moves = np.flatnonzero(np.diff(joules) > 0) + 1  # the readings that have a new value
    before, after = moves[t_ns[moves] <= window[0]], moves[t_ns[moves - 1] >= awake_ns]
    if not len(before) or not len(after):
        when = "after" if len(before) else "before"
        return f"the meter's counter did not move while the device was awake {when} the sleep: make `settle` longer."
    first, last = before[-1], after[0]
    power_ns, watts = series[POWER]
    seen = (power_ns >= t_ns[first]) & ((power_ns <= window[0]) | (power_ns >= awake_ns)) & (power_ns <= t_ns[last])
    highest_w, awake_w = float(watts[seen].max()), float(watts[seen].mean())
    if joules[-1] - joules[last] > 2 * highest_w * (t_ns[-1] - t_ns[last]) / 1e9 + (joules[last] - joules[last - 1]):
        return "after the sleep the meter first handed over old values of its counter."
    awake_s = float(t_ns[last] - t_ns[first]) / 1e9
    unseen_s = float(power_ns[power_ns >= awake_ns].min() - power_ns[power_ns <= window[0]].max()) / 1e9
    period_s = float(np.median(np.diff(t_ns))) / 1e9
    drawn_j = float(joules[last] - joules[first]) - awake_w * awake_s
    bound_j = highest_w * (2 * period_s + unseen_s)
    if drawn_j * THRESHOLDS.energy_bound_share < bound_j:
        return (
            f"too short: falling asleep and waking leave {bound_j:.0f} J open, and the sleep took {drawn_j:.0f} J: "
            "make `duration` longer."
        )
    return Asleep(drawn_j, bound_j, awake_s, awake_w)
