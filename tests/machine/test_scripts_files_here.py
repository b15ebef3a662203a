"""A user's script on all four platforms: it writes where it likes, twice, and finds what it has on bare metal."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tare.base.host import Exit, LocalHost, Site
from tare.base.processes import Identity, mounts
from tare.drivers import layers
from tare.parts import find
from tare.parts.platforms import docker as docker_module
from tare.parts.workloads.command import Command
from tare.trial.tenants import prepare_workdir, remove_folders

NAMES = ("bare", "docker", "podman", "runc")
PLATFORMS = [pytest.param(name, marks=pytest.mark.machine(name, "root")) for name in NAMES]

WRITES = """
import os, sys
named, home, data = sys.argv[1:4]
assert open(data).read() == "5"
for path in ("mnist_cnn.pt", "samples/grid_ori_0.png", named + ".new", home + "/.cache/lock", "/tmp/" + sys.argv[4]):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "x") as file:  # fails where an earlier trial's is left
        file.write("mine")
with open(named, "a") as file:
    file.write("more")
os.rename("old", "renamed")
os.remove("train.txt")
print(open(named).read(), os.listdir("samples"))
"""
SEES = """
import json, locale, os, resource, shutil, socket, sys, time
names = ("NOFILE", "MEMLOCK", "STACK", "CORE")
limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in names}
line = socket.create_server(("", 0))
if "all" in sys.argv:
    socket.create_connection((socket.gethostname(), line.getsockname()[1]), timeout=5).close()
print(json.dumps({
    "environment": {name: value for name, value in os.environ.items() if name not in ("TARE_NAME",)},
    "host name": socket.gethostname(), "loops": socket.gethostbyname(socket.gethostname()).startswith("127."),
    "shm": shutil.disk_usage("/dev/shm").total, "limits": limits, "id": [os.getuid(), os.getgid()],
    "umask": os.umask(0o22), "zone": time.tzname, "width": shutil.get_terminal_size().columns,
    "folder": os.getcwd(), "locale": locale.getlocale(),
    "tmp": os.statvfs("/tmp").f_bsize, "files": sorted(os.listdir(".")),
}))
"""


ESCAPES = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, act):
    try:
        if act() in (-1, False):
            return
    except OSError:
        return
    print(name)
attempt("mount", lambda: libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
attempt("unshare", lambda: libc.unshare(0x00020000))
attempt("setuid", lambda: os.setuid(12345))
attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("network", lambda: socket.create_connection(("192.0.2.1", 80), timeout=1))
attempt("kernel setting", lambda: open("/proc/sys/kernel/hostname", "w"))
attempt("kernel memory", lambda: os.open("/dev/mem", os.O_RDONLY))
attempt("block device", lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0)))
attempt("a file of another user", lambda: open("theirs", "w"))
"""


@dataclass(frozen=True)
class Users:
    """Folders of a user's, and what is in them."""

    project: Path
    home: Path
    data: Path

    def contents(self) -> dict[str, str]:
        everything = (path for top in (self.project, self.home, self.data) for path in top.rglob("*"))
        return {str(path): path.read_text() if path.is_file() else "" for path in everything}


@pytest.fixture
def users() -> Iterator[Users]:
    """On the disk, where users have theirs."""
    top = Path("/var/tmp") / f"tare-user-{secrets.token_hex(4)}"
    made = Users(top / "project", top / "home", top / "data")
    for folder in (made.project / "old", made.home, made.data):
        folder.mkdir(parents=True)
    (made.project / "train.txt").write_text("x")
    (made.data / "set").write_text("5")
    (made.data / "wlm.pt").write_text("weights")
    yield made
    shutil.rmtree(top)


def run(platform: str, users: Users, script: str, *words: str, keep: Path | None = None, **fields: Any) -> Exit:
    """One trial's job, as the engine runs it."""
    of_platform = {name: fields.pop(name) for name in ("writable", "network") if name in fields}
    work = Command(argv=(sys.executable, "-c", script, *words), cwd=users.project, attach="none", **fields)
    name, scratch = f"tare-door-{secrets.token_hex(4)}", Path("/var/tmp") / f"tare-scratch-{secrets.token_hex(4)}"
    (scratch / name).mkdir(parents=True)
    workdir = prepare_workdir(name, scratch / name)
    try:
        site = Site(
            name,
            scratch / name,
            work.inputs(),
            (workdir, *work.outputs()),
            layered=True,
            folder=work.folder(),
            keep=keep,
        )
        place = find.find("platforms", platform)(**of_platform).open(LocalHost(), site)
        try:
            ended = place.spawn(work.job(place, workdir, 0)).wait(60)
            assert (workdir / "result.json").exists(), ended.err
        finally:
            place.close()
    finally:
        remove_folders(name, scratch)
        scratch.rmdir()  # and nothing is left in it
    assert not [mount.point for mount in mounts(LocalHost()) if name in f"{mount.source} {mount.point}"]
    return ended


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_script_writes_where_it_likes_twice_and_the_users_folders_stay_as_they_were(name, users):
    before, at_tmp = users.contents(), f"tare-door-{secrets.token_hex(4)}"
    words = (str(users.data / "wlm.pt"), str(users.home), "../data/set", at_tmp)

    ends = [run(name, users, WRITES, *words) for _ in range(2)]

    assert [(end.code, end.out) for end in ends] == [(0, "weightsmore ['grid_ori_0.png']\n")] * 2, (
        ends[0].err + ends[1].err
    )
    assert users.contents() == before
    assert not (Path("/tmp") / at_tmp).exists()


