"""The agent that is copied to a device, on the Pythons that devices have."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from old_pythons import id_of, interpreters
from tare.fleet import ssh
from tare_inside.agents import device

PYTHONS = sorted({sys.executable, *map(str, interpreters("3.*"))})
OLDEST = next((python for python in PYTHONS if "/3.6." in python), sys.executable)

# Stands for `PYTHON -P -m tare.cli device fleet trial FOLDER LOCK`. It seals one trial when the test lets it.
ENGINE = """#!/bin/sh
folder=$7
store=$TARE_STATE/fleet/stores/s-1/trials
name=${folder##*/}
name=${name%%.*}
echo ran >> $TARE_STATE/runs
while [ ! -e $TARE_STATE/go ]; do sleep 0.02; done
[ -e $TARE_STATE/die ] && { echo no more >&2; kill -9 $$; }
mkdir -p $store/$name.1 $store/.tmp-bbb.1
echo '{}' > $store/$name.1/record.json
printf '{"code": 0, "text": "", "notes": []}' > $folder/result.json
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "state").mkdir()
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o700)
    (tmp_path / "agent.zip").write_bytes(ssh.device_agent())
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path
    for file in tmp_path.glob("state/fleet/claims/*/pid"):  # a test that failed leaves no trial behind, stopped or not
        with contextlib.suppress(OSError):
            if str(file.parent) in Path("/proc", file.read_text().strip(), "cmdline").read_text():
                os.kill(int(file.read_text()), signal.SIGKILL)


