"""The malloc lottery, drift and loud levels."""

import numpy as np
import pytest

from analysis_figures import noisy, record, side
from tare.analysis.noise import drift, loud_levels, malloc_lottery, throttled
from tare.records.model import Record


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
    assert "'docker' was stopped by its CPU quota for 1.40 s of a trial (14 times)" in note
    (note,) = throttled({"docker": [trial(0), trial(0), trial(30)]})
    assert "'docker' was stopped by its CPU quota for 1.00 s of a trial (10 times in 1 of 3 trials)" in note
