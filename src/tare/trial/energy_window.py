"""The time that a trial's energy is taken over, and how much work was done in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tare.parts.protocols import Mark
from tare.trial.power_series import Times, Values
from tare.trial.summary import Steps
from tare.trial.tenant_metrics import run_ns

STEPS, RUN, SHARED = "the measured steps", "the whole run", "the time in which all tenants worked"


@dataclass(frozen=True)
class Span:
    """From when to when, on the device's monotonic clock, and what lies in it."""

    begin_ns: int
    end_ns: int
    what: str
    steps: int | None = None
    epochs: int | None = None

    @property
    def window(self) -> tuple[int, int]:
        return self.begin_ns, self.end_ns

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


def span_of(marks: Sequence[Mark], steps: Steps | None, result: Mapping[str, Any]) -> Span | None:
    """The measured steps, so that time and energy are of the same work; a workload that marks none is taken whole."""
    if steps is not None:
        return _of_steps(marks, steps)
    window = run_ns(result)
    return Span(*window, what=RUN) if window is not None and window[0] < window[1] else None


@dataclass(frozen=True)
class Pace:
    """When each measured step ended, and how long it took."""

    ends_ns: Times
    step_s: Values


def pace_of(marks: Sequence[Mark], steps: Steps) -> Pace:
    """The pace of the measured steps, in the order of their numbers."""
    ends = {mark.step: mark.t_ns for mark in marks if mark.name == "step" and mark.edge == "end"}
    numbers = steps.numbers[steps.warm_up :].tolist()
    return Pace(np.array([ends[number] for number in numbers], dtype=np.int64), steps.seconds["step"][steps.warm_up :])


def _of_steps(marks: Sequence[Mark], steps: Steps) -> Span | None:
    measured = set(steps.numbers[steps.warm_up :].tolist())
    of_steps = [mark for mark in marks if mark.name == "step" and mark.step in measured]
    begins = [mark.t_ns for mark in of_steps if mark.edge == "begin"]
    ends = [mark.t_ns for mark in of_steps if mark.edge == "end"]
    if not (begins and ends) or min(begins) >= max(ends):
        return None
    begin_ns, end_ns = min(begins), max(ends)
    passes = [mark.t_ns for mark in marks if mark.name == "epoch" and mark.edge == "end"]
    # Steps after the last end of an epoch are of one that was cut off: then there is no energy of a whole one.
    is_whole = len(passes) > 1 and max(begins) < max(passes)
    whole = sum(t_ns > begin_ns for t_ns in passes) if is_whole else 0
    return Span(begin_ns, end_ns, STEPS, steps=len(measured), epochs=whole or None)
