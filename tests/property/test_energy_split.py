"""A difference in energy is the sum of its three parts, whatever the figures; baseload and work are the energy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metered import BARE, DOCKER, Held, idle_trials, trials
from tare.analysis.baseload import by_mode, idle_powers, with_baseload
from tare.analysis.resources.energy import energy_findings

WATTS, SECONDS, JOULES = st.floats(0.5, 500.0), st.floats(1e-4, 10.0), st.floats(0.0, 1000.0)


@settings(deadline=None)
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


@settings(deadline=None)
@given(WATTS, SECONDS, JOULES)
def test_baseload_and_incremental_are_the_energy(watts, step_s, joules):
    place = replace(BARE, idle_w=watts, step_s=step_s, work_j=joules)
    (split,) = with_baseload(trials(place, n=1), by_mode(idle_powers(idle_trials(place))))
    both = split.metrics["energy_baseload_j"] + split.metrics["energy_incremental_j"]
    assert both == pytest.approx(split.metrics["energy_j"], rel=1e-12)
