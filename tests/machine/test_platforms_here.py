"""Platforms on the real machine: the same software inside, walls that hold, and nothing left after a kill -9."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tare.base import untrusted
from tare.base.errors import ObstacleError, TareError
from tare.base.host import Host, Job, LocalHost, Site
from tare.base.processes import Identity, mounts
from tare.drivers.cgroups import tree
from tare.drivers.containers import engine
from tare.parts import find
from tare.parts.platforms import docker as docker_module
from tare.parts.platforms.bare import Bare
from tare.parts.platforms.docker import Docker
from tare.parts.platforms.runc import Runc

CONTAINERS = [pytest.param(name, marks=pytest.mark.machine(name)) for name in ("docker", "podman", "runc")]
ALL = [*CONTAINERS, pytest.param("containerd", marks=pytest.mark.machine("containerd"))]
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8"}

SAME = """
import hashlib, json, os, sys
try:
    import torch
    libraries = [os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")]
except ImportError:
    libraries = []
digest = lambda path: hashlib.file_digest(open(path, "rb"), "sha256").hexdigest()
files = [os.path.realpath(sys.executable), os.__file__, *libraries]
print(json.dumps({"path": sys.path, "prefix": sys.prefix, "files": {path: digest(path) for path in files}}))
"""

ESCAPES = """
import ctypes, os, socket, sys
def attempt(name, act):
    try:
        act()
    except OSError:
        return
    print(name)
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)
attempt("mount", lambda: call("mount", b"x", b"/tmp", b"tmpfs", 0, None))
attempt("unshare", lambda: call("unshare", 0x00020000))
attempt("setuid", lambda: os.setuid(12345))
attempt("chown", lambda: os.chown("/tmp", 12345, 12345))
attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
line = socket.socket()
line.settimeout(1)
attempt("network", lambda: line.connect(("192.0.2.1", 80)))
attempt("kernel setting", lambda: open("/proc/sys/kernel/hostname", "w"))
attempt("kernel memory", lambda: os.open("/dev/mem", os.O_RDONLY))
attempt("block device", lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0)))
attempt("root", lambda: open("/new", "w"))
attempt("usr", lambda: open("/usr/new", "w"))
attempt("device cgroup", lambda: open("/sys/fs/cgroup/new", "w"))
"""

SOCKETS = """
import socket, sys
for path in sys.argv[1:]:
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(path)
    except OSError:
        continue
    print(path)
"""


@pytest.fixture(scope="module")
def software_of_the_device() -> Any:
    return json.loads(said_inside(LocalHost(), SAME))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "workdir").mkdir()
    name = f"tare-test-{secrets.token_hex(4)}"
    return Site(name=name, scratch=tmp_path / "scratch", writes=(tmp_path / "workdir",))


def opened(name: str, site: Site, **fields: Any) -> Host:
    return find.find("platforms", name)(**fields).open(LocalHost(), site)  # type: ignore[attr-defined]


def said_inside(place: Host, script: str, *arguments: str) -> str:
    done = place.run([place.python, "-I", "-c", script, *arguments], limit_s=120).checked()
    return done.out


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_with_the_hosts_root_runs_the_very_same_software(name, site, software_of_the_device):
    place = opened(name, site)
    try:
        inside = json.loads(said_inside(place, SAME))
        assert place.python == LocalHost().python
    finally:
        place.close()

    assert inside == software_of_the_device
    assert len(inside["files"]) >= 2


@pytest.mark.parametrize("name", ALL)
def test_no_way_out_of_a_container_is_open(name, site):
    place = opened(name, site)
    try:
        assert said_inside(place, ESCAPES) == ""
        status = place.read("/proc/self/status")
    finally:
        place.close()

    values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (values["CapEff"], values["CapBnd"], values["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert values["Seccomp"] == "2"


@pytest.mark.machine("root")
@pytest.mark.parametrize("name", ALL)
def test_another_user_inside_has_the_work_folder_and_no_right_of_root(name, site):
    workdir = Path(f"/dev/shm/{site.name}-workdir")  # where a trial's lies
    workdir.mkdir(mode=0o700)
    left = "echo '{\"a\": 1}' > " + f"{workdir}/outcome.json"
    script = f"id -u; cat /etc/shadow; {left}; grep -h CapEff /proc/self/status"
    try:
        place = opened(name, replace(site, layered=True, writes=(workdir,)), user="65534:65534")
        try:
            done = place.run(["sh", "-c", script])
        finally:
            place.close()
        assert untrusted.read_object(workdir, "outcome.json") == {"a": 1}  # a file of the folder's owner
        assert (workdir.stat().st_uid, workdir.stat().st_mode & 0o777) == (65534, 0o700)
    finally:
        shutil.rmtree(workdir)
    assert done.out.split() == ["65534", "CapEff:", "0000000000000000"], done
    assert "Permission denied" in done.err
    assert place.facts["user"] == 65534


@pytest.mark.machine("root")
def test_the_ways_out_are_found_where_there_are_some():
    """In a mount namespace of its own root may do all this; the container's wall must be what stops it."""
    alone = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", ESCAPES]

    found = LocalHost().run(alone).checked().out.split("\n")

    assert {"mount", "unshare", "setuid"} <= set(found)


