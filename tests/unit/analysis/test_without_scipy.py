"""scipy is an extra: every verdict is reached without it, and what varies over devices says how to get it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tare.analysis.fleet.random_effects import pooled
from tare.base.errors import ObstacleError

_BLOCKED = "import sys; sys.modules['scipy'] = None; from tare.cli import main; main()"


def compared(table: Path, *options: str) -> str:
    words = [sys.executable, "-c", _BLOCKED, "compare", str(table), "--metric", "step_s", *options]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("blocks", "word"), [(2, "cannot tell"), (12, "slower"), (1500, "slower")])
def test_a_table_is_judged(tmp_path: Path, blocks: int, word: str) -> None:
    chance, rows = random.Random(1), ["platform,block,step_s"]
    for block in range(blocks):
        for level in chance.sample(["bare", "docker"], 2):
            rows.append(f"{level},{block},{(1.2 if level == 'docker' else 1) * chance.uniform(0.99, 1.01)!r}")
    table = tmp_path / "table.csv"
    table.write_text("\n".join(rows) + "\n")

    assert word in compared(table, "--block", "block")
    assert word in compared(table)  # and with all rows against all rows


def test_how_devices_vary_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)

    with pytest.raises(ObstacleError, match=r"computed with scipy: `pip install .*` brings it"):
        pooled(np.array([1.0, 2.0, 3.0]), np.ones(3))
