"""What is promised of devices is counted on made-up fleets: intervals hold, healthy fleets are quiet, odd ones found.

The rates are those of 0016-devices-as-a-random-effect.md; a few hundred fleets a case keep it quick, so the bounds
leave room for three standard deviations.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from some_records import draft
from tare.analysis.fleet.outliers import outlying, set_aside
from tare.analysis.fleet.random_effects import Centre, centre_of, error_variances, own_variances, pooled
from tare.analysis.fleet.spread import spread
from tare.analysis.numeric.medians import Floats
from tare.records.model import TrialRow

EFFECT, NOISE, BLOCKS = 0.02, 0.02, 6
FLEETS = 240


def three_deviations(rate: float, count: int = FLEETS) -> float:
    return 3 * math.sqrt(rate * (1 - rate) / count)


def fleet(rng: np.random.Generator, devices: int, tau: float, spikes: float = 0.0) -> list[Centre]:
    made = []
    for true in rng.normal(EFFECT, tau, devices):
        noise = rng.normal(0, NOISE, BLOCKS) + (rng.random(BLOCKS) < spikes) * rng.exponential(0.1, BLOCKS)
        made.append(centre_of(true + noise))
    return made


def values_of(centres: list[Centre]) -> tuple[Floats, Floats, Floats]:
    return np.array([each.value for each in centres]), error_variances(centres), own_variances(centres)


@pytest.mark.parametrize(("devices", "tau"), [(3, 0.03), (5, 0.01), (8, 0.0), (8, 0.03)])
def test_the_mean_and_the_next_device_lie_in_their_intervals(devices: int, tau: float) -> None:
    rng = np.random.default_rng(16)
    held = ahead = between = 0
    for _ in range(FLEETS):
        values, errors, _ = values_of(fleet(rng, devices, tau))
        found = pooled(values, errors)
        held += abs(found.mean - EFFECT) <= found.reach()
        ahead += found.next_low <= rng.normal(EFFECT, tau) <= found.next_high
        between += found.tau_low <= tau <= found.tau_high
    for count in (held, ahead, between):
        assert count / FLEETS >= 0.95 - three_deviations(0.95)


@pytest.mark.parametrize(("devices", "spikes"), [(4, 0.0), (6, 0.0), (12, 0.0), (24, 0.0), (6, 0.15), (12, 0.15)])
def test_a_healthy_fleet_raises_few_false_alarms(devices: int, spikes: float) -> None:
    rng = np.random.default_rng(8)
    alarms = sum(bool(outlying(set_aside(*values_of(fleet(rng, devices, 0.01, spikes))))) for _ in range(FLEETS))

    assert alarms / FLEETS <= 0.05 + three_deviations(0.05)


@pytest.mark.parametrize(("devices", "odd", "least"), [(5, 1, 0.9), (6, 1, 0.95), (8, 2, 0.95), (12, 3, 0.95)])
def test_devices_that_are_a_fifth_slower_are_found(devices: int, odd: int, least: float) -> None:
    rng = np.random.default_rng(20)
    found = wrong = 0
    for _ in range(FLEETS):
        values, errors, own = values_of(fleet(rng, devices, 0.01))
        values[:odd] += math.log(1.2)
        places = {test.place for test in outlying(set_aside(values, errors, own))}
        found += places >= set(range(odd))
        wrong += bool(places - set(range(odd)))
    assert found / FLEETS >= least
    assert wrong / FLEETS <= 0.05 + three_deviations(0.05)


@pytest.mark.parametrize("devices", [3, 6])
def test_spread_between_and_within_devices_lies_in_its_interval(devices: int) -> None:
    rng = np.random.default_rng(4)
    held = {"between devices": 0, "between trials of a device": 0}
    truth = {"between devices": 0.02, "between trials of a device": 0.01}
    fleets = 120
    for _ in range(fleets):
        found = spread(_trials(rng, devices), "step_s", "")
        assert found is not None
        for each in found.components:
            low, high = each.deviation.low, each.deviation.high
            assert low is not None
            assert high is not None
            held[each.level] += low <= truth[each.level] <= high
    for count in held.values():
        assert count / fleets >= 0.95 - three_deviations(0.95, fleets)


def _trials(rng: np.random.Generator, devices: int) -> list[TrialRow]:
    made = []
    for place, true in enumerate(rng.normal(0, 0.02, devices)):
        for block, noise in enumerate(rng.normal(0, 0.01, BLOCKS)):
            record = draft(f"{place}-{block}", metrics={"step_s": 0.1 * math.exp(true + noise)})
            made.append(TrialRow.of(record, device=f"d{place}", device_type="orin", block_id=str(block)))
    return made


SHARES = st.floats(-0.5, 0.5, allow_nan=False)


@settings(max_examples=60)
@given(st.lists(st.tuples(SHARES, st.floats(0, 0.01)), min_size=3, max_size=12), SHARES)
@example([(0.0, 0.0078125), (0.0, 0.0078125), (0.13671875, 0.0)], 0.2265625)  # one device outweighs all others
def test_order_and_origin_do_not_matter(rows: list[tuple[float, float]], moved: float) -> None:
    values, errors = (np.array(column) for column in zip(*rows, strict=True))
    found = pooled(values, errors)
    other = pooled(values[::-1] + moved, errors[::-1])

    assert other.mean == pytest.approx(found.mean + moved, abs=1e-7)
    assert other.tau == pytest.approx(found.tau, abs=1e-6)
    assert found.tau_low <= found.tau + 1e-9
    assert found.tau <= found.tau_high + 1e-9
    assert found.next_low <= found.mean <= found.next_high
    assert values.min() - 1e-9 <= found.mean <= values.max() + 1e-9
