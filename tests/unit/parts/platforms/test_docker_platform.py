"""The docker platform on a pretend engine: what is asked of it, and that nothing is left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pretend_engine import PretendEngine, frame
from small_linux import SmallLinux
from tare.base.errors import ControlNotHeld, ObstacleError, TareError, TrialError
from tare.base.host import Completed, Job, LocalHost, Scope, Site
from tare.base.processes import Owner, boot_id
from tare.drivers.containers import engine
from tare.drivers.containers.place import LABEL
from tare.parts.platforms import docker as docker_module
from tare.parts.platforms.docker import Docker
from tare.testing import FakeHost

SITE = Site(name="tare-1", scratch=Path("/scratch"), reads=(Path("/tmp/set"),), writes=(Path("/dev/shm/workdir"),))


@pytest.fixture
def linux() -> SmallLinux:
    return SmallLinux()


@pytest.fixture
def docker(linux: SmallLinux, monkeypatch: pytest.MonkeyPatch) -> PretendEngine:
    pretend = PretendEngine(linux)
    monkeypatch.setattr(engine, "connect", lambda host: pretend)
    monkeypatch.setattr(engine, "candidates", lambda: ["/var/run/docker.sock"])
    monkeypatch.setattr(engine, "find", lambda: engine.Engine("/var/run/docker.sock", ours=False))
    return pretend


def test_the_hosts_root_is_bound_read_only_from_an_overlay_onto_a_skeleton(linux, docker):
    place = Docker().open(linux, SITE)

    mounts = docker.configs["tare-1"]["HostConfig"]["Mounts"]
    shown = {mount["Target"]: (mount["Source"], mount["ReadOnly"]) for mount in mounts}
    assert shown == {
        "/etc": ("/scratch/tare-1/root/etc", True),
        "/usr": ("/scratch/tare-1/root/usr", True),
        "/work": ("/scratch/tare-1/root/work", True),
        "/tmp/set": ("/tmp/set", True),
        "/dev/shm/workdir": ("/dev/shm/workdir", False),
    }
    assert docker.configs["tare-1"]["Image"] in [image["Id"] for image in docker.images.values()]
    assert place.python == linux.python
    assert place.facts["root"] == "overlay"


def test_the_skeleton_is_made_once_an_engine(linux, docker):
    for number in (1, 2):
        Docker().open(linux, Site(name=f"tare-{number}", scratch=Path("/scratch")))

    assert linux.log.count("docker import") == 1


def test_without_the_right_to_mount_the_root_folders_are_bound_as_they_are(docker, monkeypatch):
    user = SmallLinux(uid=1000)
    docker.host = user

    place = Docker().open(user, SITE)

    sources = [mount["Source"] for mount in docker.configs["tare-1"]["HostConfig"]["Mounts"]]
    assert sources[:3] == ["/etc", "/usr", "/work"]
    assert docker.configs["tare-1"]["User"] == "1000:1000"
    assert place.facts["root"] == "binds"
    assert not any("overlay" in line for line in user.table)


def test_a_folder_that_holds_the_engines_data_is_left_out_of_plain_binds_but_for_what_is_read(docker, monkeypatch):
    """Docker refuses such a bind; with an overlay it is not the same folder, and no matter."""
    monkeypatch.setattr(
        type(docker), "info", lambda self: {"CgroupDriver": "cgroupfs", "DockerRootDir": "/work/docker"}
    )
    user = SmallLinux(uid=1000)
    monkeypatch.setattr(
        "tare.drivers.containers.roots.existing", lambda host, paths: [path for path in paths if "set" in path]
    )
    docker.host = user

    Docker().open(user, replace(SITE, reads=(Path("/work/set"),)))

    shown = [mount["Target"] for mount in docker.configs["tare-1"]["HostConfig"]["Mounts"]]
    assert "/work" not in shown
    assert "/work/set" in shown


def test_a_root_folder_on_its_own_disk_is_bound_once(linux, docker):
    linux.table.append("50 29 8:1 / /work rw - ext4 /dev/sdb rw")
    linux._show_table()

    Docker().open(linux, SITE)

    mounts = docker.configs["tare-1"]["HostConfig"]["Mounts"]
    assert [mount["Source"] for mount in mounts if mount["Target"] == "/work"] == ["/work"]


def test_a_socket_in_a_folder_that_may_not_be_entered_is_none(monkeypatch):
    def refused(self, **_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refused)
    assert not docker_module._is(LocalHost(), "-S", "/root/engine.sock")


def test_an_engines_socket_is_covered(linux, docker, monkeypatch):
    paths = ["/work/docker.sock", "/var/run/docker.sock", "/run/d.sock", "/work/gone.sock", "/work/disk/d.sock"]
    monkeypatch.setattr(engine, "candidates", lambda: [*paths, engine.own_socket()])
    monkeypatch.setenv("TARE_STATE", "/work/tare")
    linux.folders |= {*paths, "/work/tare/engine", engine.own_socket()} - {"/work/gone.sock"}
    linux.links = {"/var/run/docker.sock": "/run/docker.sock"}
    linux.table.append("50 29 8:1 / /work/disk rw - ext4 /dev/sdb rw")  # and so it is not shown inside
    linux._show_table()

    Docker().open(linux, SITE)

    asked = docker.configs["tare-1"]["HostConfig"]
    over = [mount for mount in asked["Mounts"] if mount["Source"] == "/dev/null"]
    assert [(mount["Target"], mount["ReadOnly"]) for mount in over] == [("/work/docker.sock", True)]
    assert set(asked["Tmpfs"]) == {"/tmp", "/run", "/work/tare/engine"}  # of other folders nothing else is hidden


def test_a_container_carries_our_labels(linux, docker):
    Docker().open(linux, SITE)

    labels = docker.configs["tare-1"]["Labels"]
    assert labels["tare.run"] == "tare-1"
    assert labels["tare.owner"] == str(Owner.me())
    assert labels["tare.boot"] == boot_id()


def test_its_scope_is_its_first_process_and_its_folders_on_the_device(linux, docker):
    linux.files["/proc/sys/kernel/random/boot_id"] = LocalHost().read("/proc/sys/kernel/random/boot_id")

    scope = Docker().open(linux, SITE).scope()

    assert scope.pid == docker.running["tare-1"]
    assert scope.cgroups["cpu"] == "/sys/fs/cgroup/cpu/tare/tare-1"
    assert scope != Scope()


def test_under_systemd_the_parent_is_a_slice(linux, docker):
    docker.driver = "systemd"

    Docker().open(linux, SITE)

    assert docker.configs["tare-1"]["HostConfig"]["CgroupParent"] == "tare.slice"


def test_closing_leaves_nothing(linux, docker):
    before = linux.left_over()
    place = Docker().open(linux, SITE)

    place.close()
    place.close()

    assert linux.left_over() == before
    assert (docker.configs, docker.closed) == ({}, 1)


def test_whichever_step_of_opening_breaks_nothing_is_left(monkeypatch):
    monkeypatch.setattr(engine, "candidates", lambda: ["/var/run/docker.sock"])
    whole = SmallLinux()
    monkeypatch.setattr(engine, "connect", lambda host: PretendEngine(whole))
    Docker().open(whole, SITE)
    failures = 0
    for step in range(1, whole.steps + 1):
        host = SmallLinux(break_at=step)
        pretend = PretendEngine(host)
        before = host.left_over()
        monkeypatch.setattr(engine, "connect", lambda host, pretend=pretend: pretend)
        try:
            Docker().open(host, SITE).close()
        except TareError:
            failures += 1
        assert (host.left_over(), pretend.configs) == (before, {}), f"left over after: {whole.log[step - 1]}"
    assert failures >= 8


def test_someone_elses_container_of_the_same_name_is_never_removed(linux, docker):
    docker.configs["tare-1"] = {"Labels": {"app": "theirs"}}

    Docker.sweep(linux, "tare-1")

    assert list(docker.configs) == ["tare-1"]


def test_sweeping_after_a_crash_removes_everything_and_is_idempotent(linux, docker):
    before = linux.left_over()
    Docker().open(linux, SITE)  # and the runner dies here

    Docker.sweep(linux, "tare-1")
    Docker.sweep(linux, "tare-1")

    assert (linux.left_over(), docker.configs) == (before, {})


def test_a_container_that_the_engine_was_still_creating_is_removed_too(linux, docker, monkeypatch):
    made = {"tare-1": {"Labels": {LABEL: "tare-1"}}}
    monkeypatch.setattr(type(linux.clock), "sleep_until", lambda self, until_ns: docker.configs.update(made))

    Docker.sweep(linux, "tare-1")

    assert docker.configs == {}


@pytest.mark.parametrize("version", [1, 2])
def test_sweeping_once_docker_is_gone_ends_what_it_left_running_and_unmounts(version, monkeypatch):
    linux = SmallLinux(version=version)
    before = linux.left_over()
    pretend = PretendEngine(linux)
    monkeypatch.setattr(engine, "candidates", lambda: ["/var/run/docker.sock"])
    monkeypatch.setattr(engine, "connect", lambda host: pretend)
    Docker().open(linux, SITE)
    (pid,) = pretend.running.values()
    (carried,) = [each for each in pretend.configs["tare-1"]["Env"] if each.startswith("TARE_KEEPER=")]
    linux.files[f"/proc/{pid}/environ"] = f"PATH=/bin\0{carried}\0"
    bystander = linux.start_process(environ="TARE_KEEPER=tare-10\0")
    monkeypatch.setattr(engine, "connect", _no_engine)
    monkeypatch.setattr(engine, "find", lambda: None)

    Docker.sweep(linux, "tare-1")
    Docker.sweep(linux, "tare-1")

    assert linux.left_over() == before
    assert not linux.alive(pid)
    assert linux.alive(bystander)


def test_sweeping_where_our_own_engine_is_down_starts_it_and_stops_it_again(linux, docker, monkeypatch):
    Docker().open(linux, SITE)  # and the power goes
    said = _private_engine(linux, monkeypatch)

    Docker.sweep(linux, "tare-1")

    assert said == ["start", "stop"]
    assert docker.configs == {}


def test_an_engine_of_ours_that_does_not_start_is_said_with_the_folder_that_may_go(linux, docker, monkeypatch):
    _private_engine(linux, monkeypatch)
    monkeypatch.setattr(engine, "start", _no_engine)

    with pytest.raises(ObstacleError, match="remove the folder"):
        Docker.sweep(linux, "tare-1")


def test_a_user_who_may_not_start_our_engine_sweeps_without_it(docker, monkeypatch):
    user = SmallLinux(uid=1000)
    said = _private_engine(user, monkeypatch)

    Docker.sweep(user, "tare-1")

    assert said == []


def _no_engine(host):
    raise ObstacleError("docker cannot be used here.", ["no engine."])


def _private_engine(linux: SmallLinux, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Our own engine is installed and has data, but does not run; the list tells when it is started and stopped."""
    said: list[str] = []

    def start(host):
        said.append("start")
        return engine.Engine(engine.own_socket(), ours=True)

    monkeypatch.setattr(engine, "find", lambda: None)
    monkeypatch.setattr(engine, "start", start)
    monkeypatch.setattr(engine, "stop", lambda host: said.append("stop"))
    linux.folders.add(f"{engine.folder()}/data")
    linux.answer = lambda argv: Completed((), 0, "", "") if argv[0] == "dockerd" else None
    return said


