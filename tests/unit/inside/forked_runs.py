"""Runs scripts with tare and without: `python forked_runs.py INTO [SIDE...] < [[NAME, ARGUMENT...], ...] as JSON`.

torch is imported once, and each script runs in a fork of its own, once as it is and once attached to as Python's start
does when torch comes. INTO/<NAME ARGUMENT>/{plain,attached} then hold `out`, `err`, `code`, the files of the workdir;
an argument with a path is left out of the name. An argument `TARE_...=...` is a variable of the attached side, with
`BREAK=module.function` one of ours is broken there, and SIDE is one of the two if not both are wanted.

Without INTO it serves: each line is {"into", "lines", "sides"}, or {"programs"} for forked_programs.py, and is answered
with `done` (conftest.py, torch_server).
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch._dynamo  # every optimiser imports it, which takes seconds: so that no fork has to

gc.freeze()  # what was imported stays: no fork has to look at it
SCRIPTS = Path(__file__).parent / "scripts"


def become(line: list[str], workdir: Path, attached: bool) -> None:
    """Turn this process into the script."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(workdir / name, os.O_WRONLY | os.O_CREAT, 0o644), number)
    settings = dict(word.split("=", 1) for word in line if word.startswith(("TARE_", "BREAK=")))
    broken = settings.pop("BREAK", None)
    sys.argv = [word for word in line if not word.startswith(("TARE_", "BREAK="))]
    sys.path.insert(0, str(SCRIPTS))
    if attached:
        os.environ |= {"TARE_MARKS": str(workdir / "marks.bin"), **settings}
        from tare_inside import attach

        if broken:
            break_one(broken)
        attach.attach(torch, os.environ["TARE_MARKS"])
    runpy.run_path(str(SCRIPTS / line[0]), run_name="__main__")


def break_one(place: str) -> None:
    module, *path = place.split(".")
    owner = functools.reduce(getattr, path[:-1], importlib.import_module(f"tare_inside.{module}"))

    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("injected")

    setattr(owner, path[-1], broken)


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
    return " ".join(word for word in line if "/" not in word)


def run_all(into: Path, lines: list[list[str]], sides: Sequence[str]) -> None:
    for line in lines:
        for side in sides or ("plain", "attached"):
            run(line, into / named(line) / side, side == "attached")


def serve() -> None:
    from forked_programs import run_programs  # which imports this file

    for request in map(json.loads, sys.stdin):
        if "programs" in request:
            run_programs(request["programs"])
        else:
            run_all(Path(request["into"]), request["lines"], request["sides"])
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:]:
        run_all(Path(sys.argv[1]), json.load(sys.stdin), sys.argv[2:])
    else:
        serve()
