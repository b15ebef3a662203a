"""A store's records sorted for one question: the factor, its baseline, the metric, and which trials count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tare.analysis.cells import Cells, baseline_level, cells, join, resolve_factor
from tare.analysis.compare import Contest, contests, pick_baseline, unknown_name
from tare.analysis.devices import TYPE
from tare.analysis.fleet.by_type import EACH_DEVICE_ONCE, one_a_device
from tare.analysis.model import Left
from tare.analysis.request import Request
from tare.analysis.trials import Trials, measurements, pick_metric, sort_out
from tare.errors import StudyError
from tare.records.model import Record


@dataclass(frozen=True)
class Scene:
    """A store's records, sorted for one question."""

    asked: Request
    label: Cells
    against: str | None  # None where there is nothing to compare
    metric: str
    records: tuple[Record, ...]  # those that have the factor
    trials: Trials


def scene_of(records: Sequence[Record], asked: Request) -> Scene:
    """Levels come from every record, usable or not: a level whose trials all failed must not vanish."""
    by = resolve_factor(records, asked.by) if records else asked.by
    having = tuple(record for record in records if by in record.settings)
    label = cells(having, by)
    metric = pick_metric(having, asked.metric, asked.its_metric)
    trials = sort_out(having, label, metric)
    without = tuple(
        Left(record.trial, "", record.block, record.state, (f"it has no {by}.",))
        for record in records
        if by not in record.settings
    )
    trials = replace(trials, left_out=(*trials.left_out, *without))
    return Scene(replace(asked, by=by), label, _baseline(having, label, asked), metric, having, trials)


def _baseline(records: Sequence[Record], label: Cells, asked: Request) -> str | None:
    """The level to compare against, or None where there is nothing to compare yet."""
    levels = list(dict.fromkeys(label.level(record) for record in records))
    if asked.against is None:
        return pick_baseline(levels, None) if len(levels) > 1 else None
    base = baseline_level(records, label, asked.against)
    if asked.named and base not in levels and levels:
        raise StudyError(unknown_name("level", base, levels))
    # A baseline that the study declares and that has not run yet stays the baseline: the words will say so.
    return base if len({*levels, base}) > 1 and levels else None


def family_of(scene: Scene, metric: str, used: Sequence[Record]) -> list[Contest]:
    """Every level against the baseline, within equal settings of all other factors: one family."""
    if scene.against is None:
        return []
    levels: dict[str, dict[str, None]] = {}  # a dict as a set that keeps the order
    here: dict[str, list[Record]] = {}
    for record in scene.records:
        levels.setdefault(scene.label.surroundings(record), {})[scene.label.label(record)] = None
    for record in used:
        here.setdefault(scene.label.surroundings(record), []).append(record)
    family: list[Contest] = []
    for around, names in levels.items():
        figures = measurements(here.get(around, []), scene.label, metric)
        notes: tuple[str, ...] = ()
        if scene.label.by == TYPE:  # the devices are the sample: their trials are not pooled (faults.md I8)
            figures, notes = one_a_device(here.get(around, []), scene.label, metric), (EACH_DEVICE_ONCE,)
        family += contests(figures, join(scene.against, around), notes, levels=list(names))
    # A study runs one cell twice; what that shows of the noise holds for the cells that were not.
    known = max((each.floor for each in family if each.floor is not None), default=None)
    return [each if each.floor is not None else replace(each, floor=known) for each in family]
