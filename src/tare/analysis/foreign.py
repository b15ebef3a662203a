"""Files of other benchmark tools, recognised by what is in them: each becomes a table with one row a run.

hyperfine, pyperf, pytest-benchmark and Google Benchmark write JSON; a text has one number a line. The unit is what the
tool ran apart: of pyperf a process, whose values are averaged; of the others a run, or a round in one process. The
order of running is kept where the file has it; else rows count as run in the order in which they stand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from tare.base.errors import StudyError

MOST_BYTES = 256 * 1024 * 1024
BENCHMARK, TIME, STARTED = "benchmark", "time_s", "started_utc"
_Row = tuple[str, float, dict[str, Any]]  # benchmark, seconds, further columns
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_SUMMARY = "command,mean,stddev,median,user,system,min,max"


@dataclass(frozen=True)
class Foreign:
    """One row a run, and which columns `tare compare` takes where none is named."""

    tool: str
    rows: Sequence[Mapping[str, str]]
    notes: tuple[str, ...] = ()
    by: str = BENCHMARK
    metric: str = TIME

    @property
    def columns(self) -> dict[str, list[str | None]]:
        names = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in names}


@dataclass
class _Runs:
    """Rows on their way."""

    rows: list[dict[str, str]] = field(default_factory=list)

    def add(self, benchmark: object, seconds: float, **more: object) -> None:
        kept = {name: str(value) for name, value in more.items() if value is not None}
        self.rows.append({BENCHMARK: str(benchmark), TIME: repr(float(seconds)), **kept})


def recognised(path: Path) -> Foreign | None:
    """What another tool wrote, or None: then it is a table, a store, or nothing that tare knows."""
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return None
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if text.startswith(_SUMMARY):
        raise StudyError(
            f"{path}: hyperfine's CSV has one mean a command, and no runs to compare; `--export-json` keeps them."
        )
    if not text.lstrip().startswith("{"):
        return _numbers(path, text)
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for tool, (is_its, read) in _TOOLS.items():
        if is_its(held):
            return _read(path, tool, read, held)
    return None


def _read(path: Path, tool: str, read: Callable[[Any], Iterator[_Row]], held: Any) -> Foreign:
    runs = _Runs()
    try:
        for benchmark, seconds, more in read(held):
            runs.add(benchmark, seconds, **more)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StudyError(f"{path}: it looks like JSON of {tool}, but cannot be read as such: {error!r}.") from None
    if not runs.rows:
        raise StudyError(f"{path}: {tool} kept no single runs in it{_HINTS.get(tool, '')}.")
    return Foreign(tool, runs.rows)


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
    "Google Benchmark": (lambda held: _has(held, "benchmarks", "real_time"), _google_benchmark),
}
_HINTS = {
    "pytest-benchmark": " (`--benchmark-json` keeps them, `--benchmark-save` without `--benchmark-save-data` not)"
}


def _numbers(path: Path, text: str) -> Foreign | None:
    """One number a line; the level is the file's name."""
    if path.suffix.lower() in (".csv", ".tsv", ".jsonl", ".ndjson"):
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
    """Several files, each one level: what it is called is the file's name."""
    tools = {each.tool for each in found.values()}
    if len(tools) > 1:
        raise StudyError(f"these files are of several tools ({', '.join(sorted(tools))}); compare those of one.")
    metric = next(iter(found.values())).metric
    names = [path.stem for path in found]
    if len(set(names)) < len(names):
        raise StudyError("two of these files have the same name, and the name is the level: rename one.")
    rows = []
    for path, each in found.items():
        if len(kinds := {row[BENCHMARK] for row in each.rows}) > 1:
            raise StudyError(
                f"{path}: it has {len(kinds)} benchmarks; of several files each is one level, and has one benchmark."
            )
        rows += [{**row, "file": path.stem} for row in each.rows]
    return Foreign(next(iter(tools)), rows, by="file", metric=metric)
