"""systemd-nspawn, LXC and containerd: what each is told, and that nothing of it stays.

gVisor: the device sees one process for the whole container, so that jobs are ended from inside.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from small_linux import SmallLinux, broken_openings
from tare.base.errors import TrialError
from tare.base.host import Completed, Job, Site
from tare.parts.platforms.apptainer import _MAKE_TARGETS, Nspawn
from tare.parts.platforms.lxc import Lxc
from tare.parts.platforms.runc import Containerd, Gvisor, Sandbox, _code, _environment
from tare.parts.protocols import Platform
from tare.testing import FakeHost

SITE = Site(name="tare-1", scratch=Path("/scratch"), reads=(Path("/tmp/a:b"),), writes=(Path("/work/dir"),))
EVERY = pytest.mark.parametrize("part", [Nspawn, Lxc, Containerd])
NSPAWN_SETS = "container=systemd-nspawn\0USER=root\0PATH=/bin\0"


def test_no_place_for_a_mount_is_made_where_a_link_of_the_image_leads_out_of_it(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "srv").mkdir(parents=True)
    outside.mkdir()
    (root / "var").symlink_to(outside)
    words = ["/", str(root / "srv/data"), str(root), "/", str(root / "var/data"), str(root)]

    done = subprocess.run(["sh", "-c", _MAKE_TARGETS, "targets", *words], capture_output=True, text=True, check=False)

    assert done.returncode == 1 and "leads out of the container's root" in done.stderr
    assert (root / "srv/data").is_dir() and not list(outside.iterdir())


class Machine(SmallLinux):
    """A small Linux that has these three; a container of LXC or containerd is a process in a group, as runc's is."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self.pids: dict[str, int] = {}
        self.answer = self._answered

    def _answered(self, argv: Sequence[str]) -> Completed | None:
        words = [word for word in argv if "=" not in word or word.startswith("-")]
        if argv[:2] == ["env", "-i"]:
            words = words[2:]
        program = Path(words[0]).name if words else ""
        if program == "systemd-nspawn":
            return self._said("systemd 252 (252.39)\n" if "--version" in argv else NSPAWN_SETS)
        if program.startswith("lxc-"):
            return self._lxc(program, words)
        if program in ("ctr", "containerd"):
            return self._ctr(words)
        if argv[0] == "install":
            return self._said("")
        if argv[0] == "sh" and argv[3:4] == ["start"] and "containerd" in argv:
            return self._said("77\n")
        if argv[:3] == ["test", "-d", "/run/tare/ctr/tare-1"]:
            return Completed((), 0 if "/run/tare/ctr/tare-1/env" in self.folders else 1, "", "")
        return None

    def _said(self, text: str) -> Completed:
        return Completed((), 0, text, "")

    def _lxc(self, program: str, words: Sequence[str]) -> Completed:
        if program == "lxc-start" and "--daemon" in words:
            self.pids["lxc"] = self._container("/tare/tare-1")
        if program == "lxc-stop" and (pid := self.pids.pop("lxc", None)):
            self._end_container(pid)
        return self._said(str(self.pids.get("lxc", "")) if program == "lxc-info" else "5.0.2\n")

    def _ctr(self, words: Sequence[str]) -> Completed:
        if "run" in words:
            self.pids["ctr"] = self._container("/tare/tare-1")
            self.files["/scratch/tare-1/pid"] = str(self.pids["ctr"])
            asked = json.loads(self.files["/scratch/tare-1/config.json"])["linux"]["resources"].get("cpu", {})
            self.files["/sys/fs/cgroup/cpu/tare/tare-1/cpu.cfs_quota_us"] = str(asked.get("quota", -1))
        if "delete" in words and "tasks" in words and (pid := self.pids.pop("ctr", None)):
            self._end_container(pid)
        return self._said("containerd github.com/containerd/containerd 1.6.20\n")


def command_of(host: SmallLinux) -> tuple[str, ...]:
    return host.spawned[-1].argv


@EVERY
def test_where_it_is_not_installed_the_obstacle_names_the_package(part):
    named = {Nspawn: "systemd-container", Lxc: "lxc", Containerd: "containerd"}[part]

    assert any(f"apt-get install {named}`" in str(each) for each in part().obstacles(FakeHost()))
    assert "needs.root" in {each.code for each in part().obstacles(Machine(uid=1000))}
    assert part().obstacles(Machine()) == []
    assert part().here(Machine())["version"].startswith(("252", "5.0", "1.6"))


@EVERY
@pytest.mark.parametrize("version", [1, 2])
def test_closing_leaves_nothing(part: type[Platform], version):
    host = Machine(version=version)
    before = host.left_over()

    part().open(host, SITE).close()

    assert host.left_over() == before
    assert host.pids == {}


