"""What a guest is made of: a kernel with its modules, files to boot into, a share of the root, a clock."""

from __future__ import annotations

import lzma
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.base.errors import ObstacleError
from tare.base.host import Completed, LocalHost, Site
from tare.drivers.guests import boot as guest_root
from tare.drivers.guests import boot as initramfs
from tare.drivers.guests import boot as kernels
from tare.drivers.guests import machine
from tare.drivers.guests.boot import Kernel
from tare.drivers.guests.channel import GuestClock, Sighting, sight
from tare.parts.platforms import microvm
from tare.testing import FakeHost


def module(*needs: str) -> bytes:
    return b"\x7fELF..\0license=GPL\0depends=" + ",".join(needs).encode() + b"\0name=x\0"


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """A kernel like Debian's: one feature built in, the others as modules, one of them packed."""
    boot, modules = tmp_path / "boot", tmp_path / "lib/modules/6.1.0-cloud"
    boot.mkdir()
    (boot / "vmlinuz-6.1.0-cloud").write_bytes(b"kernel")
    (modules / "kernel/fs").mkdir(parents=True)
    (modules / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    (modules / "kernel/fs/fuse.ko").write_bytes(module())
    (modules / "kernel/fs/virtiofs.ko").write_bytes(module("fuse", "virtio-ring"))
    (modules / "kernel/fs/virtio-ring.ko.xz").write_bytes(lzma.compress(module()))
    return kernels.named(boot / "vmlinuz-6.1.0-cloud")


# Kernels


def test_modules_are_loaded_after_what_they_need_and_only_once(kernel):
    loaded = kernels.closure(kernel, ["virtio_pci", "virtiofs", "fuse", "no_such_module"])

    assert [name for name, _ in loaded] == ["fuse", "virtio_ring", "virtiofs"]
    assert dict(loaded)["virtio_ring"].startswith(b"\x7fELF")


def test_a_kernel_offers_what_is_built_in_and_what_is_a_module(kernel):
    assert kernel.offers("virtiofs")
    assert kernel.offers("virtio_pci")
    assert not kernel.offers("9p")


def test_a_kernel_without_a_module_folder_is_taken_to_have_everything_built_in(tmp_path):
    image = tmp_path / "bzImage"

    assert kernels.named(image).offers("9p")
    assert kernels.closure(kernels.named(image), ["9p"]) == []


def test_a_module_that_cannot_be_unpacked_is_an_obstacle_with_a_way_out(kernel, tmp_path):
    (tmp_path / "lib/modules/6.1.0-cloud/kernel/fs/odd.ko.zst").write_bytes(b"")

    with pytest.raises(ObstacleError, match=r"odd\.ko\.zst is packed as \.zst.*tools/guest-kernel"):
        kernels.closure(kernel, ["odd"])


def test_the_newest_cloud_kernel_comes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "ROOT_STATE", tmp_path)
    for release in ("6.1.0-9-arm64", "6.1.0-9-cloud-arm64", "6.1.0-50-cloud-arm64"):
        image = tmp_path / f"kernels/{release}/boot/vmlinuz-{release}"
        image.parent.mkdir(parents=True)
        image.touch()
    ours = [kernel.release for kernel in kernels.found() if tmp_path in kernel.image.parents]

    assert ours == ["6.1.0-50-cloud-arm64", "6.1.0-9-cloud-arm64", "6.1.0-9-arm64"]


# What it boots into


