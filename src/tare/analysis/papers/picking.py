"""From the trials of a study on one machine to the two sides of a row, or in words why there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any, TypeAlias

from tare.analysis.beside.figures import WRITE_BACKS
from tare.analysis.cells import Cells, cells
from tare.analysis.compare import Contest, contests
from tare.analysis.model import Measurement
from tare.analysis.papers.levels import ABSENT, called, is_at, is_number, level_run
from tare.analysis.papers.machines import Held, Machine
from tare.analysis.papers.missing import (
    BETWEEN_WRITE_BACKS,
    missing_figure,
    missing_level,
    not_run,
    nothing_to_share,
    only_levels,
)
from tare.analysis.papers.model import Change, Scalar, Value, Within
from tare.analysis.storage import CACHE, EMULATED
from tare.analysis.trials import measurements
from tare.records.attempts import newest_usable
from tare.records.model import USABLE, Record

Measured: TypeAlias = Change | Within | Value


@dataclass(frozen=True)
class Picked:
    """What one row compares in one store: two sides, or the values of one."""

    held: Held
    metric: str
    names: tuple[str, ...]  # of the sides, as people call them
    records: tuple[Record, ...]
    around: str = ""  # what tells it from others that the row could mean as well
    contest: Contest | None = None
    values: tuple[tuple[float, ...], ...] = ()  # of each name, where there is no contest
    zeros: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # name -> trials with nothing, of how many
    by: str = ""  # the factor whose levels are the sides
    about: tuple[str, ...] = ()  # the settings that the row itself names
    figures: tuple[str, ...] = ()  # of the trials, that it is made of
    told: tuple[str, ...] = ()  # what else to know: levels that are a second choice, trials that lack the figure

    @property
    def key(self) -> tuple[object, ...]:
        """Rows that compare the very same trials have the same."""
        return self.held.name, self.metric, *self._sides

    @property
    def pair(self) -> frozenset[object]:
        """Rows that compare them the other way round have the same, too."""
        return frozenset(self._sides)

    @property
    def _sides(self) -> tuple[object, ...]:
        if self.contest is None:
            return ()
        sides = {self.contest.level: self.contest.ours, self.contest.against: self.contest.theirs}
        return tuple((name, *(one.trial for one in side)) for name, side in sides.items())


def pick(question: Measured, machine: Machine) -> list[Picked] | str:
    """Everything that the question can mean on this machine, the first being meant; or why it means nothing."""
    stores = machine.of(question.study)
    why = not_run(machine, question.study)
    for held in stores:
        found = _pick(question, held)
        if not isinstance(found, str):
            return found
        why = found
    return why


def is_set_by_any(question: Measured, machine: Machine) -> bool:
    """Whether any trial sets what the question compares by; what asks for no such thing needs none."""
    if not isinstance(question, Change):
        return True
    records = [record for held in machine.of(question.study) for record in held.records]
    return any(record.settings.get(question.by) is not None for record in records)


def _pick(question: Measured, held: Held) -> list[Picked] | str:
    usable = [record for record in held.records if record.state in USABLE]
    if not usable:
        return f"no trial of {held.study} ended well"
    where = question.where.get("platform")
    if where is not None and level_run(usable, "platform", where) is ABSENT:
        return missing_level(held, "platform", where)
    if isinstance(question, Change) and all(record.settings.get(question.by) is None for record in usable):
        return only_levels(held, question.by, [])
    records: Sequence[Record] = usable
    second: dict[str, Any] = {}  # settings whose first choice was not run -> the level that was
    for name, levels in question.where.items():
        level = level_run(records, name, levels)
        if level is ABSENT:
            return missing_level(held, name, levels)
        if level_run(records, name, levels[:1]) is ABSENT:
            second[name] = level
        records = [record for record in records if is_at(record, name, level)]
    metric = next((name for name in question.metric if any(name in record.compared for record in records)), None)
    if metric is None:
        return missing_figure(held, question.metric[0], records)
    found = _sides(question, held, records, metric)
    if isinstance(found, str):
        return found
    figures = (metric, *question.figures[len(question.metric) :])
    about = _about(question, second)
    return [replace(each, about=about, figures=figures, told=_told(each, second, records)) for each in found]


@singledispatch
def _sides(question: object, held: Held, records: Sequence[Record], metric: str) -> list[Picked] | str:
    raise TypeError(f"{question!r} is no question to a store")


@_sides.register
def _(question: Change, held: Held, records: Sequence[Record], metric: str) -> list[Picked] | str:
    having = [record for record in records if record.settings.get(question.by) is not None]
    label = cells(having, question.by)
    used = newest_usable(having, lambda record: _has(record, metric))
    made = []
    for around, group in _grouped(used, label.surroundings).items():
        levels = [level_run(group, question.by, wanted) for wanted in (question.start, question.end)]
        if ABSENT in levels or levels[0] == levels[1]:
            continue
        made.append(_change(question, held, _at_levels(group, question.by, label, levels), label, metric, around))
    run = [record.settings[question.by] for record in having]
    return made or only_levels(held, question.by, run)


def _change(
    question: Change, held: Held, sides: tuple[list[Record], list[Record]], label: Cells, metric: str, around: str
) -> Picked:
    start, end = sides
    both = (*start, *end)
    names = [label.label(side[0]) for side in sides]
    shown = tuple(called(question.by, side[0].settings[question.by]) for side in sides)
    picked = Picked(held, metric, shown, both, around, by=question.by)
    values = [tuple(record.compared[metric] for record in side if not record.twin) for side in sides]
    if all(values) and _any_zero(values):
        return _without_ratio(picked, values)
    told = [record for record in both if _positive(record, metric)]  # a twin with nothing does not tell the noise
    (contest,) = contests(measurements(told, label, metric), names[0], levels=names)
    return replace(picked, contest=contest)


def _any_zero(values: Sequence[Sequence[float]]) -> bool:
    return any(value <= 0 for side in values for value in side)


def _without_ratio(picked: Picked, values: Sequence[tuple[float, ...]]) -> Picked:
    """The values of both sides alone: without the trials that have nothing, a ratio would be of the others only."""
    named = zip(picked.names, values, strict=True)
    zeros = {name: (sum(value <= 0 for value in side), len(side)) for name, side in named}
    return replace(picked, values=tuple(values), zeros={name: count for name, count in zeros.items() if count[0]})


def _about(question: Measured, second: Collection[str]) -> tuple[str, ...]:
    """The settings that the row itself names; an emulated medium and the state of the cache are told all the same."""
    by = (question.by,) if isinstance(question, Change) else ()
    named = [name for name in question.where if name not in second and name != CACHE]
    return tuple(name for name in (*by, *named) if name != EMULATED)


def _told(picked: Picked, second: Mapping[str, Any], records: Sequence[Record]) -> tuple[str, ...]:
    """`2 workers`, where the row would have four; and how many trials are not among those that it compares."""
    levels = [called(name, level) for name, level in second.items() if is_number(level)]
    return (*levels, *_too_few(picked, records))


def _too_few(picked: Picked, records: Sequence[Record]) -> list[str]:
    """`2 of 12 trials had too few write-backs for an interval`: one alone has none to the next."""
    if not picked.metric.startswith(BETWEEN_WRITE_BACKS):
        return []
    traced = [record for record in records if WRITE_BACKS in record.metrics and not record.twin]
    of_the_row = [record.settings for record in picked.records]
    asked = {record.trial for record in traced if record.settings in of_the_row}
    lacking = asked - {record.trial for record in picked.records}
    return [f"{len(lacking)} of {len(asked)} trials had too few write-backs for an interval"] if lacking else []


def _at_levels(
    group: Sequence[Record], by: str, label: Cells, levels: Sequence[Scalar]
) -> tuple[list[Record], list[Record]]:
    """The trials of both levels; of a level that was run in several ways, of its first."""
    found = []
    for level in levels:
        having = [record for record in group if is_at(record, by, level)]
        first = label.level(having[0])
        found.append([record for record in having if label.level(record) == first])
    return found[0], found[1]


@_sides.register
def _(question: Within, held: Held, records: Sequence[Record], metric: str) -> list[Picked] | str:
    names = (question.than, metric)
    having = _speaking(records, lambda record: all(_has(record, name) for name in names))
    if not having:
        return missing_figure(held, question.than, records)
    made = []
    for around, group in _by_cell(having).items():
        picked = Picked(held, metric, names, tuple(group), around)
        values = [tuple(record.compared[name] for record in group) for name in names]
        made.append(_without_ratio(picked, values) if _any_zero(values) else replace(picked, contest=_within(picked)))
    return made


def _within(picked: Picked) -> Contest:
    theirs, ours = (
        [Measurement(name, record.compared[name], str(record.block), trial=record.trial) for record in picked.records]
        for name in picked.names
    )
    return Contest(picked.names[1], picked.names[0], ours, theirs)


@_sides.register
def _(question: Value, held: Held, records: Sequence[Record], metric: str) -> list[Picked] | str:
    whole = question.part_of
    having = _speaking(records, lambda record: _has(record, metric) and (whole is None or _has(record, whole)))
    if not having:
        return missing_figure(held, whole or metric, records)
    if whole is not None and not any(_positive(record, whole) for record in having):
        return nothing_to_share(held, whole, having)
    groups = [(around, group, _shares(group, metric, whole)) for around, group in _by_cell(having).items()]
    called_as = metric if whole is None else f"{metric.rpartition('_')[0]}_share"
    return [
        Picked(
            held, called_as, (whole or "",), tuple(group), around,
            values=(values,), zeros=_without(whole, group, values),
        )
        for around, group, values in groups
        if values
    ]  # fmt: skip


def _shares(group: Sequence[Record], metric: str, whole: str | None) -> tuple[float, ...]:
    """The figure of each trial, or its share in another; where there is nothing, nothing has a share in it."""
    if whole is None:
        return tuple(record.compared[metric] for record in group)
    return tuple(record.compared[metric] / record.compared[whole] for record in group if _positive(record, whole))


def _without(whole: str | None, group: Sequence[Record], values: Sequence[float]) -> dict[str, tuple[int, int]]:
    lacking = len(group) - len(values)
    return {whole: (lacking, len(group))} if whole is not None and lacking else {}


def _by_cell(records: Sequence[Record]) -> dict[str, list[Record]]:
    return _grouped(records, cells(records, "platform").label)


def _grouped(records: Sequence[Record], key: Callable[[Record], str]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found if len(found) > 1 else {"": list(records)}


def _speaking(records: Sequence[Record], may_speak: Callable[[Record], bool]) -> list[Record]:
    """The attempt that speaks for each trial; no twins, which only tell the noise."""
    return newest_usable((record for record in records if not record.twin), may_speak)


def _has(record: Record, metric: str) -> bool:
    return math.isfinite(record.compared.get(metric, math.nan))


def _positive(record: Record, metric: str) -> bool:
    return record.compared.get(metric, 0.0) > 0
