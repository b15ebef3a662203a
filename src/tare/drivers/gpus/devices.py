"""The device files of NVIDIA GPUs, which a container needs to reach one: the kernel tells which there are.

With the host's own root inside, they are all that is missing: the driver's libraries are there. An image has none, and
gets them from NVIDIA's container runtime (parts/platforms/docker.py).

A Jetson's GPU in the kernel's own files, for boards without NVML, or with one that does not tell how busy it is.

`load` is what jtop and tegrastats show: the share of the time in which the GPU was busy, in thousandths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel
from tare.drivers.kernel_files import KernelFile, number, text_of, within
from tare.parts.protocols import Json

# Servers and desktops; then the boards, whose GPU is a part of the chip.
_PATTERNS = (
    "/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm*", "/dev/nvidia-modeset", "/dev/nvidia-caps/*",
    "/dev/nvhost-*", "/dev/nvmap", "/dev/nvgpu/*/*", "/dev/nvsciipc",
)  # fmt: skip
_LIST = f'for f in {" ".join(_PATTERNS)}; do [ ! -c "$f" ] || stat -c "%n %t %T" -- "$f" || exit 1; done'


@dataclass(frozen=True, slots=True)
class GpuFile:
    """A character device: where it is, and which driver it leads to."""

    path: str
    major: int
    minor: int


def gpu_files(host: Host) -> list[GpuFile]:
    """Those that are there, by name; none on a machine without such a GPU."""
    found = [line.rsplit(" ", 2) for line in host.run(["sh", "-c", _LIST, "gpus"]).checked().out.splitlines()]
    return [GpuFile(path, int(major, 16), int(minor, 16)) for path, major, minor in sorted(found)]


def handed_on(host: Host, wanted: bool | None) -> list[GpuFile]:
    """What a container gets: nothing if it is not wanted, and by default whatever there is."""
    return [] if wanted is False else gpu_files(host)


def gpu_obstacles(host: Host, wanted: bool | None) -> list[Ruling]:
    if not wanted or gpu_files(host):
        return []
    return [
        obstacle(
            "needs.gpu",
            "`gpu: true` hands the GPU's device files on, and there are none here: `ls /dev/nvidia*` shows them.",
        )
    ]


def oci_devices(files: Sequence[GpuFile]) -> list[dict[str, Json]]:
    """As a bundle's `linux.devices` has them: the runtime makes the files inside."""
    common: dict[str, Json] = {"type": "c", "fileMode": 0o666, "uid": 0, "gid": 0}
    return [{**common, "path": file.path, "major": file.major, "minor": file.minor} for file in files]


def oci_rules(files: Sequence[GpuFile]) -> list[dict[str, Json]]:
    """As a bundle's device control group has them: everything else stays forbidden."""
    return [{"allow": True, "type": "c", "major": file.major, "minor": file.minor, "access": "rwm"} for file in files]


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
