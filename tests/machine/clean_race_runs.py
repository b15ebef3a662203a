"""Runs that begin and end while root cleans: `python clean_race_runs.py PREFIX COUNT SEED`, one line when all ended.

Each is a process of its own. Of three one dies without removing its work folder; the others say whether they lost any
of it while they ran.
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from pathlib import Path

from tare.trial.tenants import prepare_workdir, remove_folders

KEPT, DIED, LOST = range(3)


def run(name: str, chance: random.Random) -> int:
    scratch = Path("/nonexistent")
    workdir = prepare_workdir(name, scratch)
    files = sorted(workdir.rglob("*"))
    time.sleep(chance.random() * 2)  # a removal takes a third of a second
    if not all(path.exists() for path in (workdir, *files)):
        return LOST
    if chance.random() < 1 / 3:
        return DIED
    remove_folders(name, scratch)
    return KEPT


def main(prefix: str, count: int, seed: int) -> None:
    ended = [0, 0, 0]
    for number in range(count):
        if (child := os.fork()) == 0:
            try:
                os._exit(run(f"{prefix}-{number}", random.Random(seed + number)))
            except BaseException:
                traceback.print_exc()
                os._exit(LOST)
        ended[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
    sys.stdout.write(" ".join(map(str, ended)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
