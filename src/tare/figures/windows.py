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
from tare.records.intervals import Ints, intervals, mark_columns

FACT = "slices"
LONGEST_SHARE = 0.9  # of a slice: a longer step is hardly ever seen whole, and its weight would be a guess
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

    The step that the stop cuts is rather a long one than a short one. What is left over would be too short in the
    mean, hence the weight: one over the chance that a step of this length is not cut (Horvitz and Thompson).
    """
    whole = intervals(mark_columns(marks), "step")
    first = {number: place for place, number in reversed(list(enumerate(whole.step.tolist())))}
    rows = np.array([first[number] for number in steps.numbers.tolist()], np.int64)
    begin_ns, end_ns = whole.begin_ns[rows], whole.end_ns[rows]
    place = windows.slice_of(begin_ns, end_ns)
    order = _order_in_slice(place)
    used = (place >= 0) & (order >= windows.leave_out)
    weight = np.full(len(rows), np.nan)
    for number in np.unique(place[used]).tolist():
        of_slice = np.flatnonzero(used & (place == number))
        room_ns = windows.end_ns[number] - begin_ns[of_slice].min()
        share = np.minimum((end_ns - begin_ns)[of_slice] / room_ns, LONGEST_SHARE)
        weight[of_slice] = 1 / (1 - share)
    seconds = {name: np.where(used, values, np.nan) for name, values in steps.seconds.items()}
    return replace(steps, seconds=seconds, weight=weight)


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
    times = windows.running_ns([mark.t_ns for mark in marks]) if len(marks) else []
    moved = [mark._replace(t_ns=int(t_ns)) for mark, t_ns in zip(marks, times, strict=True)]
    moments = {key: int(windows.running_ns(result[key])) for key in ("start_ns", "end_ns") if key in result}
    wall = {"wall_s": (moments["end_ns"] - moments["start_ns"]) / 1e9} if len(moments) == 2 else {}
    return moved, {**result, **moments, **wall}


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
