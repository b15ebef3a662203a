"""Runs built-in programs one after another: `python forked_programs.py [[MODULE, ORDER, WORKDIR], ...] as JSON`.

torch is imported once, which takes far longer than a few steps of any network, and each program is a fork of that. Its
workdir then holds `out`, `err` and `code` beside what the program itself left there. A number behind WORKDIR: so many
bytes it may have beyond what torch takes.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import sys
from pathlib import Path
from typing import Any

from forked_runs import end_after  # which imports torch


def become(module: str, order: str, workdir: str, more_bytes: int | None = None) -> None:
    """Turn this process into the program."""
    if more_bytes is not None:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, 2 * (taken + more_bytes,))
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{workdir}/{name}", os.O_WRONLY | os.O_CREAT, 0o644), number)
    sys.path.insert(0, f"{workdir}/inside")
    os.environ["TARE_MARKS"] = f"{workdir}/marks.bin"
    os.chdir(workdir)
    sys.argv = [module, order]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_programs(programs: list[list[Any]]) -> None:
    for module, order, workdir, *more_bytes in programs:
        child = os.fork()
        if child == 0:
            end_after(lambda: become(module, order, workdir, *more_bytes))  # noqa: B023  (called at once)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        Path(workdir, "code").write_text(str(code))


if __name__ == "__main__":
    run_programs(json.loads(sys.argv[1]))
