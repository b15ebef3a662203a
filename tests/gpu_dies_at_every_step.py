"""A program: a GPU's clock is locked and freed by a process that dies (SIGKILL) before each of its steps in turn.

After each death another process restores, and dies half-way too; then one restores whole. Prints, for each step, how
the made-up GPU stands and what is left in the journal, as JSON. PRETEND_NVML and TARE_STATE say where; the arguments
are the persistence mode that is found, and how many steps to go on each time.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pynvml

from dies_at_every_step import Fate
from tare.base.host import LocalHost
from tare.drivers.power import nvidia
from tare.parts.controls.power import PowerMode
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import hold_controls
from tare.trial.undo.restoration import restore

STATE = Path(os.environ["TARE_STATE"])


def hold_and_release() -> None:
    with ExitStack() as stack:
        hold_controls(stack, LocalHost(), [PowerMode(gpu_mhz=990, power_w=400)], [], Journal(STATE / "device", "run"))


def put_back() -> None:
    report = restore(LocalHost(), Journal(STATE / "device", "restore"), scratch=STATE / "scratch")
    assert report.clean, report.sentences()


def in_a_child(work: Any, dies_at: int) -> int:
    """Its exit code; -9 if it died on the way."""
    if (pid := os.fork()) == 0:
        try:
            Fate(dies_at)
            work()
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def how_it_stands() -> dict[str, Any]:
    found = pynvml.state()
    left = Journal(STATE / "device", "look").pending()
    return {"lock": found["lock"], "limit_mw": found["limit_mw"], "on": found["persistence"], "pending": len(left)}


def main() -> None:
    nvidia.SETTLE_S = 0.01  # the made-up GPU needs no time
    told = []
    for step in range(1, 400, int(sys.argv[2])):
        Path(os.environ["PRETEND_NVML"]).write_text(json.dumps({"persistence": int(sys.argv[1])}))
        code = in_a_child(hold_and_release, step)
        died = how_it_stands()
        again = in_a_child(put_back, 1 + step % 12)
        last = in_a_child(put_back, 10_000)
        told.append({"step": step, "code": code, "died": died, "again": again, "last": last, "end": how_it_stands()})
        if code == 0:
            break
    print(json.dumps(told))  # noqa: T201


if __name__ == "__main__":
    main()
