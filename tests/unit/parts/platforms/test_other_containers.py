"""containerd: what it is told, and that nothing of it stays.

gVisor: the device sees one process for the whole container, so that jobs are ended from inside.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from small_linux import SmallLinux, broken_openings
from tare.base.host import Completed, Job, Site
from tare.parts.platforms.containerd import Containerd, _environment
from tare.parts.platforms.gvisor import Gvisor, Sandbox, _code
from tare.testing import FakeHost

SITE = Site(name="tare-1", scratch=Path("/scratch"), reads=(Path("/tmp/a:b"),), writes=(Path("/work/dir"),))


class Machine(SmallLinux):
    """A small Linux that has containerd; its containers are processes in a group, as runc's are."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self.pids: dict[str, int] = {}
        self.answer = self._answered

    def _answered(self, argv: Sequence[str]) -> Completed | None:
        if argv[0] in ("ctr", "containerd"):
            return self._ctr(argv)
        if argv[0] == "install":
            return self._said("")
        if argv[0] == "sh" and argv[3:4] == ["start"] and "containerd" in argv:
            return self._said("77\n")
        if argv[:3] == ["test", "-d", "/run/tare/ctr/tare-1"]:
            return Completed((), 0 if "/run/tare/ctr/tare-1/env" in self.folders else 1, "", "")
        return None

    def _said(self, text: str) -> Completed:
        return Completed((), 0, text, "")

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


def test_where_it_is_not_installed_the_obstacle_names_the_package():
    assert any("apt-get install containerd`" in str(each) for each in Containerd().obstacles(FakeHost()))
    assert "needs.root" in {each.code for each in Containerd().obstacles(Machine(uid=1000))}
    assert Containerd().obstacles(Machine()) == []
    assert Containerd().here(Machine()) == {"version": "1.6.20"}


@pytest.mark.parametrize("version", [1, 2])
def test_closing_leaves_nothing(version):
    host = Machine(version=version)
    before = host.left_over()

    Containerd().open(host, SITE).close()

    assert host.left_over() == before
    assert host.pids == {}


def test_sweeping_removes_what_a_dead_run_left_and_nothing_is_no_error():
    host = Machine()
    before = host.left_over()
    Containerd().open(host, SITE)

    Containerd.sweep(host, "tare-1")
    Containerd.sweep(host, "tare-1")

    assert host.left_over() == before


def test_no_value_of_a_variable_is_on_a_command_line():
    host = Machine()
    place = Containerd().open(host, SITE)

    place.spawn(Job(("true",), env={"HF_TOKEN": "hush", "PATH": "/bin"}, cwd="/work"))

    assert not any("hush" in word for word in command_of(host))
    assert any("hush" in text for text in (*host.spawned[-1].env.values(), *host.stdins))


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


def test_whichever_step_of_opening_breaks_nothing_is_left(monkeypatch):
    monkeypatch.setattr("small_linux.SmallLinux", Machine)
    before = Machine().left_over()

    openings = list(broken_openings(Containerd(), SITE))

    assert sum(not opened for _, _, opened in openings) >= 3
    for broken, host, opened in openings:
        if opened is False and not any(word in broken for word in ("umount", "rm -rf", "rm -f", "test -d")):
            assert host.left_over() == before, f"left over after this broke: {broken}"


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
