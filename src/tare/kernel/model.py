"""What the kernel's view is made of: traced trials with their tables, and sections, each of which is one table.

Stages of a workload, from its marks: which of them a moment belongs to.

- model load: from the start of the trial to the mark `ready`: imports, the network, the data set opened;
- data load: `fetch`, waiting for a batch;
- training: between `train_begin` and `train_end`, or in a step, but for the fetches;
- inference: `inference`, `evaluate`, and the steps of a workload that answers requests;
- rest: everything else: start and end of the process, and whatever comes without marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.ext.analysis import Intervals, Record, Store, TableName, cells, grouped, intervals, usable_trials

Columns: TypeAlias = Mapping[str, "npt.NDArray[Any]"]
Cell: TypeAlias = str | int | float | None
Kind: TypeAlias = Literal["text", "stack", "count", "number", "share", "ratio", "seconds"]
WORDS: frozenset[Kind] = frozenset({"text", "stack"})  # a stack is `a;b;z`, outermost function first
BARE = "bare"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a section: its key in JSON, its title for people, and what its values are."""

    key: str
    title: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True)
class Section:
    """One table, in the form of a paper's, with what there is to know about it."""

    name: str  # "counters"
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        keys = [column.key for column in self.columns]
        return {
            "name": self.name,
            "title": self.title,
            "rows": [dict(zip(keys, row, strict=True)) for row in self.rows],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class TrialTraces:
    """One traced trial; its tables are read when they are asked for."""

    store: Store
    record: Record
    label: str  # its platform, and what else tells it from other cells
    surroundings: str = ""  # the label without the platform: what it may be compared within
    kept: frozenset[TableName] = field(default_factory=frozenset)

    @property
    def is_bare(self) -> bool:
        return self.record.settings.get("platform") == BARE

    @property
    def steps(self) -> float | None:
        """How many mini-batches it did."""
        count = self.record.metrics.get("steps")
        return count if count else None

    def table(self, probe: str, name: str) -> Columns | None:
        """A table of the trial; None where its probes kept no such one."""
        if TableName(probe, name) not in self.kept:
            return None
        return self.store.trace(self.record.trial, self.record.attempt, probe, name)

    @cached_property
    def marks(self) -> Columns:
        return self.store.marks(self.record.trial, self.record.attempt)

    def lost(self, probe: str) -> int:
        """Events that the probe could not keep: then its counts are at least what is shown."""
        table = self.table(probe, "lost")
        return 0 if table is None else int(sum(table["events"].tolist()))


def traced_trials(store: Store) -> list[TrialTraces]:
    """The newest usable attempt of every trial that recorders kept tables of, in the order of the plan."""
    usable = usable_trials(store.records(), repeats=False)
    kept = {record.trial: frozenset(store.traces(record.trial, record.attempt)) for record in usable}
    chosen = [record for record in usable if kept[record.trial]]
    label = cells(chosen, "platform")
    return [
        TrialTraces(store, record, label.label(record), label.surroundings(record), kept[record.trial])
        for record in chosen
    ]


def by_label(trials: Sequence[TrialTraces]) -> dict[str, list[TrialTraces]]:
    """Trials of one cell together, in the order in which cells come."""
    return grouped(trials, lambda trial: trial.label)


def having(trials: Sequence[TrialTraces], probe: str, name: str) -> list[TrialTraces]:
    """Those of which this table was kept."""
    return [trial for trial in trials if TableName(probe, name) in trial.kept]


def baseline_of(trial: TrialTraces, trials: Sequence[TrialTraces]) -> str | None:
    """The label of bare metal with the same surroundings; None where there is none."""
    return next((one.label for one in trials if one.is_bare and one.surroundings == trial.surroundings), None)


def at_least(trials: Sequence[TrialTraces], probe: str) -> list[str]:
    """A note where events were lost."""
    lost = sum(trial.lost(probe) for trial in trials)
    if not lost:
        return []
    return [f"{lost} events were lost while they were recorded: counts are at least what is shown."]


Ints: TypeAlias = npt.NDArray[np.int64]

MODEL_LOAD, DATA_LOAD, TRAINING, INFERENCE, REST = "model load", "data load", "training", "inference", "rest"
STAGES = (MODEL_LOAD, DATA_LOAD, TRAINING, INFERENCE, REST)
_FETCH, _STEP = "fetch", "step"
_INFERENCE = ("inference", "evaluate")


class Stages(NamedTuple):
    """Stretches of time in order, without gaps: the stage `names[k]` begins at `begins[k]`."""

    begins: Ints
    names: npt.NDArray[np.object_]

    def at(self, t_ns: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        """The stage of each moment."""
        place = np.searchsorted(self.begins, np.asarray(t_ns, np.int64), side="right") - 1
        named: npt.NDArray[np.object_] = np.where(place >= 0, self.names[np.maximum(place, 0)], REST)
        return named

    def shares(self, begin_ns: npt.NDArray[Any], span_ns: int) -> dict[str, npt.NDArray[np.float64]]:
        """For each stretch of `span_ns`, what share of it lies in each stage.

        Tables that are summed up by such stretches are split by this: within a stretch, counts are taken to come
        evenly.
        """
        begins = np.asarray(begin_ns, np.int64)
        found = {}
        for name in STAGES:
            spent = self._spent(name)
            found[name] = (spent(begins + span_ns) - spent(begins)) / span_ns
        return found

    def _spent(self, name: str) -> Any:
        """A function: how much of a stage has passed at some times."""
        ends = np.append(self.begins[1:], self.begins[-1:] + (1 << 62))
        mine = np.flatnonzero(self.names == name)
        starts, lengths = self.begins[mine], ends[mine] - self.begins[mine]
        before = np.concatenate([[0], np.cumsum(lengths[:-1])]) if len(mine) else np.empty(0)

        def passed(t_ns: Ints) -> npt.NDArray[np.float64]:
            if not len(mine):
                return np.zeros(len(t_ns))
            place = np.searchsorted(starts, t_ns, side="right") - 1
            inside = np.clip(t_ns - starts[place], 0, lengths[place])
            return np.where(place >= 0, before[place] + inside, 0).astype(np.float64)

        return passed


def stages_of(marks: Columns, start_ns: int) -> Stages:
    """From the marks of one trial; `start_ns` is where it began."""
    found = intervals(marks, _FETCH, _STEP, *_INFERENCE)
    ready = _points(marks, "ready")
    loading = [(start_ns, MODEL_LOAD), (int(ready[0]), REST)] if len(ready) else []
    answers = [edge for name in _INFERENCE for edge in _phase(found.named(name), INFERENCE)]
    if not (work := _training(marks)):
        work = _phase(found.named(_STEP), INFERENCE if answers else TRAINING)
    return _flattened([[(0, REST)], loading, work, answers, _phase(found.named(_FETCH), DATA_LOAD)])


def _training(marks: Columns) -> list[tuple[int, str]]:
    begins, ends = _points(marks, "train_begin"), _points(marks, "train_end")
    if not len(begins) or not len(ends):
        return []
    return [(int(begins[0]), TRAINING), (int(ends[-1]), REST)]


def _phase(found: Intervals, name: str) -> list[tuple[int, str]]:
    both = zip(found.begin_ns.tolist(), found.end_ns.tolist(), strict=True)
    return [edge for begin, end in both for edge in ((begin, name), (end, REST))]


def _points(marks: Columns, name: str) -> Ints:
    chosen: Ints = np.sort(marks["t_ns"][(marks["name"] == name) & (marks["edge"] == "point")])
    return chosen


def _flattened(layers: list[list[tuple[int, str]]]) -> Stages:
    """One line of stages: a later layer covers those before it while it says something."""
    # Where one interval ends as the next begins, the end comes first.
    changes = sorted(
        ((t_ns, layer, name) for layer, edges in enumerate(layers) for t_ns, name in edges),
        key=lambda change: (change[0], change[1], change[2] != REST),
    )
    now = [REST] * len(layers)
    begins: list[int] = []
    names: list[str] = []
    for t_ns, layer, name in changes:
        now[layer] = name
        top = next((each for each in reversed(now) if each != REST), REST)
        if begins and begins[-1] == t_ns:
            names[-1] = top
        elif not names or names[-1] != top:
            begins.append(t_ns)
            names.append(top)
    return Stages(np.array(begins, np.int64), np.array(names, dtype=object))
