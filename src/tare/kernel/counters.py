"""What processes did: counters, call graphs, page faults and system calls (S2, Tables 5 and 8).

Counters stand side by side for the container's process, the engine's daemons and the host's process; call graphs and
faults by where they came from; system calls by name, in the workload and around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from tare.ext.analysis import FLOOR, Comparison, Contest, Measurement, coded, judge
from tare.kernel.model import (
    STAGES,
    Cell,
    Column,
    Columns,
    Section,
    TrialTraces,
    at_least,
    baseline_of,
    by_label,
    having,
    stages_of,
)
from tare.kernel.traces.perf import CAUSES

PROBE, TABLE = "perf", "counters"
CALLGRAPH_TABLE, FAULT_TABLE = "callgraphs", "faults"
_SYSCALLS = "syscalls"  # the probe, and its table
WORKLOAD, DAEMON, OURS = "workload", "daemon", "tare"
MOST_GRAPHS, MOST_PLACES, MOST_CALLS = 5, 10, 10
_LEAST_RUNNING = 0.999  # below this share of the time, a counter took turns with others
_MARGIN = 0.1
_BIN_NS = 100_000_000  # over which the table of system calls is summed up (parts/probes/ftrace.py)

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
CALLGRAPH_COLUMNS = (
    Column("cell", "where"),
    Column("event", "event"),
    Column("role", "role"),
    Column("comm", "task"),
    Column("share", "share", "share"),
    Column("count", "count", "count"),
    Column("stack", "call graph", "stack"),
)
FAULT_KEYS = ("comm", "file", "function", "cause")
FAULT_COLUMNS = (
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
SYSCALL_COLUMNS = (
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


def section(trials: Sequence[TrialTraces]) -> Section | None:
    """Medians over trials, per mini-batch where steps were marked; the ratio is the process against bare metal's."""
    counted = having(trials, PROBE, TABLE)
    if not counted:
        return None
    figures = {trial.record.trial: scaled_counts(trial.table(PROBE, TABLE) or {}) for trial in counted}
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(counted).items():
        base = baseline_of(group[0], counted)
        theirs = [] if base is None or base == label else [trial for trial in counted if trial.label == base]
        events = list(dict.fromkeys(event for trial in group for _, event in figures[trial.record.trial]))
        rows += [_row(label, event, group, theirs, figures) for event in events]
    per = "per mini-batch" if all(trial.steps for trial in counted) else "of the whole run"
    title = f"Counters {per}: the process in its platform, the engine's daemons, the same process on bare metal"
    return Section("counters", title, COLUMNS, tuple(rows), tuple(_notes(counted)))


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
    found: Comparison | None = None
    # The ratio's interval, where both sides have trials enough and none counted nothing.
    if min(len(ours), len(host)) >= FLOOR and all(one.value > 0 for one in (*ours, *host)):
        contest = Contest("process", "host", list(ours), list(host))
        (found,) = judge([contest], margin=_MARGIN, metric=event, resamples=0)
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


def _notes(trials: Sequence[TrialTraces]) -> list[str]:
    notes, shared, events = at_least(trials, PROBE), set[str](), set[str]()
    for trial in trials:
        if table := trial.table(PROBE, TABLE):
            names = np.asarray(table["event"], dtype=str)
            shared |= set(names[table["time_running"] < table["time_enabled"] * _LEAST_RUNNING].tolist())
            events |= set(names.tolist())
    if shared:
        told = ", ".join(sorted(shared))
        notes.append(f"{told}: counted for a part of the time (counters took turns), and scaled up.")
    if not any("cycles" in event for event in events):
        notes.append("no hardware counters: this CPU, or the machine that it is a guest of, offers none.")
    return notes


def callgraphs(trials: Sequence[TrialTraces], most: int = MOST_GRAPHS) -> Section | None:
    """Of each cell the `most` call graphs with the most events, outermost function first."""
    recorded = having(trials, PROBE, CALLGRAPH_TABLE)
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
            for (_, role, comm, stack), count in ranked[:most]:
                rows.append((label, event, role, comm, count / totals[event], count, stack))
    return Section(
        "callgraphs",
        "Call graphs of block events",
        CALLGRAPH_COLUMNS,
        tuple(rows),
        tuple(at_least(recorded, PROBE)),
    )


def _counted(group: Sequence[TrialTraces]) -> Counter[tuple[str, str, str, str]]:
    found: Counter[tuple[str, str, str, str]] = Counter()
    for trial in group:
        table = trial.table(PROBE, CALLGRAPH_TABLE) or {}
        names = [table[name].tolist() for name in ("event", "role", "comm", "stack", "count")]
        for event, role, comm, stack, count in zip(*names, strict=True):
            found[event, role, task_name(comm), stack] += int(count)
    return found


def task_name(comm: str) -> str:
    """A task for a table: the kernel's workers, of which there are many, by their kind."""
    return comm.partition("/")[0] if comm.startswith(("kworker/", "ksoftirqd/", "migration/")) else comm


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


