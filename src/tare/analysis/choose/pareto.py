"""The Pareto front: which points no other beats in every figure at once.

The rule is that of Prashanthi et al. (S3, section 5.6): go through the points by rising energy and keep a point if
its time is below that of the last one kept. With figures in any number and order that is: a point is on the front
if no other is at least as low in every figure and lower in one. Points that are equal in all figures stay together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tare.analysis.numeric.medians import Floats

Flags = npt.NDArray[np.bool_]
_MANY, _LEAST = 1000, np.finfo(np.float64).tiny


def on_front(points: Floats) -> Flags:
    """For each row of points x figures (less is better): whether it is on the front."""
    if len(points) <= _MANY:
        return _on_front(points)
    # One point beats most of the others in every figure: they need not be sorted.
    best = points[np.argmin(points @ (1 / np.maximum(np.abs(points).max(axis=0), _LEAST)))]
    flags = ~(points > best).all(axis=1)
    flags[flags] = _on_front(points[flags])
    return np.asarray(flags)


def _on_front(points: Floats) -> Flags:
    if not len(points):
        return np.zeros(0, dtype=bool)
    order = np.lexsort(points.T[::-1])  # by the first figure, then the next
    ordered = points[order]
    first_of_its_kind = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    unique = ordered[first_of_its_kind]
    kept = _by_the_papers_rule(unique) if unique.shape[1] == 2 else _by_search(unique)
    flags = np.empty(len(points), dtype=bool)
    flags[order] = kept[np.cumsum(first_of_its_kind) - 1]
    return flags


def dominates(ours: Floats, theirs: Floats) -> Flags:
    """Whether points beat a point: nowhere higher, somewhere lower."""
    return np.asarray((ours <= theirs).all(axis=-1) & (ours < theirs).any(axis=-1))


def could_be_on_front(best: Floats, worst: Floats) -> Flags:
    """Which points may be on the front if each lies anywhere between its best and its worst figures.

    One that even at its best is above another at its worst, in every figure, never is.
    """
    guards = np.unique(worst[on_front(worst)], axis=0)
    if best.shape[1] != 2:
        return ~np.array([(guards < point).all(axis=1).any() for point in best], dtype=bool)
    lowest_so_far = np.concatenate([[np.inf], np.minimum.accumulate(guards[:, 1])])
    return np.asarray(lowest_so_far[np.searchsorted(guards[:, 0], best[:, 0], side="left")] >= best[:, 1])


def _by_the_papers_rule(unique: Floats) -> Flags:
    """Sorted by the first figure: kept if the second is below all before it."""
    second = unique[:, 1]
    lowest_before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
    return np.asarray(second < lowest_before)


def _by_search(unique: Floats) -> Flags:
    """Three figures and more: each point, in order, against the front so far (nothing later can beat it)."""
    kept = np.zeros(len(unique), dtype=bool)
    front = np.empty_like(unique)
    size = 0
    for place, point in enumerate(unique):
        if not (front[:size] <= point).all(axis=1).any():
            front[size] = point
            size += 1
            kept[place] = True
    return kept
