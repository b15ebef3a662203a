"""What a medium is called, how far it reads ahead; and which mounts are ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.base.files import state_dir
from tare.base.processes import Mount
from tare.drivers.storage import loop, media, placing
from tare.drivers.storage.media import MEDIA, Rates, obstacles, wanted
from tare.testing import FakeHost
from tare.trial.undo import restoration

SCRATCH = Path("/var/lib/tare/scratch")
SITE = loop.site(SCRATCH.parent)


def test_every_medium_by_name_has_all_its_figures():
    assert set(MEDIA) == {"hdd", "sd", "ssd"}
    assert all(len(rates.given()) == 4 for rates in MEDIA.values())
    assert MEDIA["hdd"].read_iops < MEDIA["sd"].read_iops < MEDIA["ssd"].read_iops


def test_a_stream_gets_requests_as_large_as_the_two_limits_together_need():
    assert media.read_ahead_kib(MEDIA["sd"]) == 128
    assert media.read_ahead_kib(MEDIA["hdd"]) == 1024
    assert media.read_ahead_kib(Rates(read_bps=50_000_000, read_iops=150)) == 512
    assert media.read_ahead_kib(Rates(read_bps=10**9)) == 128
    assert media.read_ahead_kib(Rates(read_bps=10**9, read_iops=1)) == 1024  # no further, whatever is asked


def test_each_of_several_gets_an_equal_part_and_never_nothing():
    assert Rates(read_bps=100, read_iops=2).shared(4) == Rates(read_bps=25, read_iops=1)


def test_what_is_measured_is_what_the_limits_together_allow():
    rates = Rates(read_bps=1_000_000, read_iops=1000)
    assert wanted("read_iops", rates, "/dev/loop7").value == 1_000_000 / 4096
    assert wanted("read_bps", rates, "/dev/loop7").block == 8192
    assert wanted("read_bps", Rates(read_bps=10**9), "/dev/loop7").block == 1 << 19
    assert wanted("read_bps", Rates(read_bps=10), "/dev/loop7").block == 4096


def test_a_kernel_without_the_controller_is_an_obstacle():
    (sentence,) = map(
        str, obstacles(FakeHost(files={"/proc/self/mountinfo": "40 29 0:40 / /cg rw - cgroup cgroup rw,cpu\n"}))
    )
    assert sentence.endswith("this kernel has cpu.")


def mount(root: str, point: str, source: str = "/dev/loop0") -> Mount:
    return Mount(point=point, root=root, kind="ext4", source=source, options=())


def test_a_mount_is_ours_if_what_it_shows_is_named_after_where_it_is():
    name = placing.name_of("/data/set", SCRATCH.parent)
    assert restoration.site_of_mount(mount(f"/{name}", "/data/set"), SCRATCH) == SITE
    assert restoration.site_of_mount(mount(f"/mnt/tare-data/{name}", "/data/set", "/dev/sda1"), SCRATCH) == SITE
    assert restoration.site_of_mount(mount(f"/{name}", "/data/other"), SCRATCH) is None
    assert restoration.site_of_mount(mount("/set", "/data/set"), SCRATCH) is None
    assert (
        restoration.site_of_mount(mount(f"/{placing.name_of('/data/set', Path('/x'))}", "/data/set"), SCRATCH) is None
    )


def test_other_mounts_are_known_as_before():
    assert restoration.site_of_mount(mount("/", f"{SCRATCH}/tare-storage/medium"), SCRATCH) == "tare-storage"
    assert restoration.site_of_mount(mount("/", "/x", "tare:tare-1"), SCRATCH) == "tare-1"
    assert restoration.site_of_mount(mount("/", "/x", "tare:; rm"), SCRATCH) is None


@pytest.mark.parametrize("path", ["/", "/data/a b;c", "/" + "x" * 300, "/data/ü"])
def test_a_name_holds_nothing_but_letters_digits_and_a_few_signs(path: str):
    assert placing.NAME.fullmatch(placing.name_of(path))


def test_two_folders_of_the_same_name_have_two_copies():
    assert placing.name_of("/a/data") != placing.name_of("/b/data")
    assert loop.folder().is_relative_to(state_dir())


def test_of_nested_folders_the_outer_one_is_taken_once(tmp_path: Path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    assert placing.outermost([inner, tmp_path / "a", link]) == [(tmp_path / "a").resolve()]


def test_an_image_is_large_enough_for_what_it_is_to_hold():
    for content, files in ((0, 1), (3 << 30, 23_080), (10 << 20, 50_000)):
        size = loop.size_for(content, files, room_bytes=0)
        assert size >= 64 << 20
        assert size > content + files * 256
        assert size % (1 << 20) == 0
