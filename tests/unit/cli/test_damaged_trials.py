"""A trial that is damaged was run: it is counted apart from those that were not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import recorded_stores
from tare.cli import tare as verbs

BY = ("--by", "control.power_mode.mode", "--against", "GPU 1980 MHz")


def tare(*words: str) -> Result:
    return CliRunner().invoke(verbs, list(words), standalone_mode=False, catch_exceptions=False)


@pytest.fixture
def damaged(tmp_path) -> Path:
    """A real store with one trial that is not as it was sealed."""
    root = recorded_stores.unpacked(recorded_stores.ENERGY, tmp_path / "store")
    record = min((root / "trials").iterdir()) / "record.json"
    record.write_bytes(record.read_bytes()[:-9])
    return root


def test_show_counts_a_damaged_trial_apart(damaged):
    said = tare("show", str(damaged)).stderr
    assert "1 damaged trial left out; see `tare store check " in said
    assert "not run" not in said
    told = json.loads(tare("show", str(damaged), "--json").stdout)
    assert (len(told["trials"]), told["waiting"], told["damaged"]) == (9, 0, 1)


def test_show_says_nothing_of_damage_where_there_is_none():
    done = tare("show", str(recorded_stores.ENERGY))
    assert "damaged" not in done.output
    assert json.loads(tare("show", str(recorded_stores.ENERGY), "--json").stdout)["damaged"] == 0


@pytest.mark.parametrize("words", [("compare",), ("report", "--format", "md", "-o", "-")])
def test_a_comparison_counts_a_damaged_trial_apart(words, damaged):
    text = tare(*words, str(damaged), *BY).stdout
    assert "9 of 10 trials (6 suspect); 1 damaged" in text
    assert "not run yet" not in text
