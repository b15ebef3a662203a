"""AMD and Intel GPUs by the files of their kernel drivers (amdgpu, i915, xe), under the names that NVIDIA's cards have.

Nothing has to be installed and root is not needed. Energy: Intel's drivers count it (`energy1_input`, in microjoules);
amdgpu has a file for power only, and the energy is summed from that (AMD's own counter is in a binary table that only
AMD's library reads: `amdsmi`, which is asked where it is there). Not run on hardware: the files are as the kernel's
documentation has them (Documentation/gpu/amdgpu/thermal.rst, Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon
and -xe-hwmon).

The one door to AMD's management library: `amdsmi`, which comes with ROCm, is imported here when it is first needed.

It has what the kernel's files have not: the energy counter, whether the clock is held back, and who computes there.
Units leave this file as tare has them; what a GPU does not have is None. Not run on hardware: written against the
Python library 7.0.2, and tried with that and a stand-in for its `libamd_smi.so`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Iterator
from typing import Any, NamedTuple

from tare.base.errors import TareError
from tare.base.host import Host, LocalHost
from tare.base.units import Channel
from tare.drivers.kernel_files import KernelFile, number, text_of

_MOST_CARDS, _MOST_HWMON = 16, 96
_VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
_POWER_ABOUT = {
    "power1_average": "amdgpu's power1_average: of the GPU with its memory, averaged by its firmware",
    "power1_input": "amdgpu's power1_input: of the GPU with its memory, instant",
}


class Card(NamedTuple):
    """One GPU: its folder, its vendor, its sensors' folder, and how its channels are called."""

    path: str
    vendor: str
    hwmon: str
    label: str


def cards(host: Host) -> list[Card]:
    """The GPUs of these vendors that have sensors, in the order of the kernel's numbers."""
    found: list[Card] = []
    for index in range(_MOST_CARDS):
        path = f"/sys/class/drm/card{index}"
        vendor = _VENDORS.get(text_of(host, f"{path}/device/vendor") or "")
        if vendor is not None and (hwmon := _hwmon(host, f"{path}/device/hwmon")):
            found.append(Card(path, vendor, hwmon, f"gpu{len(found)}" if found else "gpu"))
    return found


def _hwmon(host: Host, folder: str) -> str:
    paths = (f"{folder}/hwmon{number}" for number in range(_MOST_HWMON))
    return next((path for path in paths if text_of(host, f"{path}/name") is not None), "")


def files(host: Host) -> Iterator[KernelFile]:
    """What each of them has; of files with the same channel the first that is there is read."""
    for card in cards(host):
        yield from _amd(card) if card.vendor == "AMD" else _intel(card)


def _amd(card: Card) -> Iterator[KernelFile]:
    for name, about in _POWER_ABOUT.items():
        channel = Channel(f"{card.label}.power_w", "W", "gauge", about)
        yield KernelFile(f"{card.hwmon}/{name}", number(channel, 1e-6))
    util = Channel(f"{card.label}.util", "share", "gauge", "of the time in which the GPU was busy (gpu_busy_percent)")
    yield KernelFile(f"{card.path}/device/gpu_busy_percent", number(util, 0.01))
    clock = Channel(f"{card.label}.clock_hz", "Hz", "gauge", "of the shaders (sclk)")
    yield KernelFile(f"{card.hwmon}/freq1_input", number(clock))
    memory = Channel(f"{card.label}.memory_used_bytes", "bytes", "gauge", "of all processes")
    yield KernelFile(f"{card.path}/device/mem_info_vram_used", number(memory), slow=True)
    memory_clock = Channel(f"{card.label}.memory_clock_hz", "Hz", "gauge", "of the GPU's memory (mclk)")
    yield KernelFile(f"{card.hwmon}/freq2_input", number(memory_clock), slow=True)
    heat = Channel(f"{card.label}.temperature_c", "C", "gauge", "of the die's edge")
    yield KernelFile(f"{card.hwmon}/temp1_input", number(heat, 0.001), slow=True)


def _intel(card: Card) -> Iterator[KernelFile]:
    energy = Channel(
        f"{card.label}.energy_j", "J", "counter", "of the card; counted by the GPU since it was powered on"
    )
    yield KernelFile(f"{card.hwmon}/energy1_input", number(energy, 1e-6))
    clock = Channel(f"{card.label}.clock_hz", "Hz", "gauge", "of the first graphics unit")
    for path in ("gt_act_freq_mhz", "gt/gt0/rps_act_freq_mhz", "device/tile0/gt0/freq0/act_freq"):
        yield KernelFile(f"{card.path}/{path}", number(clock, 1e6))
    heat = Channel(f"{card.label}.temperature_c", "C", "gauge", "of the package")
    for name in ("temp2_input", "temp1_input"):
        yield KernelFile(f"{card.hwmon}/{name}", number(heat, 0.001), slow=True)


