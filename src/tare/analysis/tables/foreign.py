"""Files of other benchmark tools, recognised by what is in them: each becomes a table with one row a run.

hyperfine, pyperf, pytest-benchmark, Google Benchmark, Criterion and optimum-benchmark write JSON, MLPerf LoadGen and
`perf stat` texts; those of load generators are in load_generators.py. A plain text has one number a line. The unit is
what the tool ran apart: of pyperf a process, of LoadGen a whole run, of the others a run, or a round in one process.
The order of running is kept where the file has it; else rows count as run in the order in which they stand. A folder
holds what Criterion leaves in it, or several runs.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tare.analysis.tables import load_generators
from tare.base.errors import StudyError
from tare.records.schema import STORE_FILE

MOST_BYTES = 256 * 1024 * 1024
MOST_FILES = 10_000
_SAMPLES, _NEWEST = "sample.json", "new"  # Criterion's file, and its folder for the last run
_RUN_FILES = (  # as the tools call them in each folder
    "mlperf_log_detail.txt",
    _SAMPLES,
    "benchmark_report.json",
    load_generators.RECORDS,
    *load_generators.SUMMARIES,
)
_ONE = "Criterion keeps the last run only: `cargo bench -- --save-baseline NAME` keeps one to compare with."
BENCHMARK, TIME, STARTED = "benchmark", "time_s", "started_utc"
_Row = load_generators.Row
PER_TOKEN = f"{load_generators.PER_TOKEN}_s"
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_HEAD = 1 << 16
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_MEANS = (
    "`perf stat -r -x,` keeps one mean an event and no runs, so nothing is claimed. `-r N --table -o FILE` keeps the "
    "time of each, `-x, -e duration_time --append -o FILE` run N times also the events."
)
_SUMMARY = "command,mean,stddev,median,user,system,min,max"


@dataclass(frozen=True)
class Foreign:
    """One row a run, and which columns `tare compare` takes where none is named."""

    tool: str
    rows: Sequence[Mapping[str, str]]
    notes: tuple[str, ...] = ()
    by: str = BENCHMARK
    metric: str = TIME
    within: str | None = None  # a column of what is not compared with each other

    @property
    def columns(self) -> dict[str, list[str | None]]:
        names = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in names}


@dataclass
class _Runs:
    """Rows on their way."""

    rows: list[dict[str, str]] = field(default_factory=list)

    def add(self, benchmark: object, seconds: float | None, **more: object) -> None:
        kept = {name: str(value) for name, value in more.items() if value is not None}
        time = {} if seconds is None else {TIME: repr(float(seconds))}
        self.rows.append({BENCHMARK: str(benchmark), **time, **kept})


def recognised(path: Path) -> Foreign | None:
    """What another tool wrote, or None: then it is a table, a store, or nothing that tare knows."""
    if (folder := recognised_folder(path)) is not None:
        return folder
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return None
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if text.startswith(_SUMMARY):
        return _hyperfine_means(path, text)
    if not text.lstrip().startswith(("{", "[")):
        return (
            _loadgen(path, text) or _perf_table(path, text) or _perf_csv(path, text) or _numbers(path, text)
            or _imported(path)
        )  # fmt: skip
    held: Any
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        held = load_generators.json_lines(text)
    known = _TOOLS if isinstance(held, dict) else {}
    for tool, (is_its, read) in {**known, **load_generators.READERS}.items():
        if is_its(held):
            return _named(path, _read(path, tool, read, held))
    return _imported(path)


def _imported(path: Path) -> Foreign | None:
    """By a reader of another package: an entry point in the group `tare.importers`, a function of the path."""
    if path.suffix.lower() in _TABLES:
        return None
    from importlib.metadata import entry_points

    readers = (each.load() for each in entry_points(group="tare.importers"))
    return next((found for read in readers if (found := read(path)) is not None), None)


def _hyperfine_means(path: Path, text: str) -> Foreign:
    """`--export-csv`: one mean a command, which shows a difference and proves none."""
    runs = _Runs()
    for row in csv.DictReader(text.splitlines()):
        try:
            runs.add(row["command"], float(row["mean"]))
        except (TypeError, ValueError):
            raise StudyError(f"{path}: the mean of {row['command']!r} in hyperfine's CSV is no number.") from None
    kept = "hyperfine's CSV has one mean a command and no runs, so nothing is claimed; `--export-json` keeps them."
    return Foreign("hyperfine", runs.rows, (kept,))


def _named(path: Path, found: Foreign) -> Foreign:
    """Criterion's files do not name their benchmark: the folder does, and a file next to it."""
    if found.tool != "Criterion":
        return found
    name = path.resolve().parent.parent.name
    with suppress(OSError, ValueError, KeyError, TypeError):
        name = str(json.loads((path.parent / "benchmark.json").read_text("utf-8"))["full_id"])
    baseline = path.resolve().parent.name
    return replace(found, rows=[{**row, BENCHMARK: name, "baseline": baseline} for row in found.rows])


