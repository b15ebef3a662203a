"""Power, temperature, clocks and throttling on pretended boards: absent, lost, stuck, garbled, in another unit."""

import errno

import pytest

from pretend_h200 import put_in
from tare.base.host import LocalHost, Scope
from tare.drivers import nvidia
from tare.drivers.kernel_files import sensors_by_word, temperatures_c
from tare.parts.probes.cpu import Frequency
from tare.parts.probes.gpu import Gpu
from tare.parts.probes.power import PowerRails
from tare.parts.probes.thermal import Temperature, Thermal
from tare.testing import FakeClock, FakeHost
from trees import jetson, sensors
from trees.files import CPUS, lay

GARBAGE = ["", "N/A", "32760 ma", "-1", "1e99", "nan", "9" * 400]


class Board(LocalHost):
    """A pretended board whose time stands still, and some of whose files fail."""

    def __init__(self, root):
        super().__init__(root=root, clock=FakeClock())
        self.failing = {}

    def read(self, path):
        if (number := self.failing.get(str(path).rpartition("/")[2])) is not None:
            raise OSError(number, "it fails")
        return super().read(path)

    def write_file(self, path, text):
        (self.root / path.lstrip("/")).write_text(text)


def values(readings):
    return {reading.channel: reading.value for reading in readings}


def opened(probe, root):
    host = Board(root)
    assert probe.obstacles(host) == []
    return host, probe.open(host, Scope())


def next_poll(host, feed, seconds=1.0):
    host.clock.advance(seconds)
    return values(feed.poll())


def test_a_nano_has_its_input_rail_and_what_lies_behind_it(tmp_path):
    _, feed = opened(PowerRails(), sensors.nano(tmp_path))
    assert values(feed.poll()) == pytest.approx(
        {
            "power_rails.pom_5v_in_w": 2.4,
            "power_rails.pom_5v_gpu_w": 0.192,
            "power_rails.pom_5v_cpu_w": 0.48,
            "power_rails.total_w": 2.4,
            "power_rails.others_w": 0.672,
        }
    )
    about = {channel.name: channel.about for channel in feed.channels}
    assert about["power_rails.total_w"] == "the module, not the socket: POM_5V_IN"


def test_an_agx_xavier_is_the_sum_of_its_six_rails(tmp_path):
    _, feed = opened(PowerRails(), sensors.agx_xavier(tmp_path))
    found = values(feed.poll())
    assert found["power_rails.total_w"] == pytest.approx(0.38 + 0.95 + 0.57 + 1.5)
    assert "power_rails.others_w" not in found


def test_an_agx_orin_is_the_sum_of_three_rails_and_no_rail_counts_twice(tmp_path):
    _, feed = opened(PowerRails(), sensors.agx_orin(tmp_path))
    found = values(feed.poll())
    assert found["power_rails.total_w"] == pytest.approx(19.808 * 0.2 + 4.992 * 0.9)
    assert found["power_rails.vddq_vdd2_1v8ao_w"] == pytest.approx(4.992 * 0.2)
    assert not any("nc" in channel.split("_") for channel in found)


