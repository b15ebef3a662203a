"""Stages of a workload, from its marks: which of them a moment belongs to.

- model load: from the start of the trial to the mark `ready`: imports, the network, the data set opened;
- data load: `fetch`, waiting for a batch;
- training: between `train_begin` and `train_end`, or in a step, but for the fetches;
- inference: `inference`, `evaluate`, and the steps of a workload that answers requests;
- rest: everything else: start and end of the process, and whatever comes without marks.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.analysis.kernel.model import Columns

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
    spans = _spans(marks)
    ready = _points(marks, "ready")
    loading = [(start_ns, MODEL_LOAD), (int(ready[0]), REST)] if len(ready) else []
    answers = [edge for name in _INFERENCE for edge in _phase(spans.get(name), INFERENCE)]
    if not (work := _training(marks)):
        work = _phase(spans.get(_STEP), INFERENCE if answers else TRAINING)
    return _flattened([[(0, REST)], loading, work, answers, _phase(spans.get(_FETCH), DATA_LOAD)])


def _training(marks: Columns) -> list[tuple[int, str]]:
    begins, ends = _points(marks, "train_begin"), _points(marks, "train_end")
    if not len(begins) or not len(ends):
        return []
    return [(int(begins[0]), TRAINING), (int(ends[-1]), REST)]


def _phase(spans: Any, name: str) -> list[tuple[int, str]]:
    return [edge for begin, end in (spans if spans is not None else ()) for edge in ((begin, name), (end, REST))]


def _spans(marks: Columns) -> dict[str, list[tuple[int, int]]]:
    """Intervals by name, in order of time."""
    begun: dict[tuple[str, int], int] = {}
    found: dict[str, list[tuple[int, int]]] = {}
    wanted = {_FETCH, _STEP, *_INFERENCE}
    rows = zip(*(marks[name].tolist() for name in ("t_ns", "name", "edge", "step")), strict=True)
    for t_ns, name, edge, step in sorted(rows):
        if name not in wanted:
            continue
        if edge == "begin":
            begun[name, step] = t_ns
        elif edge == "end" and (name, step) in begun:
            found.setdefault(name, []).append((begun.pop((name, step)), t_ns))
    return found


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