def test_a_limit_that_the_engine_dropped_closes_the_container_again(linux, docker):
    before = linux.left_over()

    with pytest.raises(ControlNotHeld):
        Docker(memory="64 MiB").open(linux, SITE)  # this engine sets no limits

    assert linux.left_over() == before


def test_a_container_that_ends_at_once_says_why(linux, docker, monkeypatch):
    monkeypatch.setattr(docker, "start", lambda container: None)

    with pytest.raises(TrialError, match="`sleep`"):
        Docker().open(linux, SITE)


def test_a_job_gets_its_own_environment_and_no_other(linux, docker):
    place = Docker().open(linux, SITE)

    ended = place.spawn(Job(("python", "train.py"), env={"A": "1", "HOME": "/root"}, cwd="/work")).wait(5)

    asked = docker.execs[-1]
    assert (asked["cmd"], asked["workdir"]) == (["python", "train.py"], "/work")
    # A name without a value takes away what the engine or the container would add.
    assert asked["environment"] == ["A=1", "HOME=/root", "TARE_NAME=tare-1", "HOSTNAME", "TARE_KEEPER", "PATH"]
    assert ended.code == 0


def test_an_image_is_pinned_by_its_id_and_keeps_its_variables(linux, docker):
    env = ["PATH=/opt/bin", "LD_LIBRARY_PATH=/cuda", "EMPTY="]
    docker.images["pt:1"] = docker.images["sha256:77"] = {"Id": "sha256:77", "Config": {"Env": env}}
    docker.answers = [frame(1, b"/opt/bin/python3\n")]

    place = Docker(image="pt:1").open(linux, SITE)
    place.spawn(Job(("python", "x.py"), env={"PATH": "/host", "A": "1"})).wait(5)

    assert docker.configs["tare-1"]["Image"] == "sha256:77"
    assert place.python == "/opt/bin/python3"
    assert docker.execs[-1]["environment"] == ["PATH=/opt/bin", "A=1", "TARE_NAME=tare-1", "HOSTNAME", "TARE_KEEPER"]
    mounts = docker.configs["tare-1"]["HostConfig"]["Mounts"]
    assert [mount["Target"] for mount in mounts] == ["/dev/shm/workdir", "/tmp/set"]
    assert place.facts["root"] == "image"
    assert place.facts["image_id"] == "sha256:77"


