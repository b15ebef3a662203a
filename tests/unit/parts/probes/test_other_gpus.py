"""AMD and Intel GPUs: files as their kernel drivers write them. No such hardware was at hand.

AMD's library: a stand-in with the names and the answers of amdsmi 7.0.2. No such hardware was at hand.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tare.base.host import LocalHost, Scope
from tare.figures.power_series import sources
from tare.parts.probes import gpu
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


class AmdSmiException(Exception):
    def __init__(self, err_code: int) -> None:
        super().__init__(err_code)
        self.err_code = err_code


class Library(ModuleType):
    """What `import amdsmi` gives on a machine with one MI300X."""

    AmdSmiException = AmdSmiException
    AmdSmiInitFlags = enum.IntEnum("AmdSmiInitFlags", {"INIT_AMD_GPUS": 2})
    AmdSmiClkType = enum.IntEnum("AmdSmiClkType", {"GFX": 0, "MEM": 4})
    AmdSmiTemperatureType = enum.IntEnum("AmdSmiTemperatureType", {"EDGE": 0, "HOTSPOT": 1})
    AmdSmiTemperatureMetric = enum.IntEnum("AmdSmiTemperatureMetric", {"CURRENT": 0})

    def __init__(self) -> None:
        super().__init__("amdsmi")
        self.answers: dict[str, Any] = {
            "power_info": {"current_socket_power": "N/A", "average_socket_power": 211, "socket_power": 211},
            "energy_count": {"energy_accumulator": 1_000_000, "counter_resolution": 15.3, "timestamp": 9},
            "clock_info": {0: {"clk": 1700}, 4: {"clk": 1600}},
            "gpu_activity": {"gfx_activity": 97, "umc_activity": 10, "mm_activity": "N/A"},
            "gpu_vram_usage": {"vram_total": 196592, "vram_used": 283},
            "temp_metric": {0: AmdSmiException(2), 1: 48},
            "gpu_metrics_info": {"throttle_status": "N/A", "indep_throttle_status": True},
            "gpu_process_list": [{"name": "python", "pid": os.getpid()}],
        }

    def amdsmi_init(self, flag: object) -> None: ...

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["handle"]

    def __getattr__(self, name: str) -> Any:
        if (asked := name.removeprefix("amdsmi_get_")) not in self.answers:
            raise AttributeError(name)

        def answer(handle: str, *which: int) -> Any:
            found = self.answers[asked]
            found = found[int(which[0])] if which else found
            if isinstance(found, Exception):
                raise found
            return found

        return answer


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setitem(sys.modules, "amdsmi", made)
    monkeypatch.setattr(gpu, "_opened", {})
    yield made


@pytest.fixture
def machine(tmp_path: Path) -> LocalHost:
    """With an AMD card as its kernel shows it."""
    for name, text in {"vendor": "0x1002", "hwmon/hwmon5/name": "amdgpu", "hwmon/hwmon5/power1_average": "9"}.items():
        path = tmp_path / "sys/class/drm/card1/device" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return LocalHost(root=tmp_path)


def amd_readings(host: LocalHost) -> dict[str, float]:
    feed = Gpu().open(host, Scope())
    return {reading.channel: reading.value for reading in (*feed.poll(), *feed.close())}


def test_it_has_the_channels_of_nvidias_with_the_energy_counted_by_the_gpu(library, machine):
    found = amd_readings(machine)

    assert found.pop("gpu.throttle_s") >= 0
    assert found == {
        "gpu.power_w": 211.0, "gpu.energy_j": pytest.approx(15.3), "gpu.util": 0.97, "gpu.clock_hz": 1.7e9,
        "gpu.memory_clock_hz": 1.6e9, "gpu.memory_used_bytes": 283 * 2**20, "gpu.temperature_c": 48.0,
        "gpu.foreign_processes": 0.0, "gpu.lost": 0.0,
    }  # fmt: skip
    (source,) = sources(found)
    assert (source.of, source.joules) == ("gpu", "gpu.energy_j")


def test_what_a_gpu_does_not_have_is_no_channel(library, machine):
    library.answers["energy_count"] = AmdSmiException(2)
    del library.answers["gpu_process_list"]
    library.answers["gpu_metrics_info"] = {"throttle_status": "N/A", "indep_throttle_status": "N/A"}

    channels = {channel.name for channel in Gpu().open(machine, Scope()).channels}

    assert not channels & {"gpu.energy_j", "gpu.foreign_processes", "gpu.throttle_s"}
    assert "gpu.power_w" in channels


def test_an_answer_that_fails_later_is_counted_and_ends_nothing(library, machine):
    feed = Gpu().open(machine, Scope())
    library.answers["gpu_activity"] = AmdSmiException(33)

    feed.close()

    assert feed.errors["gpu.util"] == 1


@pytest.mark.parametrize("problem", [KeyError("libamd_smi.so"), ImportError("no module"), AmdSmiException(34)])
def test_without_the_library_the_kernels_files_serve(monkeypatch, machine, capsys, problem):
    def fails(name: str) -> None:
        print("Unable to find libamd_smi.so")  # noqa: T201  (as it does; the sampler's answers go the same way)
        raise problem

    monkeypatch.setattr(gpu, "_opened", {})
    monkeypatch.setattr(gpu.importlib, "import_module", fails)

    assert amd_readings(machine) == {"gpu.power_w": 9e-6}
    assert capsys.readouterr().out == ""
