"""A GPU of the device in a virtual machine (VFIO): which one, what stands in its way, and QEMU's words for it.

Nothing is bound here. A GPU that still belongs to its own driver may be in use, and giving it back is not always
possible without a reboot, so that what has to be typed is told instead. Not run on hardware: tested on recordings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator

from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle
from tare.drivers.guests.boot import Kernel
from tare.drivers.guests.machine import kvm_trouble

DEVICES, GROUPS = "/sys/bus/pci/devices", "/sys/kernel/iommu_groups"
VFIO, CONTAINER = "vfio-pci", "/dev/vfio/vfio"
DRIVERS = ("nvidia", "nvidia_uvm")  # of the guest's kernel; the libraries come with the device's own root
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
_DISPLAY, _BRIDGE = 0x03, 0x0604  # classes: a GPU, by its first byte; a bridge, which stays with the kernel


def _address(written: str) -> str:
    """`0000:01:00.0` of `01:00.0`."""
    match = _ADDRESS.fullmatch(written)
    if match is None and written != "auto":
        raise ValueError(f"{written!r} is no PCI address: write one as in `lspci -D` (0000:01:00.0), or auto")
    return written if match is None else f"{match[1] or '0000'}:{match[2]}:{match[3]}.{match[4]}".lower()


Gpu: TypeAlias = Annotated[str, AfterValidator(_address)] | Literal["auto"]


@dataclass(frozen=True)
class PciDevice:
    """A function of a PCI device, as the kernel describes it."""

    address: str
    kind: int  # the class, without its last byte: 0x0300, 0x0302 for GPUs
    driver: str | None
    id: str  # 10DE:2335

    @property
    def is_gpu(self) -> bool:
        return self.kind >> 8 == _DISPLAY


def pci_device(host: Host, address: str) -> PciDevice | None:
    """None where the device has none at this address."""
    try:
        lines = host.read(f"{DEVICES}/{address}/uevent").splitlines()
    except OSError:
        return None
    told: Mapping[str, str] = dict(line.split("=", 1) for line in lines if "=" in line)
    return PciDevice(address, int(told.get("PCI_CLASS", "0"), 16) >> 8, told.get("DRIVER"), told.get("PCI_ID", ""))


def chosen(host: Host, gpu: str) -> PciDevice | Ruling:
    """The GPU that is meant: the named one; `auto`: the only one that is bound to vfio-pci, else the only one."""
    if gpu != "auto":
        found = pci_device(host, gpu)
        if found is None:
            return obstacle("needs.gpu", f"there is no PCI device {gpu}: `lspci -D -nn` lists them.")
        if not found.is_gpu:
            return obstacle("needs.gpu", f"the PCI device {gpu} ({found.id}) is no GPU: its class is {found.kind:04x}.")
        return found
    listed = host.run(["ls", DEVICES]).out.split()
    gpus = [found for address in listed if (found := pci_device(host, address)) is not None and found.is_gpu]
    bound = [each for each in gpus if each.driver == VFIO]
    if len(bound or gpus) == 1:
        return (bound or gpus)[0]
    if not gpus:
        return obstacle("needs.gpu", "no GPU is on the PCI bus of this device, so none can be passed to a machine.")
    names = ", ".join(each.address for each in bound or gpus)
    return obstacle("needs.gpu", f"there are several GPUs ({names}): name one, as in `gpu: {gpus[0].address}`.")


def group_of(host: Host, address: str) -> int | None:
    """The number of its IOMMU group; None where the IOMMU is off."""
    name = host.run(["readlink", "--", f"{DEVICES}/{address}/iommu_group"]).out.strip().rpartition("/")[2]
    return int(name) if name.isdigit() else None


def obstacles(host: Host, gpu: str, kernel: Kernel | None) -> list[Ruling]:
    """Why this GPU cannot be passed to a machine here; each with what to do."""
    found = chosen(host, gpu)
    if isinstance(found, Ruling):
        return [found]
    stopped = [] if (trouble := kvm_trouble(host)) is None else [
        obstacle("needs.kvm", f"a GPU is passed to a machine with KVM only, but {trouble}.")
    ]  # fmt: skip
    group = group_of(host, found.address)
    if group is None:
        return [*stopped, obstacle(
            "needs.iommu",
            f"the GPU {found.address} is in no IOMMU group, so it cannot be passed to a machine: switch the IOMMU on "
            "in the firmware (VT-d, AMD-Vi) and boot with intel_iommu=on or amd_iommu=on; on Arm it takes an SMMU.",
        )]  # fmt: skip
    return [*stopped, *_not_bound(host, found, group), *_no_access(host, group), *_no_driver(kernel)]


def _not_bound(host: Host, gpu: PciDevice, group: int) -> list[Ruling]:
    listed = host.run(["ls", f"{GROUPS}/{group}/devices"]).out.split()
    members = [found for address in listed if (found := pci_device(host, address)) is not None] or [gpu]
    stopped = []
    if gpu.driver != VFIO:
        belongs = f"belongs to the driver {gpu.driver}" if gpu.driver else "belongs to no driver"
        stopped.append(obstacle(
            "needs.vfio-driver",
            f"the GPU {gpu.address} {belongs}, not to {VFIO}. End what uses it (a display, persistenced, containers), "
            f"then type: {_bind(gpu.address)}. To give it back: {_give_back(gpu.address)}.",
        ))  # fmt: skip
    others = [
        each
        for each in members
        if each.address != gpu.address and each.kind != _BRIDGE and each.driver not in (VFIO, None)
    ]
    if others:
        told = ", ".join(f"{each.address} ({each.driver})" for each in others)
        commands = "; ".join(_bind(each.address) for each in others)
        stopped.append(obstacle(
            "needs.vfio-group",
            f"IOMMU group {group} holds other devices that the host still uses: {told}. A group goes into a machine "
            f"as a whole; type for each of them: {commands}.",
        ))  # fmt: skip
    return stopped


def _bind(address: str) -> str:
    return f"`modprobe {VFIO}; {_bound_to(VFIO, address)}`"


def _give_back(address: str) -> str:
    return f"`{_bound_to('', address)}`"


def _bound_to(driver: str, address: str) -> str:
    """Shell commands; the empty driver is whichever the kernel would choose."""
    at = f"{DEVICES}/{address}"
    unbind = f"[ ! -e {at}/driver ] || echo {address} > {at}/driver/unbind"
    return f"echo {driver} > {at}/driver_override; {unbind}; echo {address} > /sys/bus/pci/drivers_probe"


def _no_access(host: Host, group: int) -> list[Ruling]:
    """Each file that QEMU opens; the group's is there once its devices are bound."""
    for path in (CONTAINER, f"/dev/vfio/{group}"):
        if host.run(["test", "-c", path]).code != 0:
            how = (
                f"`modprobe {VFIO}` makes it" if path == CONTAINER else f"it appears when the group is bound to {VFIO}"
            )
            return [obstacle("needs.vfio-access", f"no {path}: {how}.")]
        if host.run(["sh", "-c", 'exec 3<> "$1"', "open", path]).code != 0:
            why = "it needs root, and another machine may hold the group"
            return [obstacle("needs.vfio-access", f"{path} cannot be opened: {why} (`fuser -v {path}` shows which).")]
    return []


