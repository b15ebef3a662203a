"""What figures are made from: the findings, the trials behind them, and their series where there is a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING, Any

from tare.analysis.model import Weighing
from tare.records.model import USABLE, Record
from tare.report.shown import Shown

if TYPE_CHECKING:
    from tare.records.store import Store


@dataclass(frozen=True)
class Evidence:
    """One store's findings; `level_hrefs` is in the order of the levels. Without a store there are no series."""

    weighing: Weighing
    shown: Sequence[Shown]
    level_hrefs: Mapping[str, str]
    records: Sequence[Record]
    store: Store | None = None

    def usable(self) -> dict[str, list[Record]]:
        """Level -> its usable records, the newest attempt of each trial, in the order of the levels."""
        level_of = {each.trial: each.level for each in self.shown}
        newest = {record.trial: record for record in self.records if record.state in USABLE and not record.twin}
        held: dict[str, list[Record]] = {level: [] for level in self.level_hrefs}
        for record in newest.values():
            if (level := level_of.get(record.trial)) in held:
                held[level].append(record)
        return {level: records for level, records in held.items() if records}

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
