"""`tare show STORE kernel` and `tare show STORE devices`: tables as text and as one JSON document, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from some_fleets import Board, boards, fleet_store
from some_records import draft, ended, run_one
from tare.base.errors import TareError
from tare.cli import tare
from tare.kernel.topic import kernel as command
from tare.records.parquet import TableFiles, TableName
from tare.records.store import Store

COUNTERS = {
    "t_ns": np.array([0, 0]),
    "role": ["workload", "daemon"],
    "event": ["page-faults", "page-faults"],
    "count": np.array([1_234_567, 8]),
    "time_enabled": np.ones(2),
    "time_running": np.ones(2),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Store.create(tmp_path / "store", {}, "") as made:
        writer = made.begin(draft())
        with TableFiles(writer.tables) as files:
            files.add(TableName("perf", "counters"), COUNTERS)
            files.write()
        writer.seal(ended(draft(), facts={"traced": {"probes": ["perf"]}}), [], "", "")
    return tmp_path / "store"


def test_what_was_counted_is_shown(store):
    done = CliRunner().invoke(command, [str(store)])
    assert done.exit_code == 0, done.output
    assert "1,234,567" in done.output
    assert "page-faults" in done.output


def test_json_is_one_document_with_rows(store):
    done = CliRunner().invoke(command, [str(store), "--json"])
    (section,) = json.loads(done.output)["sections"]
    assert section["name"] == "counters"
    assert section["rows"][0]["workload"] == 1_234_567
    assert section["rows"][0]["daemon"] == 8


def test_a_store_without_traces_says_how_to_get_some(tmp_path):
    with Store.create(tmp_path / "plain", {}, "") as made:
        run_one(made)
    done = CliRunner().invoke(command, [str(tmp_path / "plain")])
    assert isinstance(done.exception, TareError)
    assert "probes: [perf" in str(done.exception)


def told(*arguments: str | Path) -> Result:
    return CliRunner().invoke(tare, ["show", "devices", *map(str, arguments)])


def test_it_tells_of_each_device_and_of_all(tmp_path: Path) -> None:
    store = fleet_store(tmp_path / "store", [*boards(3), Board("odd", slower=0.5)], blocks=2)
    said = told(store)

    assert said.exit_code == 0
    assert "all devices" in said.output
    assert "Median step: each device among identical devices" in said.output
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
