"""A writer that dies before any step of its work loses no finished trial, and the store goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from some_records import MEMORY

TESTS = Path(__file__).parents[2]


def die_at_every_step(what: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="tare-test-", dir=MEMORY) as folder:
        done = subprocess.run(
            [sys.executable, str(TESTS / "dies_at_every_step.py"), what, folder],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_store_that_was_cut_off_while_it_was_made_can_be_made_again() -> None:
    deaths = die_at_every_step("make")

    assert [death["died"] for death in deaths] == [True] * (len(deaths) - 1) + [False]
    assert len(deaths) > 10
    for death in deaths:
        assert (death["after"], death["wrong"], death["left"]) == ([], [], []), death


def test_a_writer_killed_at_any_step_leaves_each_trial_once_and_whole() -> None:
    deaths = die_at_every_step("go_on")

    assert [death["died"] for death in deaths] == [True] * (len(deaths) - 1) + [False]
    assert len(deaths) > 30
    finished, cut_off = [["aaaa", 1, "ok"], ["bbbb", 1, "ok"]], [["aaaa", 1, "ok"], ["bbbb", 1, "interrupted"]]
    for death in deaths:
        assert (death["wrong"], death["left"]) == ([], []), death
        assert death["before"] in (finished[:1], finished), death
        assert death["after"] in (finished[:1], cut_off, finished), death
        assert set(death["readings"]) == {2}, death
        if death["said"]:
            assert death["after"] == death["before"] == finished, death
    assert {len(death["after"]) for death in deaths} == {1, 2}
    assert any(death["after"] == cut_off for death in deaths)


def test_a_recovery_that_is_killed_at_any_step_can_be_done_again() -> None:
    deaths = die_at_every_step("recover")

    assert [death["died"] for death in deaths] == [True] * (len(deaths) - 1) + [False]
    assert len(deaths) > 15
    for death in deaths:
        assert (death["wrong"], death["left"]) == ([], []), death
        assert death["after"] == [["aaaa", 1, "ok"], ["bbbb", 1, "interrupted"]], death
