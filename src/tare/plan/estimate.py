"""How long a study takes and how much it stores, before any of it has run. Guesses, and called so."""

from __future__ import annotations

from collections.abc import Iterable

from tare.plan.model import Trial
from tare.study.model import Study

GUESSED_TRIAL_S = 15.0
"""A built-in training run on a small machine: start, import torch (2 to 5 s), three short epochs, stop."""

_CHANNELS_A_PROBE = 15
_BYTES_A_READING = 4  # sealed and compressed; a counter that grows steadily takes little
_BYTES_A_MARK = 6
_MARKS_A_STEP = 8  # begin and end of fetch, copy, compute and the step itself
_BYTES_A_TRIAL = 48 * 1024  # the record, its facts, the output and what a file system rounds up


def guessed_trial_s(study: Study) -> float:
    """What a trial takes where nobody has measured one yet; no trial outlives its limit."""
    return min(GUESSED_TRIAL_S, study.limit_s)


def disk_bytes(study: Study, trials: Iterable[Trial], trial_s: float) -> int:
    """What the sealed records of these trials take."""
    ticks = trial_s / study.period_s
    series = ticks * len(study.probes) * _CHANNELS_A_PROBE * _BYTES_A_READING
    total = 0.0
    for trial in trials:
        steps = trial.cell.workload.units() or 0
        total += _BYTES_A_TRIAL + series + steps * _MARKS_A_STEP * _BYTES_A_MARK
    return round(total)
