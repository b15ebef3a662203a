"""Makers of checks: one figure over all cells, or cell by cell.

Storage media: which is the slowest, and whether a loader felt any difference between them.

Where nothing waits for the medium (an emulated one is a limit of requests and bytes a second, and a loader may ask for
less), a claim that the medium does not matter would hold by itself: nothing was measured there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import eq
from typing import Any, TypedDict, Unpack

import numpy as np

from tare.ext.analysis import (
    CACHE,
    EVERY,
    FIRST,
    PAPER_MODES,
    WORKERS,
    Array,
    Measurement,
    Record,
    When,
    grouped,
    papers_choice,
    reads,
    regress,
    setting_words,
    title_of,
)
from tare.ext.analysis import LawRows as Rows
from tare.ext.analysis import label_text as text
from tare.papers.claims import metrics
from tare.papers.claims.deciding import words_of
from tare.papers.claims.metrics import Cell, Factor, Value, is_bare, level, medium_rank
from tare.papers.claims.model import (
    HOLDS,
    Cells,
    Check,
    Kind,
    Population,
    Series,
    Wants,
    against,
    at,
    levels,
    pooled,
    rising,
    split,
    typical,
    where,
    without,
)

THE_REST = "default settings"  # the name of a cell that has none of the settings that tell the others apart
_KNOWN_BY = ("platform", "workload", "workload.model", "workload.name")  # what people know a cell by
WIDEST = 60.0  # a log beyond this no unit can explain; exp must not overflow


class HeldTo(TypedDict, total=False):
    """What a check is held to, as its fields have it."""

    margin: float
    bound: float
    kind: Kind
    floor: float | None


def tendency(about: str, cells: Cells, wants: Wants, **held_to: Unpack[HeldTo]) -> list[Check]:
    """One check of the mean over all cells; the cells come with it, so that exceptions can be named."""
    whole = pooled(cells)
    if whole is None:
        return []
    parts = [
        _check(name, series, wants, **held_to)
        for series, name in zip(cells.values(), labels(list(cells)), strict=True)
        if len(cells) > 1
    ]
    return [_check(about, whole, wants, parts, **held_to)]


def each(about: str, cells: Cells, wants: Wants, **held_to: Unpack[HeldTo]) -> list[Check]:
    """A check for each cell: where nothing may change, a mean could hide that two cells change in opposite ways."""
    return [
        _check(f"{about}, {name}" if name else about, series, wants, **held_to)
        for series, name in zip(cells.values(), labels(list(cells)), strict=True)
    ]


def tendencies(about: str, groups: Mapping[Any, Cells], wants: Wants, **held_to: Unpack[HeldTo]) -> list[Check]:
    """A tendency of each group of cells; `{}` in `about` stands for the group."""
    return [check for name, cells in groups.items() for check in tendency(about.format(name), cells, wants, **held_to)]


def excused(checks: Iterable[Check], why: str) -> list[Check]:
    """The same, as no evidence against the claim where they fail, on the whole or in a cell."""
    return [replace(one, no_evidence=why, parts=tuple(excused(one.parts, why))) for one in checks]


def conditions(checks: Iterable[Check]) -> list[Check]:
    """The same, as what must be so for there to be anything to see."""
    return [replace(one, is_condition=True) for one in checks]


def _check(about: str, series: Series, wants: Wants, parts: Sequence[Check] = (), **held_to: Unpack[HeldTo]) -> Check:
    offset = math.log1p(held_to.get("bound", 0.0))
    values = {block: max(-WIDEST, min(WIDEST, value - offset)) for block, value in series.values.items()}
    if offset:  # the bound itself is what it is held to
        held_to |= {"margin": 0.0, "floor": None}
    return Check(
        about,
        wants,
        tuple(Measurement(about, math.exp(value), block) for block, value in values.items()),
        tuple(Measurement("no change", 1.0, block) for block in values),
        trials=series.trials,
        tainted=series.tainted,
        parts=tuple(parts),
        **held_to,
    )


def labels(cells: Sequence[Cell]) -> list[str]:
    """What tells each cell from the others, in as few words as do; one alone needs none."""
    common = frozenset.intersection(*cells) if cells else frozenset()
    telling = {name for cell in cells for name, _ in cell - common}
    names = sorted(telling, key=lambda name: (name not in _KNOWN_BY, name.count("."), name))
    held = [dict(cell) for cell in cells]
    chosen: list[str] = []
    apart = 1
    for name in names:
        if (now := len({tuple(each.get(one) for one in (*chosen, name)) for each in held})) > apart:
            chosen, apart = [*chosen, name], now
    made = [", ".join(_short(name, each[name]) for name in chosen if name in each) for each in held]
    return [name or THE_REST for name in made] if len(cells) > 1 else made


def _short(name: str, value: object) -> str:
    return title_of("applications", text(value)) if name == "workload.name" else setting_words(name, value)


MODEL = "workload.model"
SAME = "the media did not differ in speed for this loader, so nothing was measured"
UNSURE = "it depends on whether the media differ in speed for this loader, which the trials do not show"


@dataclass(frozen=True)
class MediumEffect:
    """Of which models nothing can be told, since their loaders may not have felt the medium, and whether any has."""

    left_out: frozenset[Value | None]
    unsure: bool

    def of(self, cells: Cells) -> Cells:
        """The cells of the other models."""
        return where(cells, lambda cell: level(cell, MODEL) not in self.left_out)


def by_speed(cells: Cells, medium: Factor) -> list[Value]:
    """The media, the slowest first: by their names where all are known, else by their figures."""
    found = levels(cells, medium)
    ranks = {each: medium_rank(each) for each in found}
    if all(rank is not None for rank in ranks.values()):
        return sorted(found, key=lambda each: ranks[each] or 0.0)
    return sorted(found, key=lambda each: -typical(at(cells, medium, each)))


def medium_effect(evidence: Population, medium: Factor) -> MediumEffect:
    """What each model's loader felt of the medium, told where it cannot hide behind the page cache.

    That is in epoch 0, or where every epoch is cold. Where some surely felt it, the others are left out; where none
    did, those to whom the slowest was surely as fast as the fastest. Of whom nothing can be compared stays.
    """
    fetches = {model: checks for model, checks in _fetches(evidence, medium).items() if checks}
    slower = {model: [replace(check, wants="rises") for check in checks] for model, checks in fetches.items()}
    moved = frozenset(model for model, checks in slower.items() if HOLDS in words_of(checks, evidence.alpha))
    if moved:
        return MediumEffect(frozenset(fetches) - moved, unsure=False)
    unmoved = frozenset(model for model, checks in fetches.items() if set(words_of(checks, evidence.alpha)) == {HOLDS})
    return MediumEffect(unmoved, unsure=len(unmoved) < len(fetches))


def reads_in(*when: When | None) -> Callable[[Record], bool]:
    """Whether a trial reads its data from the medium then."""
    return lambda record: reads(record.settings.get(CACHE)) in when


def _fetches(evidence: Population, medium: Factor) -> dict[Value | None, list[Check]]:
    """Model by model, that fetching takes as long from the slowest medium as from the fastest.

    Without workers to hide it; only where there is no such trial, with.
    """
    always = evidence.cells(metrics.STALL, reads_in(EVERY)) or evidence.cells(metrics.MEAN_STEP, reads_in(EVERY))
    found: dict[Value | None, list[Check]] = {}
    for cells in (always, evidence.cells(metrics.EPOCH0, reads_in(EVERY, FIRST, None))):
        for model, mine in split(cells, MODEL).items():
            alone = where(mine, lambda cell: not level(cell, WORKERS))
            apart = slowest_to_fastest(alone, medium) or slowest_to_fastest(mine, medium)
            found.setdefault(model, []).extend(tendency("fetch, slowest medium against fastest", apart, "same"))
    return found


def slowest_to_fastest(cells: Cells, medium: Factor) -> Cells:
    """The slowest medium against the fastest; nothing where there is only one."""
    speeds = by_speed(cells, medium)
    return against(cells, medium, speeds[0], speeds[-1]) if len(speeds) > 1 else {}


# Trials by power mode: which mode is beaten, and how well a few modes predict the rest.

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
    made: dict[Cell, dict[Cell, Series]] = {}
    for cell, series in cells.items():
        if mode := frozenset(item for item in cell if belongs(item[0])):
            made.setdefault(cell - mode, {})[mode] = series
    return made


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
    # Of a mode whose clocks a control sets, the platform may set the cores.
    for belongs in (is_of_mode, lambda name: is_of_mode(name) or name == "platform.cores"):
        if (found := _grid(evidence, belongs, FEWEST_MODES, features=2)) is not None:
            return found
    for name, words in STAND_INS.items():
        if (found := _grid(evidence, partial(eq, name), FEWEST_STAND_INS, features=1)) is not None:
            return replace(found, stand_in=words)
    return None


def _grid(evidence: Population, belongs: Callable[[str], bool], fewest: int, features: int) -> Grid | None:
    """Of the settings that belong to a mode, so many of them or more told in numbers."""
    # On bare metal where there is any: the same model in a container would tell what it is asked about.
    measured = (evidence.cells(names) for names in (metrics.END_TO_END, metrics.ENERGY))
    time, energy = (by_mode(where(cells, is_bare) or cells, belongs) for cells in measured)
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
    powered = all(mode in energy.get(cell, {}) for cell in workloads for mode in order)
    joules = _stacked(energy, workloads, order, blocks) if powered else None
    used = frozenset().union(*(each.trials for each in series))
    return Grid(points, tuple(workloads), blocks, _stacked(complete, workloads, order, blocks), joules, used)


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
    values = [rising(named[name]) for name in (*FEATURES, "quota") if name in named]
    return [value for value in values if value is not None] if None not in values else []


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
