"""The host's own root inside a container: what an overlay shows, and what is bound on top."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from small_linux import SmallLinux
from tare.base.errors import ObstacleError, TrialError
from tare.base.host import Completed, Site
from tare.base.processes import holding, mounts
from tare.drivers import layers
from tare.drivers.containers import roots
from tare.drivers.containers.roots import Bind, Top
from tare.testing import FakeHost

SITE = Site(name="tare-1", scratch=Path("/scratch"), writes=(Path("/dev/shm/workdir"),))


def linux(*points: str) -> SmallLinux:
    """A machine with further file systems at these points, and the test's own Python on its root."""
    host = SmallLinux(python="/usr/bin/python3")
    host.answer = lambda argv: None if argv[0] != "/usr/bin/python3" else host_says(argv, "[]")
    host.table += [f"50 29 8:{number} / {point} rw - ext4 /dev/sd{number} rw" for number, point in enumerate(points)]
    host._show_table()
    return host


def host_says(argv, out):
    return Completed(tuple(argv), 0, out, "")


def test_the_mount_table_is_read_with_its_escapes_and_optional_fields():
    text = r"36 35 98:0 /r /mnt/a\040b rw shared:1 master:2 - ext3 /dev/root\134x rw,errors=continue" + "\nrubbish\n"

    (mount,) = mounts(FakeHost(files={"/proc/self/mountinfo": text}))

    assert (mount.point, mount.root, mount.kind, mount.source) == ("/mnt/a b", "/r", "ext3", "/dev/root\\x")
    assert mount.options == ("rw", "errors=continue")


def test_a_path_lies_on_the_deepest_mount_and_of_two_at_one_place_on_the_later():
    host = linux("/data", "/data/set", "/data")
    held = [holding(mounts(host), path) for path in ("/data/set/x", "/data/other", "/database")]

    assert [mount.point for mount in held if mount] == ["/data/set", "/data", "/"]
    assert held[1].source == "/dev/sd2"


def test_the_root_folders_are_shown_with_their_links_and_without_the_containers_own():
    assert roots.tops(SmallLinux()) == [Top("bin", "usr/bin"), Top("etc"), Top("usr"), Top("work")]


def test_an_overlay_is_mounted_in_the_scratch_folder_and_taken_away():
    host = SmallLinux()
    before = host.left_over()
    with ExitStack() as stack:
        point = layers.overlay(host, SITE, stack)
        assert point == "/scratch/tare-1/root"
        (line,) = [line for line in host.table if "overlay" in line]
        assert "tare:tare-1" in line
        assert "lowerdir=/,upperdir=/scratch/tare-1/upper,workdir=/scratch/tare-1/work" in line
    assert host.left_over() == before


def test_an_overlay_that_cannot_be_mounted_says_what_it_needs_and_leaves_nothing():
    host = SmallLinux()
    host._mount = lambda words: (32, "", "mount: wrong fs type")
    before = host.left_over()

    with pytest.raises(TrialError, match=r"wrong fs type[\s\S]*scratch folder on a file system"), ExitStack() as stack:
        layers.overlay(host, SITE, stack)

    assert host.left_over() == before


def test_a_scratch_folder_whose_name_the_kernel_cannot_take_is_refused_before_anything_is_made():
    site = Site(name="tare-1", scratch=Path("/scratch/a:b"))
    host = SmallLinux()

    with pytest.raises(ObstacleError, match="':'"), ExitStack() as stack:
        layers.overlay(host, site, stack)

    assert host.asked == []


def test_only_an_overlay_of_our_name_is_unmounted():
    host = SmallLinux()
    host.table.append("99 29 0:99 / /elsewhere/tare-1/root rw - overlay overlay rw")
    host.table.append("98 29 0:98 / /x rw - tmpfs tare:tare-1 rw")
    host._show_table()
    before = host.left_over()

    layers.remove(host, "tare-1")

    assert host.left_over() == before


