"""The docker platform on a pretend engine: what is asked of it, and that nothing is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from small_linux import SmallLinux, broken_openings
from tare.base.errors import ControlNotHeld, ObstacleError, TrialError
from tare.base.host import Completed, Exit, Job, LocalHost, Scope, Site
from tare.base.processes import Owner, boot_id
from tare.drivers.containers import client, engine
from tare.drivers.containers.client import LABEL
from tare.drivers.places import PATH
from tare.parts.platforms import docker as docker_module
from tare.parts.platforms.docker import Docker
from tare.testing import FakeHost

SITE = Site(name="tare-1", scratch=Path("/scratch"), reads=(Path("/tmp/set"),), writes=(Path("/dev/shm/workdir"),))


@pytest.fixture
def linux() -> SmallLinux:
    return SmallLinux()


@pytest.fixture(autouse=True)
def _answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine answers at the usual socket."""
    monkeypatch.setattr(engine, "candidates", lambda: ["/var/run/docker.sock"])
    monkeypatch.setattr(engine, "find", lambda: engine.Engine("/var/run/docker.sock", ours=False))
    monkeypatch.setattr(engine, "connect", lambda host: client.docker(host, "/var/run/docker.sock"))


def flags(host: SmallLinux, name: str = "tare-1") -> list[str]:
    """The options that a container was made with."""
    return [word for word in host.docker[name]["words"] if word.startswith("--")]


def mounted(host: SmallLinux, name: str = "tare-1") -> dict[str, tuple[str, bool]]:
    """The source of each mount by its target, and whether it is only read."""
    found = {}
    for flag in flags(host, name):
        if flag.startswith("--mount="):
            words = dict(word.partition("=")[::2] for word in flag.removeprefix("--mount=").split(","))
            found[words["dst"]] = words["src"], words.get("ro") == "true"
    return found


def test_the_hosts_root_is_bound_read_only_from_an_overlay_onto_a_skeleton(linux):
    place = Docker().open(linux, SITE)

    assert mounted(linux) == {
        "/etc": ("/scratch/tare-1/root/etc", True),
        "/usr": ("/scratch/tare-1/root/usr", True),
        "/work": ("/scratch/tare-1/root/work", True),
        "/tmp/set": ("/tmp/set", True),
        "/dev/shm/workdir": ("/dev/shm/workdir", False),
    }
    assert linux.docker["tare-1"]["words"][-3] in [image["Id"] for image in linux.images.values()]
    assert place.python == linux.python
    assert place.facts["root"] == "overlay"


def test_the_skeleton_is_made_once_an_engine(linux):
    for number in (1, 2):
        Docker().open(linux, Site(name=f"tare-{number}", scratch=Path("/scratch")))

    assert len([asked for asked in linux.asked if "import" in asked]) == 1


def test_without_the_right_to_mount_the_root_folders_are_bound_as_they_are():
    user = SmallLinux(uid=1000)

    place = Docker().open(user, SITE)

    assert [source for source, _ in mounted(user).values()][:3] == ["/etc", "/usr", "/work"]
    assert "--user=1000:1000" in flags(user)
    assert place.facts["root"] == "binds"
    assert not any("overlay" in line for line in user.table)


def test_a_folder_that_holds_the_engines_data_is_left_out_of_plain_binds_but_for_what_is_read(monkeypatch):
    """Docker refuses such a bind; with an overlay it is not the same folder, and no matter."""
    user = SmallLinux(uid=1000, docker_info={"CgroupDriver": "cgroupfs", "DockerRootDir": "/work/docker"})
    monkeypatch.setattr(
        "tare.drivers.containers.roots.existing", lambda host, paths: [path for path in paths if "set" in path]
    )

    Docker().open(user, replace(SITE, reads=(Path("/work/set"),)))

    assert "/work" not in mounted(user)
    assert "/work/set" in mounted(user)


