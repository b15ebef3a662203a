"""Firecracker: by KVM only; its root is a disk image, and the line to its agent a virtual socket."""

from __future__ import annotations

import json
import platform
import socket
from pathlib import Path
from typing import ClassVar

from tare.base.errors import TrialError
from tare.base.host import Host, InnerHost, Site
from tare.base.rulings import Ruling, obstacle
from tare.drivers.guests import boot as kernels
from tare.drivers.guests.channel import Wire
from tare.drivers.guests.machine import BootContext, Choice, Guest, kvm_trouble
from tare.parts.protocols import Json

_PORT = 5252
_GUEST_CID = 3
_LOOK_EVERY_NS = 50_000_000
_LAUNCH = 'console=$1; shift; exec "$@" > "$console" 2>&1 < /dev/null'
_MAGICS = {"squashfs": (0, b"hsqs"), "ext4": (0x438, b"\x53\xef")}  # where in an image, and what
_HOW_TO_MAKE_ONE = (
    "make one of the device's own root with `mksquashfs / root.squashfs -one-file-system -e proc sys dev run tmp`"
)


class Firecracker(Guest):
    """Run in a microVM of Firecracker, by KVM; its root is a disk image, since it can share no folder."""

    image: Path | None = None
    """The root file system as a squashfs or ext4 image; it must hold what the workload reads."""

    modules: ClassVar[tuple[str, ...]] = (
        "virtio_mmio", "virtio_blk", "vmw_vsock_virtio_transport", "squashfs", "ext4", "overlay",
    )  # fmt: skip
    boots_within_s: ClassVar[float] = 60.0

    def choices(self, host: Host) -> list[Choice]:
        return [Choice("kvm")]

    def own_obstacles(self, host: Host) -> list[Ruling]:
        stopped = []
        if host.run(["firecracker", "--version"]).code != 0:
            stopped.append(
                obstacle(
                    "needs.program",
                    "no firecracker here: its releases are one file to be put into /usr/local/bin.",
                )
            )
        if (trouble := kvm_trouble(host)) is not None:
            stopped.append(obstacle("needs.kvm", f"firecracker needs KVM, but {trouble}."))
        if self.image is None:
            stopped.append(
                obstacle("needs.image", f"firecracker needs an `image` of a root file system: {_HOW_TO_MAKE_ONE}.")
            )
        elif _kind(self.image) is None:
            stopped.append(obstacle("needs.image", f"{self.image} is no squashfs or ext4 image: {_HOW_TO_MAKE_ONE}."))
        kernel = self.guest_kernel()
        if kernel is None:
            stopped.append(obstacle("needs.guest-kernel", f"no kernel for a guest here: {kernels.HOW_TO_GET_ONE}."))
        elif platform.machine() == "x86_64" and not _starts_with(kernel.image, 0, b"\x7fELF"):
            stopped.append(
                obstacle(
                    "needs.guest-kernel",
                    f"firecracker boots an unpacked kernel (vmlinux), and {kernel.image} is packed.",
                )
            )
        return stopped

    def start(self, boot: BootContext) -> Wire:
        config = boot.folder / "config.json"
        config.write_text(json.dumps(self.config(boot)))
        command = ("firecracker", "--no-api", "--config-file", str(config))
        boot.start(("sh", "-c", _LAUNCH, "firecracker", str(boot.console), *command))
        return self._agent(boot)

    def config(self, boot: BootContext) -> dict[str, Json]:
        """What Firecracker reads at its start: the same as its requests would say, in one file."""
        ours = {"fs": _kind(self.image), "source": "/dev/vda", "options": "ro", "below": "", "port": f"vsock:{_PORT}"}
        words = [f"tare.{name}={value}" for name, value in ours.items()]
        return {
            "boot-source": {
                "kernel_image_path": str(boot.kernel.image),
                "initrd_path": str(boot.initramfs),
                "boot_args": " ".join(["console=ttyS0", "quiet", "reboot=k", "panic=-1", "pci=off", *words]),
            },
            "drives": [
                {"drive_id": "root", "path_on_host": str(self.image), "is_root_device": False, "is_read_only": True}
            ],
            "machine-config": {"vcpu_count": self.vcpus(boot.host), "mem_size_mib": self.memory_bytes() >> 20},
            "vsock": {"guest_cid": _GUEST_CID, "uds_path": str(boot.folder / "vsock")},
        }

    def _agent(self, boot: BootContext) -> socket.socket:
        """The line to the agent: Firecracker closes it again as long as nobody listens in the guest."""
        clock = boot.host.clock
        end_ns = clock.now_ns() + round(self.boots_within_s * 1e9)
        while True:
            line = boot.connect(boot.folder / "vsock", self.boots_within_s)
            line.settimeout(5.0)
            if _is_accepted(line):
                line.settimeout(None)
                return line
            line.close()
            if clock.now_ns() >= end_ns or any(child.exit for child in boot.children):
                raise boot.no_boot("its agent does not answer")
            clock.sleep_until(clock.now_ns() + _LOOK_EVERY_NS)

    def machine_facts(self, boot: BootContext) -> dict[str, Json]:
        version = boot.host.run(["firecracker", "--version"]).out.partition("\n")[0]
        return {"root": _kind(self.image), "image": str(self.image), "emulator": version}

    def make(self, host: Host, site: Site) -> InnerHost:
        place = super().make(host, site)
        missing = [str(path) for path in site.reads if place.run(["test", "-e", str(path)]).code != 0]
        if missing:
            place.close()
            raise TrialError(f"the image {self.image} does not hold {', '.join(missing)}, which the workload reads.")
        return place


def _is_accepted(line: socket.socket) -> bool:
    try:
        line.sendall(f"CONNECT {_PORT}\n".encode())
        answer = b""
        while not answer.endswith(b"\n") and (byte := line.recv(1)):
            answer += byte
    except OSError:
        return False
    return answer.startswith(b"OK ")


def _kind(image: Path | None) -> str | None:
    return next((kind for kind, (at, magic) in _MAGICS.items() if image and _starts_with(image, at, magic)), None)


def _starts_with(path: Path, at: int, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(len(magic)) == magic
    except OSError:
        return False
