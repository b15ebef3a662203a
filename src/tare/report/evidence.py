"""What the page and its figures are made from: the findings, and each trial as the report shows it.

A trial has a place on the page, a level, and a figure where it is used; with a store there are series as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median_low
from typing import TYPE_CHECKING, Any

from tare.analysis.cells import WORKERS
from tare.analysis.model import Comparison, Weighing
from tare.analysis.observations import ENERGY
from tare.analysis.questions.jobs import Place, places_of
from tare.analysis.resources.energy import Energy
from tare.analysis.resources.pipeline import Loader
from tare.analysis.resources.tenants import Tenants
from tare.analysis.sections import Answer, Question
from tare.analysis.selection import fit_for
from tare.base.errors import ObstacleError, StudyError, TareError
from tare.base.rulings import Ruling
from tare.records.model import AA_REPEAT, DEVICE, ISOLATION, TYPE, Record, StoreTrials, grouped, usable_trials
from tare.report.figure import level_number
from tare.report.text.trials import flat_pairs, plain_text

if TYPE_CHECKING:
    from tare.analysis.fleet.results import Fleet
    from tare.analysis.why.layers import Waterfall
    from tare.records.store import Store


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One attempt at one trial, as a row of the report."""

    anchor: str  # ours and counted: a trial's own id may hold anything
    trial: str
    level: str
    block: str
    state: str
    twin: int = 0
    attempt: int = 0
    value: float | None = None  # the headline metric, where it is used
    outlier: str = ""  # why it is marked as one
    reasons: tuple[Ruling, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.level} ({AA_REPEAT})" if self.twin else self.level


def shown_trials(weighing: Weighing, records: Sequence[Record]) -> list[ReportRow]:
    """All trials in the order of their blocks; those of a table without a store come from the measurements alone."""
    measured = {measurement.trial: measurement for measurement in weighing.measurements if measurement.trial}
    outliers = {left.trial: " ".join(map(str, left.reasons)) for left in weighing.outliers if left.trial}
    left_out = {left.trial: left for left in weighing.left_out}
    # Of several attempts at a trial the newest usable one counts, as in the analysis.
    counted = usable_trials(records, fit_for(weighing.metric))
    speaks = {record.trial: record for record in counted}
    ordered = sorted(records, key=lambda record: (record.block, record.position, record.attempt))
    shown = []
    for place, record in enumerate(ordered, start=1):
        found, left = measured.get(record.trial), left_out.get(record.trial)
        value = found.value if found is not None and speaks.get(record.trial) is record else None
        why = left.reasons if left is not None and value is None else ()
        label = left.label if left is not None else ""
        level = found.level if found is not None else label or plain_text(record.settings.get(weighing.by, "not named"))
        shown.append(
            ReportRow(
                anchor=f"trial-{place}",
                trial=record.trial,
                level=level,
                block=str(record.block),
                state=record.state,
                twin=record.twin,
                attempt=record.attempt,
                value=value,
                reasons=record.reasons or why,
                metrics=record.metrics,
            )
        )
    stored = {record.trial for record in records}
    alone = [measurement for measurement in weighing.measurements if measurement.trial not in stored]
    shown += [
        ReportRow(f"trial-{place}", one.trial, one.level, one.block or "", "ok", twin=one.twin, value=one.value)
        for place, one in enumerate(alone, start=len(shown) + 1)
    ]
    return [
        replace(each, outlier=outliers[each.trial] or "far from the other trials of its level")
        if each.trial in outliers and each.value is not None
        else each
        for each in shown
    ]


def level_order(weighing: Weighing, shown: Sequence[ReportRow]) -> list[str]:
    """The levels as the report lists them: each baseline before what is compared with it, then any that only ran."""
    compared = [level for each in weighing.comparisons for level in (each.against, each.level)]
    return list(dict.fromkeys([*compared, *weighing.medians, *(each.level for each in shown)]))


def layers_found(records: Sequence[Record], margin: float) -> Waterfall | None:
    """None unless the store holds containers of different layers, and bare metal to compare them with."""
    ours = [record.settings for record in records if record.settings.get("platform") == "runc"]
    made = {str(settings.get(ISOLATION)) for settings in ours}
    if len(made) < 2:
        return None
    from tare.analysis.why.layers import waterfall

    try:
        return waterfall(records, margin=margin)
    except TareError:  # no usable trial of bare metal: there is nothing to stand on
        return None


