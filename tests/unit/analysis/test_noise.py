"""Noise: the malloc lottery, drift, loud levels; what `design:` makes of it, when a run may stop, what it can see."""

import math
from dataclasses import replace

import numpy as np
import pytest

from analysis_figures import FakeStore, noisy, record, side
from tare.analysis import estimators, sentences
from tare.analysis.compare import compare, detectable, expected_mde, mde, t_detectable, trials_for
from tare.analysis.estimators import DRAWS, Sides, resampled_shift
from tare.analysis.noise import (
    LOOKING_ALPHA,
    drift,
    enough,
    half_width,
    loud_levels,
    malloc_lottery,
    reached,
    throttled,
)
from tare.analysis.numeric.ranks import mann_whitney_null, signed_rank_null
from tare.analysis.weighing import weigh
from tare.records.model import Record
from tare.report.export import gate


def with_faults(counts, metric="minor_faults_training", **settings):
    return [record("bare", block, metrics={metric: n}, settings=settings) for block, n in enumerate(counts)]


def test_faults_that_flip_between_identical_trials_are_told_with_the_cure():
    sentence = malloc_lottery(with_faults([12_655, 416_029, 300, 88_000]))

    assert sentence is not None
    assert "between 300 and 416,029 minor page faults in training" in sentence
    assert "`malloc: fixed`" in sentence


def test_faults_that_stay_close_are_no_lottery():
    assert malloc_lottery(with_faults([37, 164, 90])) is None
    assert malloc_lottery(with_faults([50_000, 80_000, 60_000])) is None
    assert malloc_lottery(with_faults([10, 4_000])) is None


def test_two_different_cells_may_differ_in_faults():
    small, large = with_faults([100, 120]), with_faults([90_000, 95_000], **{"workload.batch": 64})

    assert malloc_lottery(small + large) is None


def test_a_whole_job_shows_it_beside_the_faults_of_its_imports():
    sentence = malloc_lottery(with_faults([80_000, 490_000], metric="minor_faults"))

    assert sentence is not None and "in the whole job" in sentence
    assert malloc_lottery(with_faults([80_000, 95_000], metric="minor_faults")) is None


def test_where_malloc_is_fixed_another_cause_is_looked_for():
    sentence = malloc_lottery(with_faults([300, 416_029], **{"workload.malloc": "fixed"}))

    assert sentence is not None
    assert "although" in sentence and "`malloc: fixed`" not in sentence


def test_trials_that_failed_say_nothing_about_faults():
    assert (
        malloc_lottery([record("bare", n, state="failed", metrics={"minor_faults": n * 1e6}) for n in range(3)]) is None
    )
    assert malloc_lottery([]) is None


def test_a_drifting_machine_is_said_to_drift_and_a_steady_one_is_not():
    sentence = drift(noisy(10, cv=0.005, drift=0.08))

    assert sentence is not None and "drifted from block to block" in sentence
    assert drift(noisy(10, cv=0.005, drift=0.0)) is None


def test_noise_within_blocks_is_not_drift():
    found = [drift(noisy(10, cv=0.08, drift=0.0, seed=seed)) for seed in range(50)]

    assert sum(each is not None for each in found) <= 3


def test_drift_needs_blocks_and_two_levels():
    assert drift(side("bare", [1.0, 2.0, 3.0])) is None
    assert drift(side("bare", [1, 2, 3], blocks=False) + side("docker", [1, 2, 3], blocks=False)) is None


@pytest.mark.parametrize(("cv", "loud"), [(0.3, True), (0.01, False)])
def test_a_level_that_varies_by_more_than_a_tenth_is_said_to_be_noisy(cv, loud):
    values = np.exp(np.random.default_rng(1).normal(0, cv, 30)).tolist()

    assert bool(loud_levels(side("bare", values))) is loud


def test_a_level_that_its_quota_stopped_is_named_because_a_median_step_hides_it() -> None:
    def trial(times: float) -> Record:
        metrics = {"cgroup_nr_throttled": times, "cgroup_throttled_s": times / 10}
        return Record("t", 1, "s", 0, 0, 0, {}, "ok", metrics=metrics)

    (note,) = throttled({"bare": [trial(0)], "docker": [trial(12), trial(14), trial(16)]})
    assert "'docker' was stopped by its CPU quota for 1.40 s per trial (summed over cores, 14 times)" in note
    (note,) = throttled({"docker": [trial(0), trial(0), trial(30)]})
    assert (
        "'docker' was stopped by its CPU quota for 1.00 s per trial (summed over cores, 10 times in 1 of 3 trials)"
        in note
    )


