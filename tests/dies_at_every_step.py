"""A program: lets a writer die (SIGKILL) before each of its steps in turn, recovers, and prints what is left as JSON.

A step is whatever changes the disk: a file made, renamed, synced or removed. The writer makes a store, goes on
with one that holds a finished trial (and notes what was acknowledged as sealed), or recovers one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from some_records import draft, run_one
from tare.records.spool import SpoolWriter
from tare.records.store import Store

STEPS = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "sqlite3.connect")


class Fate:
    """Ends this process before its n-th step, the way kill -9 does."""

    def __init__(self, n: int) -> None:
        self.left = n
        self._fsync = os.fsync
        os.fsync = self._sync
        sys.addaudithook(self._watch)

    def _watch(self, event: str, details: tuple[Any, ...]) -> None:
        if event in STEPS or (event == "open" and isinstance(details[2], int) and details[2] & os.O_CREAT):
            self._step()

    def _sync(self, descriptor: Any) -> None:
        self._step()
        self._fsync(descriptor)

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def make(root: Path, acknowledged: Path) -> None:
    Store.create(root, {}, "").close()


def go_on(root: Path, acknowledged: Path) -> None:
    with Store.open(root, write=True) as store:
        store.recover()
        run_one(store, "bbbb")
        acknowledged.write_text("bbbb")


def recover(root: Path, acknowledged: Path) -> None:
    with Store.open(root, write=True) as store:
        store.recover()


def what_is_left(root: Path, acknowledged: Path) -> dict[str, Any]:
    said = acknowledged.read_text().split() if acknowledged.exists() else []
    if not (root / "store.json").exists():
        Store.create(root, {}, "").close()
    with Store.open(root) as reader:
        before = [[r.trial, r.attempt, r.state] for r in reader.records()]
        problems = list(reader.problems)
    with Store.open(root, write=True) as store:
        store.recover()
        records = [[r.trial, r.attempt, r.state] for r in store.records()]
        readings = [len(store.readings(r.trial, r.attempt)) for r in store.records() if r.state == "ok"]
        wrong = [*problems, *store.problems, *store.verify()]
    left = [str(path.relative_to(root)) for path in root.rglob("*")]
    half_made = [name for name in left if ".tmp-" in name or name.startswith("spool/")]
    return {"said": said, "before": before, "after": records, "readings": readings, "wrong": wrong, "left": half_made}


def make_template(root: Path, what: str) -> None:
    """A store with a finished trial; to recover, also with one that was cut off."""
    with Store.create(root, {}, "") as store:
        run_one(store, "aaaa")
        if what == "recover":
            with SpoolWriter(store.begin(draft("bbbb")).spool) as spool:
                spool.tick(1, [(1, "c", 1.0)])


def main(what: str, folder: Path) -> None:
    make_template(folder / "template", what)
    go_on(shutil.copytree(folder / "template", folder / "rehearsal"), folder / "rehearsed")  # everything is imported
    for n in range(1, 1000):
        root, acknowledged = folder / f"store-{n}", folder / f"acknowledged-{n}"
        if what != "make":
            shutil.copytree(folder / "template", root)
        child = os.fork()
        if child == 0:
            Fate(n)
            {"make": make, "go_on": go_on, "recover": recover}[what](root, acknowledged)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = {"n": n, "died": status == signal.SIGKILL, **what_is_left(root, acknowledged)}
        sys.stdout.write(json.dumps(found) + "\n")
        shutil.rmtree(root)
        if status == 0:
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
