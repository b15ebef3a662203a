"""The part of long sweeps that a day takes: one rule for pytest and for tools/test."""

from __future__ import annotations

import runpy
import time

import pytest

import sweeps


def test_each_day_takes_the_next_eighth_and_the_program_prints_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TARE_SWEEP", raising=False)
    for day in range(sweeps.EIGHTHS + 1):
        monkeypatch.setattr(time, "time", lambda day=day: day * 86_400.5)
        runpy.run_path(sweeps.__file__, run_name="__main__")
        assert (sweeps.chosen(), capsys.readouterr().out) == (day % 8, f"{day % 8}\n")
    monkeypatch.setenv("TARE_SWEEP", "11")
    assert sweeps.chosen() == 3
