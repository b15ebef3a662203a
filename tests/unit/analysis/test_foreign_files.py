"""Files that other benchmark tools wrote, for real (tests/recordings/benchmark-tools), compared by `tare compare`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from click.testing import CliRunner

from tare.analysis.tables.foreign import recognised
from tare.base.errors import StudyError
from tare.cli import tare

KEPT = Path(__file__).parents[2] / "recordings" / "benchmark-tools"
TOOLS = {  # file -> the tool, the runs that it holds, one of its levels
    "hyperfine.json": ("hyperfine", 20, "sleep 0.01"),
    "pyperf.json": ("pyperf", 12, "sum"),
    "pytest-benchmark.json": ("pytest-benchmark", 16, "test_b.py::test_sum"),
    "google-benchmark.json": ("Google Benchmark", 16, "BM_sum"),
}
ONE_LEVEL = {  # files that hold one level each
    "perf-table.txt": ("perf stat", 8, "sleep 0.01"),
    "perf-append.csv": ("perf stat", 8, "perf-append"),
    "optimum-benchmark.json": ("optimum-benchmark", 12, "forward"),
}


def comparisons(*words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(tare, ["compare", *words, "--json"])
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["comparisons"]
    return found


@pytest.mark.parametrize("name", [*TOOLS, *ONE_LEVEL])
def test_a_file_is_known_by_what_is_in_it_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    tool, runs, level = {**TOOLS, **ONE_LEVEL}[name]
    copy = shutil.copy(KEPT / name, tmp_path / "results.txt")
    level = "results" if level == "perf-append" else level  # which has no name in it

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
    assert "each as one level" in str(done.exception or done.output)


@pytest.mark.parametrize(
    ("files", "effect", "hint"),
    [(["hyperfine.csv"], 0.0173363643 / 0.0154947757 - 1, "--export-json"), (["a.csv", "b.csv"], 0.5, "--table")],
)
def test_of_means_alone_the_difference_is_shown_and_nothing_is_claimed(tmp_path, files, effect, hint) -> None:
    mean = (KEPT / "perf-mean.csv").read_text()
    (tmp_path / "a.csv").write_text(mean)
    (tmp_path / "b.csv").write_text(mean.replace("0.30,msec", "0.45,msec"))
    (tmp_path / "hyperfine.csv").write_text((KEPT / "hyperfine.csv").read_text())

    done = CliRunner().invoke(tare, ["compare", *(str(tmp_path / each) for each in files), "--json"])

    (found,) = json.loads(done.stdout)["comparisons"]
    assert found["effect"] == pytest.approx(effect, rel=1e-6)
    assert (found["verdict"], found["low"], found["n"]) == ("cannot_tell", None, 1)
    assert hint in done.stderr


def test_a_mean_that_is_no_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("command,mean,stddev,median,user,system,min,max\nls,soon,,,,,,\n")
    with pytest.raises(StudyError, match="'ls' in hyperfine's CSV is no number"):
        recognised(tmp_path / "x.csv")


def test_of_perf_the_appended_runs_keep_their_events() -> None:
    found = recognised(KEPT / "perf-append.csv")
    assert found is not None
    assert found.rows[0]["time_s"] == found.rows[0]["duration_time"] == repr(17777280 * 1e-9)
    assert float(found.rows[0]["task-clock"]) == pytest.approx(0.72e-3)
    assert found.rows[0]["page-faults"] == "63"


def loadgen_runs(folder: Path, factor: float) -> Path:
    """Eight runs, made from a real log."""
    real = (KEPT.parent / "loadgen" / "single_stream" / "mlperf_log_detail.txt").read_text()
    assert '"result_mean_latency_ns", "value": 2233668' in real
    for run in range(8):
        place = folder / f"run-{run}"
        place.mkdir(parents=True)
        taken = round(2_233_668 * factor * (1 + 0.001 * (run * 5 % 8)))
        (place / "mlperf_log_detail.txt").write_text(
            real.replace('"result_mean_latency_ns", "value": 2233668', f'"result_mean_latency_ns", "value": {taken}')
        )
    return folder


def test_a_run_of_loadgen_is_one_row_and_a_folder_of_runs_is_a_level(tmp_path: Path) -> None:
    one = recognised(KEPT.parent / "loadgen" / "single_stream" / "mlperf_log_detail.txt")
    assert one is not None
    assert (one.tool, len(one.rows), one.rows[0]["benchmark"]) == ("MLPerf LoadGen", 1, "SingleStream")
    assert float(one.rows[0]["time_s"]) == pytest.approx(2_233_668e-9)
    assert float(one.rows[0]["p99_s"]) == pytest.approx(2_329_797e-9)
    levels = [str(loadgen_runs(tmp_path / name, factor)) for name, factor in (("bare", 1.0), ("docker", 1.3))]
    found = comparisons(*levels)[0]
    assert {found["level"], found["against"]} == {"bare", "docker"}
    assert abs(found["effect"]) > 0.2


# Criterion 0.5.1, ten samples of a loop and a slower one: `cargo bench -- --save-baseline before`, then `after`.
CRITERION = KEPT / "criterion"
IN_ORDER = ("before", "after", "new")


@pytest.fixture
def criterion(tmp_path: Path) -> Path:
    """As it lay in `target/criterion`, with the times of writing that it had there."""
    folder = Path(shutil.copytree(CRITERION, tmp_path / "criterion"))
    for file in folder.rglob("*.json"):
        os.utime(file, (0, IN_ORDER.index(file.parent.name)))
    return folder


def test_of_criterion_the_baselines_are_compared_benchmark_by_benchmark(criterion: Path) -> None:
    one, all_ = recognised(criterion / "sum of 1000"), recognised(criterion)
    assert one is not None and all_ is not None
    assert (one.by, list(dict.fromkeys(row["baseline"] for row in one.rows))) == ("baseline", ["before", "after"])
    assert (all_.by, all_.within) == ("baseline", "benchmark")
    compared = comparisons(str(criterion / "sum of 1000"))
    assert [(each["against"], each["level"]) for each in compared] == [("before", "after")]
    each = comparisons(str(criterion))  # of the other benchmark there is the last run alone
    assert [(each["against"], each["level"]) for each in each] == [("sum of 1000, before", "sum of 1000, after")]


def test_the_samples_of_criterion_have_the_mean_that_it_reports_itself() -> None:
    folder = CRITERION / "sums/xor/500/new"
    found = recognised(folder / "sample.json")
    assert found is not None
    assert {row["benchmark"] for row in found.rows} == {"sums/xor/500"}
    reported = json.loads((folder / "estimates.json").read_text())["mean"]["point_estimate"]
    assert fmean(float(row["time_s"]) for row in found.rows) == pytest.approx(reported * 1e-9)


def test_what_criterion_keeps_twice_is_not_compared_with_itself(criterion: Path) -> None:
    """After `cargo bench` alone `base` is a copy of `new`: the run before is lost."""
    plain = criterion / "sums/xor/500"
    shutil.copytree(plain / "new", plain / "base")

    found = recognised(plain)

    assert found is not None
    assert {row["baseline"] for row in found.rows} == {"new"}
    assert "--save-baseline" in found.notes[0]


def test_a_store_is_no_folder_of_another_tool(tmp_path: Path) -> None:
    shutil.copytree(CRITERION, tmp_path, dirs_exist_ok=True)
    (tmp_path / "store.json").write_text("{}")
    assert recognised(tmp_path) is None


def test_of_two_files_with_several_benchmarks_each_benchmark_is_compared_with_itself(tmp_path: Path) -> None:
    held = json.loads((KEPT / "pytest-benchmark.json").read_text())
    for benchmark, factor in zip(held["benchmarks"], (1.1, 2.0), strict=True):
        benchmark["stats"]["data"] = [seconds * factor for seconds in benchmark["stats"]["data"]]
    after = tmp_path / "after.json"
    after.write_text(json.dumps(held))
    before = shutil.copy(KEPT / "pytest-benchmark.json", tmp_path / "before.json")

    found = comparisons(str(before), str(after), "--order", "shuffled")

    names = [benchmark["fullname"] for benchmark in held["benchmarks"]]
    assert [(each["against"], each["level"]) for each in found] == [(f"{x}, before", f"{x}, after") for x in names]
    assert [each["effect"] for each in found] == pytest.approx([0.1, 1.0])
    (other,) = comparisons(str(before), str(after), "--by", "benchmark")
    assert (other["against"], other["level"]) == tuple(names)


def test_a_file_with_one_level_asks_for_a_second_file() -> None:
    done = CliRunner().invoke(tare, ["compare", str(KEPT / "perf-table.txt")])
    assert "has one benchmark only (sleep 0.01). Name a second file" in str(done.exception)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_a_file_without_lines_is_not_taken_into_memory(tmp_path, monkeypatch, name):
    """Zeros, of which a sparse file has as many as it likes."""
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 36)
    done = CliRunner().invoke(tare, ["compare", str(tmp_path / name), "--by", "a", "--metric", "b"])
    assert isinstance(done.exception, StudyError)
    assert f"{name}:1: this line has more than" in str(done.exception)


def loadgen(key: str, value: str) -> str:
    return "".join(
        f':::MLLOG {{"key": "{name}", "value": {text}}}\n'
        for name, text in {"effective_scenario": '"Offline"', "result_mean_latency_ns": "5000000", key: value}.items()
    )


ODD = {
    "no iterations": '{"iters": [0.0], "times": [5.0]}',
    "400 digits": '{"iters": [1.0], "times": [' + "9" * 400 + "]}",
    "400 digits of hyperfine": '{"results": [{"command": "a", "times": [' + "9" * 400 + "]}]}",
    "a mean of LoadGen that is a text": loadgen("result_mean_latency_ns", '"5"'),
    "400 digits of LoadGen": loadgen("result_mean_latency_ns", "9" * 400),
    "400 digits of a percentile": loadgen("result_50.00_percentile_latency_ns", "9" * 400),
    "perf stat with a blank before its head": " # started on Thu\n\n1,msec,task-clock,1,100.00\n",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_numbers_that_no_benchmark_has_are_refused_in_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    done = CliRunner().invoke(tare, ["compare", *[str(tmp_path / "a.json")] * 2])
    assert isinstance(done.exception, StudyError | SystemExit), done.exception
