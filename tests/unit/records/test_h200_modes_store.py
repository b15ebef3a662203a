"""The store of a real study on an H200 (tests/recordings/h200) can be read, and says what was seen there."""

import pytest

import recorded_stores
from mode_figures import modes
from tare.records.store import Store

CLOCKS = [345, 540, 780, 990, 1200, 1455, 1740, 1980]


@pytest.fixture(scope="module")
def trained():
    return modes(recorded_stores.MODES)


@pytest.fixture(scope="module")
def idle():
    return sorted(modes(recorded_stores.IDLE), key=lambda mode: mode.clock_mhz)


def one(found, network, clock, cores):
    (mode,) = [each for each in found if (each.network, each.clock_mhz, each.cores) == (network, clock, cores)]
    return mode


def test_four_networks_were_trained_at_eight_clocks_and_three_numbers_of_cores(trained):
    assert len({mode.network for mode in trained}) == 4
    assert sorted({mode.clock_mhz for mode in trained}) == CLOCKS
    assert {mode.cores for mode in trained} == {2, 4, 8}
    assert len({(mode.network, mode.clock_mhz, mode.cores) for mode in trained}) == len(trained) >= 82


def test_in_every_trial_the_clock_was_the_one_that_was_asked_for(trained, idle):
    assert [mode for mode in [*trained, *idle] if mode.seen_mhz != mode.clock_mhz] == []


def test_the_energy_of_the_records_is_the_one_of_their_readings(trained, idle):
    for mode in [*trained, *idle]:
        assert mode.watts * mode.window_s == pytest.approx(mode.recorded_j, rel=0.05)


def test_a_trial_whose_runner_was_killed_is_kept_as_interrupted():
    with Store.open(recorded_stores.MODES) as store:
        cut_off = [record for record in store.records() if record.state == "interrupted"]
        assert len(cut_off) == 2
        assert {record.state for record in store.records()} == {"interrupted", "suspect"}


def test_the_idle_gpu_draws_more_at_each_higher_clock(idle):
    watts = [mode.watts for mode in idle]

    assert [mode.clock_mhz for mode in idle] == CLOCKS
    assert watts == sorted(watts)
    assert (watts[0], watts[-1]) == (pytest.approx(78, abs=2), pytest.approx(123, abs=2))


def test_resnet_needs_a_third_less_energy_at_half_the_clock_and_no_more_time(trained):
    half, full = one(trained, "resnet18", 990, 8), one(trained, "resnet18", 1980, 8)

    assert half.step_j / full.step_j < 0.75
    assert half.step_s / full.step_s < 1.1


def test_for_vgg_the_lowest_clock_is_not_the_cheapest(trained):
    lowest, middle = one(trained, "vgg11", 345, 8), one(trained, "vgg11", 1200, 8)

    assert lowest.step_s > 2 * middle.step_s
    assert lowest.step_j > 1.3 * middle.step_j


def test_a_network_that_waits_for_its_host_draws_what_the_idle_gpu_draws(trained, idle):
    for rest in idle:
        drawn = [mode.watts for mode in trained if (mode.network, mode.clock_mhz) == ("lenet5", rest.clock_mhz)]
        assert drawn
        assert all(watts == pytest.approx(rest.watts, rel=0.08) for watts in drawn)
