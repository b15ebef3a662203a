"""The device files of NVIDIA GPUs, which a container needs to reach one: the kernel tells which there are.

With the host's own root inside, they are all that is missing: the driver's libraries are there. An image has none, and
gets them from NVIDIA's container runtime (parts/platforms/docker.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.host import Host
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


def gpu_obstacles(host: Host, wanted: bool | None) -> list[str]:
    if not wanted or gpu_files(host):
        return []
    return ["`gpu: true` hands the GPU's device files on, and there are none here: `ls /dev/nvidia*` shows them."]


def oci_devices(files: Sequence[GpuFile]) -> list[dict[str, Json]]:
    """As a bundle's `linux.devices` has them: the runtime makes the files inside."""
    common: dict[str, Json] = {"type": "c", "fileMode": 0o666, "uid": 0, "gid": 0}
    return [{**common, "path": file.path, "major": file.major, "minor": file.minor} for file in files]


def oci_rules(files: Sequence[GpuFile]) -> list[dict[str, Json]]:
    """As a bundle's device control group has them: everything else stays forbidden."""
    return [{"allow": True, "type": "c", "major": file.major, "minor": file.minor, "access": "rwm"} for file in files]