def recognised_folder(path: Path) -> Foreign | None:
    """Runs of one tool in a folder: what Criterion leaves in `target/criterion`, or logs of several LoadGen runs."""
    try:
        if not path.is_dir() or (path / STORE_FILE).exists():
            return None
    except PermissionError:  # whoever opens it as a store says so
        return None
    for pattern in _RUN_FILES:
        files = sorted(file for file in path.rglob(pattern) if file.is_file())[:MOST_FILES]
        if pattern == _SAMPLES:  # the order of running, as far as the files keep it
            files.sort(key=lambda file: file.stat().st_mtime_ns)
        if found := [(file, each) for file in files if (each := recognised(file)) is not None]:
            return _chosen(_joined(found))
    runs = [(file, each) for file in sorted(path.glob("*.json"))[:MOST_FILES] if (each := _vllm_run(file)) is not None]
    return _joined(runs) if runs else None


def _vllm_run(file: Path) -> Foreign | None:
    """What `--result-dir` holds, whose names are the user's; other JSON is left after a look at its beginning."""
    with suppress(OSError), file.open("rb") as opened:
        if b'"request_throughput"' in opened.read(_HEAD):
            found = recognised(file)
            return found if found is not None and found.tool == load_generators.VLLM else None
    return None


def _joined(found: Sequence[tuple[Path, Foreign]]) -> Foreign:
    """The runs of one side, each called like its folder, or its file."""
    rows = [
        {"run": file.parent.name if file.name in _RUN_FILES else file.stem, **row}
        for file, each in found for row in each.rows
    ]  # fmt: skip
    return replace(found[0][1], rows=rows, notes=tuple(dict.fromkeys(note for _, each in found for note in each.notes)))


def _chosen(found: Foreign) -> Foreign:
    """Of Criterion the baselines, for each benchmark; where it has none, the last run of each benchmark."""
    if found.tool != "Criterion":
        return found
    runs: dict[str, dict[str, list[Mapping[str, str]]]] = {}
    for row in found.rows:
        runs.setdefault(row[BENCHMARK], {}).setdefault(row["baseline"], []).append(row)
    distinct = [_distinct(baselines) for baselines in runs.values()]
    if any(len(baselines) > 1 for baselines in distinct):
        rows = [row for baselines in distinct for rows in baselines.values() for row in rows]
        return replace(found, rows=rows, by="baseline", within=BENCHMARK if len(runs) > 1 else None)
    newest = [row for baselines in runs.values() for row in baselines.get(_NEWEST) or list(baselines.values())[-1]]
    return replace(found, rows=newest, notes=(*found.notes, _ONE))


