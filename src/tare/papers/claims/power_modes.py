"""Trials by power mode: which mode is beaten, and how well a few modes predict the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import eq

import numpy as np

from tare.analysis.choose.evaluate import PAPER_MODES, papers_choice, regress
from tare.analysis.choose.law import Array, Rows
from tare.analysis.labels import text
from tare.papers.claims import metrics
from tare.papers.claims.contrasts import Cells, Series, where, without
from tare.papers.claims.factors import Cell, Value, is_bare
from tare.papers.claims.model import Population
from tare.records.trials import collected, grouped

FEATURES = ("cores", "cpu_mhz", "gpu_mhz", "mem_mhz")
FEWEST_MODES = PAPER_MODES + 2  # something must be left to be predicted
# What stands in for modes where clocks cannot be set: one feature, so that one mode less tells as much.
STAND_INS: Mapping[str, str] = {"platform.quota": "shares of the CPU's time", "platform.cores": "numbers of cores"}
FEWEST_STAND_INS = PAPER_MODES + 1
_FIELDS, _NAME = "control.power_mode.", "control.power_mode.mode"


def is_of_mode(name: str) -> bool:
    """Whether a setting belongs to the power mode."""
    return name.startswith("control.power_mode") or (
        name.startswith("control.") and name.rpartition(".")[2] in FEATURES
    )


def by_mode(cells: Cells, belongs: Callable[[str], bool] = is_of_mode) -> dict[Cell, dict[Cell, Series]]:
    """Workload (everything but the mode) -> mode -> series."""
    having = ((cell, mode) for cell in cells if (mode := frozenset(item for item in cell if belongs(item[0]))))
    pairs = collected((cell - mode, (mode, cells[cell])) for cell, mode in having)
    return {rest: dict(found) for rest, found in pairs.items()}


def by_clocks(cells: Cells) -> Cells:
    """Without the name of a mode that its cores and clocks tell anyway: it would part what differs in one of them."""
    made: dict[Cell, Series] = {}
    for cell, series in cells.items():
        told = any(name.startswith(_FIELDS) and name != _NAME for name, _ in cell)
        plain = without(cell, _NAME) if told else cell
        made[cell if plain in made else plain] = series
    return made


def default_mode(evidence: Population, modes: Sequence[Cell]) -> Cell | None:
    """The mode that the study compares against, if it names one."""
    for baseline in evidence.baselines:
        named = {name: value for name, value in baseline.items() if is_of_mode(name)}
        for mode in modes if named else ():
            if all(_has(mode, name, value) for name, value in named.items()):
                return mode
    return None


def _has(mode: Cell, name: str, wanted: object) -> bool:
    """`control.power_mode: 15W` is a setting of that name, or the one field of it that says 15W."""
    fields: Mapping[str, object] = wanted if isinstance(wanted, Mapping) else {"": wanted}
    return all(
        any(key in (name, f"{name}.{field}") or (not field and key.startswith(f"{name}.")) for key, value in mode
            if text(value) == text(worth))
        for field, worth in fields.items()
    )  # fmt: skip


# Prediction from four modes


@dataclass(frozen=True)
class Grid:
    """Workloads that were measured in the same modes and blocks."""

    modes: Array  # modes x features
    workloads: tuple[Cell, ...]
    blocks: tuple[str, ...]
    time: Array  # workloads x blocks x modes, seconds
    energy: Array | None
    trials: frozenset[str]
    stand_in: str = ""  # what stands in for power modes, in words

    @property
    def told(self) -> str:
        """`four of ten modes measured`, or of what stands in for them."""
        what = f"{self.stand_in}, which stand in for modes," if self.stand_in else "modes"
        return f"four of {len(self.modes)} {what} measured"

    @property
    def not_modes(self) -> str:
        """Why what stands in for power modes can show, and not decide, what is claimed of them."""
        why = f"it is about power modes, which set clocks, and only {self.stand_in} were changed"
        return why if self.stand_in else ""


def grid(evidence: Population) -> Grid | None:
    """The largest set of modes that two workloads or more share, else of what stands in for them; None without any."""
    for belongs in (is_of_mode, _is_of_mode_or_cores):
        if (found := _grid(evidence, belongs, FEWEST_MODES, features=2)) is not None:
            return found
    for name, words in STAND_INS.items():
        if (found := _grid(evidence, partial(eq, name), FEWEST_STAND_INS, features=1)) is not None:
            return replace(found, stand_in=words)
    return None


def _is_of_mode_or_cores(name: str) -> bool:
    """A mode whose clocks a control sets, and whose cores the platform does."""
    return is_of_mode(name) or name == "platform.cores"


def _grid(evidence: Population, belongs: Callable[[str], bool], fewest: int, features: int) -> Grid | None:
    """Of the settings that belong to a mode, so many of them or more told in numbers."""
    time, energy = (
        by_mode(_of_one_platform(evidence.cells(names)), belongs) for names in (metrics.END_TO_END, metrics.ENERGY)
    )
    complete = {
        cell: {mode: s for mode, s in found.items() if len(_point(mode)) >= features} for cell, found in time.items()
    }
    groups = grouped(complete, lambda cell: frozenset(complete[cell]))
    modes, workloads = max(groups.items(), key=lambda item: (len(item[1]) > 1, len(item[0])), default=(frozenset(), []))
    if len(modes) < fewest or len(workloads) < 2:
        return None
    order = sorted(modes, key=_point)
    if len({len(_point(mode)) for mode in order}) > 1:
        return None
    points = np.array([_point(mode) for mode in order])
    if np.count_nonzero(np.ptp(points, axis=0)) < features:  # one that never changes makes no mode
        return None
    series = [complete[cell][mode] for cell in workloads for mode in order]
    blocks = tuple(block for block in series[0].values if all(block in each.values for each in series))
    if not blocks:
        return None
    measured = _stacked(complete, workloads, order, blocks)
    powered = all(mode in energy.get(cell, {}) for cell in workloads for mode in order)
    joules = _stacked(energy, workloads, order, blocks) if powered else None
    used = frozenset().union(*(each.trials for each in series))
    return Grid(points, tuple(workloads), blocks, measured, joules, used)


def _of_one_platform(cells: Cells) -> Cells:
    """Bare metal where there is any: the same model in a container would tell what it is asked about."""
    return where(cells, is_bare) or cells


def _stacked(
    found: Mapping[Cell, Mapping[Cell, Series]], workloads: Sequence[Cell], order: Sequence[Cell], blocks: Sequence[str]
) -> Array:
    return np.array(
        [
            [[math.exp(found[cell][mode].values.get(block, math.nan)) for mode in order] for block in blocks]
            for cell in workloads
        ]
    )


def _point(mode: Cell) -> list[float]:
    """The features of a mode as numbers; none of them where one is not a number, or is told twice."""
    named: dict[str, Value] = {name.rpartition(".")[2]: value for name, value in mode}
    if len(named) < len(mode):
        return []
    values = [named[name] for name in (*FEATURES, "quota") if name in named]
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return numbers if len(numbers) == len(values) else []


def errors(found: Grid) -> tuple[list[Series], list[Series]]:
    """The held-out error of time, and of energy, by the paper's method: for each workload, a log share a block.

    Four modes, chosen on the other workloads; a linear model of time; one of energy for all workloads, fed with it.
    """
    chosen = papers_choice(found.modes, [np.median(each, axis=0) for each in found.time])
    times, energies = [], []
    for place in range(len(found.workloads)):
        held = np.setdiff1d(np.arange(len(found.modes)), chosen[place])
        by_block = [_errors_in(found, place, block, chosen, held) for block in range(len(found.blocks))]
        times.append(_series(found, [time for time, _ in by_block]))
        energies.append(_series(found, [energy for _, energy in by_block if energy is not None]))
    return times, [each for each in energies if each.values]


def close_share(found: Grid, close: float) -> Series:
    """Of all predictions of time, of each workload's held-out modes, those with less error: a log share a block."""
    chosen = papers_choice(found.modes, [np.median(each, axis=0) for each in found.time])
    shares = []
    for block in range(len(found.blocks)):
        hits = [
            np.abs(regress(found.modes[rows], time[rows]).at(found.modes[held]) / time[held] - 1) < close
            for rows, time in zip(chosen, found.time[:, block], strict=True)
            for held in [np.setdiff1d(np.arange(len(found.modes)), rows)]
        ]
        shares.append(float(np.mean(np.concatenate(hits))))
    return _series(found, shares)


def _errors_in(found: Grid, place: int, block: int, chosen: Sequence[Rows], held: Rows) -> tuple[float, float | None]:
    time = found.time[place, block]
    predicted = regress(found.modes[chosen[place]], time[chosen[place]]).at(found.modes[held])
    off = float(np.mean(np.abs(predicted / time[held] - 1)))
    if found.energy is None or np.isnan(found.energy[:, block]).any():
        return off, None
    inputs = [np.column_stack([found.modes[rows], found.time[w, block][rows]]) for w, rows in enumerate(chosen)]
    outputs = [found.energy[w, block][rows] for w, rows in enumerate(chosen)]
    model = regress(np.concatenate(inputs), np.concatenate(outputs))
    joules = model.at(np.column_stack([found.modes[held], predicted]))
    return off, float(np.mean(np.abs(joules / found.energy[place, block][held] - 1)))


def _series(found: Grid, shares: Sequence[float]) -> Series:
    kept = dict(zip(found.blocks, shares, strict=False)) if len(shares) == len(found.blocks) else {}
    return Series({block: math.log(max(1e-6, share)) for block, share in kept.items()}, found.trials)
