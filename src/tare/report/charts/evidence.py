"""What figures are made from: the findings, the trials behind them, and their series where there is a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median_low
from typing import TYPE_CHECKING, Any

from tare.analysis.model import Comparison, Weighing
from tare.analysis.work import Place, places_of
from tare.base.errors import StudyError
from tare.records.model import Record
from tare.records.trials import DEVICE, TYPE, StoreTrials, grouped, usable_trials
from tare.report.panels import level_numbers
from tare.report.sections import ReportRow

if TYPE_CHECKING:
    from tare.analysis.fleet.random_effects import Fleet
    from tare.records.store import Store


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

    def usable(self) -> dict[str, list[Record]]:
        """Level -> its usable records, the newest attempt of each trial, in the order of the levels."""
        level_of = {each.trial: each.level for each in self.shown}
        found = grouped(usable_trials(self.records, repeats=False), lambda record: level_of.get(record.trial))
        return {level: found[level] for level in self.level_hrefs if level in found}

    def typical(self) -> dict[str, Record]:
        """Level -> the trial in the middle of its level: the one to look at where one must stand for all."""
        metric, chosen = self.weighing.metric, {}
        for level, records in self.usable().items():
            with_it = [record for record in records if metric in record.metrics] or records
            middle = median_low([record.metrics.get(metric, 0.0) for record in with_it])
            chosen[level] = next(record for record in with_it if record.metrics.get(metric, 0.0) == middle)
        return chosen

    def channels(self, record: Record) -> dict[str, Mapping[str, Any]]:
        """Name -> what is known of a channel, with its quantiles."""
        if self.store is None:
            return {}
        return {str(channel["name"]): channel for channel in self.store.channels(record.trial, record.attempt)}