def _distinct(baselines: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[str, Sequence[Mapping[str, str]]]:
    """Without `new` where it is the copy of another one: Criterion leaves the last run twice, as `base` or as named."""
    times = {name: [row[TIME] for row in rows] for name, rows in baselines.items()}
    copied = any(times[name] == times.get(_NEWEST) for name in times if name != _NEWEST)
    return {name: rows for name, rows in baselines.items() if not (copied and name == _NEWEST)}


def _read(path: Path, tool: str, read: Callable[[Any], Iterator[_Row]], held: Any) -> Foreign:
    runs = _Runs()
    try:
        for benchmark, seconds, more in read(held):
            runs.add(benchmark, seconds, **more)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise StudyError(f"{path}: it looks like JSON of {tool}, but cannot be read as such: {error!r}.") from None
    if not runs.rows:
        raise StudyError(f"{path}: {tool} kept no single runs in it{_HINTS.get(tool, '')}.")
    return Foreign(tool, runs.rows, metric=TIME if all(TIME in row for row in runs.rows) else PER_TOKEN)


def _hyperfine(held: Any) -> Iterator[_Row]:
    for result in held["results"]:
        parameters = dict(result.get("parameters") or {})
        for seconds in result.get("times") or ():
            yield result["command"], float(seconds), parameters


def _pyperf(held: Any) -> Iterator[_Row]:
    common = held.get("metadata") or {}
    for benchmark in held["benchmarks"]:
        name = (benchmark.get("metadata") or {}).get("name") or common.get("name") or "benchmark"
        for run in benchmark["runs"]:
            if values := run.get("values"):
                yield name, fmean(map(float, values)), {STARTED: (run.get("metadata") or {}).get("date")}


def _pytest_benchmark(held: Any) -> Iterator[_Row]:
    for benchmark in held["benchmarks"]:
        for seconds in benchmark["stats"].get("data") or ():
            yield benchmark["fullname"], float(seconds), {}


def _google_benchmark(held: Any) -> Iterator[_Row]:
    for run in held["benchmarks"]:
        if run.get("run_type", "iteration") == "iteration" and not run.get("error_occurred"):
            seconds = float(run["real_time"]) * _SECONDS[run.get("time_unit", "ns")]
            yield run.get("run_name", run["name"]), seconds, {"repetition": run.get("repetition_index")}


def _criterion(held: Any) -> Iterator[_Row]:
    """`sample.json`: for each sample how many iterations it had, and its nanoseconds."""
    for iterations, taken_ns in zip(held["iters"], held["times"], strict=True):
        yield "benchmark", float(taken_ns) / float(iterations) * 1e-9, {}


def _optimum(held: Any) -> Iterator[_Row]:
    """`benchmark_report.json`, or `benchmark.json` with the report in it: the latencies of each target."""
    for target, kept in (held.get("report") or held).items():
        latency: Mapping[str, Any] = (kept.get("latency") if isinstance(kept, dict) else None) or {}
        for value in latency.get("values") or ():
            yield target, float(value) * _SECONDS[latency.get("unit", "s")], {}


def _is_optimum(held: Any) -> bool:
    report = held.get("report", held)
    return isinstance(report, dict) and any(_has(kept, "latency", "values") for kept in report.values())


def _loadgen(path: Path, text: str) -> Foreign | None:
    """`mlperf_log_detail.txt`: one run of LoadGen, with its mean latency; the level is the scenario."""
    if _MLLOG not in text[:4096]:
        return None
    told: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith(_MLLOG):
            with suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line.removeprefix(_MLLOG))
                told[entry["key"]] = entry["value"]
    if "result_mean_latency_ns" not in told:
        raise StudyError(f"{path}: this log of MLPerf LoadGen has no result: the run did not come to its end.")
    row = {BENCHMARK: str(told.get("effective_scenario", "run"))}
    for name, key in {TIME: "result_mean_latency_ns", **_LOADGEN_KEYS}.items():
        if isinstance(value := told.get(key), int | float):
            row[name] = repr(float(str(value)) * (1e-9 if key.endswith("_ns") else 1))  # of any number of digits
    row["valid"] = str(told.get("result_validity", ""))
    return Foreign("MLPerf LoadGen", [row])


_MLLOG = ":::MLLOG "
_LOADGEN_KEYS = {
    "p50_s": "result_50.00_percentile_latency_ns", "p90_s": "result_90.00_percentile_latency_ns",
    "p99_s": "result_99.00_percentile_latency_ns", "queries_per_second": "result_qps_with_loadgen_overhead",
    "samples_per_second": "result_samples_per_second",
}  # fmt: skip


def _perf_table(path: Path, text: str) -> Foreign | None:
    """`perf stat -r N --table`: the elapsed seconds of every run; the level is the command."""
    named = re.search(r"Performance counter stats for '(.*)' \(\d+ runs\):", text)
    _, found, rest = text.partition("# Table of individual measurements:")
    if named is None or not found:
        return None
    taken = re.findall(r"^\s*(\d+\.\d+) \([+-]\d+\.\d+\)", rest.partition("# Final result")[0], re.MULTILINE)
    return Foreign("perf stat", [{BENCHMARK: named[1], TIME: repr(float(seconds))} for seconds in taken])