def _no_driver(kernel: Kernel | None) -> list[Ruling]:
    if kernel is None or kernel.offers(DRIVERS[0]):
        return []
    return [
        obstacle(
            "needs.guest-kernel",
            f"the guest's kernel {kernel.release} has no module {DRIVERS[0]}: name with `kernel:` one that the driver "
            "was built for, such as the device's own in /boot.",
        )
    ]


def words(host: Host, gpu: str) -> Sequence[str]:
    """What QEMU is told: the GPU, and the other functions of its card (sound) that share its group."""
    device = chosen(host, gpu)
    assert isinstance(device, PciDevice)  # an obstacle otherwise
    card = device.address.rpartition(".")[0]
    group = group_of(host, device.address)
    listed = host.run(["ls", f"{GROUPS}/{group}/devices"]).out.split() if group is not None else []
    with_it = sorted(each for each in listed if each.startswith(f"{card}.") and each != device.address)
    return [word for address in (device.address, *with_it) for word in ("-device", f"{VFIO},host={address}")]


def facts(host: Host, gpu: str) -> dict[str, str | int | None]:
    """What a record says of it."""
    device = chosen(host, gpu)
    assert isinstance(device, PciDevice)
    return {"address": device.address, "id": device.id, "iommu_group": group_of(host, device.address)}
