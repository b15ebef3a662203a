"""Each trial as the report shows it: its place on the page, its level, and whether its figures are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tare.analysis.model import Left, Measurement, Weighing
from tare.analysis.trials import why_not
from tare.records.attempts import newest_usable
from tare.records.model import TWIN, Record
from tare.report.listing import plain_text


@dataclass(frozen=True, slots=True)
class Shown:
    """One attempt at one trial."""

    anchor: str  # ours and counted: a trial's own id may hold anything
    trial: str
    level: str
    block: str
    state: str
    twin: int = 0
    attempt: int = 0
    value: float | None = None  # the headline metric, where it is used
    outlier: str = ""  # why it is marked as one
    reasons: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.level} ({TWIN})" if self.twin else self.level


def shown_trials(weighing: Weighing, records: Sequence[Record]) -> list[Shown]:
    """All trials in the order of their blocks; those of a table without a store come from the measurements alone."""
    measured = {measurement.trial: measurement for measurement in weighing.measurements if measurement.trial}
    outliers = {left.trial: " ".join(left.reasons) for left in weighing.outliers if left.trial}
    left_out = {left.trial: left for left in weighing.left_out}
    # Of several attempts at a trial the newest usable one counts, as in the analysis.
    counted = newest_usable(records, lambda record: why_not(record, weighing.metric) is None)
    speaks = {record.trial: record for record in counted}
    ordered = sorted(records, key=lambda record: (record.block, record.position, record.attempt))
    shown = []
    for place, record in enumerate(ordered, start=1):
        found = measured.get(record.trial)
        left = left_out.get(record.trial)
        level = _level(record, weighing.by, found, left)
        value = found.value if found is not None and speaks.get(record.trial) is record else None
        why = left.reasons if left is not None and value is None else ()
        shown.append(_from_record(f"trial-{place}", record, level, value, record.reasons or why))
    stored = {record.trial for record in records}
    alone = [measurement for measurement in weighing.measurements if measurement.trial not in stored]
    shown += [_from_measurement(f"trial-{place}", each) for place, each in enumerate(alone, start=len(shown) + 1)]
    return [_marked(each, outliers) for each in shown]


def level_order(weighing: Weighing, shown: Sequence[Shown]) -> list[str]:
    """The levels as the report lists them: each baseline before what is compared with it, then any that only ran."""
    compared = [level for each in weighing.comparisons for level in (each.against, each.level)]
    return list(dict.fromkeys([*compared, *weighing.medians, *(each.level for each in shown)]))


def _level(record: Record, by: str, measured: Measurement | None, left: Left | None) -> str:
    if measured is not None:
        return measured.level
    return left.label if left is not None and left.label else plain_text(record.settings.get(by, "not named"))


def _from_record(anchor: str, record: Record, level: str, value: float | None, reasons: tuple[str, ...]) -> Shown:
    return Shown(
        anchor=anchor,
        trial=record.trial,
        level=level,
        block=str(record.block),
        state=record.state,
        twin=record.twin,
        attempt=record.attempt,
        value=value,
        reasons=reasons,
        metrics=record.metrics,
    )


def _from_measurement(anchor: str, measured: Measurement) -> Shown:
    block = measured.block if measured.block is not None else ""
    return Shown(anchor, measured.trial, measured.level, block, "ok", twin=measured.twin, value=measured.value)


def _marked(shown: Shown, outliers: Mapping[str, str]) -> Shown:
    if shown.trial not in outliers or shown.value is None:
        return shown
    fields = {name: getattr(shown, name) for name in Shown.__dataclass_fields__}
    return Shown(**{**fields, "outlier": outliers[shown.trial] or "far from the other trials of its level"})