CPU_TIME = {"study": "weigh", "design": {"cpu_time": True}}


def trials(noise, cpu=1.0, n=8, metric="cpu_step_s", seed=1):
    rng = np.random.default_rng(seed)
    made = []
    for block in range(n):
        for platform, factor in (("bare", 1.0), ("docker", cpu)):
            step_s = 0.002 * float(np.exp(rng.normal(0, noise)))
            cpu_s = 0.0019 * factor * float(np.exp(rng.normal(0, 0.003)))
            made.append(record(platform, block, step_s, metrics={"step_mean_s": step_s, metric: cpu_s}))
    return made


@pytest.mark.parametrize("metric", ["cpu_step_s", "cpu_s"])
def test_cpu_time_is_judged_where_the_study_declares_it(metric):
    found = weigh(FakeStore(trials(0.2, cpu=1.08, metric=metric), CPU_TIME))

    (line,) = found.tested
    assert (line.metric, line.verdict) == (metric, "slower")
    assert line.confidence + found.comparisons[0].confidence > 1.9  # one family with the headline
    assert found.comparisons[0].verdict == "cannot_tell"
    assert sentences.CPU_TIME in found.notes
    assert [each.code for each in gate(found, 0.05).reasons] == ["gate.over"]


def test_cpu_time_is_only_told_where_it_is_not_declared():
    found = weigh(FakeStore(trials(0.2, cpu=1.08)))
    assert found.tested == ()
    assert sentences.CPU_TIME not in found.notes


def test_a_side_without_cpu_time_has_no_such_line():
    records = [replace(each, metrics={"step_mean_s": each.metrics["step_mean_s"]}) for each in trials(0.01)[:2]]
    assert weigh(FakeStore([*records, *trials(0.01)[2:]], CPU_TIME)).tested == ()


def test_cpu_time_is_suggested_where_many_blocks_are_missing():
    advised = sentences.noisy()
    assert advised in weigh(FakeStore(trials(0.2))).notes
    assert advised not in weigh(FakeStore(trials(0.005))).notes


def test_noise_that_hides_one_of_two_answers_says_which():
    quiet = [record("podman", block, 0.004, metrics={"step_mean_s": 0.004}) for block in range(8)]
    (note,) = [note for note in weigh(FakeStore([*trials(0.2), *quiet])).notes if "hides the answer" in note]
    assert note.startswith("the noise of this machine hides the answer of docker: ")


def test_a_weighing_tells_how_the_sides_took_turns():
    turns = {"steps": 20, "count": 9}
    records = [replace(each, facts={**each.facts, "turns": turns}) for each in trials(0.005)]
    assert "the sides took turns of 20 steps, 9 in a pair." in " ".join(weigh(FakeStore(records)).notes)
    old = [replace(each, facts={**each.facts, "slices": {"length_s": 0.1}}) for each in trials(0.005)]
    assert "the sides took turns in slices of 100 ms." in " ".join(weigh(FakeStore(old)).notes)


def test_a_tight_interval_is_enough_and_a_wide_one_is_not():
    assert enough(noisy(8, cv=0.002), against="bare", until=0.01)
    assert not enough(noisy(8, cv=0.05), against="bare", until=0.01)


def test_below_the_floor_nothing_is_enough():
    assert not enough(noisy(5, cv=0.0001), against="bare", until=0.5)
    assert not enough(noisy(8, cv=0.0001), against="bare", until=0.5, floor=9)


def test_every_level_must_be_tight():
    rng = np.random.default_rng(1)
    loud = side("runc", (0.002 * np.exp(rng.normal(0, 0.2, 8))).tolist())

    assert not enough([*noisy(8, cv=0.002), *loud], against="bare", until=0.01)


def test_one_level_or_none_is_never_enough():
    assert not enough([], against="bare", until=0.5)
    assert not enough(noisy(8)[:8], against="bare", until=0.5)
    assert not enough(noisy(8), against="elsewhere", until=0.5)


def test_looking_after_each_block_is_paid_for_with_a_wider_interval():
    (plain,) = compare(noisy(10, cv=0.02), against="bare", margin=0.05)
    (paid,) = compare(noisy(10, cv=0.02), against="bare", margin=0.05, alpha=LOOKING_ALPHA)

    assert half_width(paid) > half_width(plain)
    assert paid.confidence == pytest.approx(0.965)
    assert enough(noisy(10, cv=0.02), against="bare", until=half_width(paid))
    assert not enough(noisy(10, cv=0.02), against="bare", until=half_width(plain))