def _perf_csv(path: Path, text: str) -> Foreign | None:
    """`perf stat -x, --append`, one part a run: every event is a column; the level is the file's name."""
    if not text.lstrip().startswith("# started on "):
        return None
    rows: list[dict[str, str]] = []
    notes: tuple[str, ...] = ()
    for line in text.splitlines():
        if line.lstrip().startswith("# started on "):
            rows.append({BENCHMARK: path.stem})
        elif len(cells := line.split(",")) > 4 and cells[0].replace(".", "", 1).isdecimal():
            if cells[3].endswith("%"):
                notes = (_MEANS,)
            seconds = _SECONDS.get(cells[1].replace("msec", "ms"))
            rows[-1][cells[2]] = repr(float(cells[0]) * seconds) if seconds else cells[0]
    metric = next((name for name in ("duration_time", "task-clock") if all(name in row for row in rows)), "")
    if not metric:
        raise StudyError(f"{path}: not every run in it has `duration_time` or `task-clock`: `perf stat -e` names them.")
    return Foreign("perf stat", [{TIME: row[metric], **row} for row in rows], notes)


def _has(held: Any, *path: str) -> bool:
    """Whether the first of each list on the way has such a key."""
    for key in path:
        held = held[0] if isinstance(held, list) and held else held
        if not isinstance(held, dict) or key not in held:
            return False
        held = held[key]
    return True


_TOOLS: Mapping[str, tuple[Callable[[Any], bool], Callable[[Any], Iterator[_Row]]]] = {
    "hyperfine": (lambda held: _has(held, "results", "command"), _hyperfine),
    "pyperf": (lambda held: _has(held, "benchmarks", "runs"), _pyperf),
    "pytest-benchmark": (lambda held: _has(held, "benchmarks", "stats"), _pytest_benchmark),
    "Criterion": (lambda held: _has(held, "iters") and _has(held, "times"), _criterion),
    "optimum-benchmark": (_is_optimum, _optimum),
    "Google Benchmark": (lambda held: _has(held, "benchmarks", "real_time"), _google_benchmark),
}
_HINTS = {
    "pytest-benchmark": " (`--benchmark-json` keeps them, `--benchmark-save` without `--benchmark-save-data` not)"
}


def _numbers(path: Path, text: str) -> Foreign | None:
    """One number a line; the level is the file's name."""
    if path.suffix.lower() in _TABLES:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        return None
    try:
        values = [float(line) for line in lines]
    except ValueError:
        return None
    return Foreign("numbers", [{BENCHMARK: path.stem, "value": repr(value)} for value in values], metric="value")


def together(found: Mapping[Path, Foreign]) -> Foreign:
    """Several files, each one level that is called like it; several benchmarks are compared one by one."""
    tools = {each.tool for each in found.values()}
    if len(tools) > 1:
        raise StudyError(f"these files are of several tools ({', '.join(sorted(tools))}); compare those of one.")
    names = [level_name(path) for path in found]
    if len(set(names)) < len(names):
        raise StudyError("two of these files have the same name, and the name is the level: rename one.")
    rows = [{**row, "file": level_name(path)} for path, each in found.items() for row in each.rows]
    asked = dict.fromkeys(each.metric for each in found.values())
    metric = next((name for name in asked if all(name in row for row in rows)), next(iter(asked)))
    several = any(len({row[BENCHMARK] for row in each.rows}) > 1 for each in found.values())
    notes = tuple(dict.fromkeys(note for each in found.values() for note in each.notes if note != _ONE))
    notes += tuple(load_generators.notes(next(iter(tools)), rows, "file", [_folder_of_runs(path) for path in found]))
    return Foreign(next(iter(tools)), rows, notes, "file", metric, BENCHMARK if several else None)


def _folder_of_runs(path: Path) -> Path:
    """Where more runs of this side lie, or can be put: the folder that was given, or one called like the file."""
    if path.is_dir():
        return path
    return path.parent if path.name in _RUN_FILES else path.with_suffix("")


def level_name(path: Path) -> str:
    """The file's name, or the folder's where the tool calls every file the same."""
    if path.is_dir() or path.name in _RUN_FILES:
        return (path if path.is_dir() else path.parent).resolve().name
    return path.stem
