"""The commonest call graphs of a block event, by task (S2, Table 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tare.analysis.kernel.model import Cell, Column, Section, Traced, at_least, by_label

PROBE, TABLE = "perf", "callgraphs"
MOST = 5

COLUMNS = (
    Column("cell", "where"),
    Column("event", "event"),
    Column("role", "role"),
    Column("comm", "task"),
    Column("share", "share", "share"),
    Column("count", "count", "count"),
    Column("stack", "call graph", "stack"),
)


def section(trials: Sequence[Traced], most: int = MOST) -> Section | None:
    """Of each cell the `most` call graphs with the most events, outermost function first."""
    recorded = [trial for trial in trials if trial.table(PROBE, TABLE) is not None]
    if not recorded:
        return None
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        counts = _counted(group)
        totals = Counter[str]()
        for (event, *_), count in counts.items():
            totals[event] += count
        for event in totals:
            ranked = sorted(((key, n) for key, n in counts.items() if key[0] == event), key=lambda item: -item[1])
            rows += [_row(label, key, count, totals[event]) for key, count in ranked[:most]]
    return Section("callgraphs", "Call graphs of block events", COLUMNS, tuple(rows), tuple(at_least(recorded, PROBE)))


def _counted(group: Sequence[Traced]) -> Counter[tuple[str, str, str, str]]:
    found: Counter[tuple[str, str, str, str]] = Counter()
    for trial in group:
        table = trial.table(PROBE, TABLE) or {}
        names = [table[name].tolist() for name in ("event", "role", "comm", "stack", "count")]
        for event, role, comm, stack, count in zip(*names, strict=True):
            found[event, role, task_name(comm), stack] += int(count)
    return found


def task_name(comm: str) -> str:
    """A task for a table: the kernel's workers, of which there are many, by their kind."""
    return comm.partition("/")[0] if comm.startswith(("kworker/", "ksoftirqd/", "migration/")) else comm


def _row(label: str, key: tuple[str, str, str, str], count: int, total: int) -> tuple[Cell, ...]:
    event, role, comm, stack = key
    return label, event, role, comm, count / total, count, stack