def test_monitors_are_found_by_name_whatever_their_number(tmp_path):
    found = [
        values(opened(PowerRails(), sensors.agx_orin(tmp_path / str(shift), shift))[1].poll()) for shift in (0, 1, 40)
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 5


def test_a_board_that_nobody_knows_has_rails_and_no_total(tmp_path):
    _, feed = opened(PowerRails(), lay(tmp_path, sensors.monitor(0, {"VDD_NEW": (5000, 100)})))
    assert values(feed.poll()) == {"power_rails.vdd_new_w": 0.5}
    assert "is not known" in str(feed.lost[0])


@pytest.mark.parametrize("garbage", [*GARBAGE, "61000", "99999999"])
def test_a_rail_that_says_garbage_is_missing_and_so_is_the_total(tmp_path, garbage):
    host, feed = opened(PowerRails(), sensors.agx_orin(tmp_path))
    host.write_file("/sys/class/hwmon/hwmon1/in2_input", garbage)
    found = values(feed.poll())
    assert found.keys() == {f"power_rails.{rail}_w" for rail in ("vdd_gpu_soc", "vin_sys_5v0", "vddq_vdd2_1v8ao")}
    assert feed.errors == {"VDD_CPU_CV": 1}


def test_a_monitor_that_fails_now_and_then_is_counted_and_comes_back(tmp_path):
    host, feed = opened(PowerRails(), sensors.agx_orin(tmp_path))
    host.failing["curr1_input"] = errno.EIO
    assert "power_rails.total_w" not in next_poll(host, feed)
    host.failing.clear()
    assert "power_rails.total_w" in next_poll(host, feed)
    assert (feed.errors, feed.lost) == ({"VDD_GPU_SOC": 1}, [])


def test_a_monitor_that_vanishes_is_lost_at_a_time_and_the_others_go_on(tmp_path):
    host, feed = opened(PowerRails(), sensors.agx_orin(tmp_path))
    next_poll(host, feed)
    (tmp_path / "sys/class/hwmon/hwmon1/curr2_input").unlink()
    found = next_poll(host, feed)
    assert "power_rails.vdd_gpu_soc_w" in found
    assert "power_rails.total_w" not in found
    (sentence,) = map(str, feed.lost)
    assert "VDD_CPU_CV vanished at 2.0 s; it and the module's power are missing" in sentence


def test_rails_are_read_as_often_as_was_asked(tmp_path):
    host, feed = opened(PowerRails(period="1s"), sensors.nano(tmp_path))
    counts = []
    for _ in range(21):
        counts.append(len(list(feed.poll())) > 0)
        host.clock.advance(0.1)
    assert [place for place, taken in enumerate(counts) if taken] == [0, 8, 18]


def test_a_machine_without_monitors_says_so():
    (sentence,) = map(str, PowerRails().obstacles(FakeHost()))
    assert "no power monitors" in sentence


@pytest.mark.parametrize(
    ("said", "total_w"),
    [("RAM 1/2MB VDD_IN 3913mW/3922mW VDD_SOC 1238mW/1237mW", 3.913), ("RAM 1/2MB POM_5V_IN 1022/1000", 1.022)],
)
def test_tegrastats_is_asked_where_the_kernel_shows_no_monitors(tmp_path, monkeypatch, said, total_w):
    program(tmp_path / "tegrastats", f"echo '{said}'\necho garbage\nexec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    host = LocalHost(root=tmp_path / "empty")
    assert PowerRails().obstacles(host) == []
    feed = PowerRails().open(host, Scope())
    assert values(feed.poll())["power_rails.total_w"] == total_w
    feed.close()
    assert feed.errors["tegrastats"] <= 1
    assert feed.poll() == []


def test_a_tegrastats_that_ends_is_said(tmp_path, monkeypatch):
    program(tmp_path / "tegrastats", "echo 'RAM 1/2MB VDD_IN 3913mW'\nexit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    feed = PowerRails().open(LocalHost(root=tmp_path / "empty"), Scope())
    feed._child._thread.join(5)
    assert values(feed.poll()) == {"power_rails.vdd_in_w": 3.913, "power_rails.total_w": 3.913}
    feed.close()
    assert [*map(str, feed.lost)] == ["power_rails: tegrastats ended by itself with code 3."]


def program(path, text):
    path.write_text(f'#!/bin/sh\n[ "$1" = --help ] && exit 0\n{text}\n')
    path.chmod(0o755)


def test_zones_are_named_and_the_one_of_the_pmic_that_always_says_100_is_left_out(tmp_path):
    _, feed = opened(Temperature(), sensors.nano(tmp_path))
    assert values(feed.poll()) == {
        "temperature.ao_therm_c": 39.5,
        "temperature.cpu_therm_c": 36.5,
        "temperature.gpu_therm_c": 36.0,
    }


def test_a_zone_that_sleeps_is_absent_until_it_wakes(tmp_path):
    host, feed = opened(Temperature(), sensors.agx_orin(tmp_path))
    assert "temperature.gpu_thermal_c" not in values(feed.poll())
    host.write_file("/sys/class/thermal/thermal_zone1/temp", "51000")
    assert next_poll(host, feed)["temperature.gpu_thermal_c"] == 51.0
    assert feed.errors == {}


def test_a_zone_that_cannot_be_read_at_the_start_may_come_later(tmp_path):
    host = Board(sensors.nano(tmp_path))
    host.failing["temp"] = errno.EAGAIN
    feed = Temperature().open(host, Scope())
    assert values(feed.poll()) == {}
    host.failing.clear()
    assert len(next_poll(host, feed)) == 3


@pytest.mark.parametrize("garbage", [*GARBAGE, "0", "45", "201000"])
def test_a_temperature_in_another_unit_or_none_at_all_is_missing(tmp_path, garbage):
    host, feed = opened(Temperature(), sensors.nano(tmp_path))
    host.write_file("/sys/class/thermal/thermal_zone1/temp", garbage)
    assert "temperature.cpu_therm_c" not in values(feed.poll())
    assert feed.errors == {"temp": 1}


def test_two_zones_of_one_name_are_told_apart(tmp_path):
    files = sensors.zone(0, "acpitz", 20_000) | sensors.zone(5, "acpitz", 30_000)
    _, feed = opened(Temperature(), lay(tmp_path, files))
    assert values(feed.poll()) == {"temperature.acpitz_c": 20.0, "temperature.acpitz_2_c": 30.0}


def test_a_processor_without_zones_has_its_own_sensor(tmp_path):
    chip = f"{sensors.HWMON}/hwmon3"
    files = {
        f"{chip}/name": "coretemp\n",
        f"{chip}/temp1_label": "Package id 0\n",
        f"{chip}/temp1_input": "55000\n",
        f"{chip}/temp1_crit": "100000\n",
    }
    host, feed = opened(Temperature(), lay(tmp_path, files))
    assert values(feed.poll()) == {"temperature.coretemp_package_id_0_c": 55.0}
    assert sensors_by_word(host)["coretemp_package_id_0"].critical_c == 100.0


def test_temperatures_and_their_limits_have_the_same_words(tmp_path):
    host = Board(sensors.agx_orin(tmp_path))
    found = sensors_by_word(host)
    assert temperatures_c(host, found) == {"cpu_thermal": 48.5, "tj_thermal": 49.0}
    assert {sensor.critical_c for sensor in found.values()} == {104.5}


def test_throttling_of_a_board_is_seen_and_a_fan_is_none(tmp_path):
    host, feed = opened(Thermal(), sensors.agx_orin(tmp_path))
    found = values(feed.poll())
    assert found["thermal.soctherm_oc_oc3_events"] == 7
    assert found["thermal.cooling_cpufreq_cpu0"] == found["thermal.ina3221_curr1_crit_alarm"] == 0
    assert not any("fan" in channel for channel in found)
    host.write_file("/sys/class/thermal/cooling_device2/cur_state", "4")
    assert next_poll(host, feed)["thermal.cooling_devfreq_17000000_ga10b"] == 4


def test_throttle_counts_of_a_processor_are_those_of_its_cores_and_each_package_once(tmp_path):
    _, feed = opened(Thermal(), sensors.x86(tmp_path))
    found = values(feed.poll())
    assert [found[f"thermal.core{core}_throttled"] for core in range(4)] == [3] * 4
    assert (found["thermal.package0_throttled"], found["thermal.package1_throttled"]) == (5, 5)
    assert not any("tcc" in channel for channel in found)


def test_clocks_of_cores_gpu_and_memory(tmp_path):
    sensors.nano(jetson.nano(tmp_path))
    _, feed = opened(Frequency(), tmp_path)
    assert values(feed.poll()) == {
        **{f"frequency.cpu{core}_hz": 102_000_000 for core in range(4)},
        "frequency.gpu_hz": 76_800_000,
        "frequency.memory_hz": 1_600_000_000,
    }


@pytest.mark.parametrize("board", [jetson.nano, jetson.agx_xavier, jetson.agx_orin])
def test_a_jetsons_gpu_is_told_by_the_kernel_and_needs_no_nvml(board, tmp_path):
    host, feed = opened(Gpu(), board(tmp_path))
    found = values(feed.poll())
    assert found.pop("gpu.clock_hz") > 70_000_000
    assert found == {"gpu.util": pytest.approx(0.437)}
    assert Gpu().obstacles(host) == []


def test_a_card_beside_a_boards_own_gpu_is_the_one_that_is_told(tmp_path, monkeypatch):
    put_in(monkeypatch)
    jetson.nano(tmp_path)
    driver = tmp_path / nvidia.DRIVER.lstrip("/")
    driver.parent.mkdir(parents=True, exist_ok=True)
    driver.write_text("NVRM version: 580")
    _, feed = opened(Gpu(), tmp_path)
    assert {"gpu.power_w", "gpu.util"} <= values(feed.poll()).keys()


def test_a_core_that_goes_offline_ends_its_series_and_no_other(tmp_path):
    host, feed = opened(Frequency(), jetson.nano(tmp_path))
    feed.poll()
    (tmp_path / CPUS.lstrip("/") / "cpu3/cpufreq").unlink()
    found = next_poll(host, feed)
    assert "frequency.cpu3_hz" not in found
    assert "frequency.cpu2_hz" in found
    assert "vanished at 1.0 s, and with it frequency.cpu3_hz" in str(feed.lost[0])


@pytest.mark.parametrize("probe", [Temperature(), Thermal(), Frequency()])
def test_a_machine_without_sensors_is_told_in_a_sentence(probe):
    (sentence,) = map(str, probe.obstacles(FakeHost()))
    assert sentence.startswith("fake ")