@pytest.mark.parametrize("name", PLATFORMS)
def test_what_a_script_wrote_is_kept_where_that_was_requested(name, users, tmp_path):
    kept = tmp_path / "outputs"
    words = (str(users.data / "wlm.pt"), str(users.home), "../data/set", f"tare-door-{secrets.token_hex(4)}")

    assert run(name, users, WRITES, *words, keep=kept).code == 0

    found = {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()}
    project = str(users.project).lstrip("/")
    assert {f"{project}/mnist_cnn.pt", f"{project}/samples/grid_ori_0.png", f"tmp/{words[-1]}"} <= found
    assert not {f"{project}/train.txt", "etc/hosts"} & found


@pytest.mark.machine(*NAMES, "root")
def test_both_sides_have_the_same_environment_name_memory_and_limits(users, monkeypatch):
    given = {
        "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "offline", "MASTER_PORT": "29511", "MY_OWN": "a b=c",
        "HF_HOME": str(users.home / "hf"), "HF_TOKEN": "hush", "HOME": str(users.home), "TZ": "Asia/Tokyo",
        "LC_ALL": "C.UTF-8", "COLUMNS": "77",
    }  # fmt: skip
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")

    ends = {name: run(name, users, SEES, "all" if name != "bare" else "", env={"EXTRA": "1"}) for name in NAMES}

    assert {name: end.code for name, end in ends.items()} == dict.fromkeys(NAMES, 0), {
        n: e.err for n, e in ends.items()
    }
    seen = {name: json.loads(end.out) for name, end in ends.items()}
    for each in seen.values():  # their own folders
        each["environment"] = {key: value for key, value in each["environment"].items() if "-workdir" not in value}
        loops = each.pop("loops")
        assert loops or each is seen["bare"]
    assert given.items() <= seen["bare"]["environment"].items()
    assert seen["bare"]["environment"]["EXTRA"] == "1"
    assert "SSH_AUTH_SOCK" not in seen["bare"]["environment"]
    assert seen["bare"]["host name"] == socket.gethostname()
    assert seen["bare"]["shm"] == shutil.disk_usage("/dev/shm").total
    assert seen["docker"] == seen["podman"] == seen["runc"] == seen["bare"]


@pytest.mark.parametrize("name", PLATFORMS)
def test_what_is_named_as_written_for_real_reaches_the_users_folder(name, users):
    script = "open('/'.join((__import__('sys').argv[1], 'real')), 'w').write('yes')"

    assert run(name, users, script, str(users.data), writes=(users.data,)).code == 0

    assert (users.data / "real").read_text() == "yes"


@pytest.mark.parametrize("name", PLATFORMS[1:])
def test_root_writes_to_other_users_files_as_on_bare_metal_and_every_other_wall_stands(name, users):
    theirs = users.project / "theirs"
    theirs.write_text("theirs")
    theirs.chmod(0o600)
    os.chown(theirs, 4321, 4321)
    os.chown(users.project, 4321, 4321)

    assert run(name, users, ESCAPES).out == "a file of another user\n"
    assert theirs.read_text() == "theirs"


@pytest.mark.parametrize("name", PLATFORMS[1:])
def test_a_sealed_root_is_read_only_as_before(name, users):
    ended = run(name, users, "open('new', 'w')", writable=False)

    assert ended.code == 1
    assert "Read-only file system" in ended.err


@pytest.mark.parametrize("name", PLATFORMS[1:])
def test_the_devices_network_is_there_where_it_was_requested(name, users):
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), timeout=5)"

        assert run(name, users, script, network="host").code == 0
        assert run(name, users, script).code != 0


@pytest.mark.parametrize("name", PLATFORMS[:2])
def test_without_the_right_to_mount_each_trial_has_a_fresh_copy_of_the_working_folder(name, users, monkeypatch):
    monkeypatch.setattr(layers, "possible", lambda host, site: False)
    monkeypatch.setattr(docker_module, "identity", lambda host: Identity(os.geteuid(), os.getegid(), can_mount=False))
    script = "open('made', 'x').write('x'); __import__('os').remove('train.txt'); print(open('../data/set').read())"
    before = users.contents()

    ends = [run(name, users, script.replace("../data", str(users.data)), reads=(users.data,)) for _ in range(2)]

    assert [(end.code, end.out) for end in ends] == [(0, "5\n")] * 2, ends[0].err
    assert users.contents() == before


@contextlib.contextmanager
def another_disk() -> Iterator[Path]:
    point = Path("/var/tmp") / f"tare-disk-{secrets.token_hex(4)}"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "disk", str(point)], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)
        point.rmdir()


@pytest.mark.parametrize("name", PLATFORMS)
def test_another_disk_has_a_layer_on_itself(name, users):
    with another_disk() as disk:
        (disk / "set").write_text("there")
        script = (
            f"import os; print(open('{disk}/set').read()); open('{disk}/new', 'w').write('x' * 100);"
            f"print(os.statvfs('{disk}').f_blocks * os.statvfs('{disk}').f_frsize)"
        )

        ended = run(name, users, script)

        assert (ended.code, ended.out) == (0, f"there\n{8 << 20}\n"), ended.err
        assert not (disk / "new").exists()
        assert not list(disk.glob(f"{layers.ASIDE}/tare-door-*/upper/new"))  # other runs here may have layers on it too


@pytest.mark.machine("root")
def test_folders_on_other_disks_are_found_after_a_power_cut(users):
    name = f"tare-door-{secrets.token_hex(4)}"
    with another_disk() as disk:
        left = disk / layers.ASIDE / name / "upper"
        left.mkdir(parents=True)

        assert str(left.parent) in layers.aside(LocalHost())
        layers.remove(LocalHost(), name)

        assert list(disk.iterdir()) == []
