"""Runs scripts with tare and without: `python forked_runs.py INTO < [[NAME, ARGUMENT...], ...] as JSON`.

torch is imported once, and each script runs in a fork of its own, once as it is and once attached to as Python's start
does when torch comes. INTO/<NAME ARGUMENT>/{plain,attached} then hold `out`, `err`, `code`,
the files of the workdir; an argument that is a path is left out of the name.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # every optimiser imports it, which takes seconds: so that no fork has to

SCRIPTS = Path(__file__).parent / "scripts"


def become(line: list[str], workdir: Path, attached: bool) -> None:
    """Turn this process into the script."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(workdir / name, os.O_WRONLY | os.O_CREAT, 0o644), number)
    sys.argv = line
    sys.path.insert(0, str(SCRIPTS))
    if attached:
        os.environ["TARE_MARKS"] = str(workdir / "marks.bin")
        from tare_inside import attach

        attach.attach(torch, os.environ["TARE_MARKS"])
    runpy.run_path(str(SCRIPTS / line[0]), run_name="__main__")


def run(line: list[str], workdir: Path, attached: bool) -> None:
    workdir.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        end_after(lambda: become(line, workdir, attached))
    status = os.waitpid(child, 0)[1]
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    (workdir / "code").write_text(str(code))


def end_after(do: Callable[[], None]) -> None:
    """Do it, and end this process as Python does: but torch is not taken apart piece by piece, which takes a second."""
    code = 0
    try:
        do()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def named(line: list[str]) -> str:
    return " ".join(word for word in line if not word.startswith("/"))


def main(into: Path) -> None:
    for line in json.load(sys.stdin):
        for side in ("plain", "attached"):
            run(line, into / named(line) / side, side == "attached")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