@EVERY
def test_sweeping_removes_what_a_dead_run_left_and_nothing_is_no_error(part):
    host = Machine()
    before = host.left_over()
    part().open(host, SITE)

    part.sweep(host, "tare-1")
    part.sweep(host, "tare-1")

    assert host.left_over() == before


@EVERY
def test_no_value_of_a_variable_is_on_a_command_line(part):
    host = Machine()
    place = part().open(host, SITE)

    place.spawn(Job(("true",), env={"HF_TOKEN": "hush", "PATH": "/bin"}, cwd="/work"))

    assert not any("hush" in word for word in command_of(host))
    assert any("hush" in text for text in (*host.spawned[-1].env.values(), *host.stdins))


def test_nspawn_is_called_so_that_systemd_need_not_run():
    host = Machine()
    place = Nspawn(memory="64 MiB").open(host, SITE)

    place.spawn(Job(("prog", "x"), env={"A": "1", "LD_LIBRARY_PATH": "/l"}, cwd="/work"))

    words, env = command_of(host), host.spawned[-1].env
    start = words.index("/usr/sbin/systemd-nspawn")
    assert {"--register=no", "--keep-unit", "--as-pid2", "--pipe", "--private-network", "--read-only"} <= set(words)
    assert "--bind-ro=/tmp/a\\:b:/tmp/a\\:b:norbind" in words
    assert "--bind=/work/dir:/work/dir:norbind" in words
    assert words[start:].index("--chdir=/work") < words[start:].index("--setenv=A")
    assert words[-10:] == (
        "env", "-u", "container", "-u", "USER", "-u", "PATH", "LD_LIBRARY_PATH=/l", "TARE_NAME=tare-1", "prog", "x",
    )[-10:]  # fmt: skip
    assert (env["A"], env["SYSTEMD_NSPAWN_LOCK"]) == ("1", "0")
    assert "LD_LIBRARY_PATH" not in env
    assert host.files["/sys/fs/cgroup/memory/tare/tare-1/memory.limit_in_bytes"] == str(64 << 20)


def test_on_version_2_nspawn_is_called_in_a_group_that_hands_no_controller_down():
    host = Machine(version=2)
    place = Nspawn().open(host, SITE)

    place.spawn(Job(("true",)))

    entered = [word for word in command_of(host) if word.endswith("/cgroup.procs")]
    assert entered == ["/sys/fs/cgroup/tare/tare-1/calls/cgroup.procs"]


def test_the_configuration_of_lxc_has_the_walls_and_the_mounts():
    host = Machine()
    Lxc(shm="64 MiB").open(host, SITE)

    lines = host.files["/run/tare/lxc-start/tare-1/config"].splitlines()

    assert {
        "lxc.rootfs.path = dir:/scratch/tare-1/root",
        "lxc.rootfs.options = ro",
        "lxc.net.0.type = empty",
        "lxc.cap.keep = none",
        "lxc.no_new_privs = 1",
        "lxc.cgroup.dir.container = tare/tare-1",
    } <= set(lines)
    assert any(f"dev/shm tmpfs rw,nosuid,nodev,noexec,mode=1777,size={64 << 20}" in line for line in lines)
    assert any(line.startswith("lxc.mount.entry = /work/dir work/dir none bind,rw") for line in lines)


def test_limits_of_lxc_are_held_in_the_group_that_it_has_made():
    host = Machine()

    Lxc(quota=1.5).open(host, SITE)

    assert host.files["/sys/fs/cgroup/cpu/tare/tare-1/cpu.cfs_quota_us"] == "150000"
    assert host.files["/sys/fs/cgroup/pids/tare/tare-1/pids.max"] == "4096"


def test_containerd_gets_the_configuration_of_runc():
    host = Machine()
    Containerd(quota=1.5).open(host, SITE)

    config = json.loads(host.files["/scratch/tare-1/config.json"])

    assert config["linux"]["resources"]["cpu"]["quota"] == 150000
    assert config["process"]["capabilities"]["effective"] == []
    assert config["mounts"][-1]["source"] == "/run/tare/ctr/tare-1/env"
    assert "ro" in config["mounts"][-1]["options"]


