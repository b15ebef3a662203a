"""The forms of a question that a study declares, and the sentences that answer each: a class per form.

Every figure of a sentence is of a contrast (`tare compare` prints the same one with the metric and the baseline that
the sentence names), or is a median of one configuration with its interval.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tare.analysis.answer import is_plural, range_text, several_sentences, some_names
from tare.analysis.compare import contests, judge
from tare.analysis.contrast import contrasts
from tare.analysis.directions import direction_of
from tare.analysis.hidden import withhold
from tare.analysis.model import Comparison, Estimate, Weighing
from tare.analysis.numeric.medians import median_estimate
from tare.analysis.observations import record_observations
from tare.analysis.outside import contradicted, held_to_it
from tare.analysis.questions.jobs import places_of
from tare.analysis.selection import Request, Selection, blocks_reach_s, measurements, select, why_not
from tare.analysis.sentences import figures_of, sign_within
from tare.analysis.work import like_work, per_sample_records
from tare.base.errors import StudyError
from tare.base.text import count_text, estimate_texts, metric_name, safe_text, share_text
from tare.records.model import Record, grouped, is_usable, varied

EMPTY = "null"  # the workload that does nothing: its trials are the start-up alone
EMULATED = "tcg"  # the accelerator of a virtual machine that has none
MOST_RIVALS = 3  # that a sentence names
KNOWN_MODES = 4  # as many as the paper measures
MODEL, ENERGY = "workload.model", "energy_step_j"


@dataclass(frozen=True)
class Question(ABC):
    """What a study asks, beside its trials."""

    records: Sequence[Record]
    request: Request
    selected: Selection
    metrics: tuple[str, ...]

    @abstractmethod
    def sentences(self, weighing: Weighing) -> list[str]:
        """The answer; the first sentence is the headline. Nothing where the trials do not hold it."""

    def contrasts(self, metric: str, *, by: str | None = None, against: Any = None) -> tuple[Comparison, ...]:
        """What `tare compare --metric M --by F --against L` computes; nothing where no trial has that metric."""
        asked = replace(
            self.request, metric=metric, by=by or self.request.by, against=against, named=against is not None
        )
        if not any(metric in record.compared for record in self.selected.attempts if is_usable(record)):
            return ()
        of = contrasts(self.records, asked)
        return () if of.work.refused else of.headline

    def called(self, metric: str) -> str:
        return metric_name(metric, self.selected.unit)

    def level_value(self, level: str) -> Any:
        """The setting behind a level's words."""
        its = (each for each in self.selected.attempts if self.selected.label.level(each) == level)
        return next(its).settings[self.selected.label.by]

    def jobs(self, found: Sequence[Comparison]) -> dict[str, list[Comparison]]:
        """Contrasts by what is run: a network, an application; all in one where that does not vary."""
        settings = {self.selected.label.label(each): each.settings for each in self.selected.attempts}
        places = places_of(settings, self.selected.label.by)
        return grouped(found, lambda each: places[each.level].job if each.level in places else "")


class Cost(Question):
    """What each level costs against the baseline, in each metric that the question names."""

    def sentences(self, weighing: Weighing) -> list[str]:
        """Emulated machines and empty workloads stand apart: they are no evidence of what an application pays."""
        named = self.request.question.get("metrics") or ()
        several = [self.contrasts(metric) for metric in named]
        found = [each for of_metric in several for each in of_metric] or weighing.comparisons
        aside = {(each.level, each.against): why for each in found if (why := self._why_aside(each))}
        real = [each for each in found if (each.level, each.against) not in aside]
        if not real or not (aside or any(several)):
            return []
        sentences = [
            sentence
            for of_metric in grouped(real, lambda each: each.metric).values()
            for sentence in several_sentences(of_metric)
        ]
        apart = [
            f"{some_names([safe_text(level) for level, _ in pairs])} ({why})"
            for why, pairs in grouped(aside, aside.__getitem__).items()
        ]
        return [*sentences, *([f"Apart, as no evidence of that: {'; '.join(apart)}."] if apart else [])]

    def _why_aside(self, found: Comparison) -> str:
        sides = [record for side in self.selected.sides(found.level, found.against) for record in side]
        empty = any(record.settings.get("workload") == EMPTY for record in sides)
        emulated = any(_place(record).get("accel") == EMULATED for record in sides)
        return ", ".join([*(["it does nothing"] if empty else []), *(["emulated processor"] if emulated else [])])


