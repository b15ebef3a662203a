"""The gpu probe on a made-up H200: which field, which window, what is missing, who else is there, and a GPU lost."""

import os
import subprocess

import pytest

from pretend_h200 import put_in
from tare.base.host import Scope
from tare.drivers import nvidia
from tare.parts.probes.gpu import Gpu
from tare.testing import FakeHost


@pytest.fixture
def library(monkeypatch):
    return put_in(monkeypatch)


@pytest.fixture
def host():
    return FakeHost(files={nvidia.DRIVER: "NVRM version: 580"})


def values(readings):
    return {reading.channel: reading.value for reading in readings}


def later(feed, host, seconds=1.0):
    host.clock.advance(seconds)
    return values(feed.poll())


def about(feed, name):
    return next(channel.about for channel in feed.channels if channel.name == name)


def test_every_channel_has_a_reading_and_the_agreed_name(library, host):
    feed = Gpu(share=1).open(host, Scope())
    found = values(feed.poll())

    assert found.keys() == {channel.name for channel in feed.channels}
    assert found.keys() >= {
        "gpu.power_w", "gpu.energy_j", "gpu.util", "gpu.clock_hz", "gpu.memory_clock_hz", "gpu.memory_used_bytes",
        "gpu.temperature_c", "gpu.throttle_sw_power_s", "gpu.throttle_hw_thermal_s", "gpu.foreign_processes",
    }  # fmt: skip
    assert (found["gpu.power_w"], found["gpu.clock_hz"], found["gpu.lost"]) == (79.476, 345e6, 0)


def test_a_second_gpu_has_channels_of_its_own(library, host):
    library.change(gpus=2)
    found = values(Gpu(share=1).open(host, Scope()).poll())

    assert {"gpu.power_w", "gpu1.power_w"} <= found.keys()


def test_power_says_that_it_is_the_instant_field(library, host):
    assert "NVML_FI_DEV_POWER_INSTANT" in about(Gpu(share=1).open(host, Scope()), "gpu.power_w")


def test_without_the_instant_field_the_average_is_taken_and_says_its_window(library, host):
    library.change(refused={"186": 3})
    feed = Gpu(share=1).open(host, Scope())

    assert "averaged over 1 s" in about(feed, "gpu.power_w")
    assert values(feed.poll())["gpu.power_w"] == pytest.approx(79.158)


def test_zero_watts_are_no_reading(library, host):
    feed = Gpu(share=1).open(host, Scope())
    feed.poll()
    library.change(power_mw=0)

    assert "gpu.power_w" not in later(feed, host)
    library.change(power_mw=80000)
    assert later(feed, host)["gpu.power_w"] == 80


def test_a_gpu_without_an_energy_counter_has_no_such_channel(library, host):
    library.change(refused={"nvmlDeviceGetTotalEnergyConsumption": 3})

    assert "gpu.energy_j" not in values(Gpu(share=1).open(host, Scope()).poll())


def test_an_energy_counter_that_starts_anew_ends_its_series_and_is_counted(library, host):
    feed = Gpu(share=1).open(host, Scope())
    feed.poll()
    library.change(energy_mj=10)

    assert "gpu.energy_j" not in later(feed, host)
    assert feed.errors == {"gpu.energy_j": 1}


def test_throttling_is_the_drivers_own_count(library, host):
    feed = Gpu(share=1).open(host, Scope())
    before = values(feed.poll())["gpu.throttle_sw_power_s"]
    library.change(throttled_ns={"74": 1_500_000_000, "269": 0, "270": 0, "271": 0})

    assert later(feed, host)["gpu.throttle_sw_power_s"] - before == 1.5


def test_a_driver_that_does_not_count_throttling_is_asked_each_second(library, host):
    library.change(throttled_ns={})
    feed = Gpu(share=1).open(host, Scope())
    feed.poll()
    library.change(reasons=nvidia.REASON_HW_THERMAL)
    found = later(feed, host)

    assert (found["gpu.throttle_hw_thermal_s"], found["gpu.throttle_sw_power_s"]) == (1.0, 0.0)
    assert "as seen once a second" in about(feed, "gpu.throttle_hw_thermal_s")


def test_between_two_seconds_only_what_moves_fast_is_asked(library, host):
    feed = Gpu(share=1).open(host, Scope())
    feed.poll()

    assert later(feed, host, 0.1).keys() == {"gpu.power_w", "gpu.energy_j", "gpu.clock_hz", "gpu.lost"}


def test_what_is_dear_is_asked_less_often(library, host, monkeypatch):
    spent_s = iter(range(10_000))
    monkeypatch.setattr("tare.parts.probes.gpu.time.thread_time", lambda: next(spent_s) * 0.0035)  # 3.5 ms each time
    feed = Gpu(share=0.01).open(host, Scope())
    counted = 0
    for _ in range(100):
        host.clock.advance(0.1)
        counted += "gpu.energy_j" in values(feed.poll())

    assert counted == 20  # 3.5 ms each half second are 0.7 %
    assert "gpu.energy_j" in values(feed.close())


def test_a_process_that_tare_did_not_start_is_counted(library, host):
    host.files |= {"/proc/41/environ": "HOME=/\0TARE_NAME=tare-1\0", "/proc/42/environ": "HOME=/\0"}
    library.change(pids=[41, 42, 43])  # 43 has ended since

    assert values(Gpu(share=1).open(host, Scope()).poll())["gpu.foreign_processes"] == 1


def test_a_process_of_another_user_is_foreign(library, host):
    def read(path):
        if str(path).endswith("/environ"):
            raise PermissionError(13, "Permission denied")
        if str(path) != nvidia.DRIVER:
            raise FileNotFoundError(path)
        return "NVRM version: 580"

    host.read = read
    library.change(pids=[41])

    assert values(Gpu(share=1).open(host, Scope()).poll())["gpu.foreign_processes"] == 1


def test_a_lost_gpu_says_so_once_and_gives_nothing_more(library, host):
    feed = Gpu(share=1).open(host, Scope())
    feed.poll()
    library.change(lost=True)
    first, second = later(feed, host), later(feed, host)

    assert first == second == {"gpu.lost": 1.0}
    assert len(feed.lost) == 1
    assert "no longer answers" in str(feed.lost[0])


def test_without_a_driver_it_is_an_obstacle_and_an_empty_feed(library):
    (sentence,) = map(str, Gpu().obstacles(FakeHost()))

    assert sentence.startswith("no NVIDIA driver")
    assert Gpu(share=1).open(FakeHost(), Scope()).poll() == []


def test_the_sampler_in_its_own_process_reads_the_gpu(tmp_path, monkeypatch):
    from pretend_h200 import kept_in
    from tare.records.spool import read_spool
    from tare.trial.sampler import Sampler

    kept_in(tmp_path / "nvml.json", monkeypatch)
    with Sampler([Gpu(share=1)], tmp_path / "spool", 0.01) as sampler:
        sampler.begin(Scope(pid=os.getpid()))
        subprocess.run(["sleep", "0.1"], check=True)
        report = sampler.end()
    series = read_spool(tmp_path / "spool")

    assert report.errors == {}
    assert set(series["gpu.power_w"][1]) == {79.476}
