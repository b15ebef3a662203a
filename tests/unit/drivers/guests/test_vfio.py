"""A GPU in a virtual machine, on recordings of sysfs: what is passed, and each refusal with what to type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import ValidationError

from tare.api.running import built_in
from tare.base.host import Completed
from tare.base.rulings import CODES
from tare.drivers.guests import vfio
from tare.drivers.guests.boot import Export, Kernel
from tare.drivers.guests.machine import BootContext, Choice
from tare.parts.platforms.qemu import Qemu
from tare.plan.matrix import cells
from tare.studies.load import at_every_scale
from tare.testing import FakeHost

GPU, SOUND, BRIDGE, DISK = "0000:01:00.0", "0000:01:00.1", "0000:00:01.0", "0000:02:00.0"
# As a workstation with one card has them: uevent files of /sys/bus/pci/devices.
UEVENTS = {
    GPU: "DRIVER={}\nPCI_CLASS=30000\nPCI_ID=10DE:2504\nPCI_SUBSYS_ID=1458:4096\nPCI_SLOT_NAME=0000:01:00.0\n",
    SOUND: "DRIVER={}\nPCI_CLASS=40300\nPCI_ID=10DE:228E\nPCI_SLOT_NAME=0000:01:00.1\n",
    BRIDGE: "DRIVER=pcieport\nPCI_CLASS=60400\nPCI_ID=8086:460D\nPCI_SLOT_NAME=0000:00:01.0\n",
    DISK: "DRIVER=nvme\nPCI_CLASS=10802\nPCI_ID=144D:A80A\nPCI_SLOT_NAME=0000:02:00.0\n",
}


@dataclass
class Device:
    """A device with these PCI functions; the card and its bridge are IOMMU group 15."""

    driver: str = "vfio-pci"
    sound: str = "vfio-pci"
    iommu: bool = True
    group: tuple[str, ...] = (BRIDGE, GPU, SOUND)
    files: frozenset[str] = frozenset({"/dev/kvm", "/dev/vfio/vfio", "/dev/vfio/15"})
    locked: frozenset[str] = frozenset()
    more: dict[str, str] = field(default_factory=dict)

    def host(self) -> FakeHost:
        told = UEVENTS | {GPU: UEVENTS[GPU].format(self.driver), SOUND: UEVENTS[SOUND].format(self.sound)} | self.more
        self.listed = list(told)
        return FakeHost({f"{vfio.DEVICES}/{each}/uevent": text for each, text in told.items()}, answer=self.answer)

    def answer(self, argv: Sequence[str]) -> Completed | None:
        def said(out: str = "", code: int = 0) -> Completed:
            return Completed(tuple(argv), code, out, "")

        match argv:
            case ["ls", vfio.DEVICES]:
                return said("\n".join(self.listed))
            case ["ls", path] if path == f"{vfio.GROUPS}/15/devices":
                return said("\n".join(self.group))
            case ["readlink", "--", _]:
                return said("../../../../kernel/iommu_groups/15\n") if self.iommu else said(code=1)
            case ["test", "-c", path]:
                return said(code=0 if path in self.files else 1)
            case ["sh", "-c", _, "open", path]:
                return said(code=1 if path in self.locked else 0)
        return None


def stopped(device: Device, gpu: str = GPU, kernel: Kernel | None = None) -> dict[str, str]:
    found = vfio.obstacles(device.host(), gpu, kernel)
    assert all(each.code in CODES for each in found)
    return {each.code: each.sentence for each in found}


@pytest.mark.parametrize("gpu", [GPU, "auto"])
def test_a_gpu_that_is_bound_and_can_be_opened_is_passed_with_the_sound_of_its_card(gpu):
    device = Device()
    assert stopped(device, gpu) == {}
    assert vfio.words(device.host(), gpu) == [
        "-device", f"vfio-pci,host={GPU}", "-device", f"vfio-pci,host={SOUND}",
    ]  # fmt: skip
    assert vfio.facts(device.host(), gpu) == {"address": GPU, "id": "10DE:2504", "iommu_group": 15}


def test_the_machine_has_it_on_its_command_line_and_takes_kvm_only(monkeypatch):
    monkeypatch.setattr("tare.parts.platforms.qemu.platform.machine", lambda: "x86_64")
    host = Device().host()
    kernel, share = Kernel(Path("/boot/k"), "k"), Export(Path("/run/vm/share"), ())
    boot = BootContext(host, "tare-1", host, Path("/run/vm"), kernel, share, Choice("kvm"))  # type: ignore[arg-type]
    with_it = Qemu(cpus=2, gpu="01:00.0")
    assert f"vfio-pci,host={GPU}" in with_it.command(boot, "virtiofs")
    assert not any("vfio" in word for word in Qemu(cpus=2).command(boot, "virtiofs"))
    assert [each.accel for each in with_it.choices(host)] == ["kvm"]
    assert {"nvidia", "nvidia_uvm"} <= set(with_it.needed_modules()) - set(Qemu().needed_modules())
    assert with_it.machine_facts(boot)["gpu"] == {"address": GPU, "id": "10DE:2504", "iommu_group": 15}
    assert with_it.slowness() == 1.0


def test_a_gpu_of_its_own_driver_is_refused_with_what_to_type_and_how_to_give_it_back():
    found = stopped(Device(driver="nvidia"))
    assert found.keys() == {"needs.vfio-driver"}
    sentence = found["needs.vfio-driver"]
    assert "belongs to the driver nvidia" in sentence
    assert f"echo vfio-pci > {vfio.DEVICES}/{GPU}/driver_override" in sentence
    assert f"echo {GPU} > {vfio.DEVICES}/{GPU}/driver/unbind" in sentence
    assert f"To give it back: `echo  > {vfio.DEVICES}/{GPU}/driver_override" in sentence


def test_nothing_on_the_device_is_changed_by_looking():
    device = Device(driver="nvidia", sound="snd_hda_intel", iommu=False)
    host = device.host()
    vfio.obstacles(host, GPU, None)
    assert not any(line.startswith("write") for line in host.log)
    assert {asked[0] for asked in host.asked} <= {"ls", "readlink", "test", "sh"}


@pytest.mark.parametrize(
    ("device", "code", "words"),
    [
        (Device(iommu=False), "needs.iommu", "intel_iommu=on"),
        (Device(sound="snd_hda_intel"), "needs.vfio-group", f"{SOUND} (snd_hda_intel)"),
        (Device(group=(BRIDGE, GPU, SOUND, DISK)), "needs.vfio-group", f"{DISK} (nvme)"),
        (Device(files=frozenset({"/dev/kvm", "/dev/vfio/vfio"})), "needs.vfio-access", "no /dev/vfio/15"),
        (Device(files=frozenset({"/dev/kvm", "/dev/vfio/15"})), "needs.vfio-access", "modprobe vfio-pci"),
        (Device(locked=frozenset({"/dev/vfio/15"})), "needs.vfio-access", "fuser -v /dev/vfio/15"),
        (Device(files=frozenset({"/dev/vfio/vfio", "/dev/vfio/15"})), "needs.kvm", "no /dev/kvm"),
    ],
)  # fmt: skip
def test_each_thing_that_is_missing_has_its_code_and_its_cure(device, code, words):
    found = stopped(device)
    assert found.keys() == {code}
    assert words in found[code]


def test_bridges_stay_with_the_kernel_and_functions_without_a_driver_are_no_hindrance():
    quiet = {SOUND: UEVENTS[SOUND].replace("DRIVER={}\n", "")}
    assert stopped(Device(more=quiet)) == {}


def test_which_gpu_is_meant():
    second = {"0000:03:00.0": UEVENTS[GPU].format("nvidia")}
    assert stopped(Device(more=second), "auto") == {}  # one of the two is bound
    both = {"0000:03:00.0": UEVENTS[GPU].format("vfio-pci")}
    assert "several GPUs (0000:01:00.0, 0000:03:00.0)" in stopped(Device(more=both), "auto")["needs.gpu"]
    assert "no PCI device 0000:09:00.0" in stopped(Device(), "0000:09:00.0")["needs.gpu"]
    assert "is no GPU" in stopped(Device(), DISK)["needs.gpu"]
    assert Qemu(gpu="01:00.0").gpu == GPU
    with pytest.raises(ValidationError, match="is no PCI address"):
        Qemu(gpu="nvidia0")


def test_the_guest_s_kernel_must_have_the_driver(tmp_path):
    (tmp_path / "updates" / "dkms").mkdir(parents=True)
    kernel = Kernel(Path("/boot/k"), "6.8", tmp_path)
    assert "has no module nvidia" in stopped(Device(), kernel=kernel)["needs.guest-kernel"]
    (tmp_path / "updates" / "dkms" / "nvidia.ko.xz").touch()
    assert stopped(Device(), kernel=kernel) == {}


def test_emulation_is_refused_with_a_gpu(monkeypatch):
    monkeypatch.setattr("tare.parts.platforms.qemu.platform.machine", lambda: "x86_64")
    codes = [each.code for each in Qemu(gpu=GPU, accel="tcg").own_obstacles(Device().host())]
    assert "needs.kvm" in codes


def test_the_study_has_a_gpu_in_a_machine_and_in_a_container_in_it():
    found = at_every_scale(built_in()["s4-gpu"], trust=True)["vfio"]
    settings = [cell.settings for cell in cells(found)]
    assert {each["platform"] for each in settings} == {"qemu", "qemu+docker"}
    machines = {
        (each.get("platform.cores"), each.get("platform.pin")) for each in settings if each["platform"] == "qemu"
    }
    assert machines == {(cores, pin) for cores in (4, 8, 16) for pin in (False, True)}
    assert all("auto" in (each.get("platform.gpu"), each.get("platform.0.qemu.gpu")) for each in settings)
