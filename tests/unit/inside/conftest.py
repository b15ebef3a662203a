"""A workdir: a folder with a copy of `tare_inside`, as every trial has one; and a process that has torch, to fork."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tare_inside
from tare_inside import marks


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Threads of torch spin while they wait for each other, and these networks are small."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    source = Path(tare_inside.__file__).parent
    workdir = tmp_path / "workdir"
    shutil.copytree(source, workdir / "inside" / "tare_inside", ignore=shutil.ignore_patterns("__pycache__"))
    return workdir


@pytest.fixture
def marks_file(tmp_path: Path) -> Iterator[Path]:
    """Marks are open while the test runs, with room for 64."""
    path = tmp_path / "marks.bin"
    marks.open_marks(str(path), capacity=64)
    yield path
    marks.close_marks()


@pytest.fixture(scope="session")
def torch_server() -> Iterator[Callable[[dict[str, object]], None]]:
    """Does what forked_runs.py is asked for, in forks of one import of torch."""
    source = str(Path(tare_inside.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    env["OMP_NUM_THREADS"] = "1"
    line = [sys.executable, str(Path(__file__).with_name("forked_runs.py"))]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdin is not None and server.stdout is not None
        says, hears = server.stdin, server.stdout

        def ask(request: dict[str, object]) -> None:
            print(json.dumps(request), file=says, flush=True)
            assert hears.readline() == "done\n"

        yield ask
        says.close()


@pytest.fixture(scope="session")
def torch_forks(torch_server: Callable[[dict[str, object]], None]) -> Callable[..., None]:
    """`run(into, lines, *sides)`: scripts as forked_runs.py runs them."""
    return lambda into, lines, *sides: torch_server({"into": str(into), "lines": lines, "sides": sides})


@pytest.fixture(scope="session")
def program_forks(torch_server: Callable[[dict[str, object]], None]) -> Callable[..., None]:
    """`run([module, order, workdir], ...)`: built-in programs as forked_programs.py runs them."""
    return lambda *programs: torch_server({"programs": programs})
