"""The command lines of the machines, for processors and accelerators that this device may not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.base.host import Completed, LocalHost
from tare.drivers.guests.boot import Export, Kernel
from tare.drivers.guests.machine import Accel, BootContext, Choice
from tare.parts.platforms.microvm import Microvm
from tare.parts.platforms.qemu import Qemu
from tare.testing import FakeHost


def boot(accel: Accel = "tcg") -> BootContext:
    device = LocalHost()
    share = Export(Path("/run/vm/share"), ())
    return BootContext(device, "tare-1", device, Path("/run/vm"), Kernel(Path("/boot/k"), "k"), share, Choice(accel))


def on(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.parts.platforms.qemu.platform.machine", lambda: machine)


def options(command: tuple[str, ...], name: str) -> list[str]:
    return [command[at + 1] for at, word in enumerate(command) if word == name]


def test_on_arm_it_is_a_virt_machine_with_a_processor_like_the_devices(monkeypatch):
    on("aarch64", monkeypatch)
    monkeypatch.setattr("tare.parts.platforms.qemu.cpuinfo", lambda: "processor\t: 0\nCPU part\t: 0xd0c\n")
    command = Qemu(cpus=2, memory="1 GiB").command(boot(), "virtiofs")

    assert command[0] == "qemu-system-aarch64"
    assert options(command, "-cpu") == ["neoverse-n1"]
    assert options(command, "-accel") == ["tcg,thread=multi"]
    assert (options(command, "-smp"), options(command, "-m")) == (["2"], ["1024M"])
    assert "console=ttyAMA0" in options(command, "-append")[0]


@pytest.mark.parametrize("cpuinfo", ["", "CPU part : 0xfff\n", "CPU part : 0xd03\nCPU part : 0xd08\n"])
def test_an_arm_processor_that_qemu_does_not_know_is_played_without_what_emulates_slowly(cpuinfo, monkeypatch):
    on("aarch64", monkeypatch)
    monkeypatch.setattr("tare.parts.platforms.qemu.cpuinfo", lambda: cpuinfo)

    assert options(Qemu(cpus=1).command(boot(), "virtiofs"), "-cpu") == ["max,pauth-impdef=on,sve=off,sme=off"]


def test_on_x86_it_hides_what_crashes_the_emulator(monkeypatch):
    on("x86_64", monkeypatch)
    command = Qemu(cpus=1).command(boot(), "virtiofs")

    assert options(command, "-machine") == ["q35,memory-backend=ram"]
    assert "clearcpuid=cx16" in options(command, "-append")[0].split()


def test_with_kvm_the_guest_has_the_devices_own_processor_and_nothing_hidden(monkeypatch):
    on("x86_64", monkeypatch)
    command = Qemu(cpus=1).command(boot("kvm"), "virtiofs")

    assert (options(command, "-accel"), options(command, "-cpu")) == (["kvm"], ["host"])
    assert "clearcpuid" not in options(command, "-append")[0]


def test_nothing_is_there_that_was_not_asked_for_and_few_system_calls_are_allowed(monkeypatch):
    on("x86_64", monkeypatch)
    command = Qemu(cpus=1).command(boot(), "virtiofs")

    assert {"-nodefaults", "-no-user-config", "-no-reboot"} <= set(command)
    assert options(command, "-sandbox")[0].startswith("on,")
    assert not any(word.startswith(("-net", "-nic", "user,")) for word in command)


def test_where_there_is_no_virtiofs_the_root_comes_by_9p_read_only(monkeypatch):
    on("x86_64", monkeypatch)
    command = Qemu(cpus=1).command(boot(), "9p")

    assert "readonly=on" in options(command, "-fsdev")[0]
    assert "tare.fs=9p" in options(command, "-append")[0]
    assert not any("vhost-user" in word for word in command)


def test_a_microvm_has_no_bus_and_the_same_guest(monkeypatch):
    on("x86_64", monkeypatch)
    command = Microvm(cpus=1).command(boot(), "virtiofs")

    assert options(command, "-machine")[0].startswith("microvm,x-option-roms=off,rtc=on,pit=on,pic=on,isa-serial=on")
    assert options(command, "-accel") == ["tcg,thread=single"]
    assert "virtio-serial-device" in options(command, "-device")
    assert "nokaslr" in options(command, "-append")[0].split()
    assert Microvm.tries > 1  # it does not come up every time


def test_a_microvm_is_for_x86_alone_and_says_so_elsewhere(monkeypatch):
    on("aarch64", monkeypatch)
    (sentence,) = map(str, Microvm().own_obstacles(LocalHost()))

    assert "x86 processors; this is aarch64" in sentence


# What is missing, in sentences


def lacking(*missing: str):
    """A host where every command is there but these."""
    return FakeHost(answer=lambda argv: Completed(tuple(argv), 127 if argv[0] in missing else 0, "", ""))


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    image = tmp_path / "vmlinuz-1"
    image.touch()
    return image


def test_with_everything_there_nothing_stands_in_the_way(kernel, monkeypatch):
    on("x86_64", monkeypatch)
    assert Qemu(kernel=kernel, accel="tcg").own_obstacles(lacking()) == []


@pytest.mark.parametrize(
    ("missing", "words"),
    [("qemu-system-x86_64", "apt-get install qemu-system-x86"), ("busybox", "apt-get install busybox-static")],
)
def test_a_missing_program_is_named_with_the_package_that_brings_it(missing, words, kernel, monkeypatch):
    on("x86_64", monkeypatch)
    (sentence,) = map(str, Qemu(kernel=kernel).own_obstacles(lacking(missing)))

    assert words in sentence


def test_a_kernel_that_is_not_there_is_named(tmp_path, monkeypatch):
    on("x86_64", monkeypatch)
    assert [*map(str, Qemu(kernel=tmp_path / "no").own_obstacles(lacking()))] == [f"no kernel {tmp_path}/no."]
    monkeypatch.setattr("tare.drivers.guests.boot.found", lambda: [])
    (sentence,) = map(str, Qemu().own_obstacles(lacking()))
    assert "tools/guest-kernel" in sentence


def test_without_virtiofsd_and_9p_the_root_cannot_be_seen(tmp_path, monkeypatch):
    on("x86_64", monkeypatch)
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-2").touch()
    (tmp_path / "lib/modules/2/kernel").mkdir(parents=True)
    servers = ("virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/virtiofsd")
    (sentence,) = map(str, Qemu(kernel=tmp_path / "boot/vmlinuz-2").own_obstacles(lacking(*servers)))

    assert "virtiofsd" in sentence


def test_kvm_that_was_asked_for_and_is_not_there_is_an_obstacle(kernel, monkeypatch):
    on("x86_64", monkeypatch)
    (sentence,) = map(str, Qemu(kernel=kernel, accel="kvm").own_obstacles(lacking("test")))

    assert "KVM is requested, but no /dev/kvm" in sentence