def test_a_root_folder_on_its_own_disk_is_bound_once(linux):
    linux.table.append("50 29 8:1 / /work rw - ext4 /dev/sdb rw")
    linux._show_table()

    Docker().open(linux, SITE)

    assert len([flag for flag in flags(linux) if ",dst=/work," in flag]) == 1
    assert mounted(linux)["/work"][0] == "/work"


def test_a_socket_in_a_folder_that_may_not_be_entered_is_none(monkeypatch):
    def refused(self, **_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refused)
    assert not docker_module._is(LocalHost(), "-S", "/root/engine.sock")


def test_an_engines_socket_is_covered(linux, monkeypatch):
    paths = ["/work/docker.sock", "/var/run/docker.sock", "/run/d.sock", "/work/gone.sock", "/work/disk/d.sock"]
    monkeypatch.setattr(engine, "candidates", lambda: [*paths, engine.own_socket()])
    monkeypatch.setenv("TARE_STATE", "/work/tare")
    linux.folders |= {*paths, "/work/tare/engine", engine.own_socket()} - {"/work/gone.sock"}
    linux.links = {"/var/run/docker.sock": "/run/docker.sock"}
    linux.table.append("50 29 8:1 / /work/disk rw - ext4 /dev/sdb rw")  # and so it is not shown inside
    linux._show_table()

    Docker().open(linux, SITE)

    over = {target: held for target, held in mounted(linux).items() if held[0] == "/dev/null"}
    assert over == {"/work/docker.sock": ("/dev/null", True)}
    tmpfs = {flag.removeprefix("--tmpfs=").partition(":")[0] for flag in flags(linux) if flag.startswith("--tmpfs")}
    assert tmpfs == {"/tmp", "/run", "/work/tare/engine"}  # of other folders nothing else is hidden


def test_a_container_carries_our_labels(linux):
    Docker().open(linux, SITE)

    labels = linux.docker["tare-1"]["labels"]
    assert labels["tare.run"] == "tare-1"
    assert labels["tare.owner"] == str(Owner.me())
    assert labels["tare.boot"] == boot_id()


def test_its_scope_is_its_first_process_and_its_folders_on_the_device(linux):
    linux.files["/proc/sys/kernel/random/boot_id"] = LocalHost().read("/proc/sys/kernel/random/boot_id")

    scope = Docker().open(linux, SITE).scope()

    assert scope.pid == linux.docker["tare-1"]["pid"]
    assert scope.cgroups["cpu"] == "/sys/fs/cgroup/cpu/tare/tare-1"
    assert scope != Scope()


def test_under_systemd_the_parent_is_a_slice(linux):
    linux.docker_info["CgroupDriver"] = "systemd"

    Docker().open(linux, SITE)

    assert "--cgroup-parent=tare.slice" in flags(linux)


def test_closing_leaves_nothing(linux):
    before = linux.left_over()
    place = Docker().open(linux, SITE)

    place.close()
    place.close()

    assert linux.left_over() == before


def test_whichever_step_of_opening_breaks_nothing_is_left():
    before = SmallLinux().left_over()

    openings = list(broken_openings(Docker(), SITE))

    assert sum(not opened for _, _, opened in openings) >= 8
    for broken, host, _ in openings:
        assert host.left_over() == before, f"left over after this broke: {broken}"


def test_someone_elses_container_of_the_same_name_is_never_removed(linux):
    linux.docker["tare-1"] = {"labels": {"app": "theirs"}, "pid": 0}

    Docker.sweep(linux, "tare-1")

    assert list(linux.docker) == ["tare-1"]


def test_sweeping_after_a_crash_removes_everything_and_is_idempotent(linux):
    before = linux.left_over()
    Docker().open(linux, SITE)  # and the runner dies here

    Docker.sweep(linux, "tare-1")
    Docker.sweep(linux, "tare-1")

    assert linux.left_over() == before


def test_a_container_that_the_engine_was_still_creating_is_removed_too(linux, monkeypatch):
    made = {"tare-1": {"labels": {LABEL: "tare-1"}, "pid": 0}}
    monkeypatch.setattr(type(linux.clock), "sleep_until", lambda self, until_ns: linux.docker.update(made))

    Docker.sweep(linux, "tare-1")

    assert linux.docker == {}


