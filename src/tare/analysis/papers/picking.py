"""From the trials of a study on one machine to the two sides of a row, or in words why there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any, TypeAlias

from tare.analysis.cells import Cells, cells, text
from tare.analysis.compare import Contest, contests
from tare.analysis.model import Measurement
from tare.analysis.papers.machines import Held, Machine
from tare.analysis.papers.missing import missing_figure, missing_level, not_run, nothing_to_share, only_levels
from tare.analysis.papers.model import Change, Scalar, Value, Within
from tare.analysis.trials import measurements
from tare.records.attempts import newest_usable
from tare.records.model import USABLE, Record

Measured: TypeAlias = Change | Within | Value
LEAST, MOST = "least", "most"
_CALLED: Mapping[tuple[str, Any], str] = {  # the name of a setting, and its value where that is a word of its own
    ("gpu_mhz", None): "GPU {} MHz", ("cpu_mhz", None): "CPU {} MHz", ("mem_mhz", None): "memory {} MHz",
    ("cores", None): "{} cores", ("cores", 1): "1 core", ("workers", None): "{} workers", ("workers", 1): "1 worker",
    ("items", None): "{} items", ("tenants", None): "{} tenants", ("tenants", 1): "1 tenant",
    ("leave_idle", None): "{} idle", ("pin", False): "vanilla", ("pin", True): "pinned",
    ("seccomp", False): "without seccomp", ("seccomp", True): "with seccomp",
}  # fmt: skip
_EMULATED, _CACHE = "control.storage.emulate", "control.page_cache.state"
ABSENT = object()  # no level at all: null is one, of a setting that was left alone
_PLAIN = ("platform", "workload", "model", "mode", "emulate", "device", "state")  # levels that say what they are


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

    @property
    def key(self) -> tuple[object, ...]:
        """Rows that compare the very same trials have the same."""
        if self.contest is None:
            return self.held.name, self.metric
        sides = [tuple(one.trial for one in side) for side in (self.contest.ours, self.contest.theirs)]
        return self.held.name, self.metric, self.contest.level, self.contest.against, *sides


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


def _pick(question: Measured, held: Held) -> list[Picked] | str:
    usable = [record for record in held.records if record.state in USABLE]
    if not usable:
        return f"no trial of {held.study} ended well"
    if isinstance(question, Change) and all(record.settings.get(question.by) is None for record in usable):
        return only_levels(held, question.by, [])
    records: Sequence[Record] = usable
    for name, levels in question.where.items():
        level = _level(records, name, levels)
        if level is ABSENT:
            return missing_level(held, name, levels)
        records = [record for record in records if is_at(record, name, level)]
    metric = next((name for name in question.metric if any(name in record.compared for record in records)), None)
    if metric is None:
        return missing_figure(held, question.metric[0], records)
    return _sides(question, held, records, metric)


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
        levels = [_level(group, question.by, wanted) for wanted in (question.start, question.end)]
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
    picked = Picked(held, metric, shown, both, around, by=question.by, about=_about(question, question.by))
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


def _about(question: Measured, *by: str) -> tuple[str, ...]:
    """The settings that the row itself names; an emulated medium and the state of the cache are told all the same."""
    named = [name for name, levels in question.where.items() if len(levels) == 1 and name != _CACHE]
    return tuple(name for name in (*by, *named) if name != _EMULATED)


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
        picked = Picked(held, metric, names, tuple(group), around, about=_about(question))
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
            values=(values,), zeros=_without(whole, group, values), about=_about(question),
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


def _level(records: Sequence[Record], name: str, wanted: Sequence[Scalar]) -> Any:
    """The first of the wanted levels that was run; ABSENT where none was."""
    run: list[Any] = [record.settings.get(name) for record in records]
    numbers: list[Any] = [value for value in run if _is_number(value)]
    ends: Mapping[Scalar, Any] = {LEAST: min(numbers), MOST: max(numbers)} if numbers else {}
    for level in wanted:
        if level in ends:
            return ends[level]
        if level not in (LEAST, MOST) and any(is_at(record, name, level) for record in records):
            return level
    return ABSENT


def is_at(record: Record, name: str, level: Scalar) -> bool:
    """Whether the trial has this level of a setting: numbers by value, all else as it is written; null: it has none."""
    value = record.settings.get(name)
    if value is None or level is None:
        return value is level
    return bool(value == level) if _is_number(value) and _is_number(level) else text(value) == text(level)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def called(name: str, value: Any) -> str:
    """`docker`, `2 workers`, `GPU 345 MHz`: a level as people call it."""
    last = name.rpartition(".")[2]
    shown = f"{value:g}" if _is_number(value) else text(value)
    if last in _PLAIN or isinstance(value, str):  # as in `beside torch_infer`, where others have a number of tenants
        return shown
    words = _CALLED.get((last, value)) or _CALLED.get((last, None))
    return f"{last} {shown}" if words is None else words.format(shown)
