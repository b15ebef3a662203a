"""What a run may say of its noise, counted on simulated studies. All seeds are fixed.

    pytest tests/property/test_noise_error_rates.py

A share p that is counted over N studies scatters by sqrt(p (1 - p) / N).
"""

import math
from pathlib import Path

import numpy as np
import pytest

from tare.analysis.cells import runs_at_most
from tare.analysis.compare import both_runs, compare
from tare.analysis.estimators import line_up, signed_rank
from tare.analysis.model import Measurement
from tare.analysis.tables.table import Table, run_order

SURE = ("slower", "faster", "equivalent")


# The smallest effect that a run can see


def normal(rng, shape):
    return rng.normal(0, 0.02, shape)


def two_states(rng, shape):
    """Each block is in one of two states, 10 % apart."""
    return rng.choice([-0.05, 0.05], shape) + rng.normal(0, 0.005, shape)


def slow_trials(rng, shape):
    """A fifth of the trials of either side are 10 % slower."""
    slow = [(rng.random(shape) < 0.2).astype(float) for _ in range(2)]
    return 0.1 * (slow[0] - slow[1]) + rng.normal(0, 0.005, shape)


def judged(logs):
    blocks = [Measurement("bare", 1.0, str(block)) for block in range(len(logs))]
    ours = [Measurement("ours", math.exp(log), str(block)) for block, log in enumerate(logs)]
    return compare(blocks + ours, against="bare", margin=0.0, resamples=0)[0]


def power(noise, n, runs=100, again=30):
    """How often an effect of the promised smallest size is seen: over runs, each with its own promise."""
    rng = np.random.default_rng(n)
    seen = 0
    for logs in noise(rng, (runs, n)):
        promised = math.log1p(judged(logs).mde)
        seen += sum(signed_rank(other + promised).interval(0.95)[0] > 0 for other in noise(rng, (again, n)))
    return seen / (runs * again)


@pytest.mark.parametrize("n", [12, 20])
@pytest.mark.parametrize("noise", [two_states, slow_trials])
def test_the_promised_80_percent_are_75_to_85_where_blocks_have_two_states(noise, n):
    assert 0.75 <= power(noise, n) <= 0.85  # 48 to 75 % where the noise was taken as normal


@pytest.mark.parametrize("n", [8, 20])
def test_the_promised_80_percent_hold_in_normal_noise_as_well(n):
    assert 0.73 <= power(normal, n) <= 0.85


# The order of a table


def wandering(rng, count, keeps=0.95):
    """Log times of trials run one after another on a machine whose speed wanders."""
    made = [rng.normal(0, 0.02)]
    for _ in range(count - 1):
        made.append(keeps * made[-1] + rng.normal(0, 0.02 * math.sqrt(1 - keeps**2)))
    return np.array(made) + rng.normal(0, 0.002, count)


def drifting(rng, count):
    return np.linspace(0, 0.1, count) + rng.normal(0, 0.005, count)


