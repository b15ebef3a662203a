"""The line to a device without tare, with this machine in its place: what is sent, what it leaves, how it breaks."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lean_devices import RUN_IT, a_device, a_host, is_alive, is_below, with_words
from sshd_devices import until
from tare.base.errors import BusyError, LineLost
from tare.base.files import state_dir
from tare.base.host import Job, Scope, Site
from tare.drivers.places import SOURCE
from tare.fleet import lean_line, ssh
from tare.fleet.driving import drive
from tare.fleet.inventory import parse_inventory
from tare.fleet.lean_sampler import LeanSampler
from tare.fleet.on_device import Lines, _not_lean, driven, owned_there
from tare.fleet.ssh import Refused, Unreachable, whole
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.memory import Memory
from tare.plan.matrix import cells
from tare.records.spool import read_spool
from tare.studies.load import loads
from tare_inside.agents import lean

PYTHONS = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3")) or [Path(sys.executable)]


@pytest.fixture(autouse=True)
def _in_its_place(pretended_ssh):
    """No test here reaches a network."""


def test_the_package_is_sent_once_and_again_only_if_it_is_damaged(tmp_path):
    assert whole() == whole()
    with a_host():
        pass
    (kept,) = (tmp_path / "cache" / "tare").iterdir()
    os.utime(kept, (0, 0))
    written = kept.stat().st_ino
    with a_host():
        pass
    assert kept.stat().st_ino == written
    assert time.time() - kept.stat().st_mtime < 60  # it has been used, and is not swept for a day
    kept.write_bytes(kept.read_bytes()[:-1])
    with a_host() as host:
        assert host.run(["echo", "well"]).out == "well\n"
    assert kept.read_bytes() == whole()


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_the_agent_and_its_sampler_run_on_the_pythons_of_old_boards(python, tmp_path):
    with a_host(python=str(python)) as host:
        host.look_at_clock()
        sampler = LeanSampler(host, [Cpu(), Memory()], tmp_path / "spool", 0.02)
        sampler.begin(Scope())
        assert host.run([host.python, "-c", "print(1 + 1)"]).out == "2\n"
        host.look_at_clock()
        report = sampler.end()
        assert report.ticks >= 2
        assert report.lost == []
    assert read_spool(tmp_path / "spool")["cpu.busy_s"][1][-1] > 0


def test_commands_files_and_the_package_are_the_devices(tmp_path):
    with a_host() as host:
        inside = Path(host.line.said["inside"])
        assert inside != Path(SOURCE)
        assert host.run(["ls", str(SOURCE / "launch.py")]).out == f"{inside}/launch.py\n"
        assert host.run(["no-such-command"]).code == 127
        (tmp_path / "knob").write_text("1\n")
        host.write(tmp_path / "knob", "2\n")
        assert host.read(tmp_path / "knob") == "2\n"
        with pytest.raises(FileNotFoundError):
            host.read(tmp_path / "nothing")
        assert host.machine_facts["kernel"] == os.uname().release
        host.look_at_clock()
        assert abs(host.guest_clock.facts()["offset_ns"]) <= host.guest_clock.facts()["bound_ns"]
    assert not inside.exists()


def test_a_job_that_forked_twice_is_ended_with_the_line_and_its_folders_go():
    with a_host() as host:
        script = "(setsid sh -c 'setsid sleep 4321 & sleep 4321' &) ; sleep 4321"
        host.spawn(Job(("sh", "-c", script), {"PATH": os.environ["PATH"]}))
        until(lambda: len(with_words("sleep 4321")) >= 3, "it runs")
        folder = Path(host.line.said["inside"]).parent
        assert folder.exists()
    until(lambda: not with_words("sleep 4321"), "it has ended", 60)
    assert not folder.exists()


def test_an_agent_that_hears_nothing_for_too_long_ends_its_job():
    with pytest.raises(LineLost, match="the line to the device"), a_host(patience_s=1) as host:
        process = host.spawn(Job(("sleep", "4322"), {"PATH": os.environ["PATH"]}))
        until(lambda: with_words("sleep 4322"), "it runs")
        (ours,) = [pid for pid in with_words("tare_inside.agents.lean") if is_below(pid, os.getpid())][:1]
        host._link._wire.sendall = lambda data: None  # as a cable that was pulled
        until(lambda: not with_words("sleep 4322"), "it has ended", 60)
        until(lambda: not is_alive(ours), "the agent is gone", 60)
        process.wait(60)


def test_one_device_has_one_owner_and_the_next_is_told_who(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    with a_host() as first, owned_there(first, Lines(), "the first"):
        (lock,) = (tmp_path / "locks").glob("*.lock")
        assert "the first" in lock.read_text()
        taken = subprocess.run(["flock", "-n", lock, "true"], check=False)
        assert taken.returncode == 1
    assert subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 0
    lock.write_text('{"pid": 1, "run": "of someone else"}')
    with subprocess.Popen(["flock", lock, "sleep", "4323"]) as holder:
        until(lambda: with_words("sleep 4323"), "it is held")
        with pytest.raises(BusyError, match="of someone else"), a_host() as second, owned_there(second, Lines(), "us"):
            pass
        for pid in with_words("sleep 4323"):
            os.kill(pid, signal.SIGKILL)
        holder.wait()


def test_jobs_get_the_variables_of_the_device_and_not_ours(tmp_path, monkeypatch, pretended_ssh):
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    pretended_ssh(f"unset OMP_NUM_THREADS; HOME={tmp_path}; export HOME; {RUN_IT}")
    with driven(a_device().model_dump(mode="json"), 4):
        assert "OMP_NUM_THREADS" not in os.environ
        assert os.environ["HOME"] == str(tmp_path)
        assert os.environ["TARE_DATA"] == str(tmp_path / "cache" / "tare" / "data")
    assert os.environ["OMP_NUM_THREADS"] == "77"


def test_our_own_state_stays_where_it_is_while_a_device_is_driven(tmp_path, monkeypatch, pretended_ssh):
    monkeypatch.delenv("TARE_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv("SUDO_UID", "4321")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    theirs = f"XDG_STATE_HOME={tmp_path}/theirs TARE_STATE={tmp_path}/theirs SUDO_UID=1 HOME={tmp_path}"
    pretended_ssh(f"export {theirs}; {RUN_IT}")
    with driven(a_device().model_dump(mode="json"), 4):
        assert state_dir() == tmp_path / "ours" / "tare"
        assert os.environ["SUDO_UID"] == "4321"
    assert "TARE_STATE" not in os.environ


def test_what_no_job_may_be_given_does_not_leave_the_device(pretended_ssh):
    pretended_ssh(f"export HF_TOKEN=a SOME_PASSWORD=b OMP_NUM_THREADS=3 SSH_AUTH_SOCK=c; {RUN_IT}")
    with a_host() as host:
        said = host.line.said["environ"]
    assert said["OMP_NUM_THREADS"] == "3"
    assert "PATH" in said
    assert not {"HF_TOKEN", "SOME_PASSWORD", "SSH_AUTH_SOCK"} & said.keys()


def test_a_device_that_slept_between_two_looks_at_its_clock_is_found_out(monkeypatch):
    with a_host() as host:
        ask, slept_s = host._link.ask, 0.0

        def told(do, *words, **fields):
            frame = ask(do, *words, **fields)
            if do == "clock":
                frame.header["slept_s"] += slept_s
            return frame

        monkeypatch.setattr(host._link, "ask", told)
        host.look_at_clock()
        host.look_at_clock()
        assert host.guest_clock.facts()["slept_s"] == pytest.approx(0, abs=0.1)
        slept_s = 30.0
        host.look_at_clock()
        assert host.guest_clock.facts()["slept_s"] == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize("says", ["true", "echo 'tare-agent has'; echo tare-agent"])
def test_a_line_over_which_nothing_comes_is_given_up(says, pretended_ssh, monkeypatch):
    monkeypatch.setattr(lean_line, "UP_WITHIN_S", 0.5)
    monkeypatch.setattr(ssh, "_ENDS_WITHIN_S", 0.2)
    pretended_ssh(f"{says}; exec sleep 4326")
    start_s = time.monotonic()
    with pytest.raises(Unreachable), a_host(patience_s=0.1):
        pass
    assert time.monotonic() - start_s < 120
    assert not with_words("sleep 4326")


def test_an_agent_that_nobody_reads_from_ends_its_job_too(monkeypatch, tmp_path):
    over = threading.Event()
    with a_host(patience_s=1) as host:
        monkeypatch.setattr(host._link._wire, "recv", lambda size: over.wait(60) and b"")
        script = f"touch {tmp_path}/began; echo x; head -c 900000 /dev/zero; exec sleep 4327"
        host._link.tell("beat")
        host._link.begin("spawn", argv=["sh", "-c", script], env={"PATH": os.environ["PATH"]}, cwd="/")
        until((tmp_path / "began").exists, "it runs", 60)  # it may have ended before a busy machine sees it run
        until(lambda: not with_words("sleep 4327") and not with_words("head -c 900000"), "it has ended", 60)
        over.set()


def test_folders_that_were_made_for_a_workdir_go_with_it_and_those_of_others_stay(tmp_path):
    (tmp_path / "theirs").mkdir()
    workdir = tmp_path / "theirs" / "state" / "scratch" / "tare-x-workdir"
    with a_host() as host:
        host._link.ask("workdir", path=str(workdir), mode=0o700)
        assert workdir.is_dir()
    assert list(tmp_path.glob("theirs/*")) == []
    assert (tmp_path / "theirs").is_dir()


def test_a_package_that_nobody_has_used_for_a_day_goes_and_another_versions_that_is_used_stays(tmp_path):
    used = tmp_path / "cache" / "tare" / "inside-0123.zip"
    old, draft = used.with_name("inside-4567.zip"), used.with_name("inside-4567.zip.77")
    used.parent.mkdir(parents=True)
    for path in (used, old, draft):
        path.touch()
    for path in (old, draft):
        os.utime(path, (0, 0))
    (used.parent / "data").mkdir()
    with a_host():
        pass
    assert not old.exists()
    assert not draft.exists()
    assert used.exists()
    assert (used.parent / "data").is_dir()


def test_a_child_that_is_another_users_does_not_keep_the_agent_from_leaving(monkeypatch):
    def refuse(pid, number):
        raise PermissionError(errno.EPERM, "not ours")

    with subprocess.Popen(["sleep", "0.3"]):
        monkeypatch.setattr(os, "kill", refuse)
        lean.end_all_children(within_s=0.1)


@pytest.mark.parametrize(
    ("script", "error", "ended"),
    [
        ("echo 'Connection timed out' >&2; exit 255", Unreachable, "unreachable"),
        ("echo 'Host key verification failed.' >&2; exit 255", Refused, "refused"),
        ("echo 'python3: not found' >&2; exit 127", Refused, "refused"),
    ],
)
def test_a_device_that_cannot_be_driven_says_why(pretended_ssh, script, error, ended, tmp_path, monkeypatch):
    pretended_ssh(script)
    with pytest.raises(error), a_host(patience_s=1):
        pass
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    question = {"do": "engine", "engine": "none", "arguments": ["device", "fleet", "obstacles"]}
    stdin = '{"study": "study: s\\nplatform: bare\\nworkload: \'null\'\\n", "name": "s", "python": "x"}'
    found = drive(a_device().model_dump(mode="json"), {**question, "stdin": stdin}, 1)
    assert found["ended"] == ended, found


def test_what_needs_tare_on_the_device_is_said_part_by_part():
    study = loads(
        "study: s\nplatform: [bare, docker]\nworkload: {command: {argv: ['true']}}\ncontrol: {dirty: {ratio: 5 %}}\n"
        "probes: [cpu, perf]\n",
        "s",
    )
    said = _not_lean(cells(study))
    assert [str(each).split(" needs")[0] for each in said] == ["platform docker", "control dirty", "probe perf"]


def test_the_inventory_says_which_devices_are_lean():
    text = "devices:\n- {name: a, address: a.example, tare: none}\n- {name: b, address: b.example}\n"
    assert [device.lean for device in parse_inventory(text).devices] == [True, False]


def test_a_folder_that_is_there_already_is_not_taken_for_a_workdir_and_not_emptied(tmp_path):
    workdir = tmp_path / "tare-x-workdir"
    workdir.mkdir()
    (workdir / "of someone else").touch()
    with a_host() as host, pytest.raises(OSError, match="exists"):
        host.prepare_workdir(Site("tare-x", tmp_path, writes=(workdir,)))
    assert (workdir / "of someone else").exists()
