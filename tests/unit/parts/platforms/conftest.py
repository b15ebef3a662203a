"""These tests look at exact lists of mounts: where the interpreter that runs them lies must not matter."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _an_interpreter_in_usr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.drivers.containers.roots.own_interpreter", lambda: ["/usr", "/usr/lib/python3"])
