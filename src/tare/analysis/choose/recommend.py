"""The decision itself: the lowest figure among those that surely keep the limits.

The papers' best practices, each with the user's own evidence; one that the data cannot speak to says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tare.analysis.choose.candidates import (
    STATED_FREEDOM,
    Candidate,
    Job,
    Judged,
    Miss,
    NextTrial,
    Predicted,
    Recommendation,
    Spread,
    best_predicted,
    candidate,
    fitting,
    judged,
    nearest_miss,
    pooled_spread,
)
from tare.analysis.choose.configurations import (
    Configuration,
    Contrast,
    affordable,
    configurations_of_jobs,
    contrast,
    copied_rows,
    default_against,
    default_among,
    resampled_centres,
    setting_text,
    settings_words,
    shared_settings,
)
from tare.analysis.labels import name_words
from tare.analysis.model import Estimate, Finding
from tare.analysis.numeric.medians import FLOOR
from tare.analysis.observations import Setting
from tare.records.model import TrialRow, grouped

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


WORTH_IT = 1e-4  # of the figure: less than this is not worth a trial
CONSIDERED = 200  # configurations with the lowest figure: those far above it cannot turn out the best


def next_trial(
    best: Judged | None,
    all_of_them: Sequence[Judged],
    minimise: str,
    predicted: Candidate | None = None,
    miss: Miss | None = None,
) -> NextTrial | None:
    """The trial with the largest expected gain; where nothing is known of the spread, that which would tell it."""
    if best is None:
        return _after_nothing_fits(predicted, miss)
    if predicted is not None:
        now, then = best.configuration.centre(minimise), predicted.figures[minimise].value
        gain = 1 - then / now if now > 0 else None
        return NextTrial(predicted.settings, "it is predicted to be better, and nobody has measured it", gain)
    if best.configuration.n < 2:
        return NextTrial(best.configuration.settings, "it was measured once, so its spread is unknown", None)
    if best.configuration.centre(minimise) == 0:
        return None  # nothing can be below it
    return _largest_gain(best, all_of_them, minimise)


def _after_nothing_fits(predicted: Candidate | None, miss: Miss | None) -> NextTrial | None:
    if predicted is not None:
        return NextTrial(predicted.settings, "nothing that was measured fits, and this is predicted to", None)
    if miss is None or miss.over > 0:
        return None
    return NextTrial(miss.candidate.settings, "it keeps the limits by its median, but not surely enough", None)


def _largest_gain(best: Judged, all_of_them: Sequence[Judged], minimise: str) -> NextTrial | None:
    """Each configuration's chance to be the better one after all, times by how much."""
    rivals = sorted((one for one in all_of_them if one is not best), key=lambda one: one.objective(minimise))
    near = [best, *rivals[:CONSIDERED]]
    found = [one.configuration for one in near]
    drawn = resampled_centres(found, [minimise], affordable(found, [minimise]))[:, :, 0]
    now = best.configuration.centre(minimise)
    weights = np.array([1.0 if one.keeps_all is None else one.keeps_all for one in near])
    gains = np.maximum(0.0, drawn[:, :1] - drawn).mean(axis=0) * weights / now
    # A trial of the best itself: what is saved if it turns out above the lowest of the others that may fit.
    others = [one.configuration.centre(minimise) for one in near[1:] if one.keeps_all != 0.0]
    gains[0] = float(np.maximum(0.0, drawn[:, 0] - min(others)).mean() / now) if others else 0.0
    place = int(np.argmax(gains))
    if gains[place] < WORTH_IT:
        return None
    one = near[place].configuration
    if place == 0:
        reason = "it may be worse than it looked"
    elif one.centre(minimise) < now:
        reason = "it is better, but does not surely keep the limits"
    else:
        reason = "it may turn out better"
    return NextTrial(one.settings, reason, float(gains[place]))


CONFIDENCE = 0.95
SHOWN = ("time", "energy", "power", "cost")
CONTENDERS = 500  # that fit, with the lowest figure: those far above it cannot turn out the best


def recommend(
    rows: Sequence[TrialRow],
    job: Job,
    *,
    default: Mapping[str, Setting] | None = None,
    confidence: float = CONFIDENCE,
    stated_spread: float | None = None,
    predicted: Sequence[Predicted] = (),
    source: Path | str = "",
) -> list[Recommendation]:
    """One answer a group. `stated_spread` is how much trials differ (a share), where the rows cannot tell."""
    rows, found, apart = configurations_of_jobs(rows, job.needed, source)
    stated = Spread(stated_spread, STATED_FREEDOM) if stated_spread is not None else None
    told = (*apart, *_unanswered(rows, found, job.needed))
    made = []
    for group, each in grouped(found, lambda each: each.group).items():
        today = default_among(each, found if apart else each, default, source) if default is not None else None
        alike = shared_settings(each) if apart else {}
        own = [replace(one, settings={n: v for n, v in one.settings.items() if n not in alike}) for one in each]
        today = next((mine for one, mine in zip(each, own, strict=True) if one is today), None)
        offered = [one for one in predicted if one.group == group]
        answer = _answer(group, judged(own, job.limits, stated), job, today, confidence, offered, told)
        made.append(replace(answer, conditions=alike))
    return made


