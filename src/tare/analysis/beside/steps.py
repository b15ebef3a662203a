"""The steps of a trial, from its marks: when the measured ones ran, and what those took that are kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Marks: TypeAlias = Mapping[str, npt.NDArray[Any]]
Numbers: TypeAlias = npt.NDArray[np.int64]
Seconds: TypeAlias = npt.NDArray[np.float64]

_STEP = "step"


def measured_ns(marks: Marks, warm_up: int) -> tuple[int, int] | None:
    """From the begin of the first measured step to the end of the last; so many before them are kept apart."""
    numbers, _ = intervals(marks, _STEP)
    inside = (marks["name"] == _STEP) & np.isin(marks["step"], numbers[warm_up:])
    times_ns = marks["t_ns"][inside]
    return (int(times_ns.min()), int(times_ns.max())) if times_ns.size else None


def early_mean_s(marks: Marks, name: str, warm_up: int, without: int = 0) -> float | None:
    """The mean of an interval over the steps that are kept apart, all of epoch 0, or without the first few of them."""
    steps, _ = intervals(marks, _STEP)
    numbers, seconds = intervals(marks, name)
    early = seconds[np.isin(numbers, steps[without:warm_up])]
    return float(early.mean()) if early.size else None


def intervals(marks: Marks, name: str) -> tuple[Numbers, Seconds]:
    """The numbers of the steps that have this interval whole, in order, and its seconds in each."""
    chosen = (marks["name"] == name) & (marks["step"] >= 0) & np.isin(marks["edge"], ["begin", "end"])
    numbers, place = np.unique(marks["step"][chosen], return_inverse=True)
    t_ns, is_end = marks["t_ns"][chosen], marks["edge"][chosen] == "end"
    taken_ns, still_open = np.zeros((2, len(numbers)), dtype=np.int64)
    np.add.at(taken_ns, place, np.where(is_end, t_ns, -t_ns))
    np.add.at(still_open, place, np.where(is_end, -1, 1))
    whole = still_open == 0
    return numbers[whole], taken_ns[whole] / 1e9