def unpacked(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """A reader of the kernel's format, written from its description."""
    found, at = {}, 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        data_at = at + 110 + name_size + (-(110 + name_size) % 4)
        if name == "TRAILER!!!":
            return found
        found[name] = (mode, archive[data_at : data_at + size])
        at = data_at + size + (-size % 4)


@given(st.lists(st.binary(max_size=9), max_size=5))
def test_an_archive_holds_what_was_put_in_whatever_its_length(contents):
    entries = [initramfs.Entry(f"f{'x' * n}", stat.S_IFREG | 0o644, data) for n, data in enumerate(contents)]

    found = unpacked(initramfs.archive(entries))

    assert found == {entry.name: (entry.mode, entry.content) for entry in entries}


def busybox_host(tmp_path: Path) -> FakeHost:
    (tmp_path / "busybox").write_bytes(b"static")

    def answer(argv):
        if argv[:2] == ["sh", "-c"]:
            return Completed(tuple(argv), 0, f"{tmp_path}/busybox\n", "")
        if argv[0] == sys.executable:
            return LocalHost().run(argv)
        return None

    return FakeHost(answer=answer, python=sys.executable)


def test_a_guest_boots_into_its_modules_in_order_the_agent_and_the_list_of_what_to_show(kernel, tmp_path):
    host = busybox_host(tmp_path)
    entries = initramfs.contents(host, kernel, ["virtiofs"], ["/data/a b", "/tmp/x"])
    found = unpacked(initramfs.archive(entries))

    assert found["modules/order"][1] == b"fuse\nvirtio_ring\nvirtiofs\n"
    assert found["binds"][1] == b"0 /data/a b\n1 /tmp/x\n"
    assert found["python"][1].decode() == sys.executable
    assert found["bin/busybox"] == (stat.S_IFREG | 0o755, b"static")
    assert found["init"][0] & 0o111
    agent = found["agent/tare_inside/agents/guest.pyc"][1]
    assert b"tare_inside/agents/guest.py" in agent  # the name that its tracebacks show


def test_without_busybox_there_is_a_sentence(kernel):
    with pytest.raises(ObstacleError, match="apt-get install busybox-static"):
        initramfs._busybox(FakeHost(answers={"sh": ""}))


# The share


@pytest.mark.machine("root")
def test_the_share_shows_the_root_and_what_is_read_beside_it_read_only(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "set").write_text("what is read")
    share = guest_root.Export(tmp_path / "share", (str(tmp_path / "data"), str(tmp_path / "data" / "set")))
    share.folder.mkdir()
    script = 'cat "$1/0/set" "$1/1"; test -d "$1/root/usr" && echo root; touch "$1/0/new" "$1/root/new" 2>&1'
    done = LocalHost().run(share.around(["sh", "-c", script, "look", str(share.folder)]))

    assert done.out.startswith("what is readwhat is readroot\n")
    assert done.out.count("Read-only file system") == 2
    assert str(share.folder) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize(("help_text", "word"), [("--shared-dir=DIR", "--shared-dir=/s"), ("-o source=", "source=/s")])
def test_either_program_called_virtiofsd_is_understood(help_text, word):
    command = guest_root.virtiofsd_command(
        FakeHost(answers={"virtiofsd": help_text}), "virtiofsd", Path("/k"), Path("/s")
    )

    assert word in command
    assert "--socket-path=/k" in command


def test_a_kernel_that_knows_virtiofs_but_finds_no_server_falls_back_to_9p_or_says_so(kernel, tmp_path):
    assert guest_root.way(FakeHost(answers={"virtiofsd": ""}), kernel) == "virtiofs"
    assert guest_root.way(FakeHost(), kernel) is None
    for name in ("9p", "9pnet_virtio"):
        (tmp_path / f"lib/modules/6.1.0-cloud/kernel/fs/{name}.ko").write_bytes(module())
    assert guest_root.way(FakeHost(), kernel) == "9p"


def test_what_an_own_tmp_would_hide_is_shown_beside_the_root(tmp_path):
    data = tmp_path / "set"
    data.write_text("x")
    share = guest_root.export(LocalHost(), Site("n", tmp_path, reads=(data,), writes=(tmp_path,)), tmp_path / "share")

    assert str(data) in share.shown or not str(tmp_path).startswith("/tmp")
    assert str(tmp_path) not in share.shown  # what is written is a workdir, and no share


# Accelerators


def kvm_host(
    *, there: bool = True, opens: bool = True, modules: str = "kvm\nkvm_intel\n", flags: str = "fpu vmx"
) -> FakeHost:
    codes = {"test": 0 if there else 1, "sh": 0 if opens else 2}
    words = {"ls": modules}  # of /sys/module, which also has what is built into the kernel
    return FakeHost(
        {"/proc/cpuinfo": f"flags\t\t: {flags}\n"},
        answer=lambda argv: Completed(tuple(argv), codes.get(argv[0], 0), words.get(argv[0], ""), ""),
    )


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (kvm_host(there=False), "no /dev/kvm"),
        (kvm_host(opens=False), "cannot be opened"),
        (kvm_host(modules="kvm\nkvm_pvm\nvirtio_pci\n"), "PVM"),
        (kvm_host(modules="kvm\nkvm_intel\nkvm_pvm\n", flags="fpu sse"), "PVM"),  # built in, and of no use
    ],
)
def test_kvm_that_does_not_work_is_told_and_emulation_takes_its_place(host, words):
    (choice,) = machine.choices(host, "auto")

    assert choice.accel == "tcg"
    assert words in choice.note
    assert choice.note.endswith("say nothing about virtualisation.")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("tsc constant_tsc nopl", ("tsc_early_khz=2100123", "tsc=reliable")),
        ("tsc constant_tsc aperfmperf", ()),  # the clock that is told is that of the moment
        ("tsc nopl", ()),
    ],
)
def test_a_machine_without_a_known_clock_is_told_how_fast_the_processors_counter_counts(flags, words):
    told = f"processor\t: 0\ncpu MHz\t\t: 2100.123\nflags\t\t: fpu {flags} ssse3\n\n"

    assert microvm.time_stamps(told * 2) == words
    assert microvm.time_stamps("processor\t: 0\nCPU part\t: 0xd0c\n") == ()