def _place(record: Record) -> Mapping[str, Any]:
    held = record.facts.get("place")
    return held if isinstance(held, Mapping) else {}


class _Lowest(Question):
    """Which configuration has the lowest (or highest) figure, of each job: what is held equal, or what is run."""

    def lowest(
        self, metric: str, trials: Mapping[str, Sequence[Record]], name: Callable[[Record], str]
    ) -> list[Winner]:
        """Of each job that has two or more. The others of all jobs against the winners are one family."""
        label, rises = self.selected.label, direction_of(metric).rises
        winners, family = [], []
        for job, its in trials.items():
            having = [each for each in its if not why_not(each, metric)]
            names = {label.label(each): safe_text(name(each)) for each in having}
            by_level = grouped((each for each in having if not each.twin), label.label)
            values = {
                level: median_estimate([each.metrics[metric] for each in held]) for level, held in by_level.items()
            }
            if len(values) < 2:
                continue
            best = (max if rises else min)(values, key=lambda level: values[level].value)
            winners.append(Winner(safe_text(job), best, names, values))
            family += contests(measurements(having, label, metric, blocks_reach_s(having)), best)
        found = judge(family, margin=self.request.margin, metric=metric, alpha=self.request.alpha, resamples=0)
        against = grouped(found, lambda each: each.against)
        used = tuple(record for its in trials.values() for record in its)
        return [replace(each, others=self._doubted(metric, against[each.best], used)) for each in winners]

    def _doubted(self, metric: str, found: Sequence[Comparison], used: tuple[Record, ...]) -> tuple[Comparison, ...]:
        """The contrasts with a winner, each with what `tare compare` withholds of it."""
        label = self.selected.label
        winner = next(each for each in self.selected.attempts if label.label(each) == found[0].against)
        held_against = replace(self.selected, metric=metric, against=label.level(winner), used=used)
        held = withhold(held_against, found)
        return held_to_it(held_against, held, (), contradicted(held_against, held))[0]

    def told(self, won: Mapping[str, Sequence[Winner]]) -> list[str]:
        """`Time per sample is lowest with batch 64 for LeNet-5 training.`, and the figures of each metric and job."""
        heads, details = [], []
        having = [metric for metric in won if won[metric]]
        for of_same in grouped(having, lambda each: (_extreme(each), _claims("", each, won[each]))).values():
            called = [self.called(metric) for metric in of_same]
            several = len(called) > 1 or is_plural_metric(called[0])
            subject = f"{' and '.join(called)} {'are' if several else 'is'}"
            head = "; ".join(_claims(subject, of_same[0], won[of_same[0]]))
            heads.append(f"{head[:1].upper()}{head[1:]}.")
            for metric in of_same:
                of_metric = [self.called(metric)] if len(won) > 1 else []
                for each in won[metric]:
                    about = ", ".join([*of_metric, *([each.job] if each.job else [])])
                    figures = each.figures(metric)
                    details.append(f"{about[:1].upper()}{about[1:]}: {figures}" if about else figures)
        return [*heads, *details]


def is_plural_metric(called: str) -> bool:
    """`minor faults`, `requests that failed`; not `energy per step` or `loss`."""
    noun = re.split(r",| (?:per|of|in|to|for|at|on|that|due|without|between|by|above)\b", called, maxsplit=1)[0]
    return re.search(r"\w{2}[^\Wsui]s$", noun) is not None


def _extreme(metric: str) -> str:
    return "highest" if direction_of(metric).rises else "lowest"


def _claims(subject: str, metric: str, winners: Sequence[Winner]) -> tuple[str, ...]:
    """What the trials tell of who is lowest: it is, it cannot be told from others, or too few trials were run."""
    claims = []
    extreme = _extreme(metric)
    if sure := [each for each in winners if not each.rivals and not each.untested]:
        claims.append(f"{subject} {extreme} {_where(sure)}")
    if untested := [each for each in winners if not each.rivals and each.untested]:
        claims.append(f"{subject} {extreme} by the medians, of too few trials to tell, {_where(untested)}")
    if unsure := [each for each in winners if each.rivals]:
        claims.append(f"cannot tell whether {subject} {extreme} {_where(unsure)}")
    return tuple(claims)