def pair_by_pair(n):
    return [place // 2 for place in range(2 * n)]


def claims(order, noise, blocks=pair_by_pair, *, effect=0.0, n=10, studies=200, day=None):
    """How often two levels that differ by `effect` get a sure word, in the order of a table's rows."""
    rng = np.random.default_rng(30)
    found = 0
    for _ in range(studies):
        sides = order(rng, n)
        logs = noise(rng, 2 * n) + effect * np.array(sides)
        held = [str(block) for block in blocks(n)] if blocks else [None] * 2 * n
        cells = {"side": list(map(str, sides)), **({"timestamp": [day] * 2 * n} if day else {})}
        places = run_order(Table(Path("t.csv"), cells))
        values = [Measurement("ab"[side], math.exp(log), block, place=place)
                  for side, log, block, place in zip(sides, logs, held, places, strict=True)]  # fmt: skip
        (judged,) = compare(values, against="a", margin=0.0, resamples=0)
        found += judged.verdict in SURE
    return found / studies


def one_after_another(rng, n):
    return [0] * n + [1] * n


def shuffled(rng, n):
    return rng.permutation([0] * n + [1] * n)


def fixed_in_blocks(rng, n):
    return [0, 1] * n


def shuffled_in_blocks(rng, n):
    return np.concatenate([rng.permutation([0, 1]) for _ in range(n)])


@pytest.mark.parametrize("noise", [wandering, drifting])
@pytest.mark.parametrize(
    ("order", "blocks"),
    [(one_after_another, None), (shuffled, None), (fixed_in_blocks, pair_by_pair), (shuffled_in_blocks, pair_by_pair)],
)
def test_the_same_thing_twice_is_claimed_to_differ_in_at_most_7_percent_in_any_order(order, blocks, noise):
    assert claims(order, noise, blocks) <= 0.07  # 54 to 100 % where order was not looked at


def half_by_half(n):
    """A0-4 B0-4 B5-9 A5-9: the blocks of a half interleave."""
    half = list(range(n // 2))
    return [*half, *half, *(n // 2 + each for each in half + half)]


def halves(rng, n):
    return [0] * (n // 2) + [1] * n + [0] * (n // 2)


def shuffled_halves(rng, n):
    first = rng.integers(0, 2, n)
    return np.concatenate([part for half in (first[: n // 2], first[n // 2 :]) for part in (half, 1 - half)])


def test_a_coarse_timestamp_leaves_the_order_of_the_rows():
    assert claims(fixed_in_blocks, drifting, day="2026-11-17", studies=60) == 0  # 52 % where a day has no order
    assert claims(shuffled_in_blocks, normal, effect=0.1, day="2026-11-17", studies=60) >= 0.85


def test_blocks_that_interleave_are_held_to_the_runs_of_a_level():
    assert claims(halves, wandering, half_by_half, studies=60) <= 0.07  # 40 % by each block alone
    assert claims(shuffled_halves, normal, half_by_half, effect=0.1, studies=60) >= 0.85


def test_a_shuffled_order_is_seldom_taken_for_another():
    rng = np.random.default_rng(31)
    orders = [shuffled(rng, 10) for _ in range(2_000)]
    few = [runs_at_most(1 + int((np.diff(order) != 0).sum()), 10, 10) <= 0.10 for order in orders]

    assert sum(few) / len(few) <= 0.10


def test_the_count_of_runs_is_that_of_the_textbook():
    assert runs_at_most(2, 6, 6) == pytest.approx(2 / 924)
    assert runs_at_most(3, 6, 6) == pytest.approx(12 / 924)
    assert runs_at_most(12, 6, 6) == pytest.approx(1.0)


# Both runs of a baseline


def spiky(rng, shape):
    return rng.normal(0, 0.01, shape) + (rng.random(shape) < 0.15) * rng.exponential(0.1, shape)


@pytest.mark.parametrize(("noise", "narrower"), [(normal, 0.9), (spiky, 1.05)])
def test_a_baseline_that_was_run_twice_claims_no_more_and_is_known_better(noise, narrower):
    rng = np.random.default_rng(32)
    claims, widths = 0, []
    for _ in range(500):
        ours, first, again = noise(rng, (3, 20))
        theirs = both_runs(*([Measurement("bare", math.exp(log), str(block), twin) for block, log in enumerate(logs)]
                             for twin, logs in enumerate((first, again))))  # fmt: skip
        both = line_up([Measurement("ours", math.exp(log), str(block)) for block, log in enumerate(ours)], theirs)
        low, high = both.by_ranks.interval(0.95)
        once_low, once_high = signed_rank(ours - first).interval(0.95)
        claims += low > 0 or high < 0
        widths.append((high - low) / (once_high - once_low))

    assert claims / 500 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 500)
    assert np.median(widths) <= narrower
