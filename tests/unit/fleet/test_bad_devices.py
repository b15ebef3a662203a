"""`tare device fleet check` of a fleet in which every device but one answers nonsense, by real processes.

`ssh` is a program of ours: it runs what it is given on this machine for the good device, and answers itself for others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tare.fleet import inspection
from tare.fleet.inspection import inspect_all_devices
from tare.fleet.inventory import Device

SSH = """#!{python}
import json, os, sys
address, command = sys.argv[-2:]
if address == "good.example":
    os.execvp("sh", ["sh", "-c", command])
said = json.load(open({answers!r}))[address.partition(".")[0]]
for line in sys.stdin.buffer:
    if b'"do": "' in line:
        break
out = sys.stdout.buffer
out.write(b"tare-agent\\n")
out.flush()
if b'"do": "clock"' in line:
    for line in sys.stdin.buffer:
        out.write(said.get("clock", "1700000000.5").encode() + b"\\n")
        out.flush()
    sys.exit()
if said.get("stays"):
    sys.stdin.close()
    os.execvp("sleep", ["sleep", "60"])
out.write(said["look"].encode() + b"\\n")
"""
LOOK = {
    "python": "3.8.10", "machine": "aarch64", "kernel": "5.10", "root": True, "free_bytes": 1 << 40, "state": "/s",
    "owner": None, "engine": {"code": 0, "out": "tare, version 0.1.0", "err": ""},
    "abilities": {"code": 0, "out": "{}", "err": ""},
}  # fmt: skip
BAD = {
    "word": {"look": '"x"'},
    "deep": {"look": "[" * 100_000},
    "deeper": {"look": json.dumps(LOOK | {"abilities": {"code": 0, "out": "[" * 100_000, "err": ""}})},
    "number": {"look": json.dumps(LOOK | {"owner": {"pid": float("nan")}})},
    "owner": {"look": json.dumps(LOOK | {"owner": {"pid": 1, "since": float("inf")}})},
    "full": {"look": json.dumps(LOOK | {"free_bytes": 10**4000})},
    "half": {"look": json.dumps(LOOK | {"python": "3.\ud800"})},
    "time": {"look": json.dumps(LOOK), "clock": "nan"},
    "ever": {"look": json.dumps(LOOK), "clock": "1e999"},
    "steers": {"look": json.dumps(LOOK | {"engine": {"code": 1, "out": "", "err": "\x1b[2J\x1b]0;owned\x07"}})},
    "not": {"look": json.dumps({"error": "\x1b[2J"})},
}


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    answers, ssh = tmp_path / "answers.json", tmp_path / "bin" / "ssh"
    answers.write_text(json.dumps(BAD | {"silent": {"look": "", "stays": True}}))
    ssh.parent.mkdir()
    ssh.write_text(SSH.format(python=sys.executable, answers=str(answers)))
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    here = {"python": sys.executable, "tare": sys.executable}
    listed = [{"name": name, "address": f"{name}.example", **here} for name in (*BAD, "good")]
    made = tmp_path / "devices.yaml"
    made.write_text(json.dumps({"devices": listed}))
    made.chmod(0o600)
    return made


@pytest.mark.parametrize("words", [[], ["--json"]], ids=["text", "json"])
def test_one_bad_device_breaks_the_check_of_no_other(inventory: Path, words: list[str]):
    argv = [sys.executable, "-m", "tare.cli", "device", "fleet", "check", str(inventory), *words]
    done = subprocess.run(argv, capture_output=True, timeout=400, check=False)
    said = (done.stdout + done.stderr).decode()
    assert "Traceback" not in said, said
    assert done.returncode == 1, said
    assert "\x1b" not in said
    assert "\x07" not in said
    if words:
        found = {device["name"]: device for device in json.loads(done.stdout)["devices"]}
        assert {name for name, device in found.items() if device["ready"]} == {"good"}
        assert all(device["troubles"] for name, device in found.items() if name != "good")
    else:
        lines = done.stdout.decode().splitlines()
        assert any(line.split()[:2] == ["good", "yes"] for line in lines), said
        assert all(f"\n{name}: " in f"\n{done.stderr.decode()}" for name in BAD)


def test_a_device_that_never_answers_is_not_waited_for(inventory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inspection, "ANSWERS_WITHIN_S", 2.0)
    (found,) = inspect_all_devices([Device(name="silent", address="silent.example")])
    assert not found.reachable
    assert "it gave no answer within 2 s" in str(found.troubles[0])
