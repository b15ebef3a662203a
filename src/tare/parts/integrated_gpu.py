"""A Jetson's GPU in the kernel's own files, for boards without NVML, or with one that does not tell how busy it is.

`load` is what jtop and tegrastats show: the share of the time in which the GPU was busy, in thousandths.
"""

from __future__ import annotations

from collections.abc import Iterator

from tare.host import Host
from tare.measures import Channel
from tare.parts.file_feed import KernelFile
from tare.parts.procfs import number
from tare.parts.sensor_folders import text_of, within

# By chip: Nano, TX2, Xavier, Orin (JetPack 5), Orin (JetPack 6), Thor. They do not change with the boot.
_CHIPS = ("57000000.gpu", "17000000.gp10b", "17000000.gv11b", "17000000.ga10b", "17000000.gpu", "gpu-gpc-0")
_CLOCKS = ("/sys/class/devfreq/{0}", "/sys/devices/{0}/devfreq/{0}", "/sys/devices/platform/{0}/devfreq/{0}")
_LOADS = ("/sys/class/devfreq/{0}/device/load", "/sys/devices/{0}/load", "/sys/devices/platform/{0}/load")
_ALSO = "/sys/devices/gpu.0/load"  # a link to one of these, on most boards
_ANSWER_S = 3.0


def clock_files(channel: Channel) -> Iterator[KernelFile]:
    """Where the clock may stand: of files with the same channel the first that is there is read."""
    for chip in _CHIPS:
        for folder in _CLOCKS:
            yield KernelFile(f"{folder.format(chip)}/cur_freq", number(channel), slow=True)


def files() -> Iterator[KernelFile]:
    """How busy it is, and its clock, under the names that NVIDIA's cards have."""
    util = Channel("gpu.util", "share", "gauge", "of the time in which the GPU was busy, as the kernel counts it")
    paths = [*(path.format(chip) for chip in _CHIPS for path in _LOADS), _ALSO]
    yield from (KernelFile(path, number(util, 0.001)) for path in paths)
    yield from clock_files(Channel("gpu.clock_hz", "Hz", "gauge", "devfreq of the GPU"))


def is_there(host: Host) -> bool:
    try:
        return within(_ANSWER_S, lambda: any(text_of(host, file.path) is not None for file in files()))
    except TimeoutError:
        return False