@pytest.mark.parametrize("version", [1, 2])
def test_sweeping_once_docker_is_gone_ends_what_it_left_running_and_unmounts(version, monkeypatch):
    linux = SmallLinux(version=version)
    before = linux.left_over()
    Docker().open(linux, SITE)
    pid = linux.docker.pop("tare-1")["pid"]
    linux.files[f"/proc/{pid}/environ"] = "PATH=/bin\0TARE_KEEPER=tare-1\0"
    bystander = linux.start_process(environ="TARE_KEEPER=tare-10\0")
    monkeypatch.setattr(engine, "connect", _no_engine)
    monkeypatch.setattr(engine, "find", lambda: None)

    Docker.sweep(linux, "tare-1")
    Docker.sweep(linux, "tare-1")

    assert linux.left_over() == before
    assert not linux.alive(pid)
    assert linux.alive(bystander)


def test_sweeping_where_our_own_engine_is_down_starts_it_and_stops_it_again(linux, monkeypatch):
    Docker().open(linux, SITE)  # and the power goes
    said = _private_engine(linux, monkeypatch)

    Docker.sweep(linux, "tare-1")

    assert said == ["start", "stop"]
    assert linux.docker == {}


def test_an_engine_of_ours_that_does_not_start_is_said_with_the_folder_that_may_go(linux, monkeypatch):
    _private_engine(linux, monkeypatch)
    monkeypatch.setattr(engine, "start", _no_engine)

    with pytest.raises(ObstacleError, match="remove the folder"):
        Docker.sweep(linux, "tare-1")


def test_a_user_who_may_not_start_our_engine_sweeps_without_it(monkeypatch):
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


def test_a_limit_that_the_engine_dropped_closes_the_container_again(linux):
    before = linux.left_over()

    with pytest.raises(ControlNotHeld):
        Docker(memory="64 MiB").open(linux, SITE)  # this engine sets no limits

    assert linux.left_over() == before


def test_a_container_that_ends_at_once_says_why(linux, monkeypatch):
    linux.answer = lambda argv: Completed((), 0, "0\n", "") if "--format={{.State.Pid}}" in argv else None

    with pytest.raises(TrialError, match="`sleep`"):
        Docker().open(linux, SITE)


def test_a_job_gets_its_own_environment_and_no_other(linux):
    place = Docker().open(linux, SITE)

    place.spawn(Job(("python", "train.py"), env={"A": "1", "HOME": "/ada"}, cwd="/work"))

    (job,) = linux.spawned
    assert job.argv == (
        "docker", "--config=/run/tare/no-docker-settings", "--host=unix:///var/run/docker.sock", "exec",
        "--workdir=/work", "--env=A", "--env=HOME=/ada", "--env=TARE_NAME=tare-1", "--env=HOSTNAME", "--env=TERM",
        "--env=container", "--env=PWD", "--env=TARE_KEEPER", "tare-1", "python", "train.py",
    )  # fmt: skip
    assert job.env == {"A": "1", "PATH": PATH, "HOME": "/root"}


def test_a_job_whose_engine_is_gone_is_an_error_and_no_end_of_the_job(linux):
    place = Docker().open(linux, SITE)
    linux.exit = Exit(255, 1.0)
    assert place.spawn(Job(("exit-255",))).wait(5).code == 255  # the engine answers
    gone = "error during connect"
    linux.answer = lambda argv: Completed((), 1, "", gone) if argv[-1] == "version" else None

    with pytest.raises(TrialError, match=gone):
        place.spawn(Job(("true",))).wait(5)


