"""Virtual machines: QEMU's usual one and its microvm without a bus, and Firecracker.

QEMU shows the device's own root file system. Firecracker runs by KVM only; its root is a disk image, and the line to
its agent a virtual socket.
"""

from __future__ import annotations

import json
import platform
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tare.base.errors import TrialError
from tare.base.host import Host, InnerHost, LocalHost, Site
from tare.base.rulings import Ruling, obstacle
from tare.drivers.guests import boot as kernels
from tare.drivers.guests import qemu
from tare.drivers.guests.channel import Wire
from tare.drivers.guests.machine import BootContext, Choice, Guest, kvm_trouble
from tare.drivers.guests.qemu import Board, QemuGuest
from tare.parts.protocols import Json

# x86: without AVX the libraries take their SSE paths, which emulate far quicker; and most boots crash where the guest
# uses cmpxchg16b. Arm: without SVE, for the same reason; pointer authentication as in real silicon costs dearly.
_BOARDS = {
    "x86_64": Board(
        program="qemu-system-x86_64",
        package="qemu-system-x86",
        machine="q35",
        emulated_cpu="Nehalem",
        console="ttyS0",
        bus="pci",
        words=("clearcpuid=cx16",),
    ),
    "aarch64": Board(
        program="qemu-system-aarch64",
        package="qemu-system-arm",
        machine="virt,gic-version=max",
        emulated_cpu="max,pauth-impdef=on,sve=off,sme=off",
        console="ttyAMA0",
        bus="pci",
    ),
}

# An emulated processor like the device's own: libraries then choose the same code, and losses agree bit for bit.
_ARM_PARTS = {
    "0xd03": "cortex-a53",
    "0xd07": "cortex-a57",
    "0xd08": "cortex-a72",
    "0xd0b": "cortex-a76",
    "0xd0c": "neoverse-n1",
}


class Qemu(QemuGuest):
    """Run in a virtual machine of QEMU: a kernel of its own, the device's software, no network."""

    gpu: qemu.Gpu | None = None
    """A GPU that is passed through (VFIO), by its PCI address; auto: the one bound to vfio-pci. Needs KVM."""

    def choices(self, host: Host) -> list[Choice]:
        return super().choices(host) if self.gpu is None else [Choice("kvm")]

    def slowness(self) -> float:
        return super().slowness() if self.gpu is None else 1.0

    def own_obstacles(self, host: Host) -> list[Ruling]:
        own = super().own_obstacles(host)
        if self.gpu is None:
            return own
        if self.accel == "tcg":
            return [*own, obstacle("needs.kvm", "a GPU is passed to a machine with KVM only: leave `accel: tcg` out.")]
        return [*own, *qemu.obstacles(host, self.gpu, self.guest_kernel())]

    def needed_modules(self) -> tuple[str, ...]:
        return self.modules if self.gpu is None else (*self.modules, *qemu.DRIVERS)

    def passed(self, host: Host) -> Sequence[str]:
        return () if self.gpu is None else qemu.words(host, self.gpu)

    def machine_facts(self, boot: BootContext) -> dict[str, Json]:
        own = super().machine_facts(boot)
        return own if self.gpu is None else {**own, "gpu": dict(qemu.facts(boot.host, self.gpu))}

    def board(self) -> Board | None:
        found = _BOARDS.get(platform.machine())
        if found is None or (like := like_the_devices(_cpuinfo())) is None:
            return found
        return found._replace(emulated_cpu=like)


def like_the_devices(cpuinfo: str) -> str | None:
    """QEMU's name for the processor of an Arm device, where it knows it and all cores are alike."""
    parts = set(re.findall(r"^CPU part\s*:\s*(\S+)$", cpuinfo, re.MULTILINE))
    return _ARM_PARTS.get(parts.pop()) if len(parts) == 1 else None


def _cpuinfo() -> str:
    try:
        return LocalHost().read("/proc/cpuinfo")
    except OSError:
        return ""


# Of the ways to emulate it, this one came up most often (8 of 8); others 3 to 7 of 8.
_MICROVM = Board(
    program="qemu-system-x86_64",
    package="qemu-system-x86",
    machine="microvm,x-option-roms=off,rtc=on,pit=on,pic=on,isa-serial=on",
    emulated_cpu="Nehalem",
    console="ttyS0",
    bus="device",
    threads="single",
    words=("nokaslr", "clearcpuid=cx16"),
)


class Microvm(QemuGuest):
    """Run in QEMU's microvm machine: no PCI bus, no firmware, otherwise as `qemu`. x86 only."""

    boots_within_s: ClassVar[float] = 60.0
    tries: ClassVar[int] = 4

    def board(self) -> Board | None:
        if platform.machine() != "x86_64":
            return None
        # With cpufreq the clock that is told is that of the moment.
        counts = () if Path("/sys/devices/system/cpu/cpu0/cpufreq").exists() else time_stamps(_cpuinfo())
        return _MICROVM._replace(words=(*_MICROVM.words, *counts))


def time_stamps(cpuinfo: str) -> tuple[str, ...]:
    """How fast the processor's time-stamp counter counts, for a kernel that is emulated and sees that same counter.

    The microvm has no clock of known rate but the timer chip, against which a kernel on a busy device cannot measure
    it: it then waits for ever. Nor may it check the counter against timer ticks, which come late on a busy device:
    it would take these as its clock, which then jumps by tenths of seconds. Where a processor's clock may change, the
    device does not say how fast the counter is.
    """
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    counts = re.search(r"^cpu MHz\s*:\s*([0-9.]+)$", cpuinfo, re.MULTILINE)
    if counts is None or "constant_tsc" not in known or "aperfmperf" in known:
        return ()
    return (f"tsc_early_khz={round(1000 * float(counts[1]))}", "tsc=reliable")


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
        found = []
        if host.run(["firecracker", "--version"]).code != 0:
            found.append(
                obstacle(
                    "needs.program",
                    "no firecracker here: its releases are one file to be put into /usr/local/bin.",
                )
            )
        if (trouble := kvm_trouble(host)) is not None:
            found.append(obstacle("needs.kvm", f"firecracker needs KVM, but {trouble}."))
        if self.image is None:
            found.append(
                obstacle("needs.image", f"firecracker needs an `image` of a root file system: {_HOW_TO_MAKE_ONE}.")
            )
        elif _kind(self.image) is None:
            found.append(obstacle("needs.image", f"{self.image} is no squashfs or ext4 image: {_HOW_TO_MAKE_ONE}."))
        kernel = self.guest_kernel()
        if kernel is None:
            found.append(obstacle("needs.guest-kernel", f"no kernel for a guest here: {kernels.HOW_TO_GET_ONE}."))
        elif platform.machine() == "x86_64" and not _starts_with(kernel.image, 0, b"\x7fELF"):
            found.append(
                obstacle(
                    "needs.guest-kernel",
                    f"firecracker boots an unpacked kernel (vmlinux), and {kernel.image} is packed.",
                )
            )
        return found

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
