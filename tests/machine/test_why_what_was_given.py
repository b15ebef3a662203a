"""What the user gave is tried in either direction, and a start-up file of an image is named, in real containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from planted_images import PYTHON, python_image

PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("TARE_", "PYTHONDONT"))}
CLOSES = """\
import os, resource
from tare_inside import marks
most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
for step in range(6):
    marks.begin("step", step)
    if os.fork() == 0:  # as daemons do it: every descriptor that there may be, open or not
        for number in [*range(3, most)] * 3:
            try:
                os.close(number)
            except OSError:
                pass
        os._exit(0)
    os.wait()
    marks.end("step", step)
"""


def tare(folder: Path, *words: str, open_files: int = 512) -> str:
    """With a low soft limit of open files, as in a shell; others on the machine make no trial invalid."""
    argv = [sys.executable, str(Path(__file__).with_name("undisturbed.py")), *words]
    limited = ["sh", "-c", f'ulimit -Sn {open_files}; exec "$@"', "sh", *argv]
    env = {**PLAIN, "TARE_STATE": str(folder / "state"), "TARE_LOCK_DIR": str(folder / "lock")}
    done = subprocess.run(limited, cwd=folder, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def why(folder: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        tare(folder, "why", "--layers", "never", "--json", "--set", "compare.margin=20%", "-o", "why", *words)
    )
    return found


@pytest.mark.machine("runc", "root")
@pytest.mark.alone
def test_a_limit_of_open_files_that_is_too_high_is_named_with_the_lower_one(tmp_path: Path) -> None:
    (tmp_path / "closes.py").write_text(CLOSES)
    found = why(tmp_path, "--in", "runc", "--limit", "nofile=20000", "--", sys.executable, "closes.py")

    tried = {each["cause"]: each["outcome"] for each in found["answer"]["tried"]}
    assert tried["ulimits"] == "the cause"
    assert found["suspects"]["ulimits"]["cure"] == "--ulimit nofile=512"
    assert found["suspects"]["ulimits"]["given"]


STARTS = """\
import builtins, time
ours = builtins.sum
builtins.sum = lambda *words: (time.sleep(0.03), ours(*words))[1]
"""
SUMS = """\
import time
from tare_inside import marks
for step in range(12):
    marks.begin("step", step)
    time.sleep(0.003)
    sum(range(1000))
    marks.end("step", step)
"""


def site_packages() -> str:
    """The folder whose *.pth files that interpreter runs at its start."""
    done = subprocess.run([PYTHON, "-I", "-S", "-c", "import site; print(site.getsitepackages()[-1])"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    return done.stdout.strip()


@pytest.mark.machine("runc", "root")
@pytest.mark.alone
@pytest.mark.parametrize("kind", ["sitecustomize", "pth"])
def test_a_start_up_file_of_the_image_is_named_with_its_path(tmp_path: Path, kind: str) -> None:
    roots = {}
    for name in ("app-1", "app-2"):
        roots[name] = python_image(tmp_path / name)
        (roots[name] / "usr" / "bin" / "python3").symlink_to(PYTHON)
        (roots[name] / "app").mkdir()
        (roots[name] / "app" / "work.py").write_text(SUMS)
        (roots[name] / site_packages().lstrip("/")).mkdir(parents=True, exist_ok=True)
    path = Path(PYTHON).parents[1] / "lib" / Path(PYTHON).name / "sitecustomize.py"
    if kind == "pth":
        path = Path(site_packages()) / "guilty.pth"
        (roots["app-2"] / site_packages().lstrip("/") / "hook_of_tracing.py").write_text(STARTS)
    (roots["app-2"] / str(path).lstrip("/")).write_text(
        STARTS if kind == "sitecustomize" else "import hook_of_tracing\n"
    )
    asked = ("--in", "runc", "--image", str(roots["app-2"]), "--against-image", str(roots["app-1"]))
    found = why(tmp_path, *asked, "--", "python3", "/app/work.py")

    tried = {each["cause"]: each["outcome"] for each in found["answer"]["tried"]}
    assert tried["start_up_files"] == "the cause"
    assert found["suspects"]["start_up_files"]["cure"] == f"without {path}"
    assert found["located"] == []
