"""System calls by name: how often, how long and how many failed, in the workload and around it."""

from __future__ import annotations

from collections.abc import Sequence

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

PROBE, TABLE = "syscalls", "syscalls"
MOST = 10
BIN_NS = 100_000_000  # over which the table is summed up (parts/probes/ftrace.py)

COLUMNS = (
    Column("cell", "where"),
    Column("role", "role"),
    Column("name", "system call"),
    Column("count", "calls", "number"),
    Column("per_step", "per mini-batch", "number"),
    Column("total_s", "time", "seconds"),
    Column("max_s", "longest", "seconds"),
    Column("errors", "failed", "number"),
)
STAGE_COLUMNS = (
    Column("cell", "where"),
    Column("role", "role"),
    *(Column(stage.replace(" ", "_"), stage, "number") for stage in STAGES),
    Column("count", "calls", "number"),
)


def section(trials: Sequence[TrialTraces], most: int = MOST) -> Section | None:
    """Of each cell and role the `most` commonest calls: medians over trials."""
    recorded = [trial for trial in trials if trial.table(PROBE, TABLE) is not None]
    if not recorded:
        return None
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        tables = [by_name(trial.table(PROBE, TABLE) or {}) for trial in group]
        steps = [trial.steps for trial in group]
        per_step = float(np.median([each for each in steps if each])) if all(steps) else None
        for role in sorted({role for table in tables for role, _ in table}):
            rows += _of_role(label, role, tables, per_step, most)
    return Section("syscalls", "System calls", COLUMNS, tuple(rows), tuple(at_least(recorded, PROBE)))


def stages(trials: Sequence[TrialTraces]) -> Section | None:
    """Calls by stage; within a tenth of a second they are taken to come evenly."""
    recorded = [trial for trial in trials if trial.table(PROBE, TABLE) is not None]
    if not recorded:
        return None
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        counted = [_by_stage(trial) for trial in group]
        for role in sorted({role for one in counted for role in one}):
            found = [one[role] for one in counted if role in one]
            numbers = [float(np.median([each[stage] for each in found])) for stage in STAGES]
            rows.append((label, role, *numbers, sum(numbers)))
    notes = (*at_least(recorded, PROBE), "split by the share of each tenth of a second that a stage takes.")
    return Section("syscall_stages", "System calls by stage", STAGE_COLUMNS, tuple(rows), notes)


def by_name(table: Columns) -> dict[tuple[str, str], tuple[int, float, float, int]]:
    """(role, name) to count, total_s, max_s and errors over the whole run."""
    found: dict[tuple[str, str], tuple[int, float, float, int]] = {}
    names = ("role", "name", "count", "total_s", "max_s", "errors")
    for role, name, *values in zip(*(table[each].tolist() for each in names), strict=True):
        count, total_s, max_s, errors = found.get((role, name), (0, 0.0, 0.0, 0))
        found[role, name] = (count + values[0], total_s + values[1], max(max_s, values[2]), errors + values[3])
    return found


def _of_role(
    label: str,
    role: str,
    tables: Sequence[dict[tuple[str, str], tuple[int, float, float, int]]],
    steps: float | None,
    most: int,
) -> list[tuple[Cell, ...]]:
    names = dict.fromkeys(name for table in tables for of, name in table if of == role)
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        found = [table.get((role, name), (0, 0.0, 0.0, 0)) for table in tables]
        count, total_s, _, errors = (float(np.median([one[place] for one in found])) for place in range(4))
        longest = max(one[2] for one in found)
        rows.append((label, role, name, count, count / steps if steps else None, total_s, longest, errors))
    return sorted(rows, key=lambda row: -float(row[3] or 0))[:most]


def _by_stage(trial: TrialTraces) -> dict[str, dict[str, float]]:
    table = trial.table(PROBE, TABLE) or {}
    shares = stages_of(trial.marks, trial.record.start_ns).shares(table["t_ns"], BIN_NS)
    roles = np.asarray(table["role"], dtype=str)
    return {
        str(role): {stage: float((shares[stage] * table["count"])[roles == role].sum()) for stage in STAGES}
        for role in np.unique(roles)
    }
