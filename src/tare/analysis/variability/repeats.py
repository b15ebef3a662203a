"""How many trials and epochs a given half-width of the mean takes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.numeric.distributions import t_quantile

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
    error = math.sqrt((trial_deviation**2 + epoch_deviation**2 / epochs) / trials)
    return t_quantile(trials - 1, 0.975) * error


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
    def enough(trials: int) -> bool:  # the half-width falls with every trial
        return half_width(trial_deviation, epoch_deviation, trials, epochs) <= target

    found = FEWEST_TRIALS + bisect_left(range(FEWEST_TRIALS, MOST_TRIALS + 1), True, key=enough)
    return found if found <= MOST_TRIALS else None
