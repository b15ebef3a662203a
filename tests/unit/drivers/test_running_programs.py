"""Looking at a program that runs already."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tare.base.errors import TareError
from tare.base.host import LocalHost
from tare.drivers.containers import running


def test_a_program_that_ends_after_it_was_last_seen_is_said_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "600"])
    real, calls = running._counts, list[bool]()

    def counts(*given: Any) -> dict[str, float]:
        calls.append(True)
        if len(calls) == 2:  # the second reading comes after the check
            child.kill()
            child.wait()
        return real(*given)

    monkeypatch.setattr(running, "_counts", counts)
    try:
        with pytest.raises(TareError, match="ended while it was looked at"):
            running.look(LocalHost(), running.of_pid(child.pid), 0.1)
    finally:
        child.kill()
        child.wait()
    assert len(calls) == 2
