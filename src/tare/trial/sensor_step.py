"""Power that changes for good while the work goes on as before: then the sensor has changed, and not the device (M29).

A board of the papers' showed two thirds of its power after 16 hours, with every epoch as long as the ones before.
"""

from __future__ import annotations

import numpy as np

from tare.trial.power_series import Times, Values, Window
from tare.trial.thresholds import THRESHOLDS

FEWEST = 15  # samples of power, and steps, on either side: fewer tell no level
CLEAR = 3.0  # the step is so many times the scatter on either side of it, or it is no step
_SIGMA = 1.4826  # of a median absolute deviation


def sensor_step(t_ns: Times, watts: Values, window: Window, ends_ns: Times, step_s: Values) -> str | None:
    """A sentence where power made a step and the steps of the work did not; `ends_ns` and `step_s` are of each step."""
    inside = (t_ns >= window[0]) & (t_ns <= window[1])
    at_ns, power = t_ns[inside], watts[inside]
    place = _likeliest_step(power)
    if place is None:
        return None
    before_w, after_w = float(np.median(power[:place])), float(np.median(power[place:]))
    if before_w <= 0 or abs(after_w / before_w - 1) < THRESHOLDS.power_step_share:
        return None
    if abs(after_w - before_w) < CLEAR * max(_scatter(power[:place]), _scatter(power[place:])):
        return None
    worked = _work_changed(at_ns[place], ends_ns, step_s)
    if worked is None or worked:
        return None
    at_s = (int(at_ns[place]) - window[0]) / 1e9
    return f"power went from {before_w:.1f} W to {after_w:.1f} W after {at_s:.0f} s while the work went on as before."


def _likeliest_step(power: Values) -> int | None:
    """Where to cut so that the two sides differ most, in standard errors; None where there is too little to cut."""
    n = len(power)
    if n < 2 * FEWEST:
        return None
    cuts = np.arange(FEWEST, n - FEWEST + 1)
    sums = np.cumsum(power)
    left, right = sums[cuts - 1] / cuts, (sums[-1] - sums[cuts - 1]) / (n - cuts)
    return int(cuts[np.argmax(np.abs(left - right) * np.sqrt(cuts * (n - cuts)))])


def _scatter(values: Values) -> float:
    return _SIGMA * float(np.median(np.abs(values - np.median(values))))


def _work_changed(at_ns: int, ends_ns: Times, step_s: Values) -> bool | None:
    """Whether steps took another time after that moment; None where there are too few on a side to tell."""
    before, after = step_s[ends_ns <= at_ns], step_s[ends_ns > at_ns]
    if min(len(before), len(after)) < FEWEST:
        return None
    return abs(float(np.median(after)) / float(np.median(before)) - 1) > THRESHOLDS.work_step_share
