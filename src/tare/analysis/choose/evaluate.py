"""How far each method is off: random splits into measured and held-out modes, the same for every method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from tare.analysis.choose.law import (
    FIGURES,
    NOISE_POWER,
    NOISE_TIME,
    WIDER,
    Array,
    Constant,
    Fit,
    Law,
    Rows,
    Surface,
    centre,
    coordinates,
    fit,
    joint_covariance,
    local_centre,
    surface,
    with_energy,
)
from tare.analysis.choose.modes import ModeTable, Workload
from tare.base.errors import StudyError

# The method of the paper (S3 5.7): linear regression of time on the features, one energy model for all workloads.
#
# Time: a x1 + b x2 + ... + e, fitted for each workload on its own measured modes. Energy: one linear model on the
# features and the time, fitted over the measured modes of all workloads and fed with the predicted time. Solved by
# singular values, the solution of least norm where the modes do not determine it (the paper has 5 unknowns on 4 modes).
# `linear-own` is kinder: the energy of each workload has a regression of its own on the features.
#
# What workloads that were measured before on the same device say about the next one.
#
# Two things carry over: where the constants of the law lie on this device (the prior moves there and narrows), and
# where the device itself departs from the law (a clock at which every workload draws more than it should).

SOLVER = "least squares by singular values, least norm (numpy.linalg.pinv)"
PAPER_MODES = 4  # so many modes the paper measures: {e, f, i, j}
_MOST_SUBSETS = 100_000
_AT_ONCE = 8192


@dataclass(frozen=True)
class Regression:
    """Coefficients (..., unknowns), the last of them the constant, and how well the modes determine them."""

    coefficients: Array
    unknowns: int
    rank: Array
    condition: Array

    def at(self, inputs: Array) -> Array:
        """What it says of inputs (..., n, unknowns - 1)."""
        predicted: Array = (_with_one(inputs) @ self.coefficients[..., None])[..., 0]
        return predicted


def regress(inputs: Array, outputs: Array) -> Regression:
    """Fit inputs (..., n, features) to outputs (..., n)."""
    matrix = _with_one(inputs)
    coefficients = (np.linalg.pinv(matrix, rcond=_cutoff(matrix)) @ outputs[..., None])[..., 0]
    return Regression(coefficients, matrix.shape[-1], np.linalg.matrix_rank(matrix), np.linalg.cond(matrix))


def universal_energy(workloads: Sequence[Workload], chosen: Sequence[Rows]) -> Regression | None:
    """One energy model over the measured modes of all workloads: `chosen` (splits, k) of each. None without energy."""
    known = [
        (each.modes[rows], each.time[rows], each.energy[rows])
        for each, rows in zip(workloads, chosen, strict=True)
        if each.energy is not None
    ]
    if not known:
        return None
    inputs = [np.concatenate([modes, time[..., None]], axis=-1) for modes, time, _ in known]
    return regress(np.concatenate(inputs, axis=-2), np.concatenate([energy for _, _, energy in known], axis=-1))


def energy_at(model: Regression | None, modes: Array, time: Array) -> Array | None:
    """The universal model, fed with the features and the predicted time."""
    return None if model is None else model.at(np.concatenate([modes, time[..., None]], axis=-1))


def papers_choice(modes: Array, times: Sequence[Array], seed: int = 0) -> list[Rows]:
    """For each workload the four modes whose regressions have the least summed RMSE over the *other* workloads.

    The paper searches all subsets of its modes over all its workloads; where there are too many, a sample of them.
    """
    subsets = _subsets(len(modes), seed)
    errors = np.concatenate(
        [_errors_of_subsets(modes, times, subsets[at : at + _AT_ONCE]) for at in range(0, len(subsets), _AT_ONCE)]
    )
    total = errors.sum(axis=1)
    return [subsets[int(np.argmin(total - errors[:, place]))] for place in range(len(times))]


def _subsets(count: int, seed: int) -> Rows:
    if math.comb(count, PAPER_MODES) <= _MOST_SUBSETS:
        return np.array(list(itertools.combinations(range(count), PAPER_MODES)))
    draws = np.random.default_rng(seed).integers(0, count, (_MOST_SUBSETS // 4, PAPER_MODES))
    distinct = np.array([len(set(draw)) == PAPER_MODES for draw in draws.tolist()])
    return np.sort(draws[distinct], axis=1)


def _errors_of_subsets(modes: Array, times: Sequence[Array], subsets: Rows) -> Array:
    """The RMSE (subsets, workloads) over all modes."""
    matrix = _with_one(modes)
    chosen = matrix[subsets]
    solve = np.linalg.pinv(chosen, rcond=_cutoff(chosen))
    columns = []
    for time in times:
        predicted = (solve @ time[subsets][..., None])[..., 0] @ matrix.T
        columns.append(np.sqrt(((predicted - time) ** 2).mean(axis=1)))
    return np.stack(columns, axis=1)


def _with_one(inputs: Array) -> Array:
    return np.concatenate([inputs, np.ones((*inputs.shape[:-1], 1))], axis=-1)


def _cutoff(matrix: Array) -> float:
    return float(np.finfo(float).eps * max(matrix.shape[-2:]))  # as numpy.linalg.lstsq has it


FEWEST_MODES = 12  # a workload with fewer has too little to teach
_PRIOR_WORKLOADS = 1.0  # how many workloads the prior of the law is worth
_FLOOR = 0.3  # of the deviation before: another workload may always be unlike those known
_SPLITS = 6
_HELD_OUT = 60
_HELD_LEVEL = 0.91  # of what was held out, for 0.9 of what is to come: a few workloads do not tell all


@dataclass(frozen=True)
class Lesson:
    """The law as others have taught it, and the fits by which they did."""

    law: Law
    fits: tuple[Fit, ...]

    def departure(self, modes: Array) -> Array:
        """By how much the device departs from the law at these coordinates (modes, features): (figures, modes)."""
        each = [local_centre(fitted, modes[None])[0] for fitted in self.fits]
        total: Array = np.sum(each, axis=0) / (len(each) + 1)
        return total


def lesson(law: Law, others: Sequence[tuple[Array, Array]], fits: Sequence[Fit] | None = None) -> Lesson:
    """What other workloads teach; of each its coordinates (modes, features) and its log figures (figures, modes)."""
    fits = tuple(_fitted(law, each) for each in others) if fits is None else tuple(fits)
    seen = np.stack(
        [
            np.einsum("s,sc->c", fitted.weights[0], fitted.constants[0]) - law.means(logs)
            for fitted, (_, logs) in zip(fits, others, strict=True)
        ]
    )
    return Lesson(replace(law, taught=tuple(_taught(law, seen))), fits)


def predicted(law: Law, taught: Lesson | None, known: tuple[Array, Array], there: Array) -> tuple[Fit, Surface]:
    """The fit of one workload, of which coordinates and log figures are known, and what it says of other modes."""
    modes, logs = known
    off, off_there = (taught.departure(each) if taught else np.zeros((1, len(each))) for each in (modes, there))
    fitted = fit(taught.law if taught else law, modes[None], (logs - off[: len(logs)])[None])
    found = surface(fitted, there)
    return fitted, replace(found, centre=found.centre + off_there)


@dataclass(frozen=True)
class Calibration:
    """What happened to workloads that were held out: by what intervals must be wider, and the error, of each figure."""

    wider: Array
    errors: Array  # mean absolute error as a share: the median over workloads


def calibrate(law: Law, others: Sequence[tuple[Array, Array]], k: int) -> Calibration:
    """Each of the others as if `k` random modes of it were known and the rest of them had taught."""
    fits = [_fitted(law, each) for each in others]
    off, errors = [], []
    for place, (modes, logs) in enumerate(others):
        rest = [*range(place), *range(place + 1, len(others))]
        taught = lesson(law, [others[each] for each in rest], [fits[each] for each in rest]) if rest else None
        shares = []
        for split in range(_SPLITS):
            order = np.random.default_rng([split, len(modes)]).permutation(len(modes))
            count = min(k, len(modes) - FEWEST_MODES // 3)
            known, held = order[:count], order[count : count + _HELD_OUT]
            _, found = predicted(law, taught, (modes[known], logs[:, known]), modes[held])
            apart = with_energy(logs[:, held]) - found.centre
            shares.append(np.abs(np.expm1(-apart)).mean(axis=1))
            off.append(np.abs(apart) / found.reach(np.ones(len(apart))))
        errors.append(np.mean(shares, axis=0))
    beyond = np.quantile(np.concatenate(off, axis=1), _HELD_LEVEL, axis=1)
    return Calibration(np.asarray(beyond), np.median(errors, axis=0))


def _fitted(law: Law, known: tuple[Array, Array]) -> Fit:
    modes, logs = known
    return fit(law, modes[None], logs[None])


def _taught(law: Law, seen: Array) -> list[Constant]:
    """Each constant with the mean and the spread over workloads, of which the prior is a few."""
    weight = _PRIOR_WORKLOADS + len(seen)
    constants = []
    for place, before in enumerate(law.constants):
        moved = float(seen[:, place].sum() / weight)
        variance = (_PRIOR_WORKLOADS * before.deviation**2 + ((seen[:, place] - moved) ** 2).sum()) / weight
        deviation = max(float(np.sqrt(variance)), _FLOOR * before.deviation)
        constants.append(Constant(before.name, before.mean + moved, deviation))
    return constants


FIRST = 4  # modes chosen before anything is known; from then on each choice learns from those before
_DRAWS = 512  # of the law's constants, to know what is uncertain before anything is measured
_ANY_SCALE = 1.0  # how uncertain the workload's size is then, as a logarithm
_MOST_CANDIDATES = 400


@dataclass(frozen=True)
class Choice:
    """A mode worth measuring, and the share of the variance of all predictions that measuring it removes."""

    mode: tuple[float, ...]
    removes: float


def first_modes(law: Law, modes: Array, count: int) -> list[int]:
    """The first modes (rows) to measure of a workload of which nothing is known.

    By the covariances (1 or 2, modes, modes) of log time, and of log energy if known, over what the constants may be.
    """
    rng = np.random.default_rng(0)  # the same draws for everybody: a design is not a matter of luck
    means = np.array([each.mean for each in law.constants])
    draws = means + law.deviations * rng.standard_normal((_DRAWS, len(means)))
    time, *power = law.log_figures(draws, coordinates(law.resources, modes))
    figures = [time, *(time + each for each in power)]
    cov = np.stack([np.cov(each, rowvar=False) for each in figures]) + _ANY_SCALE
    noise = np.array([NOISE_TIME**2, NOISE_TIME**2 + NOISE_POWER**2])[: len(figures)]
    return [place for place, _ in _greedy(cov, noise, count)]


def next_modes(fitted: Fit, modes: Array, count: int) -> list[Choice]:
    """The modes (rows of `modes`) to measure next, best first, each as if those before it had been measured."""
    step = -(-len(modes) // _MOST_CANDIDATES)
    pool = modes[::step]
    cov, noise = joint_covariance(fitted, coordinates(fitted.law.resources, pool))
    found = _greedy(cov[::2], noise[::2], min(count, len(pool)))  # time, and energy where it is known
    return [Choice(tuple(pool[place].tolist()), share) for place, share in found]


def adaptive_choice(law: Law, workload: Workload, count: int) -> list[int]:
    """`count` of a workload's modes in the order in which we would measure them; each sees the results before it."""
    chosen = first_modes(law, workload.modes, min(FIRST, count))
    while len(chosen) < count:
        known = coordinates(law.resources, workload.modes[chosen])[None]
        fitted = fit(law, known, workload.logs[:, chosen][None])
        left = [place for place in range(len(workload.modes)) if place not in chosen]
        best = next_modes(fitted, workload.modes[left], 1)[0].mode
        chosen.append(next(place for place in left if tuple(workload.modes[place].tolist()) == best))
    return chosen


