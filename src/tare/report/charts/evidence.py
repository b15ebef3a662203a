"""What figures are made from: the findings, the trials behind them, and their series where there is a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low
from typing import TYPE_CHECKING, Any

from tare.analysis.model import Weighing
from tare.base.errors import StudyError
from tare.records.model import Record
from tare.records.trials import DEVICE, TYPE, StoreTrials, grouped, usable_trials
from tare.report.sections import ReportRow

if TYPE_CHECKING:
    from tare.analysis.fleet.model import Fleet
    from tare.records.store import Store


@dataclass(frozen=True)
class ReportData:
    """One store's findings; `level_hrefs` is in the order of the levels. Without a store there are no series."""

    weighing: Weighing
    shown: Sequence[ReportRow]
    level_hrefs: Mapping[str, str]
    records: Sequence[Record]
    store: Store | None = None

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
