"""How far each method is off: random splits into measured and held-out modes, the same for every method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tare.analysis.choose.predict.fit import (
    FIGURES,
    NOISE_POWER,
    NOISE_TIME,
    WIDER,
    Fit,
    centre,
    fit,
    joint_covariance,
    with_energy,
)
from tare.analysis.choose.predict.law import Array, Law, Rows, coordinates
from tare.analysis.choose.predict.linear import (
    FEWEST_MODES,
    PAPER_MODES,
    Lesson,
    Regression,
    calibrate,
    energy_at,
    lesson,
    papers_choice,
    predicted,
    regress,
    universal_energy,
)
from tare.analysis.choose.predict.modes import ModeTable, Workload
from tare.base.errors import StudyError

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
    """The first modes (rows) to measure of a workload of which nothing is known."""
    cov, noise = _before_anything(law, coordinates(law.resources, modes))
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


def _before_anything(law: Law, modes: Array) -> tuple[Array, Array]:
    """Covariances (1 or 2, modes, modes) of log time, and of log energy if known, over what the constants may be."""
    rng = np.random.default_rng(0)  # the same draws for everybody: a design is not a matter of luck
    means = np.array([each.mean for each in law.constants])
    draws = means + law.deviations * rng.standard_normal((_DRAWS, len(means)))
    time, *power = law.log_figures(draws, modes)
    figures = [time, *(time + each for each in power)]
    cov = np.stack([np.cov(each, rowvar=False) for each in figures]) + _ANY_SCALE
    return cov, np.array([NOISE_TIME**2, NOISE_TIME**2 + NOISE_POWER**2])[: len(figures)]


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
    lessons: Mapping[int, Lesson]

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
    lessons = _lessons(table.workloads, law) if "tare+transfer" in methods else {}
    outcomes = []
    for k in counts:
        able = tuple(each for each in table.workloads if len(each.modes) > k)
        drawn = tuple(_draw(len(each.modes), k, splits, seed) for each in able)
        bench = Bench(able, law, tuple(chosen for chosen, _ in drawn), _kept(lessons, table.workloads, able))
        for place, (_, held) in enumerate(drawn):
            for method in methods:
                if method != "tare+transfer" or place in bench.lessons:
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
            outcomes.append(_alone(law, workload, np.array(order[:k]), "tare", "ours"))
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
        bench = Bench(table.workloads, law, tuple(rows[None] for _ in table.workloads), {})
        held = np.setdiff1d(np.arange(len(first)), rows)[None]
        found += [_outcome(bench, place, held, method, "paper") for method in ("tare", "linear")]
    return found


def _alone(law: Law, workload: Workload, rows: Rows, method: str, design: str) -> Outcome:
    held = np.setdiff1d(np.arange(len(workload.modes)), rows)[None]
    return _outcome(Bench((workload,), law, (rows[None],), {}), 0, held, method, design)


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


def _by_tare(bench: Bench, place: int, held: Rows) -> Answer:
    """The law on the workload's own measured modes, and on nothing else."""
    return _by_law(bench, place, held, bench.law, None)


def _by_transfer(bench: Bench, place: int, held: Rows) -> Answer:
    """The same, taught by the other workloads with all of their modes."""
    taught = bench.lessons[place]
    return _by_law(bench, place, held, taught.law, taught)


def _by_law(bench: Bench, place: int, held: Rows, law: Law, taught: Lesson | None) -> Answer:
    workload, chosen = bench.workloads[place], bench.chosen[place]
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
    others = teachers([*bench.workloads[:place], *bench.workloads[place + 1 :]], law) if taught else []
    wider = calibrate(law, others, chosen.shape[1]).wider if others else WIDER
    inside = []
    for rows, there in zip(chosen[:INTERVAL_SPLITS], held, strict=False):
        _, found = predicted(law, taught, (modes[rows], logs[:, rows]), modes[there])
        inside.append((np.abs(with_energy(logs[:, there]) - found.centre) <= found.reach(wider)).mean(axis=1))
    return dict(zip(FIGURES, np.mean(inside, axis=0).tolist(), strict=False))


def _by_linear(bench: Bench, place: int, held: Rows) -> Answer:
    workload, chosen = bench.workloads[place], bench.chosen[place]
    regression = regress(workload.modes[chosen], workload.time[chosen])
    time = regression.at(workload.modes[held])
    return Answer(time, energy_at(bench.universal, workload.modes[held], time), regression)


def _by_own_linear(bench: Bench, place: int, held: Rows) -> Answer:
    workload, chosen = bench.workloads[place], bench.chosen[place]
    regression = regress(workload.modes[chosen], workload.time[chosen])
    time = regression.at(workload.modes[held])
    if workload.energy is None:
        return Answer(time, None, regression)
    energy = regress(workload.modes[chosen], workload.energy[chosen]).at(workload.modes[held])
    return Answer(time, energy, regression)


METHODS: Mapping[str, Method] = {
    "tare": _by_tare,
    "linear": _by_linear,
    "linear-own": _by_own_linear,
    "tare+transfer": _by_transfer,
}


def _lessons(workloads: Sequence[Workload], law: Law) -> dict[int, Lesson]:
    """What the others teach each workload; none where no other has enough modes."""
    found = {}
    for place in range(len(workloads)):
        others = teachers([*workloads[:place], *workloads[place + 1 :]], law)
        if others:
            found[place] = lesson(law, others)
    return found


def teachers(workloads: Sequence[Workload], law: Law) -> list[tuple[Array, Array]]:
    """The workloads that have enough modes to teach: coordinates, and logarithms of the figures."""
    return [
        (coordinates(law.resources, each.modes[rows]), each.logs[:, rows])
        for each in workloads
        if len(each.modes) >= FEWEST_MODES
        for rows in [np.unique(np.linspace(0, len(each.modes) - 1, MOST_FITTED).astype(int))]
    ]


def _kept(lessons: Mapping[int, Lesson], all_of: Sequence[Workload], able: Sequence[Workload]) -> dict[int, Lesson]:
    by_name = {all_of[place].name: found for place, found in lessons.items()}
    return {place: by_name[each.name] for place, each in enumerate(able) if each.name in by_name}
