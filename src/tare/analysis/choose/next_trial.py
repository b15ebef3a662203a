"""The one measurement that would help a recommendation most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tare.analysis.choose.candidates import Candidate, Judged, Miss, NextTrial
from tare.analysis.choose.resampling import affordable, resampled_centres

WORTH_IT = 1e-4  # of the figure: less than this is not worth a trial
CONSIDERED = 200  # configurations with the lowest figure: those far above it cannot turn out the best


def next_trial(
    best: Judged | None,
    all_of_them: Sequence[Judged],
    minimise: str,
    predicted: Candidate | None = None,
    miss: Miss | None = None,
) -> NextTrial | None:
    """The trial with the largest expected gain; where nothing is known of the spread, that which would tell it."""
    if best is None:
        return _after_nothing_fits(predicted, miss)
    if predicted is not None:
        now, then = best.configuration.centre(minimise), predicted.figures[minimise].value
        gain = 1 - then / now if now > 0 else None
        return NextTrial(predicted.settings, "it is predicted to be better, and nobody has measured it", gain)
    if best.configuration.n < 2:
        return NextTrial(best.configuration.settings, "it was measured once, so its spread is unknown", None)
    if best.configuration.centre(minimise) == 0:
        return None  # nothing can be below it
    return _largest_gain(best, all_of_them, minimise)


def _after_nothing_fits(predicted: Candidate | None, miss: Miss | None) -> NextTrial | None:
    if predicted is not None:
        return NextTrial(predicted.settings, "nothing that was measured fits, and this is predicted to", None)
    if miss is None or miss.over > 0:
        return None
    return NextTrial(miss.candidate.settings, "it keeps the limits by its median, but not surely enough", None)


def _largest_gain(best: Judged, all_of_them: Sequence[Judged], minimise: str) -> NextTrial | None:
    """Each configuration's chance to be the better one after all, times by how much."""
    rivals = sorted((one for one in all_of_them if one is not best), key=lambda one: one.objective(minimise))
    near = [best, *rivals[:CONSIDERED]]
    found = [one.configuration for one in near]
    drawn = resampled_centres(found, [minimise], affordable(found, [minimise]))[:, :, 0]
    now = best.configuration.centre(minimise)
    weights = np.array([1.0 if one.keeps_all is None else one.keeps_all for one in near])
    gains = np.maximum(0.0, drawn[:, :1] - drawn).mean(axis=0) * weights / now
    # A trial of the best itself: what is saved if it turns out above the lowest of the others that may fit.
    others = [one.configuration.centre(minimise) for one in near[1:] if one.keeps_all != 0.0]
    gains[0] = float(np.maximum(0.0, drawn[:, 0] - min(others)).mean() / now) if others else 0.0
    place = int(np.argmax(gains))
    if gains[place] < WORTH_IT:
        return None
    one = near[place].configuration
    if place == 0:
        reason = "it may be worse than it looked"
    elif one.centre(minimise) < now:
        reason = "it is better, but does not surely keep the limits"
    else:
        reason = "it may turn out better"
    return NextTrial(one.settings, reason, float(gains[place]))
