"""How often `tare why` claims a cost that is not there, or accuses a suspect, on simulated runs. All seeds are fixed.

    pytest tests/property/test_why_proof.py
    python benchmarks/why_proof.py 2000      # more runs, and the blocks that a cost takes

A share p that is counted over N runs scatters by sqrt(p (1 - p) / N): 0.6 % here, at 1.2 %.
"""

import math
import sys
from pathlib import Path

import pytest

from tare.analysis.sentences import verdict_word
from tare.analysis.why.proof import Table, Timed, level_of, looks
from tare.report.text.why import times_text

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import why_proof

RUNS = 300
MOST_WRONG = 0.02
FEW = "2 %, suspect 10 %"
MOST_WRONG_OF_FEW = 0.04  # a side of two or three trials does not always show that it scatters more


@pytest.mark.parametrize("name", why_proof.WORLDS)
def test_where_nothing_costs_a_cost_is_claimed_in_two_runs_of_a_hundred_at_most(name):
    made = [why_proof.run(why_proof.WORLDS[name], f"{name}:{n}") for n in range(RUNS)]

    assert sum(bool(claimed) for claimed, _, _ in made) <= MOST_WRONG * RUNS
    most = MOST_WRONG_OF_FEW if name == FEW else MOST_WRONG
    assert sum(bool(accused) for _, accused, _ in made) <= most * RUNS


@pytest.mark.parametrize("name", why_proof.WORLDS)
def test_beside_a_cost_of_twice_the_time_a_suspect_that_costs_nothing_is_not_accused(name):
    world = why_proof.WORLDS[name]
    made = [why_proof.run(world, f"{name}:beside:{n}", cost=math.log(2)) for n in range(RUNS)]

    assert all(claimed for claimed, _, _ in made)
    assert sum(bool(accused) for _, accused, _ in made) <= MOST_WRONG * RUNS


@pytest.mark.parametrize(("name", "times", "most"), [("1 %", 1.3, 4), ("3 %", 2.0, 4), ("10 %", 8.0, 4)])
def test_what_is_larger_than_all_scatter_is_sure_after_four_blocks(name, times, most):
    made = [
        why_proof.run(why_proof.WORLDS[name], f"{times}:{n}", math.log(times), math.log(times))
        for n in range(RUNS // 3)
    ]

    assert sum(0 < claimed <= most for claimed, _, _ in made) >= 0.9 * len(made)


def test_all_looks_and_all_suspects_together_are_wrong_as_seldom_as_one_interval_may_be():
    assert looks(12) == (2, 3, 4, 6, 8, 12)
    assert looks(2) == (2,) and looks(40)[-1] == 40 and len(looks(40)) <= 10
    for most in (2, 12, 40):
        assert len(looks(most)) * level_of(most) == pytest.approx(0.02)
        assert len(looks(most)) * sum(level_of(most, place) for place in range(1, 1000)) <= 0.02


def test_a_side_that_shares_no_block_with_the_others_is_not_compared():
    held = [Timed(0, "slow", 1.0), Timed(0, "quick", 0.0), Timed(1, "without", 0.0)]

    assert Table(held).shift("slow", "without") is None
    assert Table(held).shift("slow", "other") is None


def test_one_block_has_an_effect_and_no_interval():
    shift = Table([Timed(0, "slow", 1.0), Timed(0, "quick", 0.0)]).shift("slow", "quick")

    assert shift is not None and shift.centre == pytest.approx(1.0) and shift.interval(0.05) is None


def test_an_interval_wider_than_a_float_ends_at_the_largest():
    noisy = [Timed(block, side, log) for block, logs in enumerate(((5.0, 0.0), (-5.0, 0.0))) for side, log in
             zip(("slow", "quick"), logs, strict=True)]  # fmt: skip
    found = Table(noisy).compared(
        "slow", "quick", ("slow", "quick"), metric="wall_s", margin=0.05, level=level_of(12, 3)
    )

    assert found.low == pytest.approx(-1.0) and found.high is not None and 1e300 < found.high < math.inf
    assert found.verdict == "cannot_tell"


def test_half_the_rate_is_told_as_half_the_rate_and_judged_as_twice_the_time():
    held = [
        Timed(block, side, -math.log(rate) + 0.01 * (block % 2 == (side == "slow")))
        for block in range(8) for side, rate in (("slow", 50.0), ("quick", 100.0))
    ]  # fmt: skip
    found = Table(held).compared(
        "slow", "quick", ("slow", "quick"), metric="tokens_per_s", margin=0.05, level=level_of(12)
    )

    assert found.verdict == "slower" and verdict_word(found) == "lower" and found.direction.rises
    assert found.effect == pytest.approx(-0.5, abs=0.01) and found.low < found.effect < found.high < 0
    assert found.in_time().effect == pytest.approx(1.0, abs=0.02) and times_text(found) == "2x slower"


def test_a_side_of_few_trials_that_scatter_more_is_not_hidden_by_the_other():
    quiet = [Timed(block, side, 0.01 * (block % 2)) for block in range(12) for side in ("slow", "quick")]
    few = [Timed(block, "without", log) for block, log in ((0, 0.3), (1, -0.3), (2, 0.0))]

    shift = Table(quiet + few).shift("slow", "without")

    assert shift is not None and shift.freedom <= 2 and shift.error > 0.1


def test_the_scatter_of_a_side_of_one_trial_among_many_is_not_known():
    many = [Timed(block, side, 0.01 * (block % 2)) for block in range(12) for side in ("slow", "quick")]

    shift = Table([*many, Timed(0, "without", 0.5)]).shift("slow", "without")

    assert shift is not None and shift.interval(0.05) is None


def test_what_is_removed_down_to_the_other_side_itself_is_all_of_the_cost():
    held = [
        Timed(block, side, log + 0.01 * block) for block in range(3) for side, log in (("slow", 1.0), ("quick", 0.0))
    ]

    share = Table(held).share("slow", "quick", "slow", "quick", 0.01)

    assert share is not None
    assert share.share == pytest.approx(1.0)
