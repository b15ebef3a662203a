"""Runs scripts with tare and without: `python forked_runs.py INTO < [[NAME, ARGUMENT...], ...] as JSON`.

torch is imported once, and each script runs in a fork of its own, once as it is and once attached to as Python's start
does when torch comes. INTO/<NAME ARGUMENT>/{plain,attached} then hold `out`, `err`, `code`, and what lay on the desk.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import torch
import torch._dynamo  # every optimiser imports it, which takes seconds: so that no fork has to

SCRIPTS = Path(__file__).parent / "scripts"


def become(line: list[str], desk: Path, attached: bool) -> None:
    """Turn this process into the script."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(desk / name, os.O_WRONLY | os.O_CREAT, 0o644), number)
    sys.argv = line
    sys.path.insert(0, str(SCRIPTS))
    if attached:
        os.environ["TARE_MARKS"] = str(desk / "marks.bin")
        from tare_inside import attach

        attach.attach(torch, os.environ["TARE_MARKS"])
    runpy.run_path(str(SCRIPTS / line[0]), run_name="__main__")


def run(line: list[str], desk: Path, attached: bool) -> None:
    desk.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        become(line, desk, attached)  # an exception ends the fork as it would end the script
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    (desk / "code").write_text(str(code))


def main(into: Path) -> None:
    for line in json.load(sys.stdin):
        for side in ("plain", "attached"):
            run(line, into / " ".join(line) / side, side == "attached")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
