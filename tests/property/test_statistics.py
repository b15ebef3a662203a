"""Promises of the statistics, counted on simulated studies, and laws that hold for any measurements.

A share p that is counted over N studies scatters by sqrt(p (1 - p) / N); the bounds below allow three of that
where they are one-sided promises. All seeds are fixed: the counts are the same on every machine.
"""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tare.analysis.compare import compare, detectable, mde
from tare.analysis.model import Measurement
from tare.analysis.noise import LOOKING_ALPHA, enough

DEEP = pytest.mark.deep
STUDIES = 1_000
DRIFT = 0.08
CV = 0.02


def slack(share, studies=STUDIES):
    return 3 * math.sqrt(share * (1 - share) / studies)


def normal(rng, shape):
    return rng.normal(0, CV, shape)


def heavy(rng, shape):
    return 0.6 * CV * rng.standard_t(3, shape)


def spikes(rng, shape):
    return rng.normal(0, CV / 2, shape) + (rng.random(shape) < 0.15) * rng.exponential(5 * CV, shape)


def unequal(rng, shape):
    return rng.normal(0, CV, shape) * np.array([1, 2])[:, None]


NOISES = {"normal": normal, "heavy tails": heavy, "spikes": spikes, "unequal sides": unequal}


def study(rng, n, noise=normal, effects=(0.0,), drift=DRIFT, blocks=True):
    """`bare` and one level per effect in n blocks of a drifting machine."""
    logs = noise(rng, (len(effects) + 1, n)) + rng.normal(0, drift, n)
    logs += np.log1p(np.array([0.0, *effects]))[:, None]
    names = ["bare", *(f"level {place}" for place in range(len(effects)))]
    return [
        Measurement(name, float(value), str(block) if blocks else None)
        for name, row in zip(names, np.exp(logs), strict=True)
        for block, value in enumerate(row)
    ]


def quick(measurements, margin=0.0, alpha=0.05, against="bare"):
    return compare(measurements, against=against, margin=margin, alpha=alpha, resamples=0)


@cache
def covered(noise, blocks):
    """The share of 1,000 studies of 6 to 20 blocks whose interval holds the true effect."""
    rng, hits = np.random.default_rng(11), 0
    for number in range(STUDIES):
        drift = DRIFT if blocks else 0.0
        (found,) = quick(study(rng, 6 + number % 15, NOISES[noise], (0.05,), drift, blocks))
        hits += found.low <= 0.05 <= found.high
    return hits / STUDIES


HARDER = [pytest.param(name, marks=DEEP) if name == "normal" else name for name in NOISES]


@pytest.mark.parametrize("noise", HARDER)
def test_a_95_percent_interval_of_paired_blocks_covers_93_to_97_percent(noise):
    assert 0.93 <= covered(noise, True) <= 0.97


# What the exact interval has at each n, since the levels of a rank test come in steps. Over 1,000 studies a count
# scatters about that by half a point and more, so at six blocks (96.9 %) it may well come out above 97 %.
PROMISED = {6: 0.96875, 8: 0.9609, 10: 0.9512, 15: 0.9521}


@pytest.mark.parametrize(("n", "promised"), PROMISED.items())
@pytest.mark.parametrize("noise", [pytest.param("normal", marks=DEEP), "heavy tails"])
def test_at_each_number_of_blocks_the_interval_covers_what_its_method_says(n, promised, noise):
    rng = np.random.default_rng(n)
    found = [quick(study(rng, n, NOISES[noise], (0.05,)))[0] for _ in range(STUDIES)]
    covering = sum(each.low <= 0.05 <= each.high for each in found) / STUDIES

    assert all(f"({100 * promised:.1f} %)" in each.method for each in found)
    assert abs(covering - promised) <= slack(promised)
    assert covering >= 0.95 - slack(0.95)


@pytest.mark.parametrize("noise", [pytest.param("normal", marks=DEEP), "heavy tails"])
def test_a_95_percent_interval_of_two_samples_covers_93_to_97_percent(noise):
    assert 0.93 <= covered(noise, False) <= 0.97


@pytest.mark.parametrize("noise", HARDER)
def test_the_same_thing_twice_is_called_slower_or_faster_in_at_most_5_percent(noise):
    rng = np.random.default_rng(12)
    claims = sum(
        quick(study(rng, 6 + number % 15, NOISES[noise]))[0].verdict in ("slower", "faster")
        for number in range(STUDIES)
    )

    assert claims / STUDIES <= 0.05 + slack(0.05)


