"""How often each way to make an interval is right: the simulation behind docs/decisions/0002-statistics.md.

    .venv/bin/python benchmarks/coverage.py            # about four minutes on a slow core
    .venv/bin/python benchmarks/coverage.py --quick    # a tenth of the studies

Each study has n blocks of two sides with the same true time, 8 % drift between blocks and one of four kinds of noise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tare.analysis.compare import compare, detectable, t_detectable
from tare.analysis.estimators import UNLIKE_SIZES, UNLIKE_SPREADS
from tare.analysis.model import Measurement
from tare.analysis.noise import LOOKING_ALPHA
from tare.analysis.numeric.ranks import mann_whitney_null, signed_rank_null

Floats = NDArray[np.float64]
Interval = tuple[Floats, Floats]

RNG = np.random.default_rng(1)
DRIFT = 0.08
RESAMPLES = 999


def normal(shape: tuple[int, ...]) -> Floats:
    return RNG.normal(0, 0.02, shape)


def heavy(shape: tuple[int, ...]) -> Floats:
    return 0.012 * RNG.standard_t(3, shape)


def spikes(shape: tuple[int, ...]) -> Floats:
    return RNG.normal(0, 0.01, shape) + (RNG.random(shape) < 0.15) * RNG.exponential(0.1, shape)


def unequal(shape: tuple[int, ...]) -> Floats:
    noise = RNG.normal(0, 0.02, shape)
    noise[:, 1] *= 2
    return noise


NOISES: dict[str, Callable[[tuple[int, ...]], Floats]] = {
    "normal": normal,
    "t, 3 degrees": heavy,
    "15 % spikes": spikes,
    "unequal sides": unequal,
}


def studies(noise: str, count: int, n: int) -> Floats:
    """Log times of `count` studies: study x side x block."""
    return NOISES[noise]((count, 2, n)) + RNG.normal(0, DRIFT, (count, 1, n))


def medians_bootstrap(logs: Floats) -> Interval:
    n = logs.shape[2]
    picks = RNG.integers(0, n, (RESAMPLES, n))
    parts = []
    for part in np.array_split(logs, max(1, len(logs) // 100)):
        shifts = np.median(part[:, 1][:, picks], -1) - np.median(part[:, 0][:, picks], -1)
        parts.append(np.quantile(shifts, [0.025, 0.975], axis=1))
    low, high = np.concatenate(parts, axis=1)
    return low, high


def student(logs: Floats) -> Interval:
    d = logs[:, 1] - logs[:, 0]
    reach = -special.stdtrit(d.shape[1] - 1, 0.025) * d.std(1, ddof=1) / np.sqrt(d.shape[1])
    return d.mean(1) - reach, d.mean(1) + reach


def walsh(d: Floats) -> Floats:
    first, second = np.triu_indices(d.shape[1])
    return np.sort((d[:, first] + d[:, second]) / 2, axis=1)


def signed_rank(logs: Floats, alpha: float = 0.05) -> Interval:
    d = logs[:, 1] - logs[:, 0]
    k, averages = signed_rank_null(d.shape[1]).critical(alpha / 2), walsh(d)
    return averages[:, k], averages[:, -1 - k]


def interpolated(logs: Floats) -> Interval:
    """Between the two ranks whose exact coverage lies on either side of 95 %."""
    d = logs[:, 1] - logs[:, 0]
    null, averages = signed_rank_null(d.shape[1]), walsh(d)
    k = null.critical(0.025)
    share = (0.025 - null.at_most(k)) / (null.at_most(k + 1) - null.at_most(k))
    low = averages[:, k] * (1 - share) + averages[:, k + 1] * share
    return low, averages[:, -1 - k] * (1 - share) + averages[:, -2 - k] * share


METHODS: dict[str, Callable[[Floats], Interval]] = {
    "ratio of medians, block bootstrap": medians_bootstrap,
    "t of log-ratios": student,
    "signed rank, interpolated": interpolated,
    "**signed rank, exact**": signed_rank,
}


def holds_zero(interval: Interval) -> float:
    low, high = interval
    return float(np.mean((low <= 0) & (high >= 0)))


def coverage_table(count: int) -> None:
    print(f"Coverage of a 95 % interval in %, and its median width in % of the time ({count:,} studies a cell)\n")
    print(f"| n | noise | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}")
    for n in (6, 8, 10, 15, 20):
        for noise in NOISES:
            logs = studies(noise, count, n)
            found = [method(logs) for method in METHODS.values()]
            cells = [f"{100 * holds_zero(each):.1f} ({100 * np.median(each[1] - each[0]):.1f})" for each in found]
            print(f"| {n} | {noise} | {' | '.join(cells)} |", flush=True)


def stop_table(count: int) -> None:
    """Looks after each block from 6 to 20; the target is the half-width that a study would declare."""
    print("\nCoverage in % after stopping at the first tight interval (6 to 20 blocks), worst and best of 12 targets\n")
    print("| noise | intervals at 95 % | mean blocks | intervals at 96.5 % | mean blocks |\n|---|---|---|---|---|")
    for noise in NOISES:
        logs = studies(noise, count, 20)
        cells = []
        for alpha in (0.05, LOOKING_ALPHA):
            bounds = {n: signed_rank(logs[:, :, :n], alpha) for n in range(6, 21)}
            runs = [_stopped(bounds, target) for target in np.geomspace(0.008, 0.1, 12)]
            rights = [100 * right for right, _ in runs]
            cells.append(f"{min(rights):.1f} to {max(rights):.1f} | {np.mean([blocks for _, blocks in runs]):.1f}")
        print(f"| {noise} | {' | '.join(cells)} |", flush=True)


def _stopped(bounds: dict[int, Interval], target: float) -> tuple[float, float]:
    low, high = (side.copy() for side in bounds[20])
    blocks = np.full(len(low), 20)
    for n in range(19, 5, -1):
        tight = (bounds[n][1] - bounds[n][0]) / 2 <= target
        low[tight], high[tight], blocks[tight] = bounds[n][0][tight], bounds[n][1][tight], n
    return holds_zero((low, high)), float(blocks.mean())


def power_table(count: int) -> None:
    """The shift that a test needs to reject is a rank of the pairwise values: its 80 % point is the true MDE."""
    print("\nPower in % at the promised smallest detectable effect (normal noise; 80 % is promised)\n")
    print("| n | paired, 5 % | paired, 1.67 % | two samples, 5 % | two samples, t (M6), in CV |\n|---|---|---|---|---|")
    for n in (6, 7, 8, 9, 10, 12, 15, 20):
        d = RNG.normal(0, 1, (count, n))
        paired = [_power(walsh(d), signed_rank_null(n).critical(a / 2), detectable(n, a, paired=True)) for a in LEVELS]
        sides = RNG.normal(0, 1, (2, count, n))
        pairs = np.sort((sides[0][:, :, None] - sides[1][:, None, :]).reshape(count, -1), axis=1)
        two = _power(pairs, mann_whitney_null(n, n).critical(0.025), detectable(n, 0.05, paired=False))
        print(f"| {n} | {' | '.join(paired)} | {two} | {t_detectable(n, paired=False):.2f} |", flush=True)


UNLIKE = ((10, 10, 1), (10, 10, 3), (20, 20, 3), (9, 6, 3), (14, 10, 3), (30, 6, 1), (30, 6, 2), (30, 6, 3), (60, 6, 3))


def unlike_table(count: int) -> None:
    """Two samples of one true time: how often each test takes a difference in size and spread for a shift."""
    print("\nFalse claims in % of two samples unlike in size and spread (5 % is promised)\n")
    print(
        "| sizes | spreads | noise | Mann-Whitney | Welch t | by ranks unless spreads seem over 2x apart | **tare** |"
    )
    print("|---|---|---|---|---|---|---|")
    noises = {"normal": lambda shape: RNG.normal(0, 0.01, shape), "t, 3 degrees": heavy, "15 % spikes": spikes}
    for many, few, spread in UNLIKE:
        for name, noise in noises.items():
            if noise is spikes and spread > 1:
                continue  # larger spikes upwards are a difference, not a false claim
            ours, theirs = noise((count, many)), spread * noise((count, few))
            rates = " | ".join(f"{100 * np.mean(claims):.1f}" for claims in _claims(ours, theirs))
            print(f"| {many}, {few} | 1 : {spread} | {name} | {rates} |", flush=True)


def _claims(ours: Floats, theirs: Floats) -> tuple[Floats, ...]:
    many, few = ours.shape[1], theirs.shape[1]
    below = (ours[:, :, None] < theirs[:, None, :]).sum((1, 2))
    by_ranks = np.minimum(below, many * few - below) <= mann_whitney_null(many, few).critical(0.025)
    parts = [side.var(1, ddof=1) / side.shape[1] for side in (ours, theirs)]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (many - 1) + parts[1] ** 2 / (few - 1))
    by_t = np.abs(ours.mean(1) - theirs.mean(1)) / np.sqrt(sum(parts)) > -special.stdtrit(freedom, 0.025)
    spreads = np.sort([np.median(np.abs(x - np.median(x, 1, keepdims=True)), 1) for x in (ours, theirs)], axis=0)
    apart = spreads[1] > UNLIKE_SPREADS * spreads[0]
    unlike = apart | (max(many, few) >= UNLIKE_SIZES * min(many, few))
    return by_ranks, by_t, np.where(apart, by_t, by_ranks), np.where(unlike, by_ranks & by_t, by_ranks)


LEVELS = (0.05, 0.05 / 3)


def _power(averages: Floats, k: int, shift: float) -> str:
    return f"{100 * np.mean(averages[:, k] + shift > 0):.1f}" if k >= 0 else "(by t)"


def reported_table(count: int) -> None:
    """The smallest effect that a run prints comes from its own interval: the median of these is planted."""
    print(
        "\nPower in % at the smallest effect that runs report of themselves, in the median (80 % if noise is normal)\n"
    )
    print("| n | noise | reported, in % | power |\n|---|---|---|---|")
    for n in (6, 8, 10, 20):
        for noise in NOISES:
            logs = studies(noise, count, n)
            effect = float(np.median([_compared(each, 0.0)[0] for each in logs]))
            power = np.mean([_compared(each, effect)[1] for each in logs])
            print(f"| {n} | {noise} | {100 * effect:.1f} | {100 * power:.1f} |", flush=True)


def _compared(logs: Floats, effect: float) -> tuple[float, bool]:
    """What one study says of its smallest effect, and whether it finds one of this size."""
    times = np.exp(logs) * np.array([1, 1 + effect])[:, None]
    rows = [Measurement(str(side), float(v), str(block)) for side in (0, 1) for block, v in enumerate(times[side])]
    (found,) = compare(rows, against="0", margin=0.0, resamples=0)
    return found.mde or 0.0, found.verdict == "slower"


if __name__ == "__main__":
    scale = 10 if "--quick" in sys.argv[1:] else 1
    coverage_table(10_000 // scale)
    stop_table(20_000 // scale)
    power_table(20_000 // scale)
    unlike_table(10_000 // scale)
    reported_table(1_000 // scale)