def test_an_image_is_pinned_by_its_id_and_keeps_its_variables(linux):
    env = ["PATH=/opt/bin", "LD_LIBRARY_PATH=/cuda", "EMPTY="]
    linux.images["pt:1"] = linux.images["sha256:77"] = {"Id": "sha256:77", "Config": {"Env": env}}
    linux.answer = lambda argv: Completed((), 0, "/opt/bin/python3\n", "") if "exec" in argv else None

    place = Docker(image="pt:1").open(linux, SITE)
    place.spawn(Job(("python", "x.py"), env={"PATH": "/host", "A": "1"}))

    assert linux.docker["tare-1"]["words"][-3] == "sha256:77"
    assert place.python == "/opt/bin/python3"
    assert not [word for word in linux.spawned[0].argv if word.startswith("PATH=")]
    assert list(mounted(linux)) == ["/dev/shm/workdir", "/tmp/set"]
    assert place.facts["root"] == "image"
    assert place.facts["image_id"] == "sha256:77"


def test_a_name_of_an_image_stands_for_another_one_when_its_tag_has_moved(linux):
    linux.images["pt:1"] = {"Id": "sha256:77", "Config": {"Env": None}}
    assert Docker(image="pt:1").image_now(linux) == "sha256:77"
    linux.images["pt:1"] = {"Id": "sha256:88", "Config": {"Env": None}}
    assert Docker(image="pt:1").image_now(linux) == "sha256:88"
    assert Docker().image_now(linux) is None


def test_an_image_that_the_engine_does_not_have_is_never_fetched(linux):
    with pytest.raises(ObstacleError, match="docker pull pt:1"):
        Docker(image="pt:1").open(linux, SITE)


def test_an_image_is_built_from_a_dockerfile_without_a_network_and_once(linux, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    linux.answer = lambda argv: Completed((), 0, "/usr/bin/python3\n", "") if "exec" in argv else None
    part = Docker(dockerfile=tmp_path / "Dockerfile")

    for number in (1, 2):
        part.open(linux, Site(name=f"tare-{number}", scratch=Path("/scratch")))

    built = lambda: [asked for asked in linux.asked if "build" in asked]  # noqa: E731
    (asked,) = built()
    assert {"--network=none", f"--file={tmp_path}/Dockerfile"} <= set(asked)
    assert asked[-1] == str(tmp_path)
    (tmp_path / "more").write_text("1")
    part.open(linux, Site(name="tare-3", scratch=Path("/scratch")))
    assert len(built()) == 2


def test_a_dockerfile_that_does_not_build_says_what_the_build_said(linux, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    linux.answer = lambda argv: Completed((), 1, "Step 1/2", "no route to host") if "build" in argv else None

    with pytest.raises(ObstacleError, match=r"no route to host\nStep 1/2"):
        Docker(dockerfile=tmp_path / "Dockerfile").open(linux, SITE)


def test_obstacles_name_a_missing_dockerfile_and_a_missing_image(linux, monkeypatch):
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


def test_the_container_is_asked_for_with_the_walls_of_the_house(linux):
    """faults.md S14: what every container is started with, as a whole; a change here is a decision."""
    Docker().open(linux, SITE)

    words = linux.docker["tare-1"]["words"]
    assert words[-2:] == ["sleep", "2147483647"]
    walls = [flag for flag in flags(linux) if not flag.startswith(("--mount", "--label"))]
    assert walls == [
        "--name=tare-1", "--hostname=aarch64", "--network=none", "--add-host=aarch64:127.0.1.1", "--ipc=private",
        "--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only", f"--shm-size={1 << 30}b", "--user=0:0",
        "--workdir=/", "--entrypoint=", "--log-driver=none", "--ulimit=nofile=1024:4096", "--ulimit=nproc=9000:9000",
        "--no-healthcheck", "--pull=never", "--env=TARE_KEEPER=tare-1", "--pids-limit=4096", "--cgroup-parent=/tare",
        "--tmpfs=/tmp:rw,nosuid,nodev,exec,mode=1777",
        "--tmpfs=/run:rw,nosuid,nodev,noexec,mode=755,size=65536k",
    ]  # fmt: skip
    assert not any("docker.sock" in flag for flag in flags(linux))


def test_the_requested_user_is_the_one_inside(linux):
    Docker(user="1000:2000").open(linux, SITE)
    assert "--user=1000:2000" in flags(linux)
    assert not any(flag.startswith("--cap-add") for flag in flags(linux))
