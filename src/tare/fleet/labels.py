"""What the trials and the sides of a plan are called while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tare.analysis.labels import distinguishing, make_labels
from tare.plan.matrix import Trial
from tare.records.model import AA_REPEAT


def side_labels(trials: Sequence[Trial]) -> Callable[[Trial], str]:
    """What each side is called: its platform, and what else tells its workload from others in this plan."""
    several = [trial.settings for trial in trials]
    names = [name for name in distinguishing(several) if name.partition(".")[0] in ("platform", "workload")]
    label = make_labels(several, names)
    return lambda trial: str(label.words(trial.settings))


def labels(trials: Sequence[Trial]) -> Callable[[Trial], str]:
    """A few words for each trial: its block, its platform, and whatever else sets it apart in this plan."""
    several = [trial.settings for trial in trials]
    label = make_labels(several, distinguishing(several))

    def words(trial: Trial) -> str:
        twin = f" ({AA_REPEAT})" if trial.twin else ""
        return f"block {trial.block}: {label.words(trial.settings)}{twin}"

    return words
