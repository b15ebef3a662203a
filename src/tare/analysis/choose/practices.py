"""The papers' best practices, each with the user's own evidence; one without evidence in the data is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tare.analysis.choose.chances import pooled_spread
from tare.analysis.choose.configurations import Configuration, setting_text, settings_words
from tare.analysis.choose.standing import contrast, default_against
from tare.analysis.labels import name_words
from tare.analysis.model import Finding

NEARLY = 0.05  # within this share of the best is as good as the best
LITTLE_ENERGY = 0.10
# Factors of which more helps only up to a point: the end of the setting's name, and who found that.
UP_TO_A_POINT = {
    "workers": "S3 5.1.6",
    "cores": "S4 IV-A",
    "batch": "S3 5.3.1",
    "gpu_mhz": "S3 5.6.4",
    "cpu_mhz": "S3 5.6.5",
    "emc_mhz": "S3 5.6.7",
}
MEDIA = ("storage", "medium", "disk", "media")


@dataclass(frozen=True)
class PracticeInput:
    """What a practice may look at."""

    found: Sequence[Configuration]
    best: Configuration | None
    today: Configuration | None

    @property
    def names(self) -> list[str]:
        """The settings of the best."""
        return [] if self.best is None else list(self.best.settings)

    def around(self, name: str) -> list[Configuration]:
        """The configurations that differ from the best in this setting alone, and the best itself."""
        if self.best is None:
            return []
        rest = {key: value for key, value in self.best.settings.items() if key != name}
        return [
            each
            for each in self.found
            if name in each.settings and {key: v for key, v in each.settings.items() if key != name} == rest
        ]


Practice = Callable[[PracticeInput], list[Finding]]


def practices(given: PracticeInput) -> list[Finding]:
    """Every practice that applies here."""
    return [finding for practice in PRACTICES for finding in practice(given)]


def the_default_is_beaten(given: PracticeInput) -> list[Finding]:
    """The default may not be on the time-energy front."""
    today, found = given.today, [each for each in given.found if _has(each, "time", "energy")]
    if today is None or not any(each is today for each in found):
        return []
    judged = default_against(today, found, ["time", "energy"])
    if judged.winner is not None:
        statement = f"the default is not on the time-energy front: {judged.winner.label} is no slower and no thirstier"
        return [_finding(statement, judged.winner, today, "energy", "S3 5.6.1", 2 * (len(found) - 1))]
    return [Finding(_STANDINGS[judged.word], source="S3 5.6.1")]


_STANDINGS = {
    "on_front": "the default is on the time-energy front: everything else is surely slower or thirstier",
    "equivalent": "nothing beats the default in time and energy by more than 5 %",
    "cannot_tell": "whether the default is on the time-energy front cannot be told: more trials would",
}


def speed_costs_energy_or_not(given: PracticeInput) -> list[Finding]:
    """For heavier models a faster mode need not cost more energy; the fastest of all often does."""
    found = [each for each in given.found if _has(each, "time", "energy")]
    if len(found) < 2:
        return []
    fastest = min(found, key=lambda each: (each.centre("time"), each.centre("energy"), each.label))
    thriftiest = min(found, key=lambda each: (each.centre("energy"), each.centre("time"), each.label))
    who = f"the fastest ({settings_words(fastest.settings)})"
    if fastest is thriftiest:
        others = [each for each in found if each is not fastest]
        if all(contrast(each, fastest, "energy", len(others)).surely_above for each in others):
            return [Finding(f"{who} takes the least energy too: take it", source="S3 5.6.3")]
        told = "takes the least energy too by its median, which may be chance"
        return [Finding(f"{who} {told}", source="S3 5.6.3")]
    extra = contrast(fastest, thriftiest, "energy", len(found) - 1).estimate
    if (extra.value if extra.high is None else extra.high) <= LITTLE_ENERGY:
        told = "hardly costs energy: take it"
    elif extra.low is None or extra.low > 0:
        told = "costs energy: take it only for a deadline"
    else:
        told = "may cost energy: these trials do not decide it"
    return [_finding(f"{who} {told}", fastest, thriftiest, "energy", "S3 5.6.3", len(found) - 1)]


def more_helps_up_to_a_point(given: PracticeInput) -> list[Finding]:
    """Cores, workers, clocks, batch: the smallest level that is as good as any, with everything else as in the best."""
    made = []
    for name in given.names:
        source = UP_TO_A_POINT.get(name.rpartition(".")[2])
        levels = [each for each in given.around(name) if isinstance(each.settings[name], float) and _has(each, "time")]
        if source is None or len(levels) < 3:
            continue
        levels.sort(key=lambda each: float(each.settings[name]))
        lowest, shown = min(each.centre("time") for each in levels), name_words(name)
        enough = next(each for each in levels if each.centre("time") <= lowest * (1 + NEARLY))
        most = levels[-1]
        against = levels[-2] if enough is most else enough
        gain = contrast(most, against, "time", len(levels) - 1).estimate
        if enough is most:
            told, sure = f"{shown} still helps at its highest", gain.high is None or gain.high < 0
        else:
            told, sure = f"{shown} of {_level(enough, name)} is enough", gain.low is None or gain.low >= -NEARLY
        told = (
            told if sure else f"whether {shown} of more than {_level(against, name)} helps: not decided by these trials"
        )
        statement = f"{told}; the time at {_level(most, name)} against {_level(against, name)}"
        made.append(_finding(statement, most, against, "time", source, len(levels) - 1))
    return made


def one_worker_hides_most(given: PracticeInput) -> list[Finding]:
    """A loader with one worker instead of none removes most of the stall."""
    for name in (name for name in given.names if name.rpartition(".")[2] == "workers"):
        levels = {each.settings[name]: each for each in given.around(name) if _has(each, "stall")}
        none, one = levels.get(0.0), levels.get(1.0)
        if none is not None and one is not None:
            return [_finding("the stall with one worker against none", one, none, "stall", "S3 5.1.3")]
    return []


def a_slower_medium_is_enough(given: PracticeInput) -> list[Finding]:
    """With caching and workers, a faster disk may not help."""
    for name in (name for name in given.names if name.rpartition(".")[2] in MEDIA):
        levels = [each for each in given.around(name) if _has(each, "time")]
        if len(levels) < 2:
            continue
        slowest = max(levels, key=lambda each: (each.centre("time"), each.label))
        fastest = min(levels, key=lambda each: (each.centre("time"), each.label))
        tries = len(levels) - 1
        apart = contrast(slowest, fastest, "time", tries)
        told = "whether the medium matters here is not known"
        if apart.estimate.low is not None and apart.estimate.low > NEARLY:
            told = "the medium matters here"
        elif apart.surely_not_worse and apart.surely_not_better:
            told = "the medium does not matter here"
        statement = f"{told}: {_level(slowest, name)} against {_level(fastest, name)}"
        return [_finding(statement, slowest, fastest, "time", "S3 5.2.2", tries)]
    return []


def a_few_trials_speak_for_many(given: PracticeInput) -> list[Finding]:
    """Training varies little between runs, so that a few are enough."""
    spread = pooled_spread([each for each in given.found if _has(each, "time")], "time")
    if spread is None:
        return []
    told = "a few trials speak for many" if spread.deviation <= NEARLY else "trials differ much: repeat them"
    deviation = f"{spread.deviation * 100:.3g} %"  # no change, so it has no sign
    return [Finding(f"{told}: trials of one configuration differ in time by {deviation}", source="S3 5.4.1")]


PRACTICES: tuple[Practice, ...] = (
    the_default_is_beaten,
    speed_costs_energy_or_not,
    more_helps_up_to_a_point,
    one_worker_hides_most,
    a_slower_medium_is_enough,
    a_few_trials_speak_for_many,
)


def _finding(
    statement: str, ours: Configuration, theirs: Configuration, figure: str, source: str, tries: int = 1
) -> Finding:
    """The statement with how much more `ours` takes than `theirs`, where `tries` might have been shown instead."""
    trials = tuple(trial.trial for trial in (*ours.trials, *theirs.trials))
    return Finding(statement, contrast(ours, theirs, figure, tries).estimate, "share", trials, source)


def _has(each: Configuration, *figures: str) -> bool:
    """Whether every trial has these figures, and more than nothing of them: ratios need that."""
    return all(trial.metrics.get(figure, 0.0) > 0 for trial in each.trials for figure in figures)


def _level(each: Configuration, name: str) -> str:
    return setting_text(each.settings[name])