_ABSENT = {1, 2, 3, 10, 31, 40, 43}  # invalid, not supported, not yet, no permission, not found, no data, odd data
_POWERS = ("current_socket_power", "average_socket_power", "socket_power")
_MICRO = 1e-6
_MIB = 1 << 20
_opened: dict[str, Any] = {}  # the library, once it is open in this process


class AmdGpu:
    """One GPU: asked in plain values."""

    def __init__(self, library: Any, handle: Any, index: int) -> None:
        self._library, self._handle = library, handle
        self.label = "gpu" if index == 0 else f"gpu{index}"

    def power_w(self) -> float | None:
        """Of the socket: the momentary one where the GPU has it, else the mean of its firmware."""
        found = self._ask("amdsmi_get_power_info") or {}
        return next((value for name in _POWERS if (value := _number(found.get(name)))), None)

    def energy_j(self) -> float | None:
        """Since the driver was loaded; the counter's step is in microjoules."""
        found = self._ask("amdsmi_get_energy_count") or {}
        count, step = _number(found.get("energy_accumulator")), _number(found.get("counter_resolution"))
        return None if not count or not step else count * step * _MICRO

    def clock_hz(self, name: str) -> float | None:
        """`GFX` or `MEM`."""
        found = self._ask("amdsmi_get_clock_info", self._library.AmdSmiClkType[name]) or {}
        megahertz = _number(found.get("clk"))
        return None if megahertz is None else megahertz * 1e6

    def util(self) -> float | None:
        percent = _number((self._ask("amdsmi_get_gpu_activity") or {}).get("gfx_activity"))
        return None if percent is None else percent / 100

    def memory_used_bytes(self) -> float | None:
        used = _number((self._ask("amdsmi_get_gpu_vram_usage") or {}).get("vram_used"))
        return None if used is None else used * _MIB

    def temperature_c(self) -> float | None:
        """Of the edge; newer cards have only that of the hottest spot."""
        kinds, current = self._library.AmdSmiTemperatureType, self._library.AmdSmiTemperatureMetric.CURRENT
        values = (_number(self._ask("amdsmi_get_temp_metric", kinds[name], current)) for name in ("EDGE", "HOTSPOT"))
        return next((value for value in values if value), None)

    def is_held_back(self) -> bool | None:
        """Whether its firmware throttles it now, for whatever reason: the library does not say which."""
        found = self._ask("amdsmi_get_gpu_metrics_info") or {}
        known = [found.get(name) for name in ("indep_throttle_status", "throttle_status")]
        return next((bool(value) for value in known if isinstance(value, (bool, int))), None)

    def compute_pids(self) -> list[int] | None:
        found = self._ask("amdsmi_get_gpu_process_list")
        return None if found is None else [int(each["pid"]) for each in found if isinstance(each, dict)]

    def _ask(self, name: str, *arguments: Any) -> Any:
        function = getattr(self._library, name, None)
        if function is None:
            return None
        try:
            return function(self._handle, *arguments)
        except self._library.AmdSmiException as error:
            if getattr(error, "err_code", 1) in _ABSENT:
                return None
            raise TareError(f"{self.label}: {name} failed: {str(error).strip()}") from error


def amd_gpus(host: Host) -> list[AmdGpu]:
    """Those that the library knows on this machine; none where it is not there, and the kernel's files must do."""
    if not isinstance(host, LocalHost):
        return []
    library = _library()
    if library is None:
        return []
    try:
        handles = library.amdsmi_get_processor_handles()
    except Exception:  # no right to /dev/kfd, for one
        return []
    return [AmdGpu(library, handle, index) for index, handle in enumerate(handles)]


def _library() -> Any | None:
    if "library" not in _opened:
        _opened["library"] = _open()
    return _opened["library"]


def _open() -> Any | None:
    """Without `libamd_smi.so` importing it prints a line and fails in a way that its versions do not agree on."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            library = importlib.import_module("amdsmi")
            library.amdsmi_init(library.AmdSmiInitFlags.INIT_AMD_GPUS)
    except Exception:
        return None
    return library


def _number(value: Any) -> float | None:
    """A GPU that has no such value says `N/A`."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
