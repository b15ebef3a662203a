"""Counters of the container's process, the engine's daemons and the host's process, side by side (S2, Table 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from tare.analysis.compare import Contest, judge
from tare.analysis.kernel.model import Cell, Column, Columns, Section, TrialTraces, at_least, baseline_of, by_label
from tare.analysis.model import Comparison, Measurement
from tare.analysis.statistics import FLOOR
from tare.records.intervals import coded

PROBE, TABLE = "perf", "counters"
WORKLOAD, DAEMON = "workload", "daemon"
_LEAST_RUNNING = 0.999  # below this share of the time, a counter took turns with others
_MARGIN = 0.1

COLUMNS = (
    Column("cell", "where"),
    Column("event", "event"),
    Column("workload", "process", "number"),
    Column("daemon", "daemons", "number"),
    Column("host_process", "host process", "number"),
    Column("ratio", "ratio", "ratio"),
    Column("low", "from", "ratio"),
    Column("high", "to", "ratio"),
    Column("trials", "trials", "count"),
)


def section(trials: Sequence[TrialTraces]) -> Section | None:
    """Medians over trials, per mini-batch where steps were marked; the ratio is the process against bare metal's."""
    counted = [trial for trial in trials if trial.table(PROBE, TABLE) is not None]
    if not counted:
        return None
    figures = {trial.record.trial: scaled_counts(trial.table(PROBE, TABLE) or {}) for trial in counted}
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(counted).items():
        base = baseline_of(group[0], counted)
        theirs = [] if base is None or base == label else [trial for trial in counted if trial.label == base]
        events = list(dict.fromkeys(event for trial in group for _, event in figures[trial.record.trial]))
        rows += [_row(label, event, group, theirs, figures) for event in events]
    return Section("counters", _title(counted), COLUMNS, tuple(rows), tuple(_notes(counted)))


def scaled_counts(table: Columns) -> dict[tuple[str, str], float]:
    """(role, event) to its count, scaled up where the counter ran for a part of the time only."""
    found: dict[tuple[str, str], float] = {}
    (roles, role), (events, event) = (coded(table, name) for name in ("role", "event"))
    for name in sorted(roles, key=str):
        of_role = role == roles.index(name)
        for number in dict.fromkeys(event[of_role].tolist()):
            mine = of_role & (event == number)
            enabled, running = table["time_enabled"][mine].sum(), table["time_running"][mine].sum()
            if running > 0:
                found[name, events[number]] = float(table["count"][mine].sum()) * float(enabled / running)
    return found


def _row(
    label: str,
    event: str,
    group: Sequence[TrialTraces],
    theirs: Sequence[TrialTraces],
    figures: dict[str, dict[tuple[str, str], float]],
) -> tuple[Cell, ...]:
    ours, daemon = _values(group, figures, WORKLOAD, event), _values(group, figures, DAEMON, event)
    host = _values(theirs, figures, WORKLOAD, event)
    found = _compared(event, ours, host)
    middle, reference = _median(ours), _median(host)
    ratio = middle / reference if middle is not None and reference else None
    low, high = (None, None) if found is None or found.low is None or found.high is None else (found.low, found.high)
    return (
        label,
        event,
        middle,
        _median(daemon),
        reference,
        ratio,
        None if low is None else 1 + low,
        None if high is None else 1 + high,
        len(group),
    )


def _values(
    group: Iterable[TrialTraces], figures: dict[str, dict[tuple[str, str], float]], role: str, event: str
) -> list[Measurement]:
    return [
        Measurement(trial.label, value / (trial.steps or 1), str(trial.record.block), trial=trial.record.trial)
        for trial in group
        if (value := figures[trial.record.trial].get((role, event))) is not None
    ]


def _median(values: Sequence[Measurement]) -> float | None:
    return float(np.median([one.value for one in values])) if values else None


def _compared(event: str, ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Comparison | None:
    """The ratio's interval, where both sides have trials enough and none counted nothing."""
    if min(len(ours), len(theirs)) < FLOOR or any(one.value <= 0 for one in (*ours, *theirs)):
        return None
    (found,) = judge([Contest("process", "host", list(ours), list(theirs))], margin=_MARGIN, metric=event, resamples=0)
    return found


def _title(trials: Sequence[TrialTraces]) -> str:
    per = "per mini-batch" if all(trial.steps for trial in trials) else "of the whole run"
    return f"Counters {per}: the process in its platform, the engine's daemons, the same process on bare metal"


def _notes(trials: Sequence[TrialTraces]) -> list[str]:
    notes = at_least(trials, PROBE)
    shared = sorted({event for trial in trials for event in _took_turns(trial.table(PROBE, TABLE) or {})})
    if shared:
        notes.append(f"{', '.join(shared)}: counted for a part of the time (counters took turns), and scaled up.")
    if not any("cycles" in _events(trial) for trial in trials):
        notes.append("no hardware counters: this CPU, or the machine that it is a guest of, offers none.")
    return notes


def _took_turns(table: Columns) -> set[str]:
    if not table:
        return set()
    partial = table["time_running"] < table["time_enabled"] * _LEAST_RUNNING
    return set(np.asarray(table["event"], dtype=str)[partial].tolist())


def _events(trial: TrialTraces) -> str:
    table = trial.table(PROBE, TABLE) or {}
    return " ".join(dict.fromkeys(np.asarray(table["event"], dtype=str).tolist())) if table else ""


CALLGRAPH_PROBE, CALLGRAPH_TABLE = "perf", "callgraphs"
MOST = 5

CALLGRAPH_COLUMNS = (
    Column("cell", "where"),
    Column("event", "event"),
    Column("role", "role"),
    Column("comm", "task"),
    Column("share", "share", "share"),
    Column("count", "count", "count"),
    Column("stack", "call graph", "stack"),
)


def callgraphs(trials: Sequence[TrialTraces], most: int = MOST) -> Section | None:
    """Of each cell the `most` call graphs with the most events, outermost function first."""
    recorded = [trial for trial in trials if trial.table(CALLGRAPH_PROBE, CALLGRAPH_TABLE) is not None]
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
            rows += [_callgraphs_row(label, key, count, totals[event]) for key, count in ranked[:most]]
    return Section(
        "callgraphs",
        "Call graphs of block events",
        CALLGRAPH_COLUMNS,
        tuple(rows),
        tuple(at_least(recorded, CALLGRAPH_PROBE)),
    )


def _counted(group: Sequence[TrialTraces]) -> Counter[tuple[str, str, str, str]]:
    found: Counter[tuple[str, str, str, str]] = Counter()
    for trial in group:
        table = trial.table(CALLGRAPH_PROBE, CALLGRAPH_TABLE) or {}
        names = [table[name].tolist() for name in ("event", "role", "comm", "stack", "count")]
        for event, role, comm, stack, count in zip(*names, strict=True):
            found[event, role, task_name(comm), stack] += int(count)
    return found


def task_name(comm: str) -> str:
    """A task for a table: the kernel's workers, of which there are many, by their kind."""
    return comm.partition("/")[0] if comm.startswith(("kworker/", "ksoftirqd/", "migration/")) else comm


def _callgraphs_row(label: str, key: tuple[str, str, str, str], count: int, total: int) -> tuple[Cell, ...]:
    event, role, comm, stack = key
    return label, event, role, comm, count / total, count, stack