def _where(winners: Sequence[Winner]) -> str:
    """`with batch 64 for LeNet-5 training and with batch 8 or batch 16 for MobileNetV3-L training`."""
    several = grouped(winners, lambda each: " or ".join([each.names[each.best], *_few(each.rivals)]))
    jobs = {who: [each.job for each in its if each.job] for who, its in several.items()}
    return " and ".join(f"with {who}{f' for {some_names(its)}' if its else ''}" for who, its in jobs.items())


def _few(names: Sequence[str]) -> list[str]:
    return [*names[:MOST_RIVALS], *([f"{len(names) - MOST_RIVALS} more"] if len(names) > MOST_RIVALS else [])]


@dataclass(frozen=True)
class Winner:
    """The configuration with the lowest median, and all others of its job against it."""

    job: str
    best: str
    names: Mapping[str, str]
    values: Mapping[str, Estimate]
    others: tuple[Comparison, ...] = ()

    @property
    def rivals(self) -> list[str]:
        """Those that the trials cannot tell from it."""
        return [self.names[each.level] for each in self.others if each.low is not None and not _is_worse(each)]

    @property
    def untested(self) -> list[str]:
        return [self.names[each.level] for each in self.others if each.low is None]

    def figures(self, metric: str) -> str:
        """Its median, who is next, and who cannot be told from it."""
        value = self.values[self.best]
        told = [" ".join(filter(None, estimate_texts(metric, value.value, value.low, value.high)))]
        known = [each for each in self.others if each.low is not None]
        told += [
            f"{self.names[each.level]} may be as good, {figures_of(each)}" for each in known if not _is_worse(each)
        ][:MOST_RIVALS]
        if worse := [each for each in known if _is_worse(each)]:
            nearest = min(worse, key=lambda each: abs(each.effect or 0.0))
            within = f"worse by less than {share_text(nearest.margin)}, " if sign_within(nearest) else ""
            told.append(f"next is {self.names[nearest.level]}, {within}{figures_of(nearest)}")
        if self.untested:
            told.append(f"too few trials to hold it against {some_names(self.untested)}")
        return f"{'; '.join(told)}."


def _is_worse(found: Comparison) -> bool:
    """Whether it is surely worse than the winner, also by less than the margin."""
    return "slower" in (found.verdict, sign_within(found))


class Best(_Lowest):
    """Which level of the factor is the best, within equal settings of all else."""

    def sentences(self, weighing: Weighing) -> list[str]:
        label, metric = self.selected.label, self.selected.metric
        jobs = grouped(self.selected.used, label.surroundings)
        return self.told({metric: self.lowest(metric, jobs, label.level)})


class Front(_Lowest):
    """Which configuration of all factors is lowest in each metric, and which others no other beats in all of them."""

    def sentences(self, weighing: Weighing) -> list[str]:
        label = self.selected.label
        settings = {label.label(each): each.settings for each in self.selected.attempts}
        places = places_of(settings, label.by)
        won = {}
        for metric in self.metrics:
            used, called = per_sample_records(self.selected.used, metric, lambda each: places[label.label(each)].job)
            jobs = grouped(used, lambda each: places[label.label(each)].job)
            won[called] = self.lowest(called, jobs, lambda each: places[label.label(each)].name)
        told = self.told(won)
        if missing := [self.called(metric) for metric, winners in won.items() if not winners]:
            return [*told, f"Not measured here: {', '.join(missing)}."] if told else []
        return [*told, *(each for several in zip(*won.values(), strict=False) for each in self._between(several))]

    def _between(self, winners: Sequence[Winner]) -> list[str]:
        """The others of the front of a job, where one does not win in everything; by their medians."""
        if len({each.best for each in winners}) < 2 or len({each.job for each in winners}) > 1:
            return []
        import numpy as np

        from tare.analysis.choose.pareto import on_front

        levels = [level for level in winners[0].values if all(level in each.values for each in winners)]
        flags = on_front(np.array([[each.values[level].value for each in winners] for level in levels]))
        best = {each.best for each in winners}
        names = [winners[0].names[level] for level, on in zip(levels, flags, strict=True) if on and level not in best]
        where = f" for {winners[0].job}" if winners[0].job else ""
        return [f"Between them no other beats {some_names(names)}{where}, by their medians."] if names else []