def test_a_busy_overlay_is_detached_after_the_deadline():
    host = SmallLinux()
    really = host._umount
    host._umount = lambda words: really(words) if words[0] == "-l" else (32, "", "target is busy")
    with ExitStack() as stack:
        layers.overlay(host, SITE, stack)
    assert host.asked[-2] == ("umount", "-l", "--", "/scratch/tare-1/root")
    assert host.left_over()["folders"] == []


def test_a_folder_in_which_something_is_still_mounted_is_never_removed():
    host = SmallLinux()
    host._mkdir(["--", "/scratch/tare-1/root"])
    host.table.append("99 29 0:99 / /scratch/tare-1/root rw - ext4 /dev/vdb rw")
    host._show_table()

    layers.remove(host, "tare-1", "/scratch/tare-1")

    assert not [asked for asked in host.asked if asked[0] == "rm"]


def test_what_lies_on_the_root_file_system_needs_no_bind_of_its_own():
    site = Site(name="tare-1", scratch=Path("/scratch"), reads=(Path("/work/data"),))

    assert roots.binds(linux(), site) == []


def test_data_on_another_disk_and_in_the_containers_own_folders_is_bound_read_only():
    reads = (Path("/data/set"), Path("/tmp/x"), Path("/work/y"))
    site = Site("tare-1", Path("/scratch"), reads=reads, writes=SITE.writes)

    binds = roots.binds(linux("/data/deeper", "/mnt/disk"), site)

    assert binds == [Bind("/dev/shm/workdir", "/dev/shm/workdir", writable=True), Bind("/tmp/x", "/tmp/x")]
    site = Site("tare-1", Path("/scratch"), reads=(Path("/mnt/disk/set"),))
    assert roots.binds(linux("/mnt/disk"), site) == [Bind("/mnt/disk/set", "/mnt/disk/set")]


def test_a_link_to_another_disk_brings_what_it_points_to():
    host = linux("/mnt/disk")
    host.answer = lambda argv: host_says(argv, "/work/set\n/mnt/disk/set\n" if "existing" in argv else "[]")
    site = Site("tare-1", Path("/scratch"), reads=(Path("/work/set"),))

    assert roots.binds(host, site) == [Bind("/mnt/disk/set", "/mnt/disk/set")]


def test_the_systems_own_mounts_are_shown_and_others_are_not():
    host = linux("/usr/local", "/home", "/var/lib/engine", "/run/user/0")

    shown = [bind.target for bind in roots.binds(host, SITE)]

    assert shown == ["/dev/shm/workdir", "/home", "/usr/local"]


def test_a_python_on_another_disk_is_bound_with_its_base():
    host = linux("/mnt/disk")
    listed = '["/mnt/disk/venv", "/mnt/disk/base", "/mnt/disk/venv/lib/site-packages", "/mnt/disk/base/p.zip", ""]'
    host.answer = lambda argv: host_says(argv, listed) if argv[0] == "/usr/bin/python3" else None

    assert [bind.target for bind in roots.binds(host, Site("t", Path("/s")))] == ["/mnt/disk/base", "/mnt/disk/venv"]


def test_our_own_interpreter_need_not_be_asked():
    host = FakeHost(python=sys.executable)

    assert roots.python_paths(host) == ["/usr", "/usr/lib/python3"]  # as conftest.py has it
    assert host.asked == []


def test_a_folder_that_is_read_and_written_is_bound_once_and_writable():
    site = Site("t", Path("/s"), reads=(Path("/a/b"), Path("/a")), writes=(Path("/a/b"),))

    assert roots.image_binds(linux(), site, ExitStack()) == [Bind("/a", "/a"), Bind("/a/b", "/a/b", writable=True)]


def test_a_disk_inside_of_a_folder_of_data_is_shown_too():
    host = linux("/work/data/more", "/work/other")
    site = Site(name="tare-1", scratch=Path("/scratch"), reads=(Path("/work/data"),))
    assert [bind.target for bind in roots.binds(host, site)] == ["/work/data/more"]


