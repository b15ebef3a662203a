"""A container attacks the device through its work folder, which root reads: it learns, writes and hangs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tare.records.model import Record
from tare.records.store import Store

TARE = (sys.executable, str(Path(__file__).with_name("undisturbed.py")))
CANARY = "canary-4711-of-the-host"

ATTACK = """
import os, sys
folder, secret = os.path.dirname(os.environ["TARE_MARKS"]), sys.argv[1]
os.chdir(folder)
os.symlink(secret, "outcome.json")
os.symlink("/dev/zero", "fingerprint.json")
os.mkfifo("marks.bin")
open("attach.json", "w").write('{"a":' * 900 + "1" + "}" * 900)
try:
    os.unlink("output.txt")
except FileNotFoundError:
    pass
os.symlink(secret, "output.txt")
print("attacked", flush=True)
"""

pytestmark = [pytest.mark.machine("runc", "root"), pytest.mark.machine("bare")]


def run(folder: Path, script: str, target: Path) -> tuple[list[Record], str]:
    work: dict[str, Any] = {"command": {"argv": [sys.executable, "-c", script, str(target)], "attach": "none"}}
    study = {"study": "attack", "platform": "runc", "workload": work, "repeat": 1, "aa": False, "limit": "60 s"}
    (folder / "study.yaml").write_text(json.dumps(study))
    line = [*TARE, "run", "study.yaml", "-o", "store"]
    done = subprocess.run(line, check=False, capture_output=True, text=True, cwd=folder, timeout=100)
    with Store.open(folder / "store") as store:
        return store.records(), done.stdout + done.stderr


def test_links_pipes_and_depth_in_the_work_folder_are_named_and_nothing_of_the_host_is_read(tmp_path: Path):
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"password": CANARY}))
    secret.chmod(0o600)
    begun = time.monotonic()
    records, printed = run(tmp_path, ATTACK, secret)
    assert time.monotonic() - begun < 60
    assert [record.state for record in records] == ["invalid"], printed
    refused = " ".join(str(reason) for reason in records[0].reasons if reason.code == "workdir.refused")
    assert all(name in refused for name in ("outcome.json", "marks.bin", "attach.json", "fingerprint.json")), refused
    assert "Traceback" not in printed
    leaked = [
        str(path) for path in (tmp_path / "store").rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    assert leaked == []
    assert CANARY in secret.read_text()  # and nothing was written through the link of the output