def asked(place, python=sys.executable, **question):
    fields = {"engine": str(place / "engine"), "store": "s-1", "trial": "aaa", "have": [], **question}
    child = subprocess.Popen([python, "-I", str(place / "agent.zip")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdin.write(json.dumps(fields).encode() + b"\n")
    child.stdin.close()
    child.stdin = None
    return child


def answer(child):
    data, _ = child.communicate(timeout=30)
    hello, said, records = data.split(b"\n", 2)
    assert hello == b"tare-agent"
    return json.loads(said), records


def names(records):
    with tarfile.open(fileobj=io.BytesIO(records)) as archive:
        return sorted(archive.getnames())


@pytest.mark.parametrize("python", PYTHONS, ids=id_of)
def test_a_trial_is_begun_awaited_and_handed_over(place, python):
    (place / "state" / "go").touch()
    said, records = answer(asked(place, python, do="run", claim="aaa.r.1"))
    assert (said["code"], said["begun"]) == (0, True)
    assert names(records) == ["aaa.1", "aaa.1/record.json"]


def test_a_trial_brings_its_own_records_and_not_those_of_the_trials_before_it(place):
    (place / "state" / "go").touch()
    answer(asked(place, do="run", claim="aaa.r.1"))
    _, records = answer(asked(place, do="run", claim="aab.r.1", trial="aab"))
    assert names(records) == ["aab.1", "aab.1/record.json"]
    _, records = answer(asked(place, do="collect", have=["aab.1"]))
    assert names(records) == ["aaa.1", "aaa.1/record.json"]


def test_the_same_claim_is_begun_once_however_often_it_is_asked_for(place):
    first = asked(place, do="run", claim="aaa.r.1")
    _until((place / "state" / "runs").exists)
    first.kill()  # the line broke, and its agent went with it
    first.wait()
    second = asked(place, do="run", claim="aaa.r.1")
    third = asked(place, do="run", claim="aaa.r.1")
    time.sleep(0.3)
    assert second.poll() is None, "it waits for the trial"
    (place / "state" / "go").touch()
    assert [answer(child)[0]["begun"] for child in (second, third)] == [False, False]
    assert (place / "state" / "runs").read_text() == "ran\n"


def test_a_trial_that_dies_without_a_word_is_told_as_that(place):
    (place / "state" / "go").touch()
    (place / "state" / "die").touch()
    said, _ = answer(asked(place, do="run", claim="aaa.r.1"))
    assert said["code"] is None
    assert "no more" in said["text"]


def test_what_a_dead_controller_began_is_awaited_and_collected_once(place):
    first = asked(place, do="run", claim="aaa.r.1")
    _until((place / "state" / "runs").exists)
    first.send_signal(signal.SIGKILL)
    first.wait()
    child = asked(place, do="collect")
    time.sleep(0.3)
    assert child.poll() is None
    (place / "state" / "go").touch()
    said, records = answer(child)
    assert [(one["claim"], one["code"]) for one in said["endings"]] == [("aaa.r.1", 0)]
    assert "aaa.1/record.json" in names(records)
    said, records = answer(asked(place, do="collect", have=["aaa.1"]))
    assert said["endings"] == []
    assert names(records) == []


def test_claims_of_another_controllers_store_are_left_alone(place):
    (place / "state" / "go").touch()
    answer(asked(place, do="run", claim="aaa.r.1"))
    assert answer(asked(place, do="collect", store="t-2"))[0]["endings"] == []
    assert (place / "state" / "fleet" / "claims" / "aaa.r.1").is_dir()


def test_the_agent_speaks_at_once_and_not_only_when_the_trial_has_ended(place):
    child = asked(place, do="run", claim="aaa.r.1")
    assert select.select([child.stdout], [], [], 20)[0]
    assert child.stdout.readline() == b"tare-agent\n"
    assert child.poll() is None
    (place / "state" / "go").touch()
    assert json.loads(child.stdout.readline())["code"] == 0
    child.stdout.close()
    child.wait(20)


@pytest.mark.parametrize("python", sorted({sys.executable, OLDEST}), ids=id_of)
def test_a_trial_that_does_not_end_is_given_up_long_after_its_limit_and_not_begun_again(place, python):
    first = asked(place, python, do="run", claim="aaa.r.1", limit_s=0.5)
    _until((place / "state" / "runs").exists)
    kept = place / "state" / "fleet" / "claims" / "aaa.r.1" / "pid"
    _until(lambda: kept.exists() and kept.read_text().endswith("\n"))
    pid = int(kept.read_text())
    os.kill(pid, signal.SIGSTOP)
    first.kill()
    first.wait()
    _older(place, "aaa.r.1", by_s=3 * 0.5 + 6600 - 2)  # two seconds are left to it
    said, _ = answer(asked(place, python, do="run", claim="aaa.r.1", limit_s=0.5))
    assert said["code"] == 124
    assert f"still lives there (pid {pid})" in said["text"]
    said, _ = answer(asked(place, python, do="collect"))
    assert [(one["claim"], one["code"]) for one in said["endings"]] == [("aaa.r.1", 124)]
    said, _ = answer(asked(place, python, do="run", claim="aaa.s.1", limit_s=0.5))  # by the next run
    assert (said["code"], said["begun"]) == (124, False)
    assert (place / "state" / "runs").read_text() == "ran\n"
    (place / "state" / "go").touch()
    os.kill(pid, signal.SIGCONT)
    _until(lambda: not device._is_locked(str(place / "state" / "fleet" / "claims" / "aaa.r.1")))
    said, records = answer(asked(place, python, do="collect"))
    assert [one["code"] for one in said["endings"]] == [0]
    assert names(records) == ["aaa.1", "aaa.1/record.json"]


def test_a_trial_of_a_lean_device_may_have_waited_for_the_device_too(tmp_path):
    folder = tmp_path / "claim"
    folder.mkdir()
    (folder / "request.json").write_text(json.dumps({"limit_s": 10, "patience_s": 50, "begun_s": time.monotonic()}))
    assert device._left_s(str(folder)) == pytest.approx(30 + 6600 + 50, abs=5)
    (folder / "request.json").write_text("{}")
    assert device._left_s(str(folder)) is None  # a controller that says no limit is waited for as it wants


def test_the_device_says_that_a_trial_hangs_before_the_controller_gives_it_up():
    from tare.figures.evidence import THRESHOLDS
    from tare.fleet.run import _MARGIN_S

    assert 1 + THRESHOLDS.rerun_limit == device._RUNS
    assert _MARGIN_S - 1200 < device._BESIDE_S < _MARGIN_S


def test_a_claim_is_on_the_disk_before_its_trial_begins(place, monkeypatch):
    synced, order = [], []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())), fsync(fd))[1]
    )
    monkeypatch.setattr(device, "_started", lambda *_: order.extend(synced) or True)
    claims = place / "state" / "fleet" / "claims"
    assert device.begin(str(claims / "aaa.r.1"), {"engine": "x"})
    draft = f"{claims}/aaa.r.1.{os.getpid()}.tmp"
    assert order == [f"{draft}/request.json", draft, str(claims)]


