"""`tare analyse devices`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from some_fleets import Board, boards, fleet_store
from tare.cli import tare


def told(*arguments: str | Path) -> Result:
    return CliRunner().invoke(tare, ["analyse", "devices", *map(str, arguments)])


def test_it_tells_of_each_device_and_of_all(tmp_path: Path) -> None:
    store = fleet_store(tmp_path / "store", [*boards(3), Board("odd", slower=0.5)], blocks=2)
    said = told(store)

    assert said.exit_code == 0
    assert "all devices" in said.output
    assert "median step: each device among identical devices" in said.output
    whole = json.loads(told(store, "--json").output)
    assert whole["quantities"][0]["metric"] == "step_s"
    assert [each["device"] for each in whole["quantities"][0]["standings"]] == ["odd", "orin-1", "orin-2", "orin-3"]
    other = json.loads(told(store, "--json", "--metric", "wall_s", "--margin", "1%").output)
    assert [each["metric"] for each in other["quantities"]] == ["wall_s"]
    assert other["margin"] == 0.01
    wrong = told(store, "--metric", "speed")
    assert "No metric 'speed'" in str(wrong.exception)


def test_one_device_is_a_sentence(tmp_path: Path) -> None:
    said = told(fleet_store(tmp_path / "store", boards(1), blocks=1))

    assert said.exit_code == 0
    assert "There is one device here" in said.output


def test_a_store_must_be_named() -> None:
    assert told().exit_code == 2