@pytest.mark.machine("docker")
@pytest.mark.parametrize("can_mount", [True, False])
def test_an_engines_socket_cannot_be_reached_from_inside(site, monkeypatch, can_mount):
    """Also where the host's folders are bound as they are: a read-only bind lets everyone connect."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    monkeypatch.setenv("TARE_STATE", str(folder))
    monkeypatch.setattr(docker_module, "identity", lambda host: Identity(os.geteuid(), os.getegid(), can_mount))
    (folder / "engine").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(engine.own_socket())
        server.listen()
        place = opened("docker", site)
        try:
            assert place.facts["root"] == ("overlay" if can_mount else "binds")  # type: ignore[attr-defined]
            assert said_inside(LocalHost(), SOCKETS, engine.own_socket()) == f"{engine.own_socket()}\n"
            assert said_inside(place, SOCKETS, *engine.candidates()) == ""
            assert said_inside(place, "import pydantic; print('works')") == "works\n"
        finally:
            place.close()
            shutil.rmtree(folder)


RUNNER = """
import sys
from pathlib import Path
from tare.base.host import Job, LocalHost, Site
from tare.parts import find
name, site, scratch = sys.argv[1:4]
place = find.find("platforms", name)().open(LocalHost(), Site(site, Path(scratch)))
place.spawn(Job(("sleep", "987"), env={"PATH": "/usr/bin:/bin", "HOME": "/"}))
place.run(["true"])
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", [pytest.param("bare", marks=pytest.mark.machine("bare")), *ALL])
def test_after_a_kill_of_the_runner_sweeping_leaves_nothing(name, site):
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, name, site.name, str(site.scratch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"open\n"
        device, deadline = LocalHost(), time.monotonic() + 60
        while not tree.processes_named(device, site.name) and time.monotonic() < deadline:
            time.sleep(0.05)  # a busy machine may not have begun the job yet
        runner.send_signal(signal.SIGKILL)
    found = tree.processes_named(device, site.name)

    for _ in range(2):
        find.find("platforms", name).sweep(device, site.name)  # type: ignore[attr-defined]

    assert found, "the job died with its runner, so that there was nothing to sweep"

    assert tree.processes_named(device, site.name) == set()
    assert [mount for mount in mounts(device) if site.name in mount.point + mount.source] == []
    assert list(site.scratch.iterdir()) == []
    groups = [each for _, below, _ in os.walk("/sys/fs/cgroup") for each in below]  # others' may go meanwhile
    assert [each for each in groups if each.startswith(site.name)] == []


@pytest.mark.machine("docker")
def test_a_container_that_only_has_our_name_is_never_removed(site):
    client = engine.connect(LocalHost())
    image = docker_module.skeleton(client, [])
    foreign = client.checked("make it", "create", f"--name={site.name}", "--label=app=someone's", image, "true")
    try:
        with pytest.raises(TareError, match="already in use"):
            opened("docker", site)
        Docker.sweep(LocalHost(), site.name)
        shown = client.checked("look at it", "container", "inspect", "--format={{.Name}}", foreign)
        assert shown == f"/{site.name}"
    finally:
        client.checked("remove it", "rm", foreign)


@pytest.fixture(scope="module")
def little_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked root file system of a few programs of this machine and the libraries that they need."""
    folder = tmp_path_factory.mktemp("image")
    root = folder / "root"
    programs = [shutil.which(name) for name in ("sh", "sleep", "cat", "env", "true", "ls")]
    libraries = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout.split()
    for file in {*programs, *(word for word in libraries if word.startswith("/") and not word.endswith(":"))}:
        target = root / str(file).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    for name in ("proc", "sys", "dev", "tmp", "run", "etc"):
        (root / name).mkdir()
    python = root / "opt" / "python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "image python $*"\n')
    python.chmod(0o755)
    (root / "bin").mkdir(exist_ok=True)
    if not (root / "bin" / "sh").exists():
        (root / "bin" / "sh").symlink_to(str(shutil.which("sh")))
    return root


def check_image(place: Host, workdir: Path) -> None:
    """What a place in the little image can do."""
    assert place.run(["cat", "/etc/hostname"]).code != 0 or socket.gethostname() in place.read("/etc/hostname")
    assert place.run([place.python, "x"]).out == "image python x\n"
    ended = place.spawn(Job(("sh", "-c", f"echo $FROM_IMAGE $A > {workdir}/made; exit 4"), env={**ENV, "A": "1"})).wait(
        20
    )
    assert ended.code == 4
    assert place.run(["sh", "-c", "echo > /opt/new"]).code != 0


@pytest.mark.machine("docker")
def test_an_image_is_built_from_a_dockerfile_and_a_trial_runs_in_it(site, little_root):
    dockerfile = little_root.parent / "Dockerfile"
    dockerfile.write_text("FROM scratch\nCOPY root/ /\nENV PATH=/opt:/usr/bin:/bin FROM_IMAGE=yes\n")
    part = Docker(dockerfile=dockerfile)
    assert part.obstacles(LocalHost()) == []
    place = part.open(LocalHost(), site)
    try:
        assert place.python == "/opt/python3"
        check_image(place, site.writes[0])
        image = place.facts["image_id"]  # type: ignore[attr-defined]
    finally:
        place.close()
    assert (site.writes[0] / "made").read_text() == "yes 1\n"
    again = Docker(image=image).open(LocalHost(), site)
    again.close()
    engine.connect(LocalHost()).checked("remove it", "image", "rm", "--force", image)
    assert len(Docker(image=image).obstacles(LocalHost())) == 1


@pytest.mark.machine("runc")
def test_an_unpacked_root_file_system_is_an_image_for_runc_and_is_not_changed(site, little_root):
    before = sorted(path.relative_to(little_root) for path in little_root.rglob("*"))
    place = Runc(image=str(little_root), python="/opt/python3").open(LocalHost(), site)
    try:
        check_image(place, site.writes[0])
    finally:
        place.close()

    assert (site.writes[0] / "made").read_text() == "1\n"
    assert sorted(path.relative_to(little_root) for path in little_root.rglob("*")) == before


@pytest.mark.machine("bare")
@pytest.mark.machine("runc")
def test_a_container_stacks_on_a_place(site, tmp_path):
    (tmp_path / "outer").mkdir()
    outer = Bare().open(LocalHost(), Site(f"{site.name}-outer", tmp_path / "outer"))
    inner = Runc().open(outer, site)
    try:
        assert inner.run(["echo", "inside"]).out == "inside\n"
        assert inner.scope().cgroups["memory" if "memory" in inner.scope().cgroups else ""].endswith(site.name)
    finally:
        inner.close()
        outer.close()


@pytest.fixture
def private_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder short enough for a socket, and no other engine in sight."""
    folder = Path(tempfile.mkdtemp(prefix="tare-", dir="/var/tmp"))
    monkeypatch.setenv("TARE_STATE", str(folder))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "SYSTEM_SOCKET", str(folder / "none.sock"))
    yield folder
    engine.stop(LocalHost())
    assert [mount.point for mount in mounts(LocalHost()) if mount.point.startswith(str(folder))] == []
    shutil.rmtree(folder)


