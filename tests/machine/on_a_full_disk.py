"""A program, run in a mount namespace of its own: fills a small disk with trials, makes room, and goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from some_records import MARKS, draft, ended, run_one
from tare.base.errors import StoreError
from tare.base.units import Channel
from tare.records.spool import SpoolWriter, read_spool
from tare.records.store import Store


def fill(store: Store) -> tuple[list[str], str]:
    """Run trials until no space; which were acknowledged, and what was said then."""
    done: list[str] = []
    try:
        while len(done) < 100:
            begun = draft(f"trial-{len(done)}")
            done.append(store.begin(begun).seal(ended(begun), MARKS, "x" * 100_000, "").trial)
    except StoreError as error:
        return done, str(error)
    return done, ""


def fill_spool(store: Store) -> tuple[int, int, str]:
    """Take ticks until no space; how many were taken, how many can be read, what was said."""
    writer, taken = store.begin(draft("ticking")), 0
    spool = SpoolWriter(writer.spool)
    spool.channels([Channel(f"c{c}", "1", "gauge") for c in range(30)])
    try:
        while taken < 100_000:
            spool.tick(taken, [(taken, f"c{c}", 1.0) for c in range(30)])
            taken += 1
    except StoreError as error:
        return taken, len(read_spool(writer.spool)["c0"][0]), str(error)
    return taken, -1, ""


def main(what: str, mount: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=768k", "tmpfs", str(mount)], check=True)
    spare = mount / "spare"
    spare.write_bytes(b"x" * (200 * 1024))
    store = Store.create(mount / "store", {}, "")
    if what == "trials":
        done, said = fill(store)
        found: dict[str, object] = {"done": done, "said": said}
    else:
        run_one(store, "whole")
        taken, read, said = fill_spool(store)
        found = {"done": ["whole"], "taken": taken, "read": read, "said": said}
    with Store.open(store.root) as reader:
        found["full"] = [record.trial for record in reader.records()]
    spare.unlink()
    store.close()
    with Store.open(store.root, write=True) as again:
        found["interrupted"] = [record.trial for record in again.recover()]
        found["ok"] = [record.trial for record in again.records() if record.state == "ok"]
        found["wrong"] = again.verify() + again.problems
        writer = again.begin(draft("next"))
        found["next"] = writer.seal(ended(draft("next")), [], "", "").state
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