Step = tuple[str, str, list[Comparison]]  # from a level to the next, and their contrasts


class Enough(Question):
    """The first level after which the next one brings nothing more, each held against the one before it."""

    def sentences(self, weighing: Weighing) -> list[str]:
        pairs = {job: list(pairwise(levels)) for job, levels in self._levels().items()}
        steps: dict[str, list[Step]] = {job: [] for job in pairs}
        for pair in dict.fromkeys(pair for its in pairs.values() for pair in its):
            found = self._of_level(pair[1], self.contrasts(self.metrics[0], against=self.level_value(pair[0])))
            for job, of_job in self.jobs(found).items():
                if pair in pairs.get(job, ()):
                    steps[job].append((*pair, of_job))
        told = [sentence for job, its in steps.items() if its for sentence in self._of_job(job, its)]
        return [*told, *self._beside()] if told else []

    def _levels(self) -> dict[str, list[str]]:
        """The levels that were run of each job, in the order of the study."""
        label = self.selected.label
        places = places_of({label.label(each): each.settings for each in self.selected.attempts}, label.by)
        jobs = grouped(self.selected.used, lambda each: places[label.label(each)].job)
        run = {job: {label.level(each) for each in its} for job, its in jobs.items()}
        return {job: [level for level in self.selected.levels if level in run[job]] for job in sorted(run)}

    def _of_level(self, level: str, found: Iterable[Comparison]) -> list[Comparison]:
        label = self.selected.label
        of_level = {label.label(each) for each in self.selected.attempts if label.level(each) == level}
        return [each for each in found if each.level in of_level]

    def _of_job(self, job: str, steps: Sequence[Step]) -> list[str]:
        """How far more brings more, and why not further; the first sentence names the metric that decides."""
        steps = sorted(steps, key=lambda step: self.selected.levels.index(step[1]))
        first = enough = steps[0][0]
        where, called = f" for {safe_text(job)}" if job else "", steps[0][2][0].called
        tried = f"{safe_text(first)} to {safe_text(steps[-1][1])} were tried"
        for _, level, found in steps:
            if all(each.verdict == "faster" for each in found):
                enough = level
                continue
            name, more = safe_text(enough), safe_text(level)
            sure = all(each.verdict in ("equivalent", "slower") for each in found)
            head = f"{name} {_verb(name)} enough" if sure else f"Cannot tell whether {more} "
            head += "" if sure else "help" if _verb(more) == "are" else "helps"
            gain = self._gain(first, enough, job)
            return [f"{head}{where} (by the {called}; {tried}).", *gain, *several_sentences(found)]
        name = safe_text(enough)
        return [f"{name}, the most of what was tried, {_verb(name)} the best{where} (by the {called}).",
                *self._gain(first, enough, job)]  # fmt: skip

    def _gain(self, first: str, level: str, job: str) -> list[str]:
        """What a level changes against the first, in each metric of the question."""
        told = []
        for metric in self.metrics if level != first else ():
            found = self._of_level(level, self.contrasts(metric, against=self.level_value(first)))
            if its := self.jobs(found).get(job, []):
                told.append(f"{its[0].called} {range_text(its)}".strip())
        return [f"{safe_text(level)} against {safe_text(first)}: {', '.join(told)}."] if told else []

    def _beside(self) -> list[str]:
        """Whether the other factors, the media of a disk, change the metric of the question."""
        told = []
        for factor in self.selected.label.rest:
            if factor.partition(".")[0] == "workload":
                continue
            found = self.contrasts(self.metrics[0], by=factor)
            if found and all(each.verdict == "equivalent" for each in found):
                beside = select(self.records, replace(self.request, by=factor, against=None))
                others = [safe_text(each) for each in beside.levels if each != beside.against]
                several = len(others) > 1 or is_plural(others[0])
                same = f"{some_names(others)} {'are' if several else 'is'} the same as {safe_text(str(beside.against))}"
                told.append(f"{same} within {share_text(found[0].margin)} ({found[0].called}).")
            elif decided := [each for each in found if each.verdict in ("slower", "faster")]:
                told += several_sentences(decided)
        return told