@dataclass(frozen=True)
class ReportData:
    """One store's findings; `level_hrefs` is in the order of the levels. Without a store there are no series."""

    weighing: Weighing
    shown: Sequence[ReportRow]
    level_hrefs: Mapping[str, str]
    records: Sequence[Record]
    store: Store | None = None
    colours: Mapping[str, int] | None = None  # level -> the number of its colour, where others share the page
    job: str = ""  # the one job that these are of, where the store has several

    @cached_property
    def places(self) -> dict[str, Place]:
        """Level -> its job and its name within it, from the settings of its trials."""
        settings = {record.trial: record.settings for record in self.records}
        held: dict[str, Mapping[str, Any]] = {}
        for each in self.shown:
            if each.trial in settings:
                held.setdefault(each.level, settings[each.trial])
        return places_of(held, self.weighing.by)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Level -> the number of its colour and its shape: the same in every chart of the page."""
        return self.colours or level_numbers(self.weighing, self.places, self.level_hrefs)

    @cached_property
    def answers(self) -> tuple[Answer[Any], ...]:
        """The answers to further questions that the trials can give: what the verbs show, too."""
        found = (_answer(self.store, question) for question in self._questions()) if self.store is not None else ()
        return tuple(answer for answer in found if answer is not None)

    def _questions(self) -> Iterator[Question[Any]]:
        if any(ENERGY in record.metrics for record in self.records):
            yield Energy(by=self.weighing.by)
        if any(str(record.settings.get("tenants", 1)) != "1" for record in self.records):
            yield Tenants()
        if len({record.settings.get(WORKERS) for record in self.records}) > 1:
            yield Loader()

    @cached_property
    def layers(self) -> Waterfall | None:
        """What each layer of the container costs, where they were run."""
        return layers_found(self.records, max((each.margin for each in self.weighing.comparisons), default=0.0))

    def by_job(self) -> list[ReportData]:
        """The same for each job by itself, with its levels called as they are called within it."""
        jobs = grouped(self.level_hrefs, lambda level: self.places[level].job if level in self.places else "")
        if len(jobs) < 2:
            return [self]
        return [self._of_job(job, levels) for job, levels in jobs.items() if job]

    def _of_job(self, job: str, levels: Sequence[str]) -> ReportData:
        names = {level: self.places[level].name for level in levels}
        if len(set(names.values())) < len(names):
            names = {level: level for level in levels}
        weighing = self.weighing
        trials = {each.trial for each in self.shown if each.level in names}

        def ours(found: Iterable[Comparison]) -> tuple[Comparison, ...]:
            return tuple(
                replace(each, level=names[each.level], against=names[each.against])
                for each in found
                if each.level in names and each.against in names
            )

        comparisons = ours(weighing.comparisons)
        bases = {each.against for each in comparisons}
        of_job = replace(
            weighing,
            comparisons=comparisons, tested=ours(weighing.tested), others=ours(weighing.others),
            measurements=tuple(
                replace(each, level=names[each.level]) for each in weighing.measurements if each.level in names
            ),
            medians={names[level]: held for level, held in weighing.medians.items() if level in names},
            phases={names[level]: held for level, held in weighing.phases.items() if level in names},
            against=bases.pop() if len(bases) == 1 else weighing.against,
        )  # fmt: skip
        return ReportData(
            of_job,
            [replace(each, level=names[each.level]) for each in self.shown if each.level in names],
            {names[level]: self.level_hrefs[level] for level in levels},
            [record for record in self.records if record.trial in trials],
            self.store,
            {names[level]: self.numbers[level] for level in levels},
            job,
        )

    @cached_property
    def fleet(self) -> Fleet | None:
        """What the records say about their devices; None where a fleet did not run them, or there is only one."""
        if len({record.settings[DEVICE] for record in self.records if DEVICE in record.settings}) < 2:
            return None
        from tare.analysis.fleet.findings import fleet_of_records
        from tare.analysis.fleet.results import Fleet

        weighing, store = self.weighing, self.store
        by = None if weighing.by in (DEVICE, TYPE) else weighing.by
        channels = (lambda each: store.channels(each.trial, each.attempt)) if store else (lambda each: ())
        margin = max((each.margin for each in weighing.comparisons), default=None)
        try:
            return fleet_of_records(
                [StoreTrials(weighing.study, self.records)], store.study if store else {}, channels, by=by,
                against=weighing.against or None if by else None, margin=margin, metrics=[weighing.metric],
            )  # fmt: skip
        except StudyError:  # no trial is usable: the page says so
            return None
        except ObstacleError as error:  # no scipy: the section says so, and the rest of the report needs none
            return Fleet(weighing.study, {}, margin or 0.0, by, (), (str(error),))

    @cached_property
    def usable(self) -> dict[str, list[Record]]:
        """Level -> its usable records, the newest attempt of each trial, in the order of the levels."""
        level_of = {each.trial: each.level for each in self.shown}
        found = grouped(usable_trials(self.records, repeats=False), lambda record: level_of.get(record.trial))
        return {level: found[level] for level in self.level_hrefs if level in found}

    @property
    def used(self) -> list[Record]:
        """The usable records of all levels."""
        return [record for records in self.usable.values() for record in records]

    def typical(self) -> dict[str, Record]:
        """Level -> the trial in the middle of its level: the one to look at where one must stand for all."""
        metric, chosen = self.weighing.metric, {}
        for level, records in self.usable.items():
            with_it = [record for record in records if metric in record.metrics] or records
            middle = median_low([record.metrics.get(metric, 0.0) for record in with_it])
            chosen[level] = next(record for record in with_it if record.metrics.get(metric, 0.0) == middle)
        return chosen

    def channels(self, record: Record) -> dict[str, Mapping[str, Any]]:
        """Name -> what is known of a channel, with its quantiles."""
        if self.store is None:
            return {}
        return {str(channel["name"]): channel for channel in self.store.channels(record.trial, record.attempt)}


def _answer(store: Store, question: Question[Any]) -> Answer[Any] | None:
    try:
        return question.answer(store)
    except StudyError:  # no trial of it can be used: the page says so
        return None


def level_numbers(weighing: Weighing, places: Mapping[str, Place], levels: Iterable[str]) -> dict[str, int]:
    """Level -> the number of its colour: the same in every job and every chart, 0 for the baselines of the study."""
    names: dict[str, int] = {}
    baselines = {each.against for each in weighing.comparisons} or {weighing.against}
    compared = {each.level for each in weighing.comparisons}
    plain = list(dict.fromkeys(place_of(level, places).name for level in sorted(baselines - compared)))
    # Several baselines (bare metal and a container, each with one core) are told apart; one alone is grey.
    if len(plain) == 1:
        names[plain[0]] = 0
    for level in levels:
        names.setdefault(place_of(level, places).name, len(names) + (0 if 0 in names.values() else 1))
    return {level: level_number(names[place_of(level, places).name]) for level in levels}


def place_of(level: str, places: Mapping[str, Place]) -> Place:
    """The job of a level and its name within it; a level that has no trials is called as it is."""
    return places.get(level) or Place("", level)


@dataclass(frozen=True, slots=True)
class SoftwareLine:
    """One entry of the fingerprint: one value where all levels share it, else one for each level."""

    key: str
    shared: str
    apart: tuple[tuple[str, str], ...]  # (level, value)


def software_lines(shown: Sequence[ReportRow], records: Sequence[Record]) -> list[SoftwareLine]:
    """The fingerprint of the first trial of each level; what differs comes first."""
    prints = _fingerprints(shown, records)
    lines = []
    for key in dict.fromkeys(key for found in prints.values() for key in found):
        values = {level: found.get(key, "none") for level, found in prints.items()}
        shared, *others = dict.fromkeys(values.values())
        lines.append(SoftwareLine(key, "", tuple(values.items())) if others else SoftwareLine(key, shared, ()))
    return sorted(lines, key=lambda line: not line.apart)


def parity_sentence(weighing: Weighing, shown: Sequence[ReportRow], records: Sequence[Record]) -> str:
    """Whether the sides ran the same software, as far as it is known."""
    if any(each.ours is None or each.theirs is None for each in weighing.comparisons):
        return "One side has no usable trial, so nothing is known of what the sides share."
    if any(each.tainted for each in weighing.comparisons) or any(each.matters for each in weighing.differences):
        return "The sides differ in more than the level: the effect cannot be blamed on it alone."
    fingerprinted = _fingerprints(shown, records)
    wanted = {level for each in weighing.comparisons for level in (each.against, each.level)}
    if not weighing.comparisons or not wanted <= fingerprinted.keys():
        return "Not every side left a software fingerprint, so it is not known whether they ran the same software."
    return "No difference that matters was found between the software of the sides."


def _fingerprints(shown: Sequence[ReportRow], records: Sequence[Record]) -> dict[str, dict[str, str]]:
    inside = {record.trial: record.facts.get("inside") for record in records}
    prints: dict[str, dict[str, str]] = {}
    for each in shown:
        found = inside.get(each.trial)
        if each.level not in prints and isinstance(found, Mapping) and found:
            prints[each.level] = dict(flat_pairs(found))
    return prints
