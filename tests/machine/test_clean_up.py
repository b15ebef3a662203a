"""`tare device clean` on the real machine: what a dead run left goes, what is alive or someone else's stays."""

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
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm_tare

import as_nobody
from tare.base.host import LocalHost
from tare.base.processes import mounts
from tare.drivers.cgroups import tree
from tare.drivers.containers import engine
from tare.drivers.containers.oci import STATE
from tare.parts import find
from tare.parts.platforms import docker
from tare.trial.undo import restoration
from tare.trial.undo.restoration import Remains, find_remains, remove

PLATFORMS = [
    pytest.param(name, marks=pytest.mark.machine(name, "root"))
    for name in ("bare", "containerd", "docker", "podman", "runc", "gvisor")
]
RUNNER = """
import sys
from pathlib import Path
from tare.base.host import Job, LocalHost, Site
from tare.parts import find
name, site, scratch = sys.argv[1:4]
place = find.find("platforms", name)().open(LocalHost(), Site(site, Path(scratch), layered=True))
place.spawn(Job(("sleep", "987"), env={"PATH": "/usr/bin:/bin", "HOME": "/"}))
place.run(["true"])
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def site(scratch: Path) -> Iterator[str]:
    name = f"tare-clean-{secrets.token_hex(4)}"
    yield name
    if not left(name) and remains_of(name, scratch) is None:
        return  # Docker's sweep waits for a container that may still come
    for platform in ("containerd", "docker", "podman", "runc", "gvisor", "bare"):
        with contextlib.suppress(Exception):
            find.find("platforms", platform).sweep(LocalHost(), name)  # type: ignore[attr-defined]


@contextlib.contextmanager
def running(platform: str, site: str, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    (scratch / site).mkdir()
    command = [sys.executable, "-c", RUNNER, platform, site, str(scratch / site)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        try:
            assert runner.stdout.readline() == b"open\n"
            yield runner
        finally:
            runner.kill()


def remains_of(site: str, scratch: Path) -> Remains | None:
    """Only our own: others use this machine too."""
    return next((each for each in find_remains(LocalHost(), scratch) if each.site == site), None)


def left(site: str) -> list[str]:
    device = LocalHost()
    found = [mount.point for mount in mounts(device) if site in mount.point + mount.source]
    found += [str(pid) for pid in tree.processes_named(device, site)]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/tare/{site}*")]
    return found + [str(path) for path in Path(STATE).glob(f"*/{site}*")]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_what_a_living_run_uses_is_left_alone_and_goes_when_the_run_is_dead(platform, site, scratch):
    with running(platform, site, scratch) as runner:
        alive = remains_of(site, scratch)
        assert alive is not None
        assert alive.owner is not None
        assert alive.owner.pid == runner.pid
        assert remove(LocalHost(), [alive], scratch) == []
        later = remains_of(site, scratch)  # more than before where a platform goes on mounting
        assert later is not None
        assert later.owner == alive.owner
        assert set(alive.things) <= set(later.things)
        runner.send_signal(signal.SIGKILL)

    dead = remains_of(site, scratch)
    assert dead is not None
    assert dead.owner is None
    assert remove(LocalHost(), [dead], scratch) == []

    assert remains_of(site, scratch) is None
    assert left(site) == []
    assert list(scratch.iterdir()) == []


@pytest.mark.machine("root")
def test_what_was_made_by_hand_under_our_name_is_found_and_removed_once(site, scratch):
    own = Path(STATE) / "vm" / site
    mounted = own / "share" / "root"
    mounted.mkdir(parents=True)
    device = LocalHost()
    device.run(["mount", "-t", "tmpfs", "by-hand", str(mounted)]).checked()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(own / "monitor"))
    (scratch / site).mkdir()

    found = remains_of(site, scratch)

    assert found is not None
    assert f"the mount {mounted}" in found.things
    assert remove(device, [found], scratch) == []
    assert remains_of(site, scratch) is None
    assert not own.exists()


@pytest.mark.machine("root")
def test_a_loop_device_on_a_file_of_a_dead_run_is_detached(site, scratch):
    disk = scratch / site / "disk"
    disk.parent.mkdir()
    with disk.open("wb") as file:
        file.truncate(1 << 20)
    device = LocalHost()
    loop = device.run(["losetup", "--find", "--show", str(disk)]).checked().out.strip()

    found = remains_of(site, scratch)

    assert found is not None
    assert f"the loop device {loop}" in found.things
    assert remove(device, [found], scratch) == []
    assert str(disk) not in device.run(["losetup", "--list"]).out


@pytest.mark.machine("root")
def test_a_desk_of_somebody_else_is_no_hindrance(site, scratch):
    """An ordinary user may not look into root's desks."""
    workdir = Path("/dev/shm") / f"{site}-workdir"
    (workdir / "inside" / "tare_inside").mkdir(parents=True)
    workdir.chmod(0o700)
    try:
        assert site in {thing.site for thing in restoration.shared_leftovers(LocalHost(), scratch)}
        os.seteuid(65534)
        try:
            assert site not in {thing.site for thing in restoration.shared_leftovers(LocalHost(), scratch)}
        finally:
            os.seteuid(0)
    finally:
        shutil.rmtree(workdir)


