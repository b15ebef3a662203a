"""A container attacks the device through its work folder, which root reads: it learns, writes and hangs nothing."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import warm_tare

from tare.records.model import Record
from tare.records.store import Store

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


def run(folder: Path, script: str, target: Path) -> tuple[list[Record], str]:
    work: dict[str, Any] = {"command": {"argv": [sys.executable, "-c", script, str(target)], "attach": "none"}}
    study = {"study": "attack", "platform": "runc", "workload": work, "repeat": 1, "aa": False, "limit": "60 s"}
    (folder / "study.yaml").write_text(json.dumps(study))
    done = warm_tare.run("run", "study.yaml", "-o", "store", cwd=folder, timeout=100)
    with Store.open(folder / "store") as store:
        return store.records(), done.stdout + done.stderr


@pytest.mark.machine("runc", "root")
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


@pytest.mark.machine("bare")
def test_no_secret_of_a_study_is_kept_however_the_workload_prints_it(tmp_path: Path):
    password, token = "Hunter2-of-the-db", "tok-99-of-the-hub"
    env = {"DATABASE_URL": f"postgres://me:{password}@db/runs", "HF_TOKEN": token, "HEADERS": f"Bearer {token}"}
    script = 'echo "$DATABASE_URL $HEADERS"; echo "plain $HF_TOKEN" >&2; exit 3'
    work = {"command": {"argv": ["sh", "-c", script, "mysql", f"-p{password}"], "env": env, "attach": "none"}}
    study = {"study": "secret", "platform": "bare", "workload": work, "repeat": 1, "aa": False}
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    done = warm_tare.run("run", "study.yaml", "-o", "store", cwd=tmp_path, timeout=100)
    kept = {str(path): path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    with Store.open(tmp_path / "store") as store:
        assert [record.state for record in store.records()] == ["failed"], done.stderr
    assert [name for name, data in kept.items() if password.encode() in data or token.encode() in data] == []
    printed = done.stdout + done.stderr
    assert password not in printed
    assert token not in printed.partition("plain")[0]
