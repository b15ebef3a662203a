"""A store as a trace of Chrome's format, from kept stores."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tare.cli import tare
from tare.records.store import Store

KEPT = Path(__file__).parents[3] / "studies-results" / "cpu2"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("trace") / "trace.json"
    pack = KEPT / "s0-seccomp.tare"
    done = CliRunner().invoke(tare, ["report", str(pack), "--format", "perfetto", "-o", str(file)])
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    return found


def test_each_trial_is_a_process_with_slices_and_counters(written: list[dict[str, Any]]) -> None:
    with Store.open(KEPT / "s0-seccomp.tare") as store:
        trials = len(store.records())
    named = [each for each in written if each["name"] == "process_name"]
    assert len(named) == trials
    kinds = Counter(each["ph"] for each in written)
    assert kinds["X"] > 0
    assert kinds["C"] > 0


def test_every_event_has_what_the_format_asks_for(written: list[dict[str, Any]]) -> None:
    for each in written:
        assert {"ph", "pid", "name"} <= each.keys()
        if each["ph"] != "M":
            assert isinstance(each["ts"], float)
        if each["ph"] == "X":
            assert each["dur"] >= 0
            assert each["tid"] > 0


def test_slices_of_a_track_do_not_overlap(written: list[dict[str, Any]]) -> None:
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for each in written:
        if each["ph"] == "X":
            tracks.setdefault((each["pid"], each["tid"]), []).append((each["ts"], each["ts"] + each["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(end <= begin + 1e-3 for (_, end), (begin, _) in pairwise(spans))
