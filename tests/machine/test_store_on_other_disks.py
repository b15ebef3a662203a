"""Full and read-only disks, made for the test in a mount namespace of its own; and the files' owner under sudo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from some_records import draft, run_one
from tare.base.errors import StoreError
from tare.records.spool import SpoolWriter
from tare.records.store import Store

HERE = Path(__file__).parent


def alone(*argv: str) -> str:
    """What a program prints that is run in its own mount namespace: its mounts go with it."""
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, *argv],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_a_full_disk(what: str, mount: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(alone(str(HERE / "on_a_full_disk.py"), what, str(mount)))
    return found


@pytest.mark.machine("root")
def test_a_full_disk_stops_the_run_and_every_finished_trial_is_whole(tmp_path: Path) -> None:
    found = on_a_full_disk("trials", tmp_path)

    assert 1 <= len(found["done"]) < 100
    says = r"store: no space left while sealing trial trial-\d\.1: \d+ KiB free, about 1\d\d KiB needed\.\nThe finished"
    assert re.search(says, found["said"]), found["said"]
    assert set(found["done"]) <= set(found["full"])
    assert set(found["done"]) <= set(found["ok"])
    assert found["wrong"] == []
    assert found["next"] == "ok"


@pytest.mark.machine("root")
def test_a_disk_that_fills_up_while_sampling_keeps_every_tick_that_was_taken(tmp_path: Path) -> None:
    found = on_a_full_disk("ticks", tmp_path)

    assert found["taken"] > 10
    assert found["read"] == found["taken"]
    assert "no space left while writing readings to the spool" in found["said"]
    assert found["full"] == found["ok"] == ["whole"]
    assert found["interrupted"] == ["ticking"]
    assert (found["wrong"], found["next"]) == ([], "ok")


READER = """
import subprocess, sys
from pathlib import Path
from tare.base.errors import StoreError
from tare.records.store import Store
root = Path(sys.argv[1])
subprocess.run(["mount", "--bind", root, root], check=True)
subprocess.run(["mount", "-o", "remount,ro,bind", root], check=True)
with Store.open(root, write=True) as store:
    print(store.problems, sorted(store.states().items()), [record.trial for record in store.records()])
    print(store.verify(), sorted(store.readings("aaaa", 1)), sorted(store.readings("bbbb", 1)))
    try:
        store.recover()
    except StoreError as error:
        print(error)
"""


@pytest.mark.machine("root")
@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
def test_a_store_on_a_read_only_disk_is_read(tmp_path: Path, crashed: bool) -> None:
    with Store.create(tmp_path / "store", {}, "") as store:
        run_one(store, "aaaa")
        writer = store.begin(draft("bbbb"))
        with SpoolWriter(writer.spool) as spool:
            spool.tick(1, [(1, "c", 1.0)])
            root = store.root
            if crashed:  # the logs as they lie there while the writers live, without their shared memory
                root = tmp_path / "copy"
                subprocess.run(["cp", "-r", store.root, root], check=True)
                for shared in root.rglob("*-shm"):
                    shared.unlink()
    lines = alone("-c", READER, str(root)).splitlines()

    assert lines[0] == "[] [('aaaa', 'ok'), ('bbbb', 'running')] ['aaaa']"
    assert lines[1] == "[] ['cpu.busy_s', 'memory.used_bytes'] ['c']"
    assert "opening the store to write is not allowed here: Read-only file system" in lines[2]


@pytest.mark.machine("root")
def test_under_sudo_everything_belongs_to_the_person_who_called_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65533")
    with Store.create(tmp_path / "out" / "store", {}, "") as store:
        run_one(store)
        writer = store.begin(draft("bbbb"))
        with SpoolWriter(writer.spool) as spool:
            spool.tick(1, [(1, "c", 1.0)])
            found = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
            owners = {str(path.relative_to(tmp_path)): (path.stat().st_uid, path.stat().st_gid) for path in found}
    assert {name: owner for name, owner in owners.items() if owner != (65534, 65533)} == {}
    assert any(name.endswith("spool.db-wal") for name in owners)
    assert any(name.endswith("catalogue.db-shm") for name in owners)


@pytest.mark.machine("root")
def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    Store.create(tmp_path / "store", {}, "").close()
    (tmp_path / "store/store.lock").unlink()
    (tmp_path / "store/store.lock").symlink_to(tmp_path / "victim")
    with Store.open(tmp_path / "store", write=True) as store, pytest.raises(StoreError, match="symbolic links"):
        store.recover()
    assert not (tmp_path / "victim").exists()
