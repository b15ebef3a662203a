"""The decision itself: the lowest figure among the configurations that surely keep the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tare.analysis.choose.candidates import (
    Candidate,
    Judged,
    Recommendation,
    best_predicted,
    candidate,
    fitting,
    judged,
    nearest_miss,
)
from tare.analysis.choose.chances import STATED_FREEDOM, Spread
from tare.analysis.choose.configurations import (
    Configuration,
    configurations_of_jobs,
    copied_rows,
    default_among,
    settings_words,
    shared_settings,
)
from tare.analysis.choose.jobs import Job
from tare.analysis.choose.next_trial import next_trial
from tare.analysis.choose.offers import Predicted
from tare.analysis.choose.practices import PracticeInput, practices
from tare.analysis.choose.resampling import affordable, resampled_centres
from tare.analysis.choose.standing import Contrast, contrast
from tare.analysis.model import Estimate, Finding
from tare.analysis.numeric.medians import FLOOR
from tare.analysis.observations import Setting
from tare.analysis.sections import Answer, List, Note, Section, Sentence, Shown, share_shown
from tare.base.errors import StudyError
from tare.base.text import count_text, share_text
from tare.records.model import TrialRow, grouped

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
    """One answer for each group with a choice; a single configuration is only held against limits.

    `stated_spread` is how much trials differ (a share), where the rows cannot tell.
    """
    rows, found, apart = configurations_of_jobs(rows, job.needed, source)
    stated = Spread(stated_spread, STATED_FREEDOM) if stated_spread is not None else None
    groups = grouped(found, lambda each: each.group)
    single = [group for group, each in groups.items() if len(each) == 1 and not job.limits]
    if len(single) == len(groups):
        raise StudyError(
            f"{source}: there is nothing to choose: {'each group' if len(groups) > 1 else 'the source'} has one "
            "configuration. Measure another, or give a limit such as --deadline to hold this one against."
        )
    told = (*apart, *_unanswered(rows, found, job.needed), *(f"{g}: one configuration, no choice." for g in single))
    made = []
    for group, each in groups.items():
        if group in single:
            continue
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
    """How often the first is the lowest when trials are drawn again; None where it is alone or was measured once."""
    found = [one.configuration for one in contenders]
    if len(found) < 2 or found[0].n < 2:
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


# A word of a job has no unit in its name; this is the name that has it.
_METRICS = {"time": "time_s", "energy": "energy_j", "power": "power_w"}
NEARLY_SURE = 0.999  # beyond this a rounded 100 % would claim too much
MOST_RIVALS = 3  # that a sentence names
_VERDICTS = {
    "better": " (surely better, also after the search for the best)",
    "equivalent": " (within 5 %: the default is as good)",
    "cannot_tell": " (cannot tell: it may be no better than the default, so there is no reason yet to leave it)",
}


def recommendations_answer(found: Sequence[Recommendation]) -> Answer[Sequence[Recommendation]]:
    """The answer of each group; a note that all of several groups have is given once."""
    alike = [note for note in found[0].notes if len(found) > 1 and all(note in each.notes for each in found)]
    sections: list[Section] = []
    for place, each in enumerate(found, 1):
        notes = tuple((f"note: {note}",) for note in each.notes if note not in alike)
        sections.append(Section(f"recommendation-{place}", "", partial(List, (*_sentences(each), *notes))))
    sections.append(Section("recommendation-notes", "", partial(Note, tuple((note,) for note in alike))))
    return Answer((), found, tuple(sections))


def _sentences(found: Recommendation) -> list[Sentence]:
    title = f"{found.group}: " if found.group is not None else ""
    sentences = _nothing_fits(found, title) if found.best is None else _choice(found, found.best, title)
    if found.predicted is not None:
        hoped = Shown(_metric(found.minimised), found.predicted.figures[found.minimised])
        sentences.append((f"predicted to be better, not measured: {settings_words(found.predicted.settings)}: ", hoped))
    if (trial := found.next_trial) is not None:
        worth = "" if trial.expected_gain is None else f" (expected gain {share_text(trial.expected_gain)})"
        sentences.append((f"measure next: {settings_words(trial.settings)}: {trial.reason}{worth}",))
    return [*sentences, *map(_practice_sentence, found.practices)]


def _choice(found: Recommendation, best: Candidate, title: str) -> list[Sentence]:
    sentences: list[Sentence] = [
        (f"{title}use {settings_words(best.settings)}: ", *_figures(best), f" ({count_text(best.n, 'trial')})")
    ]
    if found.default is not None:
        sentences.append(_gain_sentence(found, best, found.default))
    for limit in found.limits:
        chance = best.chances[limit.name]
        kept = "unknown, measured once" if chance is None else chance_text(chance)
        at_most = Shown(_metric(limit.figure), limit.at_most)
        sentences.append((f"chance that the next run keeps the {limit.name}, ", at_most, f": {kept}"))
    if found.held_to is not None and found.held_to > found.confidence:
        sentences.append(
            (f"held to {share_text(found.held_to)}, not {share_text(found.confidence)}, as several were in question",)
        )
    if found.configurations > 1:
        sentences.append((_how_sure(found, best),))
    if found.rivals:  # who else may be the best
        named = "; ".join(settings_words(each) for each in found.rivals[:MOST_RIVALS])
        more = f"; and {len(found.rivals) - MOST_RIVALS:,} more" if len(found.rivals) > MOST_RIVALS else ""
        sentences.append((f"not surely better than {count_text(len(found.rivals), 'other')}: {named}{more}",))
    return sentences


def _how_sure(found: Recommendation, best: Candidate) -> str:
    lowest = f"the lowest {found.minimised}{' of those that fit' if found.limits else ''}"
    if found.best_share is not None:
        return f"it has {lowest} in {share_text(found.best_share)} of resamples"
    if best.n < 2:
        return f"whether it has {lowest} is not sure: it was measured once"
    return "no other configuration keeps the limits"


def _gain_sentence(found: Recommendation, best: Candidate, default: Candidate) -> Sentence:
    if best.settings == default.settings:
        return ("that is the default already",)
    sentence: list[str | Shown] = [f"against the default ({settings_words(default.settings)}): "]
    for place, (name, gain) in enumerate(found.gain.items()):
        sentence += [f"{', ' if place else ''}{name} ", share_shown(gain, f"recommended against default, {name}")]
    return (*sentence, _VERDICTS.get(found.verdict or "", ""))


def _nothing_fits(found: Recommendation, title: str) -> list[Sentence]:
    limits: list[str | Shown] = []
    for limit in found.limits:
        limits += [f"{', ' if limits else ''}{limit.name} ", Shown(_metric(limit.figure), limit.at_most)]
    start = f"{title}nothing fits: none of {count_text(found.configurations, 'configuration')} keeps "
    sentences: list[Sentence] = [(start, *limits, f" with {share_text(found.confidence)} probability")]
    if (miss := found.nearest_miss) is not None:
        chance = miss.candidate.keeps_all
        kept = "" if chance is None else f", but its chance to keep all limits is {chance_text(chance)}"
        far = f"{share_text(miss.over)} over the {miss.limit}" if miss.over > 0 else f"within the {miss.limit}{kept}"
        nearest = f"nearest: {settings_words(miss.candidate.settings)}: "
        sentences.append((nearest, *_figures(miss.candidate), f"; {far}"))
    return sentences


def _practice_sentence(finding: Finding) -> Sentence:
    """`- the stall with one worker against none: -45.0 % [-47.1, -43.0] (S3 5.1.3)`."""
    if finding.estimate is None:
        return (f"- {finding.statement} ({finding.source})",)
    unsure = "" if finding.estimate.low is not None else f"; {count_text(finding.estimate.n, 'trial')}, no interval"
    shown = share_shown(finding.estimate, finding.statement)
    return (f"- {finding.statement}: ", shown, f" ({finding.source}{unsure})")


def _figures(candidate: Candidate) -> list[str | Shown]:
    of = settings_words(candidate.settings)
    parts: list[str | Shown] = []
    for name, each in candidate.figures.items():
        parts += [f"{', ' if parts else ''}{name} ", Shown(_metric(name), each.value, of)]
    return parts


def _metric(word: str) -> str:
    return _METRICS.get(word, word)


def chance_text(chance: float) -> str:
    """`97 %`; what is nearly sure, or nearly impossible, is not called so."""
    if chance > NEARLY_SURE:
        return "over 99.9 %"
    return "below 0.1 %" if chance < 1 - NEARLY_SURE else share_text(chance)