def _greedy(covariance: Array, noise: Array, count: int) -> list[tuple[int, float]]:
    """One after another the mode that removes most, with the share of the variance then left that it removes."""
    cov = covariance.copy()
    found: list[tuple[int, float]] = []
    for _ in range(count):
        total = np.trace(cov, axis1=1, axis2=2)
        variance = np.diagonal(cov, axis1=1, axis2=2) + noise[:, None]
        removed = ((cov**2).sum(axis=1) / variance / np.maximum(total, 1e-300)[:, None]).mean(axis=0)
        removed[[place for place, _ in found]] = -1.0
        best = int(np.argmax(removed))
        found.append((best, float(removed[best])))
        column = cov[:, :, best]
        cov = cov - column[:, :, None] * column[:, None, :] / variance[:, best][:, None, None]
    return found


COUNTS = (4, 6, 8, 12)  # measured modes
SPLITS = 50
INTERVAL_SPLITS = 8  # of them the intervals are tried on
MOST_HELD_OUT = 400  # modes of a split that are predicted: more would not make a median surer
MOST_FITTED = 400  # modes of one workload that teach


@dataclass(frozen=True)
class Outcome:
    """One workload, one method: the median over splits of the mean absolute error, as a share of what was measured."""

    group: str | None
    k: int
    method: str
    design: str  # how the measured modes were chosen: random, ours, paper
    splits: int
    time_mape: float
    power_mape: float | None = None  # None where no energy was measured
    energy_mape: float | None = None
    held: Mapping[str, float] | None = None  # of each figure, the share of held-out modes inside their intervals
    rank: float | None = None  # of a regression for time: medians over the splits
    unknowns: int | None = None
    condition: float | None = None


