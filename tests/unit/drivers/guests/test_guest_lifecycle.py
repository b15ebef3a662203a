"""Boot, give up, retry, close, sweep: with a program in the place of the machine, and with real control groups."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tare.base.errors import ObstacleError, TrialError
from tare.base.host import Host, Job, LocalHost, Site, kill
from tare.drivers.cgroups import tree
from tare.drivers.guests import machine
from tare.drivers.guests.boot import Kernel
from tare.drivers.guests.channel import Wire
from tare.drivers.guests.machine import BootContext, Choice, Guest, NoBoot
from tare.parts.platforms.firecracker import Firecracker

pytestmark = pytest.mark.machine("root")
PRETEND = Path(__file__).parents[3] / "pretend_machine.py"
DEVICE = LocalHost()


class Pretend(Guest):
    """A platform whose machine is a program of ours; `lives` says how often it fails before it comes up."""

    script: ClassVar[str] = 'exec "$@"'
    boots_within_s: ClassVar[float] = 20.0
    started: ClassVar[list[BootContext]] = []

    def own_obstacles(self, host: Host) -> list[str]:
        return []

    def choices(self, host: Host) -> list[Choice]:
        return [Choice("tcg", "it is only pretended.")]

    def guest_kernel(self) -> Kernel:
        return Kernel(Path("/none"), "none")

    def start(self, boot: BootContext) -> Wire:
        self.started.append(boot)
        served = (sys.executable, str(PRETEND), str(boot.folder / "agent"))
        script = f"number={len(self.started)}; console={boot.console}; {self.script}"
        boot.start(boot.share.around(("sh", "-c", script, "pretend", *served)))
        return boot.connect(boot.folder / "agent", 10)

    def machine_facts(self, boot: BootContext) -> dict[str, object]:
        return {"root": "pretended"}


@pytest.fixture(autouse=True)
def _tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounting does nothing in a guest that is none; and sockets of tests lie apart from those of runs."""
    monkeypatch.setattr(machine.initramfs, "contents", lambda *_: [])
    monkeypatch.setattr(machine, "FOLDER", Path("/run/tare") / f"t{secrets.token_hex(3)}")
    Pretend.started.clear()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    scratch, workdir = tmp_path / "scratch", tmp_path / "workdir"
    scratch.mkdir()
    workdir.mkdir()
    made = Site(name=f"tare-test-{secrets.token_hex(4)}", scratch=scratch, writes=(workdir,))
    yield made
    Pretend.sweep(DEVICE, made.name)


