"""Files that other benchmark tools wrote, for real (tests/recordings/benchmark-tools), compared by `tare compare`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from click.testing import CliRunner

from tare.analysis.foreign import recognised
from tare.base.errors import StudyError
from tare.cli import tare

KEPT = Path(__file__).parents[2] / "recordings" / "benchmark-tools"
TOOLS = {  # file -> the tool, the runs that it holds, one of its levels
    "hyperfine.json": ("hyperfine", 20, "sleep 0.01"),
    "pyperf.json": ("pyperf", 12, "sum"),
    "pytest-benchmark.json": ("pytest-benchmark", 16, "test_b.py::test_sum"),
    "google-benchmark.json": ("Google Benchmark", 16, "BM_sum"),
}


def comparisons(*words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(tare, ["compare", *words, "--json"])
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["comparisons"]
    return found


@pytest.mark.parametrize("name", TOOLS)
def test_a_file_is_known_by_what_is_in_it_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    tool, runs, level = TOOLS[name]
    copy = shutil.copy(KEPT / name, tmp_path / "results.txt")

    found = recognised(Path(copy))

    assert found is not None
    assert (found.tool, len(found.rows)) == (tool, runs)
    assert level in found.columns["benchmark"]


@pytest.mark.parametrize("name", TOOLS)
def test_it_is_compared_without_naming_a_column_and_one_after_the_other_is_not_sure(name: str) -> None:
    found = comparisons(str(KEPT / name))[0]
    assert found["metric"] == "time_s"
    assert found["effect"] is not None
    assert found["verdict"] == "cannot_tell"  # the tool ran one level after the other


def test_the_runs_are_the_tool_s_own_in_seconds() -> None:
    held = json.loads((KEPT / "hyperfine.json").read_text())
    found = recognised(KEPT / "hyperfine.json")
    assert found is not None
    assert [float(row["time_s"]) for row in found.rows] == [time for each in held["results"] for time in each["times"]]
    held = json.loads((KEPT / "google-benchmark.json").read_text())
    found = recognised(KEPT / "google-benchmark.json")
    assert found is not None
    first = next(each for each in held["benchmarks"] if each["run_type"] == "iteration")
    assert float(found.rows[0]["time_s"]) == pytest.approx(first["real_time"] * 1e-9)


def test_of_pyperf_a_process_is_one_run() -> None:
    held = json.loads((KEPT / "pyperf.json").read_text())
    values = [run["values"] for run in held["benchmarks"][0]["runs"] if "values" in run]
    found = recognised(KEPT / "pyperf.json")
    assert found is not None
    assert [float(row["time_s"]) for row in found.rows[: len(values)]] == pytest.approx(
        [fmean(each) for each in values]
    )
    assert all(row["started_utc"] for row in found.rows)


def test_two_texts_with_a_number_a_line_are_two_levels(tmp_path: Path) -> None:
    for name, base in (("before", 1.0), ("after", 1.5)):
        (tmp_path / f"{name}.txt").write_text("# seconds\n" + "\n".join(str(base + 0.01 * run) for run in range(8)))
    files = [str(tmp_path / "before.txt"), str(tmp_path / "after.txt")]

    found = comparisons(*files, "--order", "shuffled", "--lower-is-better", "--against", "before")

    assert found[0]["level"] == "after"
    assert found[0]["verdict"] == "slower"


def test_what_cannot_be_compared_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="--export-json"):
        recognised(KEPT / "hyperfine.csv")
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({"results": [{"command": "x", "times": ["soon"]}]}))
    with pytest.raises(StudyError, match="hyperfine"):
        recognised(broken)
    broken.write_text(json.dumps({"benchmarks": [{"fullname": "x", "stats": {"mean": 1}}]}))
    with pytest.raises(StudyError, match="benchmark-save-data"):
        recognised(broken)
    broken.write_text("{" * 2000)
    assert recognised(broken) is None
    done = CliRunner().invoke(tare, ["compare", str(KEPT / "hyperfine.json"), str(KEPT / "pyperf.json")])
    assert "several tools" in str(done.exception or done.output)
    done = CliRunner().invoke(tare, ["compare", str(broken), str(KEPT / "pyperf.json")])
    assert "each one level" in str(done.exception or done.output)