@dataclass(frozen=True)
class Answer:
    """Time and, if known, energy (splits, held-out) by a method; for a regression also how it was determined."""

    time: Array
    energy: Array | None
    regression: Regression | None = None
    held: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Bench:
    """All workloads, and which of the modes of each are measured in each split."""

    workloads: tuple[Workload, ...]
    law: Law
    chosen: tuple[Rows, ...]  # of each workload (splits, k)
    lessons: Mapping[str | None, Lesson] = field(default_factory=dict)  # of each workload, by name, what others taught

    @cached_property
    def universal(self) -> Regression | None:
        """The paper's energy model of each split."""
        return universal_energy(self.workloads, self.chosen)


Method = Callable[[Bench, int, Rows], Answer]


def evaluate(
    table: ModeTable,
    methods: Sequence[str],
    counts: Sequence[int] = COUNTS,
    splits: int = SPLITS,
    seed: int = 0,
    step: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Every workload, count and method on random splits; `step` is called after each of them."""
    law = table.law
    lessons = {}
    for each in table.workloads if "tare+transfer" in methods else ():
        if others := teachers([other for other in table.workloads if other is not each], law):
            lessons[each.name] = lesson(law, others)
    outcomes = []
    for k in counts:
        able = tuple(each for each in table.workloads if len(each.modes) > k)
        drawn = tuple(_draw(len(each.modes), k, splits, seed) for each in able)
        bench = Bench(able, law, tuple(chosen for chosen, _ in drawn), lessons)
        for place, (_, held) in enumerate(drawn):
            for method in methods:
                if method != "tare+transfer" or able[place].name in lessons:
                    outcomes.append(_outcome(bench, place, held, method, "random"))
                step()
    return outcomes


def evaluate_designs(
    table: ModeTable, counts: Sequence[int], seed: int = 0, step: Callable[[], None] = lambda: None
) -> list[Outcome]:
    """Our choice of modes, and the paper's where its search can be made: all workloads measured in the same modes."""
    law = table.law
    outcomes = []
    for workload in table.workloads:
        able = [k for k in counts if k < len(workload.modes)]
        order = adaptive_choice(law, workload, max(able, default=0)) if len(workload.modes) <= MOST_FITTED else []
        for k in able if order else ():
            rows = np.array(order[:k])
            held = np.setdiff1d(np.arange(len(workload.modes)), rows)[None]
            outcomes.append(_outcome(Bench((workload,), law, (rows[None],)), 0, held, "tare", "ours"))
        step()
    return outcomes + _papers(table, law, seed)


def methods_of(table: ModeTable) -> list[str]:
    """All methods; without energy `linear-own` would be `linear` once more."""
    return [name for name in METHODS if table.columns.powered or name != "linear-own"]


def count_steps(table: ModeTable, methods: Sequence[str], counts: Sequence[int]) -> int:
    """How often `step` is called in all."""
    return len(table.workloads) + sum(len(each.modes) > k for each in table.workloads for k in counts) * len(methods)


def possible_counts(table: ModeTable, counts: Sequence[int]) -> list[int]:
    """The counts that leave something to predict in one workload or more."""
    most = max(len(each.modes) for each in table.workloads)
    possible = sorted({k for k in counts if k < most})
    if not possible:
        raise StudyError(
            f"{table.source}: {most} modes are measured at most; an evaluation with {min(counts)} of them measured and"
            " some held out needs more."
        )
    return possible


def _papers(table: ModeTable, law: Law, seed: int) -> list[Outcome]:
    first = table.workloads[0].modes
    same = all(each.modes.shape == first.shape and np.array_equal(each.modes, first) for each in table.workloads)
    if not same or len(table.workloads) < 2 or not PAPER_MODES < len(first) <= MOST_FITTED:
        return []
    chosen = papers_choice(first, [each.time for each in table.workloads], seed)
    found = []
    for place, rows in enumerate(chosen):
        bench = Bench(table.workloads, law, tuple(rows[None] for _ in table.workloads))
        held = np.setdiff1d(np.arange(len(first)), rows)[None]
        found += [_outcome(bench, place, held, method, "paper") for method in ("tare", "linear")]
    return found


def _outcome(bench: Bench, place: int, held: Rows, method: str, design: str) -> Outcome:
    answer = METHODS[method](bench, place, held)
    workload, chosen = bench.workloads[place], bench.chosen[place]
    regression = answer.regression
    return Outcome(
        workload.name,
        chosen.shape[1],
        method,
        design,
        len(chosen),
        **_errors(answer, workload, held),
        held=answer.held,
        rank=float(np.median(regression.rank)) if regression else None,
        unknowns=regression.unknowns if regression else None,
        condition=float(np.median(regression.condition)) if regression else None,
    )


def _errors(answer: Answer, workload: Workload, held: Rows) -> dict[str, float]:
    """Of each figure that was measured, as an outcome has them."""
    time = workload.time[held]
    found = {"time_mape": _median_error(answer.time, time)}
    if workload.energy is None or answer.energy is None:
        return found
    energy = workload.energy[held]
    power_mape = _median_error(answer.energy / answer.time, energy / time)
    return {**found, "power_mape": power_mape, "energy_mape": _median_error(answer.energy, energy)}


def _median_error(predicted: Array, measured: Array) -> float:
    return float(np.median(np.mean(np.abs(predicted / measured - 1), axis=1)))


def _draw(modes: int, k: int, splits: int, seed: int) -> tuple[Rows, Rows]:
    """Measured (splits, k) and held-out rows; workloads with as many modes have the same splits."""
    rng = np.random.default_rng([seed, modes, k])
    orders = np.stack([rng.permutation(modes) for _ in range(splits)])
    return orders[:, :k], orders[:, k : k + MOST_HELD_OUT]


def _by_law(bench: Bench, place: int, held: Rows, *, transfer: bool = False) -> Answer:
    """The law on the workload's own measured modes, or also taught by the others with all of theirs (`transfer`)."""
    workload, chosen = bench.workloads[place], bench.chosen[place]
    taught = bench.lessons[workload.name] if transfer else None
    law = taught.law if taught else bench.law
    modes = coordinates(law.resources, workload.modes)
    off = taught.departure(modes) if taught else np.zeros((1, len(modes)))
    left = workload.logs - off[: len(workload.logs)]
    fitted = fit(law, modes[chosen], np.moveaxis(left[:, chosen], 1, 0))
    time, *others = np.exp(np.moveaxis(centre(fitted, modes[held]), 1, 0) + off[:, held])
    return Answer(time, others[-1] if others else None, held=_held(bench, place, held, taught))


def _held(bench: Bench, place: int, held: Rows, taught: Lesson | None) -> dict[str, float]:
    """How much of what was held out lies in its interval, on the first splits: each takes as long as a prediction."""
    law, workload, chosen = bench.law, bench.workloads[place], bench.chosen[place]
    modes, logs = coordinates(law.resources, workload.modes), workload.logs
    others = teachers([each for each in bench.workloads if each is not workload], law) if taught else []
    wider = calibrate(law, others, chosen.shape[1]).wider if others else WIDER
    inside = []
    for rows, there in zip(chosen[:INTERVAL_SPLITS], held, strict=False):
        _, found = predicted(law, taught, (modes[rows], logs[:, rows]), modes[there])
        inside.append((np.abs(with_energy(logs[:, there]) - found.centre) <= found.reach(wider)).mean(axis=1))
    return dict(zip(FIGURES, np.mean(inside, axis=0).tolist(), strict=False))


def _by_linear(bench: Bench, place: int, held: Rows, *, own: bool = False) -> Answer:
    """The paper's regressions; `own`: the energy of each workload has one of its own."""
    workload, chosen = bench.workloads[place], bench.chosen[place]
    there = workload.modes[held]
    regression = regress(workload.modes[chosen], workload.time[chosen])
    time = regression.at(there)
    if not own:
        return Answer(time, energy_at(bench.universal, there, time), regression)
    energy = None if workload.energy is None else regress(workload.modes[chosen], workload.energy[chosen]).at(there)
    return Answer(time, energy, regression)


METHODS: Mapping[str, Method] = {
    "tare": _by_law,
    "linear": _by_linear,
    "linear-own": partial(_by_linear, own=True),
    "tare+transfer": partial(_by_law, transfer=True),
}


def teachers(workloads: Sequence[Workload], law: Law) -> list[tuple[Array, Array]]:
    """The workloads that have enough modes to teach: coordinates, and logarithms of the figures."""
    enough = [thinned(each) for each in workloads if len(each.modes) >= FEWEST_MODES]
    return [(coordinates(law.resources, each.modes), each.logs) for each in enough]


def thinned(workload: Workload) -> Workload:
    """No more modes than a fit can use; those of a finer table are left out evenly."""
    if len(workload.modes) <= MOST_FITTED:
        return workload
    return workload.take(np.unique(np.linspace(0, len(workload.modes) - 1, MOST_FITTED).astype(int)).tolist())