class Growth(Question):
    """What the step from the first level to the last changes."""

    def sentences(self, weighing: Weighing) -> list[str]:
        found = [
            each
            for each in self.contrasts(self.metrics[0], against=self.level_value(self.selected.levels[0]))
            if each.effect is not None
        ]
        label, places = self.selected.label, {level: place for place, level in enumerate(self.selected.levels)}
        level_places = {label.label(each): places[label.level(each)] for each in self.selected.attempts}
        last = []
        for its in self.jobs(found).values():
            furthest = max(level_places[each.level] for each in its)
            last += [each for each in its if level_places[each.level] == furthest]
        return several_sentences(last)


class Prediction(Question):
    """How far a few measured modes predict the others: the mean error of the modes that were held out."""

    def sentences(self, weighing: Weighing) -> list[str]:
        from tare.analysis.choose.modes import Columns, modes_of
        from tare.analysis.choose.predictions import predict

        usable = [each for each in self.selected.attempts if is_usable(each) and not each.twin]
        several = [each.settings for each in usable]
        features = [
            name
            for name in varied(several)
            if not name.startswith("workload") and all(_is_number(each.get(name)) for each in several)
        ]
        time = self.metrics[0]
        if not features or not all(time in each.compared for each in usable):
            return []
        energy = ENERGY if all(ENERGY in each.compared for each in usable) else None
        columns = Columns(tuple(features), time, energy, None, MODEL)
        rows = record_observations(usable, settings=features, values=columns.figures, group=MODEL)
        try:
            table = modes_of(Path(weighing.study), rows, columns)
            known = min(KNOWN_MODES, *(len(each.modes) - 1 for each in table.workloads))
            answers = predict(table, ("linear", "tare"), measured=known, count_next=0)
        except StudyError:
            return []
        errors: dict[str, dict[str, list[float]]] = {}
        for each in answers:
            for figure, error in (each.errors or {}).items():
                errors.setdefault(figure, {}).setdefault(each.method, []).append(error)
        held = sorted({len(each.modes) - known for each in table.workloads})
        told = []
        for figure, by_method in errors.items():
            spans = [f"{_span(its)} by {_METHODS.get(method, method)}" for method, its in by_method.items()]
            published = (self.request.question.get("published") or {}).get(figure)
            theirs = f"; the paper has {share_text(published)}" if published else ""
            told.append(f"From {known} measured modes the {figure} of the others is predicted with a mean error of "
                        f"{' and '.join(spans)}{theirs}.")  # fmt: skip
        fewest = f"{held[0]} to " if held[0] != held[-1] else ""
        of = f" of each of {len(table.workloads)} networks" if len(table.workloads) > 1 else ""
        return [*told, f"Held out: {fewest}{count_text(held[-1], 'mode')}{of}."] if told else []


_METHODS = {"linear": "the paper's regression", "tare": "tare's model"}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _span(errors: Sequence[float]) -> str:
    low, high = f"{min(errors) * 100:.0f}", f"{max(errors) * 100:.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def _verb(subject: str) -> str:
    return "are" if is_plural(subject) else "is"


FORMS: Mapping[str, type[Question]] = {
    "cost": Cost, "best": Best, "enough": Enough, "growth": Growth, "front": Front, "prediction": Prediction,
}  # fmt: skip


def headline(asked: Request, records: Sequence[Record], selected: Selection, weighing: Weighing) -> tuple[str, ...]:
    """The answer to the question of the study; empty where another was asked, or where its contrasts say it all."""
    form = FORMS.get(str(asked.question.get("form", "cost")))
    if form is None or selected.against is None:
        return ()
    metrics = tuple(asked.question.get("metrics") or (selected.metric,))
    if metrics[0] != asked.metric and form is not Cost:
        measured = [name for name in metrics if any(name in record.compared for record in selected.used)]
        if not measured or (form is not Front and metrics[0] not in measured):
            return ()
        selected = select(records, replace(asked, metric=measured[0]))
    selected, work = like_work(selected)
    if work.refused:  # no other figure may answer in place of what is not compared
        return ()
    return tuple(form(records, asked, selected, metrics).sentences(weighing))
