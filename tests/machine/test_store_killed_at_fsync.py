"""Faults.md A2: a real writer is killed at every fsync in turn; then the store opens and nothing finished is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from some_records import run_one
from tare.records.store import Store

TESTS = Path(__file__).parents[1]
WRITER = """
import sys
from pathlib import Path
from some_records import run_one
from tare.records.store import Store
with Store.open(Path(sys.argv[1]), write=True) as store:
    store.recover()
    run_one(store, "bbbb")
    Path(sys.argv[2]).write_text("sealed")
"""


def killed_at(n: int, root: Path, acknowledged: Path) -> int:
    """The writer's exit when its n-th fsync (and its n-th fdatasync) is the last thing that it does."""
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]
    inject = ["-e", f"inject=fsync,fdatasync:signal=SIGKILL:when={n}"]
    writer = [sys.executable, "-c", WRITER, str(root), str(acknowledged)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.run([*strace, *inject, *writer], check=False, env=environment).returncode


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tare-test-") as name:
        yield Path(name)


@pytest.mark.machine("strace")
def test_a_writer_killed_at_every_fsync_loses_nothing_finished(folder: Path) -> None:
    with Store.create(folder / "template", {}, "") as store:
        first = run_one(store, "aaaa")
    ends = set()
    for n in range(1, 100):
        root, acknowledged = folder / f"store-{n}", folder / f"acknowledged-{n}"
        shutil.copytree(folder / "template", root)
        code = killed_at(n, root, acknowledged)

        with Store.open(root, write=True) as again:
            again.recover()
            assert again.verify() == again.problems == [], n
            records = again.records()
            assert records[0] == first, n
            ends.add("/".join(record.state for record in records))
            assert [(r.trial, r.attempt) for r in records] in ([("aaaa", 1)], [("aaaa", 1), ("bbbb", 1)]), n
            if acknowledged.exists():
                assert records[1].state == "ok", n
            assert len(again.readings("aaaa", 1)) == 2
        if code == 0:
            break
    assert code == 0
    assert n > 10
    assert ends == {"ok", "ok/interrupted", "ok/ok"}