def test_no_comparison_meets_no_rule():
    assert not reached([], until=1.0)


# validity.md M6: two samples, two-sided 5 %, power 80 %, in units of the variation between trials.
M6 = {3: 3.07, 5: 2.02, 6: 1.80, 8: 1.51, 10: 1.32, 15: 1.06, 20: 0.91, 30: 0.74}


@pytest.mark.parametrize(("n", "expected"), M6.items())
def test_the_t_test_of_two_samples_reproduces_the_published_table(n, expected):
    assert t_detectable(n, paired=False) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("n", [n for n in M6 if n >= 6])
def test_ranks_cost_little_against_the_published_table(n):
    assert M6[n] * 1.01 < detectable(n, paired=False) < M6[n] * 1.09


def test_a_variation_of_two_percent_and_six_trials_a_side_see_about_four_percent():
    assert expected_mde(0.02, 6, paired=False) == pytest.approx(0.039, abs=0.002)


def test_a_two_percent_overhead_at_two_percent_variation_needs_about_seventeen_trials():
    needed = trials_for(0.02, 0.02, paired=False)

    assert needed is not None and 17 <= needed <= 19


def test_more_blocks_see_smaller_effects():
    seen = [expected_mde(0.02, n) for n in range(6, 60)]

    assert seen[0] is not None and seen[-1] is not None
    assert seen[-1] < seen[0] / 3
    # The exact levels come in steps, so one more block may cost a little; two more never do.
    assert all(later < earlier for earlier, later in zip(seen, seen[2:], strict=False))


def test_below_six_there_is_no_claim_and_so_no_smallest_effect():
    assert expected_mde(0.02, 5) is None
    assert mde(0.02, 5, paired=True) is None


def test_trials_that_do_not_vary_see_everything():
    assert mde(0.0, 6, paired=True) == 0.0
    assert trials_for(0.01, 0.0, paired=True) == 6


def test_the_number_of_trials_is_the_first_that_sees_the_effect():
    needed = trials_for(0.02, 0.03, paired=True)

    assert needed is not None
    assert detectable(needed, paired=True) * 0.03 <= math.log1p(0.02) < detectable(needed - 2, paired=True) * 0.03


def test_an_effect_of_nothing_cannot_be_planned_for():
    assert trials_for(0.0, 0.02, paired=True) is None
    assert trials_for(1e-6, 0.02, paired=True) is None


def test_where_ranks_cannot_reach_the_level_the_t_test_is_what_is_planned_with():
    assert detectable(6, 0.05 / 3, paired=True) == t_detectable(6, 0.05 / 3, paired=True)


@pytest.mark.parametrize("paired", [True, False])
def test_the_shift_that_is_seen_is_that_of_plain_drawing(paired):
    """As its docstring says it, one draw after the other; twice, since what is drawn is kept between calls."""
    values = np.random.default_rng(2)
    ours, theirs = np.exp(values.normal(0, 0.02, 9)), np.exp(values.normal(0, 0.03, 9 if paired else 7))
    sides = Sides(ours, theirs, paired, min(len(ours), len(theirs)))
    draw = np.random.default_rng(estimators._SEED)

    def drawn(residuals):
        n = len(residuals)
        picked = residuals[draw.integers(0, n, (DRAWS, n))] * (n / (n - 1)) ** estimators._WIDEN
        return picked * draw.choice([-1.0, 1.0], (DRAWS, n))

    if paired:
        k, logs = signed_rank_null(9).critical(0.025), np.log(ours) - np.log(theirs)
        rows = [
            [(one + other) / 2 for at, one in enumerate(row) for other in row[at:]]
            for row in drawn(logs - estimators.signed_rank(logs).centre)
        ]
    else:
        k, logs = mann_whitney_null(9, 7).critical(0.025), (np.log(ours), np.log(theirs))
        pairs = zip(*(drawn(each - np.median(each)) for each in logs), strict=True)
        rows = [[one - other for one in left for other in right] for left, right in pairs]
    expected = np.quantile([-sorted(row)[k] for row in rows], 0.8)

    for _ in range(2):
        assert resampled_shift(sides, 0.05, 0.8) == pytest.approx(expected, abs=1e-9)
