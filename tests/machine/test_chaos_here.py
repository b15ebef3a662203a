"""A part of `make chaos`: other kills each day, and all of them in `make deep`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from chaos import Chaos


@pytest.mark.machine("root")
@pytest.mark.machine("runc")
def test_no_kill_at_a_random_moment_leaves_anything_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TARE_STATE", "TARE_LOCK_DIR"):
        monkeypatch.setenv(name, "")  # so that what Chaos sets is taken back
    chaos = Chaos(tmp_path, seed=int(time.time()) // 86_400)
    for number in range(1000 if os.environ.get("TARE_DEEP") else 3):
        chaos.round(number)
    assert chaos.wrong == [], f"{chaos.wrong}; {dict(chaos.counts)}"
    assert sum(chaos.counts.values()) > 0