@pytest.mark.parametrize("shell", [["sh"], ["bash"], ["bash", "--posix"]])
def test_a_shell_that_reads_the_environment_has_it_to_the_byte(shell):
    env = {"A": "it's $x\n`two`", "HOME": "/ada", "odd.name": "1", "UID": "5", "PPID": "6", "RANDOM": "7", "UIDS": "8"}
    look = "import os, json; print(json.dumps(dict(os.environ)))"

    done = subprocess.run(
        [*shell, "-c", '. "$0"', "/dev/stdin", "/usr/bin/python3", "-I", "-c", look],
        input=_environment(env), env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert {name: value for name, value in json.loads(done.stdout).items() if name != "LC_CTYPE"} == env


@EVERY
def test_whichever_step_of_opening_breaks_nothing_is_left(part, monkeypatch):
    monkeypatch.setattr("small_linux.SmallLinux", Machine)
    before = Machine().left_over()

    openings = list(broken_openings(part(), SITE))

    assert sum(not opened for _, _, opened in openings) >= 3
    for broken, host, opened in openings:
        if opened is False and not any(word in broken for word in ("umount", "rm -rf", "rm -f", "test -d")):
            assert host.left_over() == before, f"left over after this broke: {broken}"


@pytest.mark.parametrize(("version", "works"), [("249.11-0ubuntu3", False), ("250 (250.4-1)", True)])
def test_a_systemd_before_250_is_refused_with_its_version(version, works):
    host = Machine()
    usual = host.answer
    host.answer = lambda argv: (
        host._said(f"systemd {version}\n+PAM\n") if argv[-1] == "--version" and "nspawn" in argv[0] else usual(argv)
    )

    found = Nspawn().obstacles(host)

    assert (found == []) is works
    assert works or "systemd 249; it works from systemd 250 on" in str(found[0])


def test_a_container_that_nspawn_cannot_start_is_reported_with_its_own_words():
    host = Machine()
    usual = host.answer

    def answers(argv: Sequence[str]) -> Completed | None:
        if "--machine=tare-1" not in argv:
            return usual(argv)
        loud = "SYSTEMD_LOG_TARGET=console" in argv
        return Completed((), 1, "", "Failed to mount it: no." if loud else "")

    host.answer = answers
    before = host.left_over()

    with pytest.raises(TrialError, match=r"container tare-1: Failed to mount it: no\."):
        Nspawn().open(host, SITE)
    assert host.left_over() == before


def test_the_folder_that_nspawn_leaves_goes_with_a_sweep():
    host = Machine()

    Nspawn.sweep(host, "tare-1")

    assert any(argv[0] == "rmdir" and argv[-1] == "/run/systemd/nspawn/propagate/tare-1" for argv in host.asked)


ALIVE, ZOMBIE = "7 (exe) S 1 7", "7 (exe) Z 1 7"
LOST = 'waiting on pid 3: waiting on PID 3 in sandbox "x": EOF'
NO_COMMAND = "executing processes for container: no such file or directory"


def sandbox(stat: str | None = ALIVE, **more: object) -> Sandbox:
    return Sandbox(
        FakeHost(files={} if stat is None else {"/proc/7/stat": stat}, **more), keeper=7, kill=("end", "all")
    )


def test_each_container_has_a_state_folder_of_its_own_since_runsc_takes_a_name_for_any_longer_one():
    runtime = Gvisor.runtime()

    assert runtime.argv("tare-1")[:3] == ("runsc", "--root", "/run/tare/runsc/tare-1")
    assert runtime.root("tare-1") != runtime.root("tare-1-1")


def test_jobs_are_ended_from_inside_while_there_is_an_inside():
    alive, dead = sandbox(), sandbox(ZOMBIE)

    alive.kill_jobs()
    dead.kill_jobs()

    assert alive.host.asked == [("end", "all")]  # type: ignore[attr-defined]
    assert dead.host.asked == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("stat", "code", "err", "told"),
    [
        (ALIVE, 0, "", 0),
        (ALIVE, 3, "", 3),
        (ALIVE, 128, NO_COMMAND, 127),
        (ALIVE, 128, LOST, 137),
        (ZOMBIE, 128, "", 137),
        (None, 128, NO_COMMAND, 137),
        (ALIVE, 128, "its own", 128),
    ],
)
def test_runscs_own_failure_is_told_in_a_shells_words(stat, code, err, told):
    assert _code(sandbox(stat), code, err) == told


def test_a_dead_run_is_swept_in_its_own_folder_which_goes_too():
    host = FakeHost(answer=lambda argv: Completed(tuple(argv), 0, "", ""))

    Gvisor.sweep(host, "tare-1")

    deleted = [argv for argv in host.asked if "delete" in argv]
    assert deleted == [(*Gvisor.runtime().argv("tare-1"), "delete", "--force", "tare-1")]
    assert ("rm", "-rf", "--one-file-system", "--", "/run/tare/runsc/tare-1") in host.asked
