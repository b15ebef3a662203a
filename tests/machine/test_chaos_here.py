"""`make chaos` with a fixed seed until three processes are killed, or a thousand in `make deep`.

The seed decides the platforms and the moments; which process is hit also depends on the clock.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import Chaos

import sshd_devices


@pytest.mark.machine("root")
@pytest.mark.machine("runc")
def test_no_kill_at_a_random_moment_leaves_anything_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deep: bool
) -> None:
    for name in ("TARE_STATE", "TARE_LOCK_DIR", "DOCKER_HOST"):
        monkeypatch.setenv(name, "")  # so that what Chaos sets and removes is taken back
    fleet = ("fleet",) if deep and not sshd_devices.obstacles() else ()
    chaos = Chaos(tmp_path, seed=5, platforms=("bare", "runc", *fleet))
    number = 0  # of the round: the first is on runc, the next on bare metal
    try:
        while sum(chaos.kills.values()) < (1000 if deep else 3):
            chaos.round(number)
            number += 1
            assert deep or number < 12  # kills may come when a run has ended, but not each time
    finally:
        chaos.close()
    assert chaos.wrong == [], f"{chaos.wrong}; {chaos.as_json()}"
