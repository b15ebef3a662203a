"""Whether a figure moves over the epochs of a trial, or over the hours of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tare.analysis.model import Estimate
from tare.analysis.numeric.distributions import normal_quantile
from tare.analysis.numeric.medians import Floats, median_estimate
from tare.analysis.variability.samples import NestedValue
from tare.records.model import grouped

MOST_POINTS = 1_000  # of one series: pairs grow with the square
FEWEST_POINTS = 3


def over_epochs(trials: Mapping[str, Sequence[NestedValue]]) -> Estimate | None:
    """The share by which a trial's last epoch lies above its first, by its slope; the median over trials."""
    changes = [
        change
        for samples in trials.values()
        if (change := _change([(s.epoch, s.value) for s in samples if s.epoch is not None])) is not None
    ]
    return median_estimate(changes) if changes else None


def over_time(samples: Sequence[NestedValue]) -> Estimate | None:
    """The share by which the figure grows from the study's start to its end, each cell against its own median.

    Its interval is Sen's, from the ranks of the slopes.
    """
    timed = [sample for sample in samples if sample.when_s is not None]
    cells = grouped(timed, lambda sample: sample.cell)
    centres = {cell: float(np.median([each.value for each in members])) for cell, members in cells.items()}
    points = _thinned([(s.when_s or 0.0, float(np.log(s.value / centres[s.cell]))) for s in timed])
    slopes = _slopes(points)
    if slopes is None:
        return None
    times = [when for when, _ in points]
    span, n = max(times) - min(times), len(points)
    spread = -normal_quantile(0.025) * np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low, high = ((len(slopes) - spread) / 2, (len(slopes) + spread) / 2 + 1)
    value = float(np.expm1(np.median(slopes) * span))
    method = "median of slopes (Theil, Sen)"
    if low < 1 or high > len(slopes):
        return Estimate(value, None, None, n, f"{method}; {n} trials are too few for an interval")
    ordered = np.sort(slopes)
    ends = [float(np.expm1(ordered[int(place) - 1] * span)) for place in (low, high)]
    return Estimate(value, ends[0], ends[1], n, method)


def _change(points: Sequence[tuple[float, float]]) -> float | None:
    """From the first to the last, by the slope of the logs."""
    thin = _thinned([(when, float(np.log(value))) for when, value in points])
    slopes = _slopes(thin)
    if slopes is None:
        return None
    times = [when for when, _ in thin]
    return float(np.expm1(np.median(slopes) * (max(times) - min(times))))


def _slopes(points: Sequence[tuple[float, float]]) -> Floats | None:
    if len(points) < FEWEST_POINTS:
        return None
    times, values = np.array(points, dtype=np.float64).T
    later, earlier = np.triu_indices(len(points), 1)[::-1]
    apart = times[later] - times[earlier]
    known = apart != 0
    return (values[later] - values[earlier])[known] / apart[known] if known.any() else None


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Evenly thinned, so that a long series costs no more than a thousand points."""
    return list(points[:: max(1, -(-len(points) // MOST_POINTS))])
