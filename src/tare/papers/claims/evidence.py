"""The usable trials of one population, as logs by cell and block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from tare.analysis.cells import PLACEMENT
from tare.analysis.compare import noise_floor
from tare.analysis.labels import text
from tare.analysis.model import Measurement
from tare.analysis.parity import DEVICE_KEYS, differences, flat, rule_for, taints
from tare.analysis.statistics import ALPHA
from tare.papers.claims.contrasts import Cells, Series
from tare.papers.claims.factors import Cell, cell_of, factor_named, is_bare, level, weight
from tare.papers.claims.metrics import COMPUTE, Names, absent
from tare.records.model import Record
from tare.records.trials import TrialRow, device_of, grouped

Figure = Callable[[Record], float | None]
_HOW_MANY = ("cores", "leave_idle", "quota", "cpuset")  # cores: as many must be compared, pinned or not
_UNSAID: Cell = frozenset({("platform.pin", False), ("platform.leave_idle", 0)})  # as where nothing is said of it


@dataclass(frozen=True)
class Population:
    """Trials that may be compared with each other, of one or several stores, and the A/A repeats that tell their noise.

    Each has a cell: its settings, as claims compare them.
    """

    trials: Sequence[TrialRow]
    twins: Sequence[TrialRow] = ()
    baselines: Sequence[Mapping[str, Any]] = ()  # what the studies compare against: {"control.power_mode": "15W"}
    name: str = ""
    alpha: float = ALPHA  # stricter where a run looked at its intervals to know when to stop
    _floors: dict[str, float | None] = field(default_factory=dict)
    _taints: dict[tuple[Cell, Cell], tuple[str, ...]] = field(default_factory=dict)

    def first(self, names: Names, among: Callable[[Record], bool] = lambda _: True) -> str | None:
        """The first of these figures that any trial may be compared by: one without it must not change the others'."""
        chosen = [trial.compared for trial in self.trials if among(trial)]
        return next((name for name in names if any(name in metrics for metrics in chosen)), None)

    def absent(self, names: Names) -> str:
        """Why no trial has any of these figures, in words."""
        return absent(names, self.trials)

    def cells(self, names: Names, among: Callable[[Record], bool] = lambda _: True) -> Cells:
        """The logs of a figure, by cell and block."""
        name = self.first(names, among)
        if name is None:
            return {}
        return self.figured(lambda record: record.compared.get(name), among)

    def figured(self, figure: Figure, among: Callable[[Record], bool] = lambda _: True) -> Cells:
        """The same for a figure that is worked out from a record; what is not more than zero has no log and is left."""
        return self.by_trial(lambda trial: figure(trial) if among(trial) else None)

    def by_trial(self, figure: Callable[[TrialRow], float | None]) -> Cells:
        """The same for a figure that takes more than the record."""
        known = [(trial, value) for trial in self.trials if (value := figure(trial)) is not None]
        positive = [(trial, math.log(value)) for trial, value in known if math.isfinite(value) and value > 0]
        made = {}
        for cell, pairs in grouped(positive, lambda pair: self.cell(pair[0])).items():
            blocks = grouped(pairs, lambda pair: str(pair[0].block_id))
            values = {block: median(log for _, log in inside) for block, inside in blocks.items()}
            made[cell] = Series(values, frozenset(trial.trial for trial, _ in pairs))
        return made

    def cell(self, trial: TrialRow) -> Cell:
        return self._cells[id(trial)]

    @cached_property
    def _cells(self) -> dict[int, Cell]:
        once: dict[Cell, Cell] = {}  # equal ones are one object, which is compared in no time
        return {id(trial): once.setdefault(cell := cell_of(trial), cell) for trial in (*self.trials, *self.twins)}

    def floor(self, names: Names) -> float | None:
        """By how much a twin differed from its first in this figure, at most; None where nothing was run twice."""
        name = self.first(names)
        if name is None:
            return None
        if name not in self._floors:
            self._floors[name] = max(self._twin_differences(name), default=None)
        return self._floors[name]

    def _twin_differences(self, name: str) -> list[float]:
        found = []
        twins, trials = (grouped(side, self.cell) for side in (self.twins, self.trials))
        for cell in twins:
            sides = [
                [
                    Measurement("", value, trial.block_id)
                    for trial in side.get(cell, [])
                    if (value := trial.compared.get(name, 0.0)) > 0
                ]
                for side in (twins, trials)
            ]
            if all(sides) and (apart := noise_floor(*sides)) is not None:
                found.append(apart.seen)
        return found

    # Platforms

    def over(
        self,
        cells: Cells,
        ours: Callable[[Cell], bool],
        theirs: Callable[[Cell], bool] = is_bare,
        ways: Sequence[Sequence[str]] = (PLACEMENT, _HOW_MANY),
    ) -> Cells:
        """Each cell of our platforms less the like cell of theirs, with what their software does not share.

        Alike are those that agree in all of this placement; where there is none, in all of the next.
        """
        likes = [_index(cells, theirs, names) for names in ways]
        made = {}
        for cell in filter(ours, cells):
            keys = [_surroundings(cell, names) for names in ways]
            like = next((index[key] for index, key in zip(likes, keys, strict=True) if key in index), None)
            if like is not None and (ratio := self.ratio(cells, cell, like)).values:
                made[cell] = ratio
        return made

    def ratio(self, cells: Cells, cell: Cell, like: Cell) -> Series:
        """One cell less another of another platform, with what their software does not share."""
        found = cells[cell].minus(cells[like])
        return Series(found.values, found.trials, self._tainted(cell, like)) if found.values else found

    def _tainted(self, cell: Cell, like: Cell) -> tuple[str, ...]:
        if (cell, like) not in self._taints:
            ours, theirs = self.by_cell[cell], self.by_cell[like]
            names = [str(level(each, "platform")) for each in (cell, like)]
            found = differences(ours, theirs, level=names[0], against=names[1], by="platform")
            self._taints[cell, like] = tuple(taints(found))
        return self._taints[cell, like]

    @cached_property
    def by_cell(self) -> dict[Cell, list[TrialRow]]:
        return grouped(self.trials, self.cell)

    # Models

    @cached_property
    def model_order(self) -> dict[Any, float]:
        """Every model's place from light to heavy: by multiply-adds where all are known, else by measured compute."""
        cells = self.cells(COMPUTE)
        name = factor_named(cells, "model")
        if name is None:
            return {}
        models = dict.fromkeys(level(cell, name) for cell in cells)
        known = {model: weight(model) for model in models if model is not None}
        if all(each is not None for each in known.values()):
            return {model: float(each) for model, each in known.items() if each is not None}
        bare = {cell: series for cell, series in cells.items() if is_bare(cell)} or cells
        return {
            model: median(
                v for cell, series in bare.items() if level(cell, name) == model for v in series.values.values()
            )
            for model in known
            if any(level(cell, name) == model for cell in bare)
        }