def with_a_twin(values):
    """The second level becomes the baseline's A/A twin."""
    return [Measurement("bare", m.value, m.block, twin=1) if m.level == "level 1" else m for m in values]


def test_with_a_margin_the_same_thing_twice_is_hardly_ever_called_different():
    rng = np.random.default_rng(13)
    claims = sum(
        quick(study(rng, 6 + number % 15), margin=0.05)[0].verdict in ("slower", "faster") for number in range(STUDIES)
    )

    assert claims / STUDIES <= 0.01


def test_with_an_a_a_repeat_in_the_baseline_the_same_thing_twice_is_called_different_in_at_most_5_percent():
    rng = np.random.default_rng(13)
    claims = sum(
        quick(with_a_twin(study(rng, 6 + number % 15, effects=(0.0, 0.0))))[0].verdict in ("slower", "faster")
        for number in range(STUDIES)
    )

    assert claims / STUDIES <= 0.05 + slack(0.05)


def test_a_baseline_that_differs_from_itself_lets_no_smaller_difference_be_claimed():
    rng = np.random.default_rng(18)
    # Both runs of the baseline count: the level is 9.5 % above their middle, and they are 10 % apart.
    found = [quick(with_a_twin(study(rng, 12, effects=(0.15, 0.10))))[0] for _ in range(STUDIES // 10)]

    assert sum(each.low > 0 for each in found) >= 0.9 * len(found)  # without the floor these would be claims
    assert sum(each.verdict in ("slower", "faster") for each in found if abs(each.effect) <= each.aa_floor) == 0
    assert sum(abs(each.effect) <= each.aa_floor for each in found) >= 0.6 * len(found)


@pytest.mark.parametrize(
    ("sizes", "spreads"),
    [
        ((30, 6), (0.01, 0.03)),
        pytest.param((30, 6), (0.01, 0.02), marks=DEEP),
        pytest.param((9, 6), (0.01, 0.03), marks=DEEP),
        pytest.param((10, 10), (0.01, 0.03), marks=DEEP),
    ],
)
def test_two_samples_unlike_in_size_and_spread_are_called_different_in_at_most_5_percent(sizes, spreads):
    rng = np.random.default_rng(19)
    claims = 0
    for _ in range(STUDIES):
        sides = [np.exp(rng.normal(0, spread, size)) for size, spread in zip(sizes, spreads, strict=True)]
        (found,) = quick([Measurement(f"{n}", float(v)) for n, side in enumerate(sides) for v in side], against="0")
        claims += found.verdict in ("slower", "faster")

    assert claims / STUDIES <= 0.05 + slack(0.05)


@pytest.mark.parametrize("n", [6, 8, pytest.param(10, marks=DEEP), pytest.param(14, marks=DEEP), 20])
def test_an_effect_of_the_promised_size_is_found_with_80_percent_power(n):
    rng = np.random.default_rng(n)
    effect = mde(CV * math.sqrt(2), n, paired=True)
    found = [quick(study(rng, n, effects=(effect,)))[0] for _ in range(STUDIES)]

    assert 0.8 - slack(0.8) <= sum(each.verdict == "slower" for each in found) / STUDIES <= 0.8 + slack(0.8)
    # What a run reports of itself scatters with its own spread, and is right in the middle.
    assert np.median([each.mde for each in found]) == pytest.approx(effect, rel=0.08 if n == 6 else 0.05)


def test_a_planted_5_percent_is_found_at_the_promised_power():
    n = next(n for n in range(6, 30) if detectable(n, paired=True) * CV * math.sqrt(2) <= math.log1p(0.05))
    rng = np.random.default_rng(14)

    found = sum(quick(study(rng, n, effects=(0.05,)))[0].verdict == "slower" for _ in range(STUDIES))

    assert found / STUDIES >= 0.8 - slack(0.8)


@pytest.mark.parametrize("n", [pytest.param(6, marks=DEEP), 10])
def test_a_family_of_five_makes_any_false_claim_in_at_most_5_percent(n):
    rng = np.random.default_rng(15)
    wrong = 0
    for _ in range(STUDIES):
        found = quick(study(rng, n, effects=(0.0,) * 4 + (0.5,)))
        wrong += any(each.verdict in ("slower", "faster") for each in found[:4])

    assert wrong / STUDIES <= 0.05 + slack(0.05)


def test_an_effect_at_the_margin_is_called_equivalent_in_at_most_5_percent():
    rng = np.random.default_rng(16)
    claims = sum(
        quick(study(rng, 6 + number % 15, effects=(0.05,)), margin=0.05)[0].verdict == "equivalent"
        for number in range(STUDIES)
    )

    assert claims / STUDIES <= 0.05


def stopped(rng, target, noise):
    """The study as it is when the stop rule ends it: 6 to 20 blocks, a look after each."""
    whole = study(rng, 20, noise)
    for n in range(6, 21):
        so_far = [m for m in whole if int(m.block) < n]
        if n == 20 or enough(so_far, against="bare", until=target):
            (found,) = quick(so_far, alpha=LOOKING_ALPHA)
            return found


# Half-widths that the noise reaches late, now and then, and early; the middle one is where luck helps most: without
# the price of looking (intervals at 95 instead of 96.5 %) these very studies cover 92.9 % there.
@pytest.mark.parametrize(
    "target", [pytest.param(0.7 * CV, marks=DEEP), 1.0 * CV, 2.0 * CV], ids=["late", "by luck", "early"]
)
def test_stopping_when_the_interval_is_tight_keeps_coverage_and_false_claims(target):
    rng = np.random.default_rng(17)
    found = [stopped(rng, target, normal) for _ in range(STUDIES)]
    covering = sum(each.low <= 0 <= each.high for each in found) / STUDIES

    assert 0.93 <= covering <= 0.975
    assert 1 - covering <= 0.05 + slack(0.05) / 3
    assert sum(each.verdict in ("slower", "faster") for each in found) / STUDIES <= 0.05 + slack(0.05)


positive = st.floats(0.1, 10.0)
pairs = st.lists(st.tuples(positive, positive), min_size=6, max_size=12)


def two_sides(values, blocks=True):
    return [
        Measurement(level, value, str(block) if blocks else None)
        for block, both in enumerate(values)
        for level, value in zip(("bare", "docker"), both, strict=True)
    ]


@settings(max_examples=60)
@given(values=pairs, factor=st.floats(0.01, 100), blocks=st.booleans())
def test_the_unit_of_the_values_does_not_matter(values, factor, blocks):
    (plain,) = quick(two_sides(values, blocks))
    (scaled,) = quick([Measurement(m.level, m.value * factor, m.block) for m in two_sides(values, blocks)])

    assert scaled.effect == pytest.approx(plain.effect, rel=1e-6, abs=1e-9)
    assert (scaled.low, scaled.high) == pytest.approx((plain.low, plain.high), rel=1e-6, abs=1e-9)


@settings(max_examples=60)
@given(values=pairs, blocks=st.booleans())
def test_turning_the_question_round_turns_the_answer_round(values, blocks):
    (there,) = compare(two_sides(values, blocks), against="bare", margin=0.0, resamples=0)
    (back,) = compare(two_sides(values, blocks), against="docker", margin=0.0, resamples=0)

    assert (1 + there.effect) * (1 + back.effect) == pytest.approx(1)
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1)
    assert there.p == pytest.approx(back.p)


@settings(max_examples=60)
@given(values=pairs, shuffled=st.randoms(), blocks=st.booleans())
def test_the_order_of_the_rows_does_not_matter(values, shuffled, blocks):
    rows = two_sides(values, blocks)
    others = list(rows)
    shuffled.shuffle(others)

    (first,) = compare(rows, against="bare", margin=0.05, resamples=0)
    (second,) = compare(others, against="bare", margin=0.05, resamples=0)

    assert (first.effect, first.low, first.high) == pytest.approx((second.effect, second.low, second.high))
    assert first.verdict == second.verdict


@settings(max_examples=100)
@given(values=pairs, margin=st.floats(0, 0.5), blocks=st.booleans())
def test_the_estimate_lies_in_its_interval_and_the_word_follows_from_it(values, margin, blocks):
    (found,) = compare(two_sides(values, blocks), against="bare", margin=margin, resamples=0)

    assert found.low <= found.effect <= found.high
    inside, apart = -margin <= found.low and found.high <= margin, found.low > 0 or found.high < 0
    expected = "equivalent" if inside else "cannot_tell" if not apart else "slower" if found.low > 0 else "faster"
    assert found.verdict == expected
    assert (found.low > 0 or found.high < 0) == (found.p <= 0.05)
    assert found.mde >= 0


@settings(max_examples=60)
@given(values=st.lists(st.tuples(positive, positive), min_size=1, max_size=5), blocks=st.booleans())
def test_below_six_there_is_never_an_interval_or_a_claim(values, blocks):
    (found,) = compare(two_sides(values, blocks), against="bare", margin=1e9)

    assert (found.low, found.high, found.verdict) == (None, None, "cannot_tell")
    assert found.more_trials == 6 - len(values)