def _unanswered(rows: Sequence[TrialRow], found: Sequence[Configuration], needed: Sequence[str]) -> tuple[str, ...]:
    """A sentence for each group of which no trial has what is asked about."""
    told = []
    for group, its in grouped(rows, lambda row: row.group).items():
        if all(each.group != group for each in found):
            missing = [name for name in needed if all(name not in row.metrics for row in its)] or needed
            instead = " `--minimise time` answers it." if missing == ["energy"] and len(needed) == 1 else ""
            told.append(f"{group}: no answer: none of its {len(its)} trials has {' and '.join(missing)}.{instead}")
    return tuple(told)


def _answer(
    group: str | None,
    all_of_them: Sequence[Judged],
    job: Job,
    today: Configuration | None,
    confidence: float,
    offered: Sequence[Predicted],
    told: tuple[str, ...] = (),
) -> Recommendation:
    figures = list(dict.fromkeys([*job.needed, *SHOWN]))
    fit = fitting(all_of_them, job.minimise, confidence)
    best, held_to = fit[0] if fit else (None, None)
    hoped = best_predicted(offered, job.limits, job.minimise, confidence)
    if hoped is not None and best is not None:
        better = hoped.figures[job.minimise].value < best.configuration.centre(job.minimise)
        hoped = hoped if better else None
    miss = nearest_miss(all_of_them, figures) if best is None and job.limits else None
    in_use = next((one for one in all_of_them if one.configuration is today), None)
    found = [one.configuration for one in all_of_them]
    gain = _gain(best.configuration, today, figures, len(found) - 1) if best is not None and today is not None else {}
    return Recommendation(
        group,
        job.minimise,
        job.limits,
        confidence,
        held_to if job.limits and best is not None and best.keeps_all is not None else None,
        len(all_of_them),
        candidate(best, figures) if best is not None else None,
        _best_share([one for one, _ in fit[:CONTENDERS]], job.minimise),
        hoped,
        candidate(in_use, figures) if in_use is not None else None,
        {name: each.estimate for name, each in gain.items()},
        gain[job.minimise].word if job.minimise in gain else None,
        _rivals([one for one, _ in fit[:CONTENDERS]], job.minimise),
        miss,
        next_trial(best, all_of_them, job.minimise, hoped, miss),
        tuple(practices(PracticeInput(found, best.configuration if best else None, today))),
        (*told, *_notes(all_of_them, best), *copied_rows(found, job.needed)),
    )


def _best_share(contenders: Sequence[Judged], minimise: str) -> float | None:
    """How often the first is the lowest when trials are drawn again; None where it was measured once."""
    found = [one.configuration for one in contenders]
    if not found or found[0].n < 2:
        return None
    drawn = resampled_centres(found, [minimise], affordable(found, [minimise]))[:, :, 0]
    return float((drawn[:, 0] <= drawn.min(axis=1)).mean())


def _gain(best: Configuration, today: Configuration, figures: Sequence[str], tries: int) -> dict[str, Contrast]:
    """What the best takes more, or less, than what is in use; as a share of the latter."""
    shared = [name for name in figures if all(name in t.metrics for t in (*best.trials, *today.trials))]
    shared = [name for name in shared if (today.values(name) > 0).all()]  # more than nothing is no share
    if best is today:
        itself = Contrast(Estimate(0.0, None, None, best.n, "it is the default itself"), "equivalent")
        return dict.fromkeys(shared, itself)
    return {name: contrast(best, today, name, tries) for name in shared}


def _rivals(contenders: Sequence[Judged], minimise: str) -> tuple[Mapping[str, Setting], ...]:
    """Those that fit too, and of which the first is not surely the better one."""
    if len(contenders) < 2:
        return ()
    best, *others = (one.configuration for one in contenders)
    tries = len(others)
    return tuple(other.settings for other in others if not contrast(best, other, minimise, tries).surely_below)


def _notes(all_of_them: Sequence[Judged], best: Judged | None) -> list[str]:
    notes = []
    if best is not None and best.keeps_all is None:
        notes.append(
            "Nothing was measured twice, so how surely a limit is kept is unknown: it was kept that once. "
            "--spread states how much trials differ, where you know it."
        )
    few = sum(one.configuration.n < FLOOR for one in all_of_them)
    if few and best is not None and best.keeps_all is not None:
        notes.append(f"{few} of {len(all_of_them)} configurations have fewer than {FLOOR} trials; more would be surer.")
    return notes