def test_the_roots_of_containers_are_not_shown_where_their_scratch_lies_in_the_working_folder():
    host = linux("/work/disk")
    host.table.append("60 29 0:60 / /work/state/scratch/tare-1/root rw - overlay tare:tare-1 rw,lowerdir=/")
    host._show_table()
    site = Site(name="tare-1", scratch=Path("/work/state/scratch"), reads=(Path("/work"),))

    assert [bind.target for bind in roots.binds(host, site)] == ["/work/disk"]


def test_the_root_of_a_container_is_no_part_of_the_system_where_its_scratch_lies_below_opt():
    host = linux("/opt/cuda")
    host.table.append("60 29 0:60 / /opt/state/scratch/tare-1/root rw - overlay tare:tare-1 rw,lowerdir=/")
    host._show_table()

    targets = [bind.target for bind in roots.binds(host, Site(name="tare-1", scratch=Path("/opt/state/scratch")))]

    assert "/opt/cuda" in targets
    assert not any(target.startswith("/opt/state") for target in targets)


def test_every_file_system_with_files_has_a_layer_outer_ones_first_and_ours_have_none():
    host = linux("/home/ada/disk", "/home", "/run/user/0", "/var/lib/docker/x", "/scratch/tare-2/root/home")
    host.table += [
        "60 29 0:60 / /scratch/tare-2/root rw - overlay tare:tare-2 rw",
        "61 29 0:61 / /elsewhere/root rw - overlay tare:tare-3 rw",
        "62 29 0:62 / /elsewhere/root/home rw - ext4 /dev/sd9 rw",
        "63 29 0:63 / /net rw - autofs systemd-1 rw",
        "64 29 0:64 / /data rw - nfs4 server:/data rw",
        "65 29 0:65 / /home rw - ext4 /dev/later rw",
        "66 29 8:0 /srv/engine /srv/engine rw - ext4 /dev/vda rw",
        "67 29 8:0 /srv/other /mnt/other rw - ext4 /dev/vda rw",
        "68 29 7:0 / /home/ada/.state/scratch/tare-storage-0a1b2c3d/medium rw - ext4 /dev/loop0 rw",
    ]
    host._show_table()

    found = layers.further(mounts(host), SITE)

    assert [(mount.point, mount.source) for mount in found] == [
        ("/data", "server:/data"), ("/home", "/dev/later"), ("/home/ada/disk", "/dev/sd0"),
        ("/mnt/other", "/dev/vda"),
    ]  # fmt: skip


def test_the_devices_own_name_is_on_the_loopback_in_a_container():
    known = FakeHost(files={"/etc/hosts": "127.0.0.1 localhost\n10.0.0.7 board # 127.0.0.9 board\n127.0.0.2 box\n"})

    assert [roots.loop_address(known, name) for name in ("box", "board", "other")] == [
        "127.0.0.2", "127.0.1.1", "127.0.1.1",
    ]  # fmt: skip
    assert roots.hosts_text(known, "board").startswith("127.0.1.1 board\n127.0.0.1 localhost\n")
    assert "localhost" in roots.hosts_text(FakeHost(), "board")


@pytest.mark.parametrize(
    ("program", "shown", "sealed", "hidden"),
    [
        ("/tmp/venv/bin/python", [], False, False),  # a layer shows it
        ("/tmp/venv/bin/python", [], True, True),
        ("/tmp/venv/bin/python", ["/tmp/venv"], True, False),
        ("/dev/shm/venv/bin/python", [], False, True),
        ("/run/user/0/python", [], False, True),
        ("/usr/bin/python3", [], True, False),
        ("/srv/disk/venv/bin/python", [], True, True),  # another disk
        ("/srv/disk/venv/bin/python", [], False, False),
    ],
)
def test_a_program_in_a_folder_that_a_container_has_of_its_own_is_hidden(program, shown, sealed, hidden):
    host = linux("/srv/disk")

    assert roots.is_hidden(host, Path(program), [Path(each) for each in shown], sealed=sealed) is hidden
