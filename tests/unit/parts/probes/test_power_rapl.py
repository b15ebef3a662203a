"""RAPL counters: wrapped, reset, unreadable; never negative, never counted twice."""

import pytest

from tare.base.host import LocalHost, Scope
from tare.drivers.sensors import EnergyCounter
from tare.parts.probes.power import PowerRapl
from tare.testing import FakeClock, FakeHost
from trees import sensors
from trees.sensors import POWERCAP

RANGE_UJ = 262_143_328_850


class Server(LocalHost):
    """A pretended server; some of its files are for root alone."""

    def __init__(self, root):
        super().__init__(root=root, clock=FakeClock())
        self.secret = set()

    def read(self, path):
        if any(str(path).endswith(end) for end in self.secret):
            raise PermissionError(13, "Permission denied")
        return super().read(path)

    def count(self, zone, microjoules, seconds=1.0):
        (self.root / POWERCAP.lstrip("/") / zone / "energy_uj").write_text(f"{microjoules}\n")
        self.clock.advance(seconds)


def opened(root, packages=2):
    host = Server(sensors.x86(root, packages))
    assert PowerRapl().obstacles(host) == []
    return host, PowerRapl().open(host, Scope())


def values(readings):
    return {reading.channel: reading.value for reading in readings}


def test_packages_and_their_memory_are_summed_and_nothing_is_counted_twice(tmp_path):
    host, feed = opened(tmp_path)
    feed.poll()
    for zone, joules in {"intel-rapl:0": 10, "intel-rapl:0:0": 6, "intel-rapl:0:1": 2, "intel-rapl:1": 20}.items():
        host.count(zone, 1_000_000 + joules * 1_000_000)
    host.count("intel-rapl:2", 1_000_000 + 90_000_000)
    host.count("intel-rapl-mmio:0", 1_000_000 + 10_000_000)
    assert values(feed.poll()) == {
        "power_rapl.package_0_j": 10,
        "power_rapl.package_0_core_j": 6,
        "power_rapl.package_0_dram_j": 2,
        "power_rapl.package_1_j": 20,
        "power_rapl.package_1_core_j": 0,
        "power_rapl.package_1_dram_j": 0,
        "power_rapl.psys_j": 90,
        "power_rapl.total_j": 32,
        "power_rapl.dropped_s": 0,
    }


def test_a_counter_that_wraps_goes_on(tmp_path):
    host, feed = opened(tmp_path, packages=1)
    host.count("intel-rapl:0", 262_143_000_000)
    feed.poll()
    host.count("intel-rapl:0", 500_000)
    found = values(feed.poll())
    assert found["power_rapl.package_0_j"] == pytest.approx((RANGE_UJ - 262_143_000_000 + 500_000) / 1e6)
    assert feed.lost == []


def test_without_a_readable_range_the_interval_of_the_wrap_is_dropped_and_told(tmp_path):
    host = Server(sensors.x86(tmp_path, 1))
    host.secret = {"max_energy_range_uj"}
    feed = PowerRapl().open(host, Scope())
    host.count("intel-rapl:0", 262_143_000_000, 0)
    feed.poll()
    host.count("intel-rapl:0", 500_000)
    found = values(feed.poll())
    assert not {"power_rapl.package_0_j", "power_rapl.total_j"} & found.keys()
    assert found["power_rapl.dropped_s"] == 1.0
    host.count("intel-rapl:0", 7_500_000)
    assert values(feed.poll())["power_rapl.package_0_j"] == 7.0
    assert "package_0 fell back or jumped 1 times; the energy of 1.0 s is not counted" in str(feed.lost[0])


def test_a_reset_that_one_range_cannot_explain_drops_the_interval(tmp_path):
    host, feed = opened(tmp_path, packages=1)
    host.count("intel-rapl:0", 150_000_000_000, 0)
    feed.poll()
    host.count("intel-rapl:0", 500_000)  # as a wrap it would be 112 kJ in a second
    assert "power_rapl.package_0_j" not in values(feed.poll())
    host.count("intel-rapl:0", 2_500_000)
    assert values(feed.poll())["power_rapl.package_0_j"] == 2.0
    assert "partial" in str(feed.lost[0])


def test_energy_is_not_made_up_from_a_jump(tmp_path):
    counter = EnergyCounter(RANGE_UJ)
    assert counter(0, 0) == 0
    assert counter(10**9, 90_000_000_000) is None
    assert counter(2 * 10**9, 90_050_000_000) == 50
    assert (counter.dropped, counter.dropped_s) == (1, 1.0)


@pytest.mark.parametrize("garbage", ["", "N/A", "-1", "1e99", "nan"])
def test_garbage_is_counted_and_the_next_reading_covers_the_time(tmp_path, garbage):
    host, feed = opened(tmp_path, packages=1)
    feed.poll()
    host.count("intel-rapl:0", garbage)
    assert "power_rapl.total_j" not in values(feed.poll())
    host.count("intel-rapl:0", 9_000_000)
    assert values(feed.poll())["power_rapl.package_0_j"] == 8.0
    assert feed.errors == {"package_0": 1}


def test_a_zone_that_vanishes_ends_the_total_too(tmp_path):
    _, feed = opened(tmp_path)
    feed.poll()
    (tmp_path / POWERCAP.lstrip("/") / "intel-rapl:1" / "energy_uj").unlink()
    found = values(feed.poll())
    assert "power_rapl.package_0_j" in found
    assert "power_rapl.total_j" not in found
    assert "package_1 vanished" in str(feed.lost[0])


def test_counters_for_root_alone_are_an_obstacle_in_a_sentence_and_no_estimate(tmp_path):
    host = Server(sensors.x86(tmp_path))
    host.secret = {"energy_uj"}
    (sentence,) = map(str, PowerRapl().obstacles(host))
    assert "CPU energy is not measured: root is needed since CVE-2020-8694" in sentence
    feed = PowerRapl().open(host, Scope())
    assert (feed.channels, feed.poll()) == ((), [])
    assert len(feed.lost) == 7


def test_a_machine_without_rapl_says_so():
    assert "no RAPL zones" in str(PowerRapl().obstacles(FakeHost())[0])