def test_kvm_that_looks_right_is_tried_first_and_emulation_after_it():
    assert [choice.accel for choice in machine.choices(kvm_host(), "auto")] == ["kvm", "tcg"]
    assert [choice.accel for choice in machine.choices(kvm_host(), "kvm")] == ["kvm"]
    assert [choice.accel for choice in machine.choices(kvm_host(), "tcg")] == ["tcg"]


# The clock


def test_the_quickest_answer_is_kept_with_its_bound():
    times = iter([0, 1000, 5000, 5100, 9000, 9900])
    guest = iter([700_400, 705_040, 709_500])

    seen = sight(lambda: next(times), lambda: next(guest), trips=3)

    assert (seen.guest_ns, seen.bound_ns, seen.device_ns) == (705_040, 50, 5050)


@given(
    offset=st.integers(-(10**15), 10**15),
    rate=st.floats(-2e-4, 2e-4),
    moments=st.lists(st.integers(0, 10**12), min_size=1, max_size=5),
)
def test_a_clock_that_runs_evenly_is_moved_exactly_whatever_its_offset_and_rate(offset, rate, moments):
    def guest(device_ns: int) -> int:
        return round(device_ns * (1 + rate)) - offset

    clock = GuestClock()
    for device_ns in (0, 10**12):
        clock.add(Sighting(device_ns, guest(device_ns), 0))

    assert all(abs(clock.to_device_ns(guest(moment)) - moment) <= 2 for moment in moments)


def test_the_record_tells_offset_drift_and_how_far_off_a_mark_can_be():
    clock = GuestClock()
    clock.add(Sighting(1_000_000_000, 0, 300))
    clock.add(Sighting(3_000_000_000, 1_999_999_000, 200))

    assert clock.facts() == {
        "offset_ns": 1_000_001_000, "drift_ns": 1000, "bound_ns": 1300, "over_s": 2.0, "drift_ppm": 0.5,
    }  # fmt: skip


def test_only_the_sightings_around_the_last_job_count():
    clock = GuestClock()
    for at_ns in (0, 10, 20):
        clock.add(Sighting(at_ns + 5 * at_ns, at_ns, 0))

    assert clock.facts()["over_s"] == pytest.approx(60e-9)
