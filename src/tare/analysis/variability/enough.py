"""How many trials, of how many epochs, hold the mean's half-width below a target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

EPOCHS = (1, 2, 3, 5, 10, 20)
MOST_TRIALS = 1_000
FEWEST_TRIALS = 2  # one trial says nothing about the next


@dataclass(frozen=True, slots=True)
class Plan:
    """So many trials, each with so many epochs after its first, and the half-width that they give."""

    trials: int
    epochs: int
    half_width: float


def half_width(trial_deviation: float, epoch_deviation: float, trials: int, epochs: int) -> float:
    """Of the 95 % interval of the mean over trials (Student's t)."""
    from scipy import special

    error = math.sqrt((trial_deviation**2 + epoch_deviation**2 / epochs) / trials)
    return float(special.stdtrit(trials - 1, 0.975)) * error


def plans(trial_deviation: float, epoch_deviation: float, target: float) -> list[Plan]:
    """The fewest trials for each number of epochs; more epochs are listed only where they save trials."""
    epochs = EPOCHS if epoch_deviation > 0 else (1,)
    found: list[Plan] = []
    for each in epochs:
        trials = _fewest(trial_deviation, epoch_deviation, each, target)
        if trials is not None and (not found or trials < found[-1].trials):
            found.append(Plan(trials, each, half_width(trial_deviation, epoch_deviation, trials, each)))
    return found


def cheapest(found: Sequence[Plan]) -> Plan | None:
    """The fewest epochs in all; each trial also pays for its first epoch, which is kept apart."""
    return min(found, key=lambda plan: (plan.trials * (plan.epochs + 1), plan.trials), default=None)


def _fewest(trial_deviation: float, epoch_deviation: float, epochs: int, target: float) -> int | None:
    low, high = FEWEST_TRIALS, MOST_TRIALS
    if half_width(trial_deviation, epoch_deviation, high, epochs) > target:
        return None
    while low < high:  # the half-width falls with every trial
        middle = (low + high) // 2
        if half_width(trial_deviation, epoch_deviation, middle, epochs) <= target:
            high = middle
        else:
            low = middle + 1
    return low
