"""The rehearsal on real platforms: a side that cannot run is run once, and a kill in the middle costs nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import warm_tare

from tare.records.store import Store

pytestmark = [pytest.mark.machine("root", "runc")]
# In a container with a process namespace of its own, the first processes have small numbers.
ONLY_ON_BARE_METAL = """\
import os, sys
print("looking for the data", file=sys.stderr)
if os.getpid() < 100:
    sys.exit("no data in /nowhere/data")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "works.py").write_text("import sys\nprint('batch', sys.argv[1])\n")
    (tmp_path / "fails.py").write_text(ONLY_ON_BARE_METAL)
    (tmp_path / "waits.py").write_text("import time\ntime.sleep(60)\n")
    return tmp_path


def study(folder: Path, script: str, *words: str, **more: Any) -> None:
    work = {"argv": ["python3", script, *words], "cwd": str(folder), "attach": "none"}
    plain = {"study": "s", "platform": ["bare", "runc"], "workload": {"command": work}, "repeat": 1, "aa": False}
    (folder / "study.yaml").write_text(json.dumps({**plain, "probes": [], **more}))


def test_what_cannot_run_in_the_container_is_run_once_and_said_first(folder):
    done = warm_tare.run("weigh", "--in", "runc", "-o", "store", "--", "python3", "fails.py", cwd=folder)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == ("runc never ran: the workload ended with code 1: no data in /nowhere/data")
    assert "Cannot tell" not in done.stdout
    assert "    | looking for the data\n" in done.stderr
    assert "without runc there is nothing to compare." in done.stderr
    with Store.open(folder / "store") as store:
        assert store.records() == []
        assert [(each.settings["platform"], each.state) for each in store.rehearsals()][1] == ("runc", "failed")
        assert len(store.rehearsals()) == 2


def test_killed_in_the_rehearsal_the_next_run_rehearses_only_what_is_missing(folder):
    study(folder, "waits.py")
    run = warm_tare.start("run", "study.yaml", "-o", "store", cwd=folder)
    deadline_s = time.monotonic() + 60
    while not list((folder / "store" / "spool").glob("r*.1")) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    (folder / "waits.py").write_text("")
    done = warm_tare.run("run", "study.yaml", "-o", "store", cwd=folder)
    assert done.returncode == 0, done.stderr
    again = warm_tare.run("run", "study.yaml", "-o", "store", cwd=folder)
    assert "rehearsal:" not in again.stderr
    with Store.open(folder / "store") as store:
        states = [(each.settings["platform"], each.state in ("ok", "suspect")) for each in store.rehearsals()]
        assert sorted(states) == [("bare", False), ("bare", True), ("runc", True)]  # the first one was cut off
        assert len(store.records()) == 2


def test_levels_of_one_script_run_under_their_labels_and_what_they_print_is_shown(folder):
    study(folder, "works.py", "{batch}")
    plain = json.loads((folder / "study.yaml").read_text())
    plain["workload"]["command"] |= {"vary": {"batch": [16, 8]}, "label": "mine, batch {batch}"}
    (folder / "study.yaml").write_text(json.dumps(plain))
    done = warm_tare.run("run", "study.yaml", "-o", "store", "--verbose", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "runc | batch 16\n" in done.stderr
    assert "batch 8 in runc and batch 16 in runc" in " ".join(done.stdout.split())
    with Store.open(folder / "store") as store:
        printed = {(each.settings["workload.batch"], store.output(each.trial, 1)[0]) for each in store.records()}
    assert printed == {(16, "batch 16\n"), (8, "batch 8\n")}
