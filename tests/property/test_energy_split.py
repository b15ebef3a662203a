"""A difference in energy is the sum of its three parts, whatever the figures; baseload and work are the energy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metered import BARE, DOCKER, Held, idle_trials, trials
from tare.analysis.observations import by_mode, idle_powers, with_baseload
from tare.analysis.resources.energy import energy_findings

WATTS, SECONDS, JOULES = st.floats(0.5, 500.0), st.floats(1e-4, 10.0), st.floats(0.0, 1000.0)


@given(WATTS, WATTS, SECONDS, SECONDS, JOULES, JOULES, st.integers(1, 9), st.floats(0, 0.2), st.integers(0, 99))
def test_the_three_parts_add_up_to_the_difference(w0, w1, t0, t1, j0, j1, n, noise, seed):
    bare = replace(BARE, idle_w=w0, step_s=t0, work_j=j0)
    docker = replace(DOCKER, idle_w=w1, step_s=t1, work_j=j1)
    records = [*trials(bare, docker, n=n, noise=noise, seed=seed), *idle_trials(bare, docker, seed=seed)]
    (found,) = energy_findings(Held(records)).differences
    parts = found.longer.value + found.idle.value + found.work.value
    assert parts == pytest.approx(found.total.value, rel=1e-12, abs=1e-12)
    # The third part is the rest, and at the same time what it is called: the difference in work.
    scale = max(abs(part.value) for part in (found.total, found.longer, found.idle)) + j0 + j1
    if found.work.low is not None:
        assert found.work.low - 1e-6 * scale <= found.work.value <= found.work.high + 1e-6 * scale


@given(WATTS, SECONDS, JOULES)
def test_baseload_and_incremental_are_the_energy(watts, step_s, joules):
    place = replace(BARE, idle_w=watts, step_s=step_s, work_j=joules)
    (split,) = with_baseload(trials(place, n=1), by_mode(idle_powers(idle_trials(place))))
    both = split.metrics["energy_baseload_j"] + split.metrics["energy_incremental_j"]
    assert both == pytest.approx(split.metrics["energy_j"], rel=1e-12)


def test_the_parts_hold_the_truth_though_few_idle_trials_tell_the_idle_power():
    """Idle power that is off by 3 % over two different platforms moves the work by more than its trials scatter."""
    truth = {
        "longer": BARE.idle_w * (DOCKER.step_s - BARE.step_s),
        "work": DOCKER.work_j - BARE.work_j,
    }
    held = dict.fromkeys(truth, 0)
    for seed in range(200):
        records = [
            *trials(BARE, DOCKER, n=8, noise=0.01, seed=seed),
            *idle_trials(BARE, DOCKER, n=6, noise=0.03, seed=1000 + seed),
        ]
        (found,) = energy_findings(Held(records)).differences
        for name, true in truth.items():
            part = getattr(found, name)
            held[name] += part.low <= true <= part.high
    assert min(held.values()) >= 180  # of 200; 120 where the idle power is taken as known


def test_a_single_idle_trial_gives_no_interval_of_what_it_is_taken_from():
    records = [*trials(BARE, DOCKER, n=8), *idle_trials(BARE, DOCKER, n=1)]
    (found,) = energy_findings(Held(records)).differences
    assert found.work.low is None and found.longer.low is None and found.total.low is not None
    (cell, _) = energy_findings(Held(records)).cells
    assert cell.figures["energy_incremental_j"].low is None and cell.figures["energy_baseload_share"].low is None
