"""AMD and Intel GPUs: files as their kernel drivers write them. No such hardware was at hand."""

from __future__ import annotations

from tare.base.host import Scope
from tare.figures.energy_sources import sources
from tare.parts.probes.gpu import Gpu
from tare.testing import FakeHost

# An MI210 with amdgpu, as card1 beside a display without sensors; and an Arc A770 with i915.
AMD = {
    "/sys/class/drm/card0/device/vendor": "0x1a03\n",
    "/sys/class/drm/card1/device/vendor": "0x1002\n",
    "/sys/class/drm/card1/device/gpu_busy_percent": "97\n",
    "/sys/class/drm/card1/device/mem_info_vram_used": "10960896\n",
    "/sys/class/drm/card1/device/hwmon/hwmon5/name": "amdgpu\n",
    "/sys/class/drm/card1/device/hwmon/hwmon5/power1_average": "211000000\n",
    "/sys/class/drm/card1/device/hwmon/hwmon5/freq1_input": "1700000000\n",
    "/sys/class/drm/card1/device/hwmon/hwmon5/freq2_input": "1600000000\n",
    "/sys/class/drm/card1/device/hwmon/hwmon5/temp1_input": "48000\n",
}
INTEL = {
    "/sys/class/drm/card0/device/vendor": "0x8086\n",
    "/sys/class/drm/card0/gt_act_freq_mhz": "2400\n",
    "/sys/class/drm/card0/device/hwmon/hwmon3/name": "i915\n",
    "/sys/class/drm/card0/device/hwmon/hwmon3/energy1_input": "123456789\n",
}


def readings(files: dict[str, str]) -> dict[str, float]:
    feed = Gpu().open(FakeHost(files=dict(files)), Scope())
    return {reading.channel: reading.value for reading in (*feed.poll(), *feed.close())}


def test_an_amd_gpu_has_the_channels_of_nvidias():
    assert Gpu().obstacles(FakeHost(files=dict(AMD))) == []
    assert readings(AMD) == {
        "gpu.power_w": 211.0, "gpu.util": 0.97, "gpu.clock_hz": 1.7e9, "gpu.memory_used_bytes": 10960896.0,
        "gpu.memory_clock_hz": 1.6e9, "gpu.temperature_c": 48.0,
    }  # fmt: skip


def test_a_newer_kernel_tells_the_instant_power_under_another_name():
    folder = "/sys/class/drm/card1/device/hwmon/hwmon5"
    files = {path: text for path, text in AMD.items() if not path.endswith("power1_average")}

    assert readings({**files, f"{folder}/power1_input": "90500000"})["gpu.power_w"] == 90.5


def test_an_intel_gpu_tells_its_energy_by_its_counter():
    found = readings(INTEL)

    assert found == {"gpu.energy_j": 123.456789, "gpu.clock_hz": 2.4e9}
    (source,) = sources(found)
    assert (source.of, source.joules, source.watts) == ("gpu", "gpu.energy_j", None)


def test_a_second_gpu_has_a_number_and_a_machine_without_any_an_obstacle():
    second = {path.replace("card0", "card2").replace("hwmon3", "hwmon7"): text for path, text in INTEL.items()}
    channels = [channel.name for channel in Gpu().open(FakeHost(files={**AMD, **second}), Scope()).channels]
    (found,) = Gpu().obstacles(FakeHost())

    assert {"gpu.power_w", "gpu1.energy_j"} <= set(channels)
    assert found.code == "needs.gpu"
    assert "no AMD or Intel GPU" in found.sentence