def test_a_claim_for_which_there_is_no_room_leaves_no_draft(place, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    claims = place / "state" / "fleet" / "claims"
    with pytest.raises(OSError, match="No space"):
        device.begin(str(claims / "aaa.r.1"), {"engine": "x"})
    assert list(claims.iterdir()) == []


def test_what_nobody_has_used_for_a_day_goes_and_the_rest_stays(place):
    copies, claims = place / "cache" / "tare", place / "state" / "fleet" / "claims"
    old = [
        copies / "device_agent-0123.py", copies / "device_agent-0123.zip.77", copies / "inside-45.zip.78",
        claims / "aaa.r.1.79.tmp" / "request.json", copies / "data" / "mnist", claims / "aaa.r.1" / "request.json",
        claims / "aab.r.1.80.tmp" / "lock",
    ]  # fmt: skip
    for path in old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for path in (*copies.iterdir(), *claims.iterdir()):
        os.utime(path, (0, time.time() - device.OLD_S - 60))
    (copies / "inside-99.zip").touch()
    with (claims / "aab.r.1.80.tmp" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # someone is at it, whatever the clock says
        answer(asked(place, do="collect", store="t-2"))
    assert sorted(path.name for path in copies.iterdir()) == ["data", "inside-99.zip"]
    assert sorted(path.name for path in claims.iterdir()) == ["aaa.r.1", "aab.r.1.80.tmp"]


@pytest.mark.parametrize("claim", ["../x", "/etc", ".hidden", ""])
def test_a_claim_that_is_no_plain_name_is_refused(place, claim):
    said, _ = answer(asked(place, do="run", claim=claim))
    assert "no name for a folder" in said["error"]


@pytest.mark.parametrize("python", PYTHONS, ids=id_of)
def test_a_look_tells_of_the_device_and_who_owns_it(place, python, monkeypatch):
    from tare.trial.device import DeviceLock

    monkeypatch.setenv("TARE_LOCK_DIR", str(place / "locks"))
    shutil.rmtree(place / "state")
    said, _ = answer(asked(place, python, do="look", engine="no-such-python"))
    assert said["free_bytes"] > 0
    assert said["owner"] is None
    assert said["engine"]["code"] == 127
    with DeviceLock(place / "state", "abc", "somebody's run"):
        said, _ = answer(asked(place, python, do="look", engine="no-such-python"))
    assert (said["owner"]["pid"], said["owner"]["run"]) == (os.getpid(), "somebody's run")


def test_a_run_of_another_user_is_seen_by_the_folder_that_all_lock(place, monkeypatch):
    shared = place / "run-lock"
    shared.mkdir()
    monkeypatch.setattr(device, "lock_dir", lambda: str(place / "nothing"))
    monkeypatch.setattr(device, "shared_folder", lambda: str(shared))
    assert device.owner_now() is None
    with subprocess.Popen(["flock", shared, "sleep", "4331"], start_new_session=True) as holder:
        try:
            _until(device.owner_now)
            owner = device.owner_now()
        finally:
            os.killpg(holder.pid, signal.SIGKILL)
    assert owner["pid"] == holder.pid
    assert "sleep 4331" in owner["run"]
    assert owner["user"]


def test_the_folder_that_all_lock_is_the_one_that_tare_locks(monkeypatch):
    from tare.base import processes

    monkeypatch.delenv("TARE_LOCK_DIR", raising=False)
    assert device.shared_folder() == str(processes.lock_folder())
    monkeypatch.setenv("TARE_LOCK_DIR", "/somewhere")
    assert device.shared_folder() is processes.lock_folder() is None


def _older(place, claim, by_s):
    """As if it had been begun so much earlier."""
    path = place / "state" / "fleet" / "claims" / claim / "request.json"
    request = json.loads(path.read_text())
    path.write_text(json.dumps(dict(request, begun_s=request["begun_s"] - by_s)))


def _until(true):
    end_s = time.monotonic() + 15
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.02)