@pytest.mark.machine("docker")
@pytest.mark.machine("root")
def test_a_private_engine_is_started_used_and_stopped(private_state, site):
    device = LocalHost()
    with pytest.raises(ObstacleError):
        engine.connect(device)

    started = engine.start(device)

    assert started.ours
    assert started.socket == str(private_state / "engine" / "docker.sock")
    assert engine.start(device) == started
    place = Docker().open(device, site)
    assert place.run(["echo", "inside"]).out == "inside\n"
    place.close()
    assert engine.stop(device) is True
    assert engine.stop(device) is False
    assert engine.find() is None


@pytest.mark.machine("docker")
def test_an_engines_socket_is_covered_and_the_rest_of_its_folder_is_not(tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder, socket.socket(socket.AF_UNIX) as listening:
        beside = Path(folder) / "beside.txt"
        beside.write_text("seen")
        listening.bind(f"{folder}/docker.sock")
        listening.listen()
        known = engine.candidates()
        monkeypatch.setattr(engine, "candidates", lambda: [*known, f"{folder}/docker.sock"])
        site = Site(name=f"tare-cover-{secrets.token_hex(4)}", scratch=tmp_path)
        with contextlib.closing(Docker().open(LocalHost(), site)) as place:
            assert place.run(["cat", str(beside)]).out == "seen"
            assert place.run(["test", "-S", f"{folder}/docker.sock"]).code == 1
            assert place.run(["cat", f"{folder}/docker.sock"]).code == 0  # it is /dev/null
