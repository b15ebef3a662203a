"""Joules between two moments: from a series of watts, or from a counter of joules. What was not seen is not bridged.

Power that changes for good while the work goes on as before: then the sensor has changed, and not the device (M29).

A board of the papers' showed two thirds of its power after 16 hours, with every epoch as long as the ones before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tare.base.rulings import Ruling
from tare.figures.thresholds import THRESHOLDS

Times: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[np.float64]
Window: TypeAlias = tuple[int, int]

PARTIAL = "energy.partial"
_NS = 1e9


@dataclass(frozen=True)
class Amount:
    """What was seen of a window: joules over the part of it that was covered, and what there is to doubt."""

    joules: float
    covered_s: float
    window_s: float
    samples: int  # in the window
    period_s: float  # the typical time between two samples
    longest_gap_s: float  # in the window, where it is more than the series' own rhythm explains; else 0
    problems: tuple[Ruling, ...] = ()

    @property
    def covered_share(self) -> float:
        return self.covered_s / self.window_s

    @property
    def power_w(self) -> float | None:
        """Mean power over what was covered."""
        return self.joules / self.covered_s if self.covered_s > 0 else None


def integral(t_ns: Times, watts: Values, window: Window) -> Amount | None:
    """The sum of p dt by trapezoids over the real intervals; None where there are not two samples.

    A pause of more than three typical intervals is a gap: nothing is known of it and nothing is added for it. At the
    edges of the window the first and the last sample stand for one typical interval around them.
    """
    times, watts = _in_order(t_ns, watts)
    if len(times) < 2:
        return None
    begin, end = (float(edge - times[0]) / _NS for edge in window)
    at_s = (times - times[0]) / _NS
    spans = np.diff(at_s)
    typical = float(np.median(spans))
    whole = spans <= THRESHOLDS.gap_periods * typical
    areas, lengths = _trapezoids(at_s, watts, begin, end)
    edges_j, edges_s = _held_at_the_edges(at_s, watts, begin, end, typical)
    covered_s = float(lengths[whole].sum()) + edges_s
    gaps = [*lengths[~whole], *_before_and_after(at_s, begin, end, typical)]
    return Amount(
        joules=float(areas[whole].sum()) + edges_j,
        covered_s=covered_s,
        window_s=end - begin,
        samples=_count(times, window),
        period_s=typical,
        longest_gap_s=max((float(gap) for gap in gaps), default=0.0),
        problems=_gaps_told(covered_s / (end - begin), gaps),
    )


def counted(t_ns: Times, joules: Values, window: Window) -> Amount | None:
    """How much a counter grew in the window, interpolated at both edges; None where there are not two samples.

    The hardware counts on while nobody looks, so a gap inside the window costs nothing unless it is so long that the
    counter may have wrapped. An edge that lies in a gap, or a step backwards, cannot be made good.
    """
    times, joules = _in_order(t_ns, joules)
    if len(times) < 2:
        return None
    spans = np.diff(times) / _NS
    typical = float(np.median(spans))
    first = max(0, int(np.searchsorted(times, window[0], side="right")) - 1)
    last = min(len(times) - 1, int(np.searchsorted(times, window[1], side="left")))
    seen = _overlap(window, (int(times[first]), int(times[last])))
    inside = np.array(seen, dtype=np.int64) - times[0]
    low, high = np.interp(inside.astype(np.float64), (times - times[0]).astype(np.float64), joules)
    longest_s = float(spans[first:last].max(initial=0.0))
    window_s, covered_s = (window[1] - window[0]) / _NS, (seen[1] - seen[0]) / _NS
    problems = [
        *_edges_told(spans, first, last, typical, window_s - covered_s),
        *_counter_told(joules[first : last + 1], longest_s),
    ]
    return Amount(
        joules=float(high - low),
        covered_s=covered_s,
        window_s=window_s,
        samples=_count(times, window),
        period_s=typical,
        longest_gap_s=longest_s if longest_s > THRESHOLDS.gap_periods * typical else 0.0,
        problems=tuple(problems),
    )


def _in_order(t_ns: Times, values: Values) -> tuple[Times, Values]:
    """By time, one value a moment: a probe may hand over several readings late, or one twice."""
    times, places = np.unique(t_ns, return_index=True)
    return times, np.asarray(values, dtype=np.float64)[places]


def _count(times: Times, window: Window) -> int:
    return int(np.count_nonzero((times >= window[0]) & (times <= window[1])))


def _overlap(window: Window, known: Window) -> Window:
    """The part of the window that is known; empty, at its near edge, where none is."""
    begin, end = max(window[0], known[0]), min(window[1], known[1])
    return (begin, end) if begin <= end else (end, end)


def _trapezoids(at_s: Values, watts: Values, begin: float, end: float) -> tuple[Values, Values]:
    """Joules and seconds of each interval between two samples, cut to the window."""
    left, right = np.clip(at_s[:-1], begin, end), np.clip(at_s[1:], begin, end)
    lengths = right - left
    heights = (np.interp(left, at_s, watts) + np.interp(right, at_s, watts)) / 2
    return heights * lengths, lengths


def _held_at_the_edges(at_s: Values, watts: Values, begin: float, end: float, typical: float) -> tuple[float, float]:
    """Joules and seconds before the first sample and after the last, each for at most one typical interval."""
    before = max(0.0, min(at_s[0], end) - max(at_s[0] - typical, begin))
    after = max(0.0, min(at_s[-1] + typical, end) - max(at_s[-1], begin))
    return float(before * watts[0] + after * watts[-1]), float(before + after)


def _before_and_after(at_s: Values, begin: float, end: float, typical: float) -> list[float]:
    """How much of the window lies before the first sample and after the last, but for what those stand for."""
    before = min(at_s[0] - typical, end) - begin
    after = end - max(at_s[-1] + typical, begin)
    return [float(part) for part in (before, after) if part > 0]


def _gaps_told(covered_share: float, gaps: list[float]) -> tuple[Ruling, ...]:
    """M27."""
    problems = []
    if covered_share < THRESHOLDS.coverage_share:
        problems.append(_partial(f"power is known for {covered_share:.0%} of the time only."))
    if gaps:
        problems.append(_partial(f"there is a gap of {max(gaps):.1f} s, and no energy is made up for it."))
    return tuple(problems)


def _edges_told(spans: Values, first: int, last: int, typical: float, unseen_s: float) -> list[Ruling]:
    limit_s = THRESHOLDS.gap_periods * typical
    if unseen_s > typical:
        return [_partial(f"the counter was not read for {unseen_s:.1f} s at an edge of the time.")]
    edges = [spans[place] for place in (first, last - 1) if 0 <= place < len(spans)]
    if any(span > limit_s for span in edges):
        return [_partial(f"an edge of the time lies in a gap of {max(edges):.1f} s.")]
    return []


def _counter_told(joules: Values, longest_s: float) -> list[Ruling]:
    if (np.diff(joules) < 0).any():
        return [_partial("the counter went backwards (reset?), and what it counted before that is lost.")]
    if longest_s > THRESHOLDS.counter_gap_s:
        return [_partial(f"the counter was not read for {longest_s:.0f} s and may have wrapped.")]
    if len(joules) and joules[-1] <= joules[0]:
        return [_partial("the counter did not move.")]
    return []


def _partial(sentence: str) -> Ruling:
    return Ruling(PARTIAL, "note", "", f"partial: {sentence}")


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