@pytest.fixture
def no_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's own mounts are left out: here they would be the device's."""
    monkeypatch.setattr(machine.GuestPlace, "prepare_workdir", lambda self, site: None)


def left_over(name: str) -> list[object]:
    groups = [folder for folder in tree.own_folders(DEVICE, name).values() if Path(folder).exists()]
    folders = [path for path in (machine.FOLDER, machine.FOLDER / name) if path.exists()]
    return [*groups, *folders, *tree.processes_named(DEVICE, name)]


class Works(Pretend):
    called = "works"


def test_it_boots_is_used_and_leaves_nothing_however_often_it_is_closed(site, no_mounts):
    place = Works().open(DEVICE, site)
    assert place.run(["echo", "inside"]).out == "inside\n"
    held = tree.pids(DEVICE, place.scope().cgroups)
    place.close()
    place.close()

    assert held
    assert left_over(site.name) == []
    assert {"open.boot", "open.prepare", "close.stop"} <= set(place.phases)


def test_what_a_record_should_say_of_it(site, no_mounts):
    place = Works(cpuset="0", memory="256 MiB").open(DEVICE, site)
    place.close()

    assert place.facts["accel"] == "tcg"
    assert place.facts["accel_note"] == "it is only pretended."
    assert (place.facts["cpus"], place.facts["memory_bytes"], place.facts["boots"]) == (1, 256 << 20, 1)


class Silent(Pretend):
    called = "silent"
    boots_within_s: ClassVar[float] = 0.5
    ends: ClassVar[list[socket.socket]] = []

    def start(self, boot: BootContext) -> Wire:
        boot.start(("sh", "-c", f'echo "Kernel panic - not syncing: no root" > {boot.console}; sleep 987'))
        boot.wait_for(boot.console, 5)
        near, far = socket.socketpair()
        self.ends.append(far)  # open, and nobody there
        return near


def test_a_machine_that_does_not_boot_is_given_up_with_its_console_and_everything_is_gone(site):
    begin_s = time.monotonic()

    with pytest.raises(NoBoot, match=r"(?s)did not boot \(tcg\): nothing was heard of it within 0.5 s.*no root"):
        Silent().open(DEVICE, site)

    assert time.monotonic() - begin_s < 60
    assert left_over(site.name) == []


class Broken(Pretend):
    called = "broken"
    script: ClassVar[str] = 'echo "qemu: -cpu: no such model" >&2; exit 1'


def test_a_monitor_that_ends_at_once_is_told_with_its_words(site):
    with pytest.raises(NoBoot, match=r"(?s)ended with code 1: qemu: -cpu: no such model.*console is empty"):
        Broken().open(DEVICE, site)

    assert left_over(site.name) == []


class Flaky(Pretend):
    called = "flaky"
    tries: ClassVar[int] = 3
    script: ClassVar[str] = '[ $number -ge 3 ] || exit 1; exec "$@"'


def test_a_flaky_boot_is_tried_again_and_the_number_is_in_the_record(site, no_mounts):
    place = Flaky().open(DEVICE, site)
    place.close()

    assert place.facts["boots"] == 3
    assert left_over(site.name) == []


def test_tries_are_bounded(site, monkeypatch):
    monkeypatch.setattr(Flaky, "tries", 2)

    with pytest.raises(NoBoot):
        Flaky().open(DEVICE, site)
    assert len(Pretend.started) == 2


def test_a_machine_that_dies_during_a_job_fails_the_trial_and_hangs_nothing(site, no_mounts):
    place = Works().open(DEVICE, site)
    process = place.spawn(Job(("sleep", "987"), env={"PATH": "/usr/bin:/bin"}))
    kill(DEVICE, tree.pids(DEVICE, place.scope().cgroups))

    with pytest.raises(TrialError, match="has ended and could not finish the job"):
        process.wait(60)
    place.close()
    assert left_over(site.name) == []


def test_a_sweep_removes_what_a_dead_runner_left_and_nothing_else(site, no_mounts, tmp_path):
    (tmp_path / "other").mkdir()
    other = Site(name=f"{site.name}-other", scratch=tmp_path / "other")
    dead, alive = Works().open(DEVICE, site), Works().open(DEVICE, other)
    try:
        Works.sweep(DEVICE, site.name)
        Works.sweep(DEVICE, site.name)

        assert alive.run(["echo", "still open"]).out == "still open\n"
        assert not tree.processes_named(DEVICE, site.name)
        assert not (machine.FOLDER / site.name).exists()
    finally:
        alive.close()
        dead.close()
    assert left_over(site.name) == left_over(other.name) == []


def test_a_full_disk_is_a_sentence_and_nothing_is_left(site, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(machine.FOLDER))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TrialError, match=r"cannot be written: .*No space left on device"):
        Works().open(DEVICE, site)
    assert left_over(site.name) == []


def test_a_machine_inside_another_place_is_an_obstacle():
    from tare.testing import FakeHost

    with pytest.raises(ObstacleError, match="opened on the device itself"):
        Works().open(FakeHost({"/proc/self/status": ""}), Site("n", Path("/x")))


# Firecracker, as a program that reads its configuration and speaks as its socket does


@pytest.fixture
def pretend_firecracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    program = tools / "firecracker"
    program.write_text(
        '#!/bin/sh\n[ "$1" != --version ] || { echo Firecracker v1.7.0; exit; }\nshift\n'
        f'exec {shlex.quote(sys.executable)} {shlex.quote(str(PRETEND))} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr("tare.parts.platforms.firecracker.kvm_trouble", lambda host: None)
    monkeypatch.setattr("tare.parts.platforms.firecracker.platform.machine", lambda: "aarch64")
    image, kernel = tmp_path / "root.squashfs", tmp_path / "Image"
    image.write_bytes(b"hsqs" + bytes(100))
    kernel.touch()
    return tmp_path


def test_firecracker_is_started_from_a_file_and_its_agent_found_behind_the_socket(pretend_firecracker, site, no_mounts):
    part = Firecracker(image=pretend_firecracker / "root.squashfs", kernel=pretend_firecracker / "Image", cpus=2)
    assert part.obstacles(DEVICE) == []
    place = part.open(DEVICE, site)
    try:
        assert place.run(["echo", "inside"]).out == "inside\n"
        assert place.facts["accel"] == "kvm"
        assert (place.facts["root"], place.facts["emulator"]) == ("squashfs", "Firecracker v1.7.0")
    finally:
        place.close()
    assert left_over(site.name) == []


def test_an_image_that_lacks_what_is_read_is_told(pretend_firecracker, site, no_mounts):
    part = Firecracker(image=pretend_firecracker / "root.squashfs", kernel=pretend_firecracker / "Image")
    gone = Site(site.name, site.scratch, reads=(Path("/no/such/data"),))

    with pytest.raises(TrialError, match=r"does not hold /no/such/data"):
        part.open(DEVICE, gone)
    assert left_over(site.name) == []


def test_firecrackers_configuration_says_all_that_its_requests_would(pretend_firecracker, tmp_path):
    from tare.drivers.guests.boot import Export

    part = Firecracker(image=pretend_firecracker / "root.squashfs", cpus=2, memory="512 MiB")
    boot = BootContext(DEVICE, "n", DEVICE, Path("/f"), Kernel(Path("/k"), "k"), Export(Path("/s"), ()), Choice("kvm"))
    config = part.config(boot)

    assert config["machine-config"] == {"vcpu_count": 2, "mem_size_mib": 512}
    assert config["drives"][0]["is_read_only"] is True
    assert config["vsock"] == {"guest_cid": 3, "uds_path": "/f/vsock"}
    words = config["boot-source"]["boot_args"].split()
    assert {"tare.fs=squashfs", "tare.source=/dev/vda", "tare.port=vsock:5252"} <= set(words)


def test_what_keeps_firecracker_from_working_is_said_in_sentences(tmp_path):
    packed = tmp_path / "vmlinuz-1"
    packed.write_bytes(b"MZ")
    sentences = [*map(str, Firecracker(image=packed, kernel=packed).own_obstacles(DEVICE))]

    assert any("no firecracker here" in sentence for sentence in sentences)
    assert any("is no squashfs or ext4 image" in sentence for sentence in sentences)
