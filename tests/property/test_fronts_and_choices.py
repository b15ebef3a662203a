"""Laws of fronts and recommendations that hold for any figures, and promises counted on simulated studies."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tare.analysis.choose.jobs import Job, Limit
from tare.analysis.choose.offers import Predicted
from tare.analysis.choose.pareto import could_be_on_front, dominates, on_front
from tare.analysis.choose.recommend import recommend
from tare.analysis.model import Estimate
from tare.records.model import TrialRow

STUDIES = 100

points = st.integers(2, 4).flatmap(
    lambda figures: st.lists(
        st.lists(st.integers(0, 6).map(float), min_size=figures, max_size=figures), min_size=1, max_size=30
    )
)


@given(points)
def test_no_point_of_the_front_is_beaten_and_every_other_is(rows):
    where = np.array(rows)
    flags = on_front(where)

    for place, point in enumerate(where):
        beaten = any(dominates(other, point) for other in where)
        assert flags[place] == (not beaten)


@given(points, st.randoms(use_true_random=False))
def test_the_front_does_not_depend_on_the_order_of_rows(rows, chance):
    where = np.array(rows)
    order = list(range(len(rows)))
    chance.shuffle(order)

    assert on_front(where[order]).tolist() == on_front(where)[order].tolist()


@given(points)
def test_a_repeated_row_changes_nothing_for_the_others(rows):
    where = np.array(rows)

    assert on_front(np.concatenate([where, where]))[: len(where)].tolist() == on_front(where).tolist()


@given(points, st.data())
def test_what_is_left_out_of_the_resampling_can_never_be_on_the_front(rows, data):
    best = np.array(rows)
    grown = data.draw(st.lists(st.integers(0, 4), min_size=best.size, max_size=best.size))
    worst = best + np.array(grown, dtype=float).reshape(best.shape)
    share = data.draw(st.lists(st.floats(0, 1), min_size=best.size, max_size=best.size))
    somewhere = best + (worst - best) * np.array(share).reshape(best.shape)

    assert not (on_front(somewhere) & ~could_be_on_front(best, worst)).any()


def study(chance, modes, trials, deviation, step):
    """Modes whose true times lie around the deadline; the slower a mode, the less energy it takes."""
    centres = math.log(100) + (np.arange(modes) - modes / 2) * step
    made = [
        TrialRow.foreign(
            {"mode": float(mode)},
            {"time": float(np.exp(centres[mode] + chance.normal(0, deviation))), "energy": 1000.0 - 10 * mode},
            f"{mode}.{trial}",
        )
        for mode in range(modes)
        for trial in range(trials)
    ]
    return centres, made


@pytest.mark.parametrize(
    ("modes", "trials", "deviation", "step", "answered"),
    [(10, 6, 0.03, 0.03, 0.8), (40, 2, 0.03, 0.003, 0.0), (6, 8, 0.1, 0.1, 0.3)],  # the second fails without sharing
)
def test_of_all_answers_no_more_than_the_stated_share_break_a_limit_at_the_next_run(
    modes, trials, deviation, step, answered
):
    chance = np.random.default_rng(7)
    job = Job("energy", (Limit("deadline", "time", 100.0),))
    breaks = []  # of each answer, the true probability that its next run breaks the deadline
    for _ in range(STUDIES):
        centres, made = study(chance, modes, trials, deviation, step)
        (found,) = recommend(made, job, confidence=0.95)
        if found.best is not None:
            assert found.best.keeps_all >= 0.95 and found.held_to >= 0.95
            room = (math.log(100) - centres[int(found.best.settings["mode"])]) / deviation
            breaks.append(math.erfc(room / math.sqrt(2)) / 2)

    assert sum(breaks) / STUDIES <= 0.05
    assert len(breaks) / STUDIES >= answered


figures = st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=12)


@settings(max_examples=60)
@given(figures, st.integers(1, 7), st.floats(0.5, 8), st.floats(0.5, 0.99), st.integers(0, 2**16))
def test_what_is_recommended_keeps_every_limit_at_least_as_surely_as_asked(modes, trials, at_most, confidence, seed):
    chance = np.random.default_rng(seed)
    made = [
        TrialRow.foreign(
            {"mode": float(n)}, {"time": a * float(np.exp(chance.normal(0, 0.1))), "energy": b}, f"{n}.{t}"
        )
        for n, (a, b) in enumerate(modes)
        for t in range(trials)
    ]
    job = Job("energy", (Limit("deadline", "time", at_most), Limit("energy budget", "energy", 6.0)))

    (found,) = recommend(made, job, confidence=confidence)

    if found.best is None:
        assert found.nearest_miss is not None
        return
    assert found.best.figures["time"].value <= at_most
    assert found.best.figures["energy"].value <= 6.0
    if trials == 1:
        assert found.best.keeps_all is None and found.best_share is None
    else:
        assert found.best.keeps_all >= confidence


@settings(max_examples=40)
@given(figures, st.randoms(use_true_random=False))
def test_the_recommendation_does_not_depend_on_the_order_of_rows(modes, chance):
    made = [
        TrialRow.foreign({"mode": float(n)}, {"time": a * (1 + t / 100), "energy": b * (1 + t / 100)}, f"{n}.{t}")
        for n, (a, b) in enumerate(modes)
        for t in range(3)
    ]
    shuffled = list(made)
    chance.shuffle(shuffled)
    job = Job("energy", (Limit("deadline", "time", 5.0),))

    (found,), (again,) = recommend(made, job), recommend(shuffled, job)

    assert (found.best and found.best.settings) == (again.best and again.best.settings)


@settings(max_examples=60)
@given(st.floats(0.2, 5), st.floats(0.01, 1), st.floats(0.2, 5))
def test_a_prediction_is_offered_only_where_its_interval_keeps_the_limit(value, width, at_most):
    made = [TrialRow.foreign({"mode": 0.0}, {"time": 0.1, "energy": 100.0}, f"0.{n}") for n in range(6)]
    time = Estimate(value, value * math.exp(-width), value * math.exp(width), 4, "a model")
    offered = [Predicted({"mode": 1.0}, {"time": time, "energy": Estimate(1.0, 0.9, 1.1, 4, "a model")})]

    (found,) = recommend(made, Job("energy", (Limit("deadline", "time", at_most),)), predicted=offered)

    if found.predicted is not None:
        assert found.predicted.keeps_all >= 0.95
        assert value < at_most
