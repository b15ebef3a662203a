"""What sharing the device cost: each tenant against the workload alone, and how fairly the cost was spread."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tare.analysis.compare import compare
from tare.analysis.labels import distinguishing, make_labels, setting_words
from tare.analysis.model import Comparison, Estimate, Measurement
from tare.analysis.numeric.medians import median_estimate
from tare.analysis.observations import HasRecords
from tare.analysis.resources.parts import range_of
from tare.analysis.sections import Answer, Cell, Column, Section, Sentence, Shown, Table, anchor, effect_shown
from tare.analysis.selection import block_of, blocks_reach_s
from tare.analysis.sentences import verdict_phrase
from tare.base.declare import Role
from tare.base.errors import StudyError
from tare.base.text import count_text, duration_text
from tare.records.model import Record, counted_attempts, grouped, is_usable, started_s

METRIC = Role.STEP_MEDIAN.metric
ALONE = "alone"
_TENANT = re.compile(r"tenant(\d+)_step_s")


@dataclass(frozen=True, slots=True)
class Sharing:
    """One level of tenants in one surrounding: who slowed down by how much against the measured workload alone."""

    tenants: str  # the level: "4", or "beside torch_infer"
    where: str  # what else the cell is: "docker", or "" where nothing else is varied
    slowdowns: tuple[Comparison, ...]  # one for each tenant that does the same work; the first is the measured one
    fairness: Estimate | None  # Jain's index over the speeds: 1 is equal, 1/n is one tenant having it all
    overlap_s: Estimate | None


@dataclass(frozen=True, slots=True)
class Tenants:
    """What each tenant of a device is slowed down by the others."""

    margin: float = 0.05

    def answer(self, store: HasRecords) -> Answer[tuple[Sharing, ...]]:
        found = tuple(sharing(store.records(), margin=self.margin))
        measured = [(each, each.slowdowns[0]) for each in found if each.slowdowns]
        effects = [
            shown
            for each, first in measured
            if first.low is not None and (shown := effect_shown(first, _level(each))) is not None
        ]
        return Answer(
            sentence=("Slowdown of the measured workload: ", *range_of(effects), ".") if effects else (),
            result=found,
            contrasts=tuple(first for _, first in measured),
            sections=tuple(
                Section(anchor("tenants", _level(each)), _level(each), partial(_table, each)) for each in found
            ),
        )


def _level(found: Sharing) -> str:
    """`runc, beside fine-tuning on bare metal`; of several of the same kind `runc, 4 tenants`."""
    alike = found.tenants.isdigit()
    tenants = count_text(int(found.tenants), "tenant") if alike else setting_words("tenants", found.tenants)
    return ", ".join(filter(None, (found.where, tenants)))


def _table(found: Sharing) -> Table:
    """One row for each tenant, then how fairly the device was shared."""
    level = _level(found)
    notes: list[Sentence] = []
    rows: list[tuple[Cell, ...]] = []
    for place, each in enumerate(found.slowdowns):
        name = f"{level}, {each.level}" if place else level
        sides = (
            Shown(METRIC, estimate, f"{name}, {side}") if estimate else None
            for side, estimate in (("alone", each.theirs), ("shared", each.ours))
        )
        rows.append((each.level, *sides, effect_shown(each, name), verdict_phrase(each)))
    if not found.slowdowns:
        notes.append(("No usable trial of one tenant alone to compare with.",))
    if found.fairness is not None:
        told = f"Fairness {found.fairness.value:.3f} (Jain's index of the speeds; 1 is equal shares)."
        notes.append((told,))
    if found.overlap_s is not None:
        notes.append((f"All worked at the same time for {duration_text(found.overlap_s.value)} of a trial.",))
    columns = (Column("tenant"), Column("alone"), Column("shared"), Column("slowdown", "interval"), Column("verdict"))
    return Table(columns, tuple(rows), tuple(notes))


def sharing(records: Sequence[Record], *, margin: float = 0.05) -> list[Sharing]:
    """Every level of tenants against one tenant in the same surroundings, paired by block."""
    known = counted_attempts(records)
    usable = [record for record in known if is_usable(record) and METRIC in record.compared]
    found, reach_s = [], blocks_reach_s(usable)
    surroundings = grouped(usable, _surroundings)
    several = [_around(records_here[0]) for records_here in surroundings.values()]
    labels = make_labels(several, distinguishing(several))
    for where, records_here in zip(several, surroundings.values(), strict=True):
        cells = grouped(records_here, lambda record: str(record.settings.get("tenants", 1)))
        alone = cells.get("1", [])
        for level, shared in cells.items():
            if level != "1":
                found.append(_sharing(level, str(labels.words(where)), shared, alone, margin, reach_s))
    if not found:
        raise StudyError(_nothing_shared(known))
    return found


def _nothing_shared(records: Sequence[Record]) -> str:
    """Why there is nothing to say: nobody asked for several tenants, or their trials cannot be used."""
    several = [record for record in records if str(record.settings.get("tenants", 1)) != "1"]
    if not several:
        return "no trial of this store had more than one tenant; `tenants: [1, 4]` in a study requests it."
    count = "1 trial" if len(several) == 1 else f"{len(several)} trials"
    first = several[0]
    ended = str(next(iter(first.reasons), f"it ended as {first.state}"))
    why = f"it has no {METRIC}" if is_usable(first) else ended
    return (
        f"none of this store's {count} with several tenants can be used. {first.trial}: {why.rstrip('.')}. "
        "See `tare show` for how each one ended."
    )


def _sharing(
    level: str, where: str, shared: list[Record], alone: list[Record], margin: float, reach_s: float
) -> Sharing:
    same = level.isdigit()
    numbers = sorted({number for record in shared for number in _step_times(record)}) if same else [0]
    base = [_measured(ALONE, record, record.metrics[METRIC], reach_s) for record in alone]
    theirs = [
        _measured(f"tenant {number}", record, times[number], reach_s)
        for record in shared
        for times in (_step_times(record),)
        for number in numbers
        if number in times
    ]
    slowdowns = tuple(compare(base + theirs, against=ALONE, margin=margin, metric=METRIC)) if base and theirs else ()
    # A twin is the same cell again, for the noise floor: it is no further trial.
    first = [record for record in shared if not record.twin]
    fair = [jain([1 / time for time in times.values()]) for times in map(_step_times, first) if len(times) > 1]
    overlaps = [record.metrics["overlap_s"] for record in first if "overlap_s" in record.metrics]
    return Sharing(
        tenants=level,
        where=where,
        slowdowns=slowdowns,
        fairness=median_estimate(fair) if fair and same else None,
        overlap_s=median_estimate(overlaps) if overlaps else None,
    )


def _measured(level: str, record: Record, value: float, reach_s: float) -> Measurement:
    """As `compare` has it, so that both find the same effect."""
    return Measurement(level, value, block_of(record), record.twin, record.trial, started_s(record), reach_s)


def jain(speeds: Sequence[float]) -> float:
    """Jain's fairness index."""
    values = np.asarray(speeds, dtype=float)
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def _step_times(record: Record) -> dict[int, float]:
    found = {int(match[1]): value for name, value in record.metrics.items() if (match := _TENANT.fullmatch(name))}
    return found or {0: record.metrics[METRIC]}


def _surroundings(record: Record) -> str:
    """Everything about the cell but its tenants, as one key."""
    return json.dumps(_around(record), sort_keys=True, default=str)


def _around(record: Record) -> dict[str, Any]:
    return {key: value for key, value in record.settings.items() if key != "tenants"}
