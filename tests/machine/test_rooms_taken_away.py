"""Without a room tare weighs a user's own program, explains it and reports it: rooms only add."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tare

pytestmark = [pytest.mark.machine("root", "runc")]
SOURCES = Path(tare.__file__).parents[1]
PROGRAM = """\
import time
for step in range(20):
    sum(number * number for number in range(20_000))
"""


def run(sources: Path, folder: Path, *words: str) -> str:
    """What this copy of tare prints; it ends well."""
    done = subprocess.run(
        [sys.executable, "-m", "tare", *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(sources)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("room", ["kernel", "papers"])
def test_without_a_room_tare_weighs_explains_and_reports_a_users_program(tmp_path: Path, room: str):
    sources, folder = tmp_path / "sources", tmp_path / "folder"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(sources / "tare" / room)
    folder.mkdir()
    (folder / "work.py").write_text(PROGRAM)

    run(sources, folder, "weigh", "--in", "runc", "--blocks", "2", "-o", "out", "--", "python3", "work.py")
    assert "runc" in run(sources, folder, "show", "out")
    assert json.loads(run(sources, folder, "compare", "out", "--json"))["comparisons"]
    run(sources, folder, "report", "out", "-o", "page.html")
    assert "work.py" in (folder / "page.html").read_text()
    asked = ("why", "--in", "runc", "--limit", "cpus=0.5", "--set", "repeat=2", "-o", "why", "--json")
    explained = json.loads(run(sources, folder, *asked, "--", "python3", "work.py"))
    assert explained["schema_version"] == 1 and len(explained) > 1
    help_text = run(sources, folder, "--help")
    assert f" {'papers' if room == 'papers' else 'trace'} " not in help_text
    assert f" {'trace' if room == 'papers' else 'papers'} " in help_text