def _surroundings(cell: Cell, placement: Sequence[str]) -> Cell:
    """A cell without its platform, but with how many cores it has, and which."""
    kept = {f"platform.{name}" for name in placement}
    return frozenset(
        item
        for item in cell - _UNSAID
        if item[0] in kept or not (item[0] == "platform" or item[0].startswith("platform."))
    )


def _index(cells: Cells, theirs: Callable[[Cell], bool], placement: Sequence[str]) -> dict[Cell, Cell]:
    """Surroundings -> the cell of theirs that has them; of several, the one with fewest settings of its own."""
    found: dict[Cell, Cell] = {}
    for cell in sorted(filter(theirs, cells), key=lambda each: (len(each), sorted(map(str, each)))):
        found.setdefault(_surroundings(cell, placement), cell)
    return found


def device_facts(record: Record) -> dict[str, str]:
    """What must be the same of the device, for trials to be pooled."""
    facts = flat(record.facts.get("device") or {})
    found = {key: text(facts[key]) for key in DEVICE_KEYS if key in facts}
    return found | {"device": str(device_of(record))}


def software(record: Record) -> dict[str, str]:
    """What the work was done with: libraries and versions, but not what a study sets (threads, cores, malloc)."""
    facts = flat(record.facts.get("inside") or {})
    return {key: text(value) for key, value in facts.items() if _tells(key)}


def _tells(key: str) -> bool:
    rule = rule_for(key)
    return rule.matters and not rule.factors
