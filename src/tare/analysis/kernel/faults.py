"""Page faults by task, file, location and cause (S2, Table 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from tare.analysis.kernel.model import (
    STAGES,
    Cell,
    Column,
    Columns,
    Section,
    TrialTraces,
    at_least,
    by_label,
    stages_of,
)
from tare.traces.perf import CAUSES

PROBE, TABLE = "perf", "faults"
MOST = 10
OURS = "tare"  # what recording them faulted in itself

KEYS = ("comm", "file", "function", "cause")
COLUMNS = (
    Column("cell", "where"),
    Column("comm", "task"),
    Column("file", "file"),
    Column("function", "location"),
    Column("cause", "cause"),
    Column("count", "faults", "count"),
    Column("share", "share", "share"),
)
CAUSE_COLUMNS = (
    Column("cell", "where"),
    Column("role", "role"),
    Column("stage", "stage"),
    *(Column(cause.replace(" ", "_"), cause, "count") for cause in CAUSES),
    Column("faults", "faults", "count"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where faults came from: so many of them, and their share of all."""

    comm: str
    file: str
    function: str
    cause: str
    count: int
    share: float


def places(counted: Mapping[tuple[str, str, str, str], int]) -> tuple[Place, ...]:
    """Faults by task, file, location and cause, the most frequent first; how many there are of each is given."""
    total = sum(counted.values())
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Place(*key, count, count / total) for key, count in ranked)


def section(trials: Sequence[TrialTraces], most: int = MOST) -> Section | None:
    """Of each cell the `most` places with most faults; shares of all faults but those of tare's own."""
    recorded = _recorded(trials)
    if not recorded:
        return None
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        found = places(Counter(zip(*_joined(group), strict=True)))
        rows += [(label, *astuple(place)) for place in found[:most]]
        rows.append((label, "", "", f"the first {min(most, len(found))}", "", *_sum(found[:most])))
    notes = (*at_least(recorded, PROBE), "faults of tare's own processes are left out.")
    return Section("faults", "Page faults by task, file, location and cause", COLUMNS, tuple(rows), notes)


def causes(trials: Sequence[TrialTraces]) -> Section | None:
    """Faults by role, stage and cause: medians over trials."""
    recorded = _recorded(trials)
    if not recorded:
        return None
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        counted = [_by_stage(trial) for trial in group]
        keys = dict.fromkeys(key for one in counted for key in one)
        for role, stage in sorted(keys, key=lambda key: (key[0], STAGES.index(key[1]))):
            found = [one.get((role, stage), {}) for one in counted]
            numbers = [round(float(np.median([each.get(cause, 0) for each in found]))) for cause in CAUSES]
            rows.append((label, role, stage, *numbers, sum(numbers)))
    return Section("fault_causes", "Page faults by cause", CAUSE_COLUMNS, tuple(rows), tuple(at_least(recorded, PROBE)))


def _recorded(trials: Sequence[TrialTraces]) -> list[TrialTraces]:
    return [trial for trial in trials if trial.table(PROBE, TABLE) is not None]


def _joined(group: Sequence[TrialTraces]) -> list[list[str]]:
    """The columns that tell places apart, over the trials of one cell."""
    tables = [_not_ours(trial.table(PROBE, TABLE) or {}) for trial in group]
    return [[str(value) for table in tables for value in table[key].tolist()] for key in KEYS]


def _not_ours(table: Columns) -> Columns:
    chosen = np.asarray(table["role"], dtype=str) != OURS
    return {name: values[chosen] for name, values in table.items()}


def _sum(found: Sequence[Place]) -> tuple[int, float]:
    return sum(place.count for place in found), sum(place.share for place in found)


def _by_stage(trial: TrialTraces) -> dict[tuple[str, str], dict[str, int]]:
    table = _not_ours(trial.table(PROBE, TABLE) or {})
    stage = stages_of(trial.marks, trial.record.start_ns).at(table["t_ns"])
    found: dict[tuple[str, str], dict[str, int]] = {}
    for role, where, cause in zip(table["role"].tolist(), stage.tolist(), table["cause"].tolist(), strict=True):
        sums = found.setdefault((role, where), {})
        sums[cause] = sums.get(cause, 0) + 1
    return found
