"""The agent that is copied to a device, on the Pythons that devices have."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

import tare_inside

AGENT = Path(tare_inside.__file__).parent / "device_agent.py"
PYTHONS = sorted({sys.executable, *map(str, Path("/root/.pyenv/versions").glob("3.*/bin/python3"))})

# Stands for the engine: `PYTHON -P -m tare.cli fleet trial FOLDER LOCK`. It seals one trial when the test lets it.
ENGINE = """#!/bin/sh
folder=$6
store=$TARE_STATE/fleet/stores/s-1/trials
echo ran >> $TARE_STATE/runs
while [ ! -e $TARE_STATE/go ]; do sleep 0.02; done
[ -e $TARE_STATE/die ] && { echo no more >&2; kill -9 $$; }
mkdir -p $store/aaa.1 $store/.tmp-bbb.1
echo '{}' > $store/aaa.1/record.json
printf '{"code": 0, "text": "", "notes": []}' > $folder/result.json
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "state").mkdir()
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o700)
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    return tmp_path


def asked(place, python=sys.executable, **question):
    fields = {"engine": str(place / "engine"), "store": "s-1", "have": [], **question}
    child = subprocess.Popen([python, "-E", "-s", str(AGENT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdin.write(json.dumps(fields).encode() + b"\n")
    child.stdin.close()
    return child


def answer(child):
    data = child.stdout.read()
    child.wait(20)
    hello, said, records = data.split(b"\n", 2)
    assert hello == b"tare-agent"
    return json.loads(said), records


def names(records):
    with tarfile.open(fileobj=io.BytesIO(records)) as archive:
        return sorted(archive.getnames())


@pytest.mark.parametrize("python", PYTHONS)
def test_a_trial_is_begun_awaited_and_handed_over(place, python):
    (place / "state" / "go").touch()
    said, records = answer(asked(place, python, do="run", claim="aaa.r.1"))
    assert (said["code"], said["begun"]) == (0, True)
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


@pytest.mark.parametrize("claim", ["../x", "/etc", ".hidden", ""])
def test_a_claim_that_is_no_plain_name_is_refused(place, claim):
    said, _ = answer(asked(place, do="run", claim=claim))
    assert "no name for a folder" in said["error"]


@pytest.mark.parametrize("python", PYTHONS)
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


def _until(true):
    end_s = time.monotonic() + 15
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.02)
