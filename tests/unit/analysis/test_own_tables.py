"""`tare compare` of a table that tare wrote: the same verdict as from the store that it came from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis_figures import FakeStore, record, weighed_records
from some_records import because
from tare.analysis.model import Comparison
from tare.analysis.table import exported_trials
from tare.analysis.weighing import weigh
from tare.cli import tare
from tare.records.model import Record
from tare.report.export import as_csv, write_parquet

STUDY = {
    "study": "weigh",
    "platform": ["bare", "docker"],
    "compare": {"by": "platform", "against": {"platform": "bare"}, "margin": 0.03},
    "repeat": {"min": 6, "max": 20, "until": 0.02},
}


def written(folder: Path, records: list[Record], study: dict[str, Any], ending: str = ".csv") -> Path:
    path = folder / f"trials{ending}"
    if ending == ".csv":
        path.write_text(as_csv(records, study))
    else:
        write_parquet(records, path, study)
    return path


def from_table(path: Path, **asked: Any) -> Any:
    exported = exported_trials(path)
    assert exported is not None
    return weigh(exported, **asked)


def _as_json(each: Comparison) -> dict[str, Any]:
    """Without the note on marks of one side alone: a table has the states of trials and not the codes of marks."""
    notes = [note for note in each.notes if note.code != "compare.unlike-conditions"]
    return {**each.as_json(), "notes": notes}


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(6, 12),
    effect=st.sampled_from([-0.04, 0.0, 0.02, 0.2]),
    seed=st.integers(0, 9),
    unusable=st.sets(st.integers(0, 17), max_size=5),
    state=st.sampled_from(["failed", "invalid", "suspect", "interrupted"]),
)
def test_a_table_gives_the_verdict_of_its_store(tmp_path_factory, n, effect, seed, unusable, state):
    records = weighed_records(n, effect, seed)
    for place in unusable:  # without figures where they failed: such rows are blank there
        metrics = records[place].metrics if state == "suspect" else {}
        reasons = (because("=it, failed"),)
        records[place] = replace(records[place], state=state, reasons=reasons, metrics=metrics)
    path = written(tmp_path_factory.mktemp("table"), records, STUDY)
    ours, theirs = from_table(path), weigh(FakeStore(records, STUDY))
    assert [_as_json(each) for each in ours.comparisons] == [_as_json(each) for each in theirs.comparisons]
    assert (ours.question, ours.counts, ours.medians) == (theirs.question, theirs.counts, theirs.medians)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_commands_and_levels_that_are_lists_come_back_as_they_were(tmp_path, ending):
    made = [
        record(name, block, 0.002 + block * 1e-5, settings={"workload.argv": ["main.py", "-b", size]})
        for block in range(3)
        for name in ("bare", "docker")
        for size in ("8", "16")
    ]
    exported = exported_trials(written(tmp_path, made, STUDY, ending))
    assert exported is not None
    assert [each.settings for each in exported.records()] == [each.settings for each in made]
    assert [each.metrics for each in exported.records()] == [each.metrics for each in made]


def test_the_verb_takes_columns_by_either_name_and_needs_no_metric(tmp_path):
    path = written(tmp_path, weighed_records(8, 0.1), STUDY)
    plain = CliRunner().invoke(tare, ["compare", str(path)])
    named = CliRunner().invoke(tare, ["compare", str(path), "--by", "setting.platform", "--metric", "metric.step_s"])
    assert plain.exit_code == named.exit_code == 0
    assert plain.output == named.output
    assert "slower" in plain.output


def test_a_table_of_someone_else_is_none_of_ours(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("platform,step_s\nbare,1\ndocker,2\n")
    assert exported_trials(path) is None