@pytest.mark.machine("root")
def test_a_group_that_is_not_empty_is_emptied_and_removed(site, scratch):
    device = LocalHost()
    folders = tree.make(device, site)
    with subprocess.Popen(["sleep", "987"]) as sleeper:
        for folder in set(folders.values()):
            device.write(f"{folder}/cgroup.procs", str(sleeper.pid))
        found = remains_of(site, scratch)
        assert found is not None
        assert remove(device, [found], scratch) == []
        assert sleeper.wait(60) == -signal.SIGKILL

    assert left(site) == []


@pytest.mark.machine("docker")
@pytest.mark.machine("root")
def test_what_only_looks_like_ours_is_never_listed(site, scratch, tmp_path):
    """A user's container with our name and no label, a folder in shared memory, a mount, a group elsewhere."""
    client = engine.connect(LocalHost())
    image = docker.skeleton(client, [])
    container = client.checked("make it", "create", f"--name={site}", "--label=app=someone's", image, "true")
    folder = Path("/dev/shm") / f"{site}-workdir"  # without our software in it
    folder.mkdir()
    point = tmp_path / site
    point.mkdir()
    device = LocalHost()
    device.run(["mount", "-t", "tmpfs", site, str(point)]).checked()
    try:
        assert remains_of(site, scratch) is None
        shown = client.checked("look at it", "container", "inspect", "--format={{.Name}}", container)
        assert shown == f"/{site}"
    finally:
        device.run(["umount", str(point)])
        folder.rmdir()
        client.checked("remove it", "rm", container)


@pytest.mark.machine("runc")
def test_the_verb_lists_then_removes_and_then_has_nothing_to_do(site, scratch):
    with running("runc", site, scratch) as runner:
        runner.send_signal(signal.SIGKILL)

    planned = tare_clean("--dry-run", "--json", site)
    removed = tare_clean("--json", site)
    again = tare_clean(site)

    assert [each["site"] for each in json.loads(planned.stdout)["planned"]] == [site]
    assert [each["site"] for each in json.loads(removed.stdout)["removed"]] == [site]
    assert (again.returncode, again.stdout) == (0, "")
    assert "nothing of ours" in again.stderr
    assert left(site) == []


def tare_clean(*words: str) -> subprocess.CompletedProcess[str]:
    return warm_tare.run("device", "clean", *words, cwd=Path.cwd(), timeout=120, like="")


RACING = {
    "another user": as_nobody.command,
    "another user in another pid namespace": lambda argv: [*ALONE, *as_nobody.command(argv)],
    "another pid namespace": lambda argv: [*ALONE, *argv],
}
ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
RACES = 1000 if os.environ.get("TARE_DEEP") else 50


@pytest.mark.machine("root")
def test_runs_that_begin_and_end_while_root_cleans_lose_nothing_and_what_is_dead_goes(scratch, monkeypatch):
    monkeypatch.setattr(restoration, "leftovers_by_platform", lambda host: {})  # work folders alone
    token, seed = secrets.token_hex(4), secrets.randbits(32)
    prefix, script = f"tare-race-{token}", Path(__file__).with_name("clean_race_runs.py")
    removed: set[str] = set()

    def clean() -> None:
        found = [each for each in find_remains(LocalHost(), scratch) if each.site.startswith(prefix)]
        failed = {each.site for each in remove(LocalHost(), found, scratch)}
        removed.update(each.site for each in found if each.owner is None and each.site not in failed)

    with contextlib.ExitStack() as stack:
        runners = []
        for number, command in enumerate(RACING.values()):
            argv = [sys.executable, str(script), f"{prefix}-{number}", str(RACES // len(RACING) + 1), str(seed)]
            runners.append(stack.enter_context(subprocess.Popen(command(argv), stdout=subprocess.PIPE, text=True)))
        while any(runner.poll() is None for runner in runners):
            clean()
        told = [list(map(int, runner.stdout.read().split())) for runner in runners]  # type: ignore[union-attr]
    clean()

    kept, died, lost = map(sum, zip(*told, strict=True))
    assert (lost, kept + died >= RACES) == (0, True), f"seed {seed}: {told}"
    assert died > 0
    assert len(removed) >= died
    assert list(Path("/dev/shm").glob(f"{prefix}*")) == []


@pytest.mark.machine("root")
def test_root_leaves_what_another_user_left_until_it_is_named(site):
    workdir = Path("/dev/shm") / f"{site}-workdir"
    (workdir / "inside" / "tare_inside").mkdir(parents=True)
    os.chown(workdir, as_nobody.UID, as_nobody.UID)
    try:
        everything = tare_clean("--json")
        assert [each["uid"] for each in json.loads(everything.stdout)["others"] if each["site"] == site] == [65534]
        assert workdir.is_dir()
        assert f"of user 65534, left alone: {site}" in tare_clean("--dry-run").stdout.replace("\n  ", " ")

        assert [each["site"] for each in json.loads(tare_clean("--json", site).stdout)["removed"]] == [site]
        assert not workdir.exists()
    finally:
        shutil.rmtree(workdir, ignore_errors=True)
