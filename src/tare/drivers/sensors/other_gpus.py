"""AMD and Intel GPUs by the files of their kernel drivers (amdgpu, i915, xe), under the names that NVIDIA's cards have.

Nothing has to be installed and root is not needed. Energy: Intel's drivers count it (`energy1_input`, in microjoules);
amdgpu has a file for power only, and the energy is summed from that (AMD's own counter is in a binary table that only
AMD's library reads: `amdsmi`, which is asked where it is there). Not run on hardware: the files are as the kernel's
documentation has them (Documentation/gpu/amdgpu/thermal.rst, Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon
and -xe-hwmon).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tare.base.host import Host
from tare.base.units import Channel
from tare.drivers.kernel_files import KernelFile, number
from tare.drivers.sensors.folders import text_of

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