def test_a_name_of_an_image_stands_for_another_one_when_its_tag_has_moved(linux, docker):
    docker.images["pt:1"] = {"Id": "sha256:77", "Config": {"Env": None}}
    assert Docker(image="pt:1").image_now(linux) == "sha256:77"
    docker.images["pt:1"] = {"Id": "sha256:88", "Config": {"Env": None}}
    assert Docker(image="pt:1").image_now(linux) == "sha256:88"
    assert Docker().image_now(linux) is None


def test_an_image_that_the_engine_does_not_have_is_never_fetched(linux, docker):
    with pytest.raises(ObstacleError, match="docker pull pt:1"):
        Docker(image="pt:1").open(linux, SITE)


def test_an_image_is_built_from_a_dockerfile_without_a_network_and_once(linux, docker, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    docker.answers = [frame(1, b"/usr/bin/python3\n")] * 3
    part = Docker(dockerfile=tmp_path / "Dockerfile")

    for number in (1, 2):
        part.open(linux, Site(name=f"tare-{number}", scratch=Path("/scratch")))

    (asked,) = docker.built
    assert (asked["network_mode"], asked["path"], asked["dockerfile"]) == ("none", str(tmp_path), "Dockerfile")
    (tmp_path / "more").write_text("1")
    part.open(linux, Site(name="tare-3", scratch=Path("/scratch")))
    assert len(docker.built) == 2


def test_a_dockerfile_that_does_not_build_says_what_the_build_said(linux, docker, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    docker.build_says = [{"stream": "Step 1/2"}, {"error": "no route to host"}]

    with pytest.raises(ObstacleError, match=r"no route to host\nStep 1/2"):
        Docker(dockerfile=tmp_path / "Dockerfile").open(linux, SITE)


def test_obstacles_name_a_missing_dockerfile_and_a_missing_image(linux, docker, monkeypatch):
    monkeypatch.setattr(engine, "own_obstacles", lambda host: [])

    assert [*map(str, Docker(dockerfile="/no/Dockerfile").obstacles(linux))] == [
        "no /no/Dockerfile to build the image from."
    ]
    assert [*map(str, Docker(image="pt:1").obstacles(linux))] == [
        "the engine has no image pt:1: run `docker pull pt:1` (with an engine of your own running, not one that tare "
        "started), or name its tarball, `image: ./FILE.tar`."
    ]
    assert Docker().obstacles(linux) == []


def test_inside_another_platform_docker_says_what_to_use_instead():
    sentences = [*map(str, Docker().obstacles(FakeHost(name="guest")))]

    assert any("inside guest" in sentence and "runc or podman" in sentence for sentence in sentences)


def test_the_container_is_asked_for_with_the_walls_of_the_house(linux, docker):
    """faults.md S14: what every container is started with, as a whole; a change here is a decision."""
    Docker().open(linux, SITE)
    asked = json.loads(json.dumps(docker.configs["tare-1"]))
    walls = {key: value for key, value in asked["HostConfig"].items() if key != "Mounts"}

    assert asked["Cmd"] == ["sleep", "2147483647"]
    assert walls == {
        "NetworkMode": "none",
        "ExtraHosts": ["aarch64:127.0.1.1"],
        "CapAdd": [],
        "IpcMode": "private",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": False,
        "ReadonlyRootfs": True,
        "PidsLimit": 4096,
        "ShmSize": 1 << 30,
        "CgroupParent": "/tare",
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
        "Tmpfs": {
            "/tmp": "rw,nosuid,nodev,exec,mode=1777",
            "/run": "rw,nosuid,nodev,noexec,mode=755,size=65536k",
        },
        "Ulimits": [
            {"Name": "nofile", "Soft": 1024, "Hard": 4096},
            {"Name": "nproc", "Soft": 9000, "Hard": 9000},
        ],
    }
    assert "docker.sock" not in json.dumps(asked["HostConfig"]["Mounts"])


def test_the_requested_user_is_the_one_inside(linux, docker):
    Docker(user="1000:2000").open(linux, SITE)
    assert docker.configs["tare-1"]["User"] == "1000:2000"
    assert docker.configs["tare-1"]["HostConfig"]["CapAdd"] == []