def faults(trials: Sequence[TrialTraces], most: int = MOST_PLACES) -> Section | None:
    """Of each cell the `most` places with most faults; shares of all faults but those of tare's own."""
    recorded = having(trials, PROBE, FAULT_TABLE)
    if not recorded:
        return None
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        counted = Counter[tuple[str, str, str, str]]()
        for trial in group:
            table = _not_ours(trial.table(PROBE, FAULT_TABLE) or {})
            comm, file, function, cause = (map(str, table[key].tolist()) for key in FAULT_KEYS)
            counted.update(zip(comm, file, function, cause, strict=True))
        first = places(counted)[:most]
        rows += [(label, *astuple(place)) for place in first]
        total, share = sum(place.count for place in first), sum(place.share for place in first)
        rows.append((label, "", "", f"the first {len(first)}", "", total, share))
    notes = (*at_least(recorded, PROBE), "faults of tare's own processes are left out.")
    return Section("faults", "Page faults by task, file, location and cause", FAULT_COLUMNS, tuple(rows), notes)


def fault_causes(trials: Sequence[TrialTraces]) -> Section | None:
    """Faults by role, stage and cause: medians over trials."""
    recorded = having(trials, PROBE, FAULT_TABLE)
    if not recorded:
        return None
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        counted = [_faults_by_stage(trial) for trial in group]
        keys = dict.fromkeys(key for one in counted for key in one)
        for role, stage in sorted(keys, key=lambda key: (key[0], STAGES.index(key[1]))):
            found = [one.get((role, stage), {}) for one in counted]
            numbers = [round(float(np.median([each.get(cause, 0) for each in found]))) for cause in CAUSES]
            rows.append((label, role, stage, *numbers, sum(numbers)))
    return Section("fault_causes", "Page faults by cause", CAUSE_COLUMNS, tuple(rows), tuple(at_least(recorded, PROBE)))


def _not_ours(table: Columns) -> Columns:
    chosen = np.asarray(table["role"], dtype=str) != OURS
    return {name: values[chosen] for name, values in table.items()}


def _faults_by_stage(trial: TrialTraces) -> dict[tuple[str, str], dict[str, int]]:
    table = _not_ours(trial.table(PROBE, FAULT_TABLE) or {})
    stage = stages_of(trial.marks, trial.record.start_ns).at(table["t_ns"])
    found: dict[tuple[str, str], dict[str, int]] = {}
    for role, where, cause in zip(table["role"].tolist(), stage.tolist(), table["cause"].tolist(), strict=True):
        sums = found.setdefault((role, where), {})
        sums[cause] = sums.get(cause, 0) + 1
    return found


def syscalls(trials: Sequence[TrialTraces], most: int = MOST_CALLS) -> Section | None:
    """Of each cell and role the `most` commonest calls: medians over trials."""
    recorded = having(trials, _SYSCALLS, _SYSCALLS)
    if not recorded:
        return None
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        tables = [by_name(trial.table(_SYSCALLS, _SYSCALLS) or {}) for trial in group]
        steps = [trial.steps for trial in group]
        per_step = float(np.median([each for each in steps if each])) if all(steps) else None
        for role in sorted({role for table in tables for role, _ in table}):
            rows += _calls_of_role(label, role, tables, per_step, most)
    return Section("syscalls", "System calls", SYSCALL_COLUMNS, tuple(rows), tuple(at_least(recorded, _SYSCALLS)))


def syscall_stages(trials: Sequence[TrialTraces]) -> Section | None:
    """Calls by stage; within a tenth of a second they are taken to come evenly."""
    recorded = having(trials, _SYSCALLS, _SYSCALLS)
    if not recorded:
        return None
    rows: list[tuple[Cell, ...]] = []
    for label, group in by_label(recorded).items():
        counted = [_calls_by_stage(trial) for trial in group]
        for role in sorted({role for one in counted for role in one}):
            found = [one[role] for one in counted if role in one]
            numbers = [float(np.median([each[stage] for each in found])) for stage in STAGES]
            rows.append((label, role, *numbers, sum(numbers)))
    notes = (*at_least(recorded, _SYSCALLS), "split by the share of each tenth of a second that a stage takes.")
    return Section("syscall_stages", "System calls by stage", STAGE_COLUMNS, tuple(rows), notes)


def by_name(table: Columns) -> dict[tuple[str, str], tuple[int, float, float, int]]:
    """(role, name) to count, total_s, max_s and errors over the whole run."""
    found: dict[tuple[str, str], tuple[int, float, float, int]] = {}
    names = ("role", "name", "count", "total_s", "max_s", "errors")
    for role, name, *values in zip(*(table[each].tolist() for each in names), strict=True):
        count, total_s, max_s, errors = found.get((role, name), (0, 0.0, 0.0, 0))
        found[role, name] = (count + values[0], total_s + values[1], max(max_s, values[2]), errors + values[3])
    return found


def _calls_of_role(
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


def _calls_by_stage(trial: TrialTraces) -> dict[str, dict[str, float]]:
    table = trial.table(_SYSCALLS, _SYSCALLS) or {}
    shares = stages_of(trial.marks, trial.record.start_ns).shares(table["t_ns"], _BIN_NS)
    roles = np.asarray(table["role"], dtype=str)
    return {
        str(role): {stage: float((shares[stage] * table["count"])[roles == role].sum()) for stage in STAGES}
        for role in np.unique(roles)
    }
