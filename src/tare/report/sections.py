"""Each trial as the report shows it: its place on the page, its level, and whether its figures are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tare.analysis.fleet.random_effects import Fleet, Quantity
from tare.analysis.model import FlaggedTrial, Measurement, Weighing
from tare.analysis.selection import fit_for
from tare.base.rulings import Ruling
from tare.base.text import metric_name
from tare.records.model import AA_REPEAT, Record
from tare.records.trials import usable_trials
from tare.report.figure import Cell
from tare.report.text.analyse import (
    EFFECT_HEADS,
    MOST_SPREADS,
    SPREAD_HEADS,
    STANDING_HEADS,
    could_see,
    effect_rows,
    effect_title,
    fleet_notes,
    population_sentence,
    spread_rows,
    spread_title,
    standing_row,
)
from tare.report.text.trials import flat_pairs, plain_text


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
        shown.append(
            ReportRow(
                anchor=f"trial-{place}",
                trial=record.trial,
                level=_level(record, weighing.by, found, left),
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


def _level(record: Record, by: str, measured: Measurement | None, left: FlaggedTrial | None) -> str:
    if measured is not None:
        return measured.level
    return left.label if left is not None and left.label else plain_text(record.settings.get(by, "not named"))


@dataclass(frozen=True, slots=True)
class SoftwareLine:
    """One entry of the fingerprint: one value where all levels share it, else one for each level."""

    key: str
    shared: str
    apart: tuple[tuple[str, str], ...]  # (level, value)


def software_lines(shown: Sequence[ReportRow], records: Sequence[Record]) -> list[SoftwareLine]:
    """The fingerprint of the first trial of each level; what differs comes first."""
    prints = _fingerprints(shown, records)
    keys = dict.fromkeys(key for found in prints.values() for key in found)
    lines = [_line(key, {level: found.get(key, "none") for level, found in prints.items()}) for key in keys]
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


def _line(key: str, values: Mapping[str, str]) -> SoftwareLine:
    if len(set(values.values())) == 1:
        return SoftwareLine(key, next(iter(values.values())), ())
    return SoftwareLine(key, "", tuple(values.items()))


_NUMERIC = frozenset({"effect", "95 % interval", "blocks", "groups", "deviation", "of the variance", "trials",
                      "from the others", "its own"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class DevicesSection:
    """What holds for devices, and which is an outlier among identical devices."""

    sentences: tuple[str, ...]
    sheets: tuple[Sheet, ...]


def devices_section(found: Fleet) -> DevicesSection:
    """The headline figure's; `tare analyse devices` has the others."""
    told: list[str] = []
    sheets: list[Sheet] = []
    for quantity in found.quantities:
        told += [each.sentence for each in quantity.odd]  # a name stays as it is written
        for effect in quantity.effects:
            told += [_title(f"{effect_title(effect)}: {population_sentence(each)}") for each in effect.populations]
        told += [*could_see(quantity), *fleet_notes(quantity)]
        sheets += _sheets(quantity)
    return DevicesSection((*told, *found.notes), tuple(sheets))


def _sheets(quantity: Quantity) -> list[Sheet]:
    name = metric_name(quantity.metric)
    made = [_sheet(f"{name}: {effect_title(each)}", EFFECT_HEADS, effect_rows(each)) for each in quantity.effects]
    rows = [standing_row(each) for each in quantity.standings]
    made.append(_sheet(f"{name}: each device among identical devices", STANDING_HEADS, rows))
    for spread in quantity.spreads[:MOST_SPREADS]:
        made.append(_sheet(f"{name}: {spread_title(spread)}", SPREAD_HEADS, spread_rows(spread)))
    return made


def _sheet(title: str, headers: tuple[str, ...], rows: Iterable[Sequence[str]]) -> Sheet:
    return Sheet(
        _title(title),
        headers,
        tuple(
            tuple(Cell(text, numeric=head in _NUMERIC) for head, text in zip(headers, row, strict=True)) for row in rows
        ),
    )


def _title(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
