"""A trial in slices: when its processes ran, which of its steps may be used, and times without the stops.

A sliced trial has this in its record, as the fact `slices`:

    windows_ns   begin and end of each of its slices: taken after it was resumed, and before it was stopped
    paired_ns    from when all sides had begun to step until the first had ended: only slices in it are used
    left_out_ns  rounds that were not quiet, where the study asks for quiet ones
    leave_out    so many steps at the begin of a slice are not used
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tare.figures.steps import Steps, steps_from
from tare.parts.protocols import Mark
from tare.records.intervals import Ints, MarkColumns, MarkRows, intervals, mark_columns

FACT = "slices"
_NO_SPAN = (0, 0)


@dataclass(frozen=True)
class Windows:
    """The slices of one trial, in order, as columns."""

    begin_ns: Ints
    end_ns: Ints
    paired_ns: tuple[int, int] = _NO_SPAN
    left_out_ns: Sequence[tuple[int, int]] = ()
    leave_out: int = 1

    def running_ns(self, t_ns: npt.ArrayLike) -> Ints:
        """For how long the trial had run, stops not counted, at each of these times."""
        times = np.asarray(t_ns, np.int64)
        past = np.concatenate(([0], np.cumsum(self.end_ns - self.begin_ns)))
        place = np.searchsorted(self.begin_ns, times, side="right")  # slices that have begun
        last = np.maximum(place - 1, 0)
        inside = np.minimum(times, self.end_ns[last]) - self.begin_ns[last]
        return np.where(place > 0, past[last] + np.maximum(inside, 0), 0)

    def slice_of(self, begin_ns: Ints, end_ns: Ints) -> Ints:
        """The number of the slice that holds all of each interval; -1 where none does, or where it is not used."""
        place = np.searchsorted(self.begin_ns, begin_ns, side="right") - 1
        known = np.maximum(place, 0)
        inside = (place >= 0) & (end_ns <= self.end_ns[known]) & (begin_ns >= self.begin_ns[known])
        return np.where(inside & self._used[known], place, -1)

    @property
    def _used(self) -> npt.NDArray[np.bool_]:
        used = (self.begin_ns >= self.paired_ns[0]) & (self.end_ns <= self.paired_ns[1])
        for begin_ns, end_ns in self.left_out_ns:
            used &= ~((self.begin_ns >= begin_ns) & (self.end_ns <= end_ns))
        return used


def windows_of(facts: Mapping[str, Any]) -> Windows | None:
    """The slices that a record tells of; None where the trial ran through."""
    kept = facts.get(FACT)
    if not kept or not kept.get("windows_ns"):
        return None
    pairs = np.asarray(kept["windows_ns"], np.int64)
    return Windows(
        pairs[:, 0],
        pairs[:, 1],
        tuple(kept.get("paired_ns") or _NO_SPAN),
        tuple((begin, end) for begin, end in kept.get("left_out_ns", ())),
        kept.get("leave_out", 1),
    )


def steps_in(marks: Sequence[Mark], facts: Mapping[str, Any]) -> Steps | None:
    """The steps of a trial; in slices, those that may not be used have no seconds, and the others a weight."""
    steps, windows = steps_from(marks), windows_of(facts)
    if steps is None or windows is None:
        return steps
    return _sliced(steps, marks, windows)


def _sliced(steps: Steps, marks: Sequence[Mark], windows: Windows) -> Steps:
    """A step counts where it lies in one slice from its begin to its end, after the first `leave_out` of that slice.
    What is marked before a step with its number (a request's first token) is whole then: a step is before it.

    The step that a stop cuts is rather a long one than a short one, so that the mean of the others is too short. Of a
    cut step it is known that it took longer than until the stop: it hands its weight to the longer ones (product-limit
    estimator; of gap times that recur until a fixed end, see Pena, Strawderman and Hollander 2001).
    """
    whole = intervals(mark_columns(marks), "step")
    first = {number: place for place, number in reversed(list(enumerate(whole.step.tolist())))}
    rows = np.array([first[number] for number in steps.numbers.tolist()], np.int64)
    begin_ns, end_ns = whole.begin_ns[rows], whole.end_ns[rows]
    begun = windows.slice_of(begin_ns, begin_ns)
    ended = windows.slice_of(begin_ns, end_ns)
    counts = (begun >= 0) & (_order_in_slice(begun) >= windows.leave_out)
    used = counts & (ended >= 0)
    counts[: steps.warm_up] = False
    seen_ns = np.minimum(end_ns, windows.end_ns[np.maximum(begun, 0)]) - begin_ns
    weight = np.full(len(rows), np.nan)
    weight[counts] = product_limit(seen_ns[counts], used[counts])
    seconds = {name: np.where(used, values, np.nan) for name, values in steps.seconds.items()}
    return replace(steps, seconds=seconds, weight=weight)


def product_limit(seen: npt.NDArray[Any], whole: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The share of each of these lengths, of which some were seen whole and others only begun; they add up to one.

    What was only begun has none. Where the longest is one of those, its share goes to the longest that is whole.
    """
    order = np.lexsort((~whole, seen))  # of equal ones the whole come first
    left = np.arange(len(seen), 0, -1)
    survives = np.cumprod(np.where(whole[order], 1 - 1 / left, 1.0))
    before = np.concatenate(([1.0], survives[:-1]))
    share = np.zeros(len(seen))
    share[order] = np.where(whole[order], before / left, 0.0)
    if len(seen) and whole.any():
        last = order[np.flatnonzero(whole[order])[-1]]
        share[last] += 1 - share.sum()
    return share


def _order_in_slice(place: Ints) -> Ints:
    """How many steps of the same slice came before each."""
    order = np.zeros(len(place), np.int64)
    for number in np.unique(place).tolist():
        of_slice = np.flatnonzero(place == number)
        order[of_slice] = np.arange(len(of_slice))
    return order


def without_stops(
    marks: Sequence[Mark], result: Mapping[str, Any], facts: Mapping[str, Any]
) -> tuple[Sequence[Mark], Mapping[str, Any]]:
    """Marks and the launcher's figures in the time that the trial itself ran; as they are where it was not sliced."""
    windows = windows_of(facts)
    if windows is None:
        return marks, result
    columns, running_ns = mark_columns(marks), windows.running_ns
    moved, found = MarkColumns(columns), intervals(columns)
    moved["t_ns"] = running_ns(moved["t_ns"])
    moved.intervals = replace(found, begin_ns=running_ns(found.begin_ns), end_ns=running_ns(found.end_ns))
    moments = {key: int(running_ns(result[key])) for key in ("start_ns", "end_ns") if key in result}
    wall = {"wall_s": (moments["end_ns"] - moments["start_ns"]) / 1e9} if len(moments) == 2 else {}
    return MarkRows(moved, Mark._make), {**result, **moments, **wall}


def paired_ns(sides: Sequence[Sequence[Mark]], windows: Sequence[Sequence[tuple[int, int]]]) -> tuple[int, int]:
    """From the first step of the side that stepped last to the last slice in which all were still stepping.

    A side that marks no steps is there from its first slice to its last.
    """
    begins, ends = [], []
    for marks, own in zip(sides, windows, strict=True):
        times = [mark.t_ns for mark in marks if mark.name == "step"]
        begins.append(min(times) if times else own[0][0])
        ends.append(max(times) if times else own[-1][1])
    return (max(begins), min(ends)) if begins and max(begins) < min(ends) else _NO_SPAN
