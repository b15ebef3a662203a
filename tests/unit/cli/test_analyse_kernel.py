"""`tare analyse kernel` on a store: its tables as text and as one JSON document."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from some_records import draft, ended, run_one
from tare.base.errors import TareError
from tare.cli.analyse import kernel as command
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
