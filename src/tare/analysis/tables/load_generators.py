"""Files of load generators for language models: AIPerf (and genai-perf before it), vLLM's `bench serve`, llama-bench.

Requests of one run share its server, its caches and its neighbours, so that a run is the unit: the mean over its
requests, with the tail. Several runs of a side lie in a folder. llama-bench sends no requests: its repetitions are the
unit. Requests that failed are in no mean, and their number is kept.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
AIPERF, VLLM, LLAMA = "AIPerf", "vLLM bench serve", "llama-bench"
PER_TOKEN = "time_per_output_token"
RECORDS, SUMMARIES = "profile_export.jsonl", ("profile_export_aiperf.json", "profile_export_genai_perf.json")
_NAMES = {  # as AIPerf calls them, and as columns here
    "request_latency": "time", "time_to_first_token": "time_to_first_token",
    "inter_token_latency": PER_TOKEN,
}  # fmt: skip
_OF_VLLM = {"e2el": "time", "ttft": "time_to_first_token", "tpot": PER_TOKEN}
_LOADS = ("request_rate", "max_concurrency", "num_prompts")
# What settles a question that too few runs leave open: in turns, so that no side always comes first.
IN_TURNS = {
    AIPERF: 'aiperf profile ... --artifact-dir "$side/$n"',
    VLLM: 'vllm bench serve ... --save-result --result-dir "$side" --result-filename $n.json',
}
FEWEST = 6  # runs of a side, for an interval

Row = tuple[str, float | None, dict[str, Any]]  # benchmark, seconds, further columns


def how_to_settle(tool: str, folders: Sequence[Path]) -> str:
    sides = shlex.join(map(str, folders))
    return (
        f"fewer than {FEWEST} runs of a side prove nothing, however many requests they hold. This settles it: "
        f"`for n in $(seq 8); do shuf -e -- {sides} | while IFS= read -r side; do {IN_TURNS[tool]} < /dev/null; "
        f"done; done; tare compare --block run -- {sides}`, each side with its own server."
    )


def json_lines(text: str) -> list[Any] | None:
    """A run's records, or runs, one per line; None of a table with a row per line, and where a line is no JSON."""
    lines = [line for line in text.split("\n") if line.strip()]
    try:
        if any(is_its([json.loads(lines[0])]) for is_its, _ in READERS.values()):
            return [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        pass
    return None


def _many(held: Any) -> list[Any]:
    """A file of lines with one line is read as what is in it."""
    return held if isinstance(held, list) else [held]


def _are_records(held: Any) -> bool:
    first = next(iter(_many(held)), None)
    return isinstance(first, dict) and "benchmark_phase" in (first.get("metadata") or {}) and "metrics" in first


def _records(held: list[Any]) -> Iterator[Row]:
    """`profile_export.jsonl`: a record per request. Warm-up is not measured; one that failed has an error."""
    measured = [each for each in held if each["metadata"].get("benchmark_phase") != "warmup"]
    answered = [
        each for each in measured
        if not each.get("error") and not each["metadata"].get("was_cancelled") and "request_latency" in each["metrics"]
    ]  # fmt: skip
    if not answered:
        return
    found: dict[str, Any] = {}
    for name, column in _NAMES.items():
        values = [_seconds(each["metrics"][name], "value") for each in answered if name in each["metrics"]]
        if values:
            found |= {f"{column}_s": fmean(values), f"{column}_p99_s": float(np.percentile(values, 99))}
    began_s = min(each["metadata"]["request_start_ns"] for each in answered) * 1e-9
    found["started_utc"] = datetime.fromtimestamp(began_s, UTC).isoformat()
    yield "requests", found.pop("time_s"), {**found, **_counted(len(answered), len(measured) - len(answered))}


def _seconds(metric: Mapping[str, Any], key: str) -> float:
    return float(metric[key]) * SECONDS[metric["unit"]]


def _counted(answered: int, failed: int) -> dict[str, Any]:
    return {"requests": answered, "failed": failed}


def _is_aiperf(held: Any) -> bool:
    latency = held.get("request_latency") if isinstance(held, dict) else None
    return _are_records(held) or (isinstance(latency, dict) and {"unit", "avg"} <= {*latency})


def _aiperf(held: Any) -> Iterator[Row]:
    """The records; or `profile_export_aiperf.json`, also genai-perf's: the mean and the tail of one run."""
    if _are_records(held):
        yield from _records(_many(held))
        return
    found: dict[str, Any] = {}
    for name, column in _NAMES.items():
        for statistic, end in (("avg", "_s"), ("p99", "_p99_s")):
            if statistic in (held.get(name) or {}):
                found[f"{column}{end}"] = _seconds(held[name], statistic)
    counts = (round((held.get(name) or {}).get("avg", 0)) for name in ("request_count", "error_request_count"))
    found |= {"started_utc": held.get("start_time"), **_counted(*counts)}
    yield "requests", found.pop("time_s"), found


def _is_vllm(held: Any) -> bool:
    first = next(iter(_many(held)), None)
    return isinstance(first, dict) and {"request_throughput", "completed", "duration", "model_id"} <= {*first}


def _vllm(held: Any) -> Iterator[Row]:
    """`--save-result`, or `--append-result` with a run per line; without the whole latency, the time per token."""
    for run in _many(held):
        found: dict[str, Any] = {}
        for name, column in _OF_VLLM.items():
            for statistic, end in (("mean", "_s"), ("p99", "_p99_s")):
                if f"{statistic}_{name}_ms" in run:
                    found[f"{column}{end}"] = run[f"{statistic}_{name}_ms"] * 1e-3
        if "time_s" not in found and (taken := [each for each in run.get("latencies") or () if each > 0]):
            found |= {"time_s": fmean(taken), "time_p99_s": float(np.percentile(taken, 99))}
        failed = run.get("failed", run["num_prompts"] - run["completed"])
        load = ", ".join(f"{name} {run[name]}" for name in _LOADS if run.get(name) is not None)
        found |= {"load": load, "started_utc": run.get("date"), **_counted(run["completed"], failed)}
        yield str(run["model_id"]), found.pop("time_s", None), found


def _is_llama(held: Any) -> bool:
    first = next(iter(_many(held)), None)
    return isinstance(first, dict) and {"samples_ns", "n_prompt", "n_gen"} <= {*first}


def _llama(held: Any) -> Iterator[Row]:
    """`-o json` or `-o jsonl`: the repetitions of each test; `pp512` reads 512 tokens, `tg128` makes 128."""
    for test in _many(held):
        sizes = (("pp", test["n_prompt"]), ("tg", test["n_gen"]))
        name = "+".join(f"{kind}{tokens}" for kind, tokens in sizes if tokens)
        depth = f" @ d{test['n_depth']}" if test.get("n_depth") else ""
        for taken_ns in test["samples_ns"]:
            yield f"{test.get('model_type', 'model')} {name}{depth}", taken_ns * 1e-9, {}


READERS: Mapping[str, tuple[Callable[[Any], bool], Callable[[Any], Iterator[Row]]]] = {
    AIPERF: (_is_aiperf, _aiperf),
    VLLM: (_is_vllm, _vllm),
    LLAMA: (_is_llama, _llama),
}


def notes(tool: str, rows: Sequence[Mapping[str, str]], by: str, folders: Sequence[Path]) -> list[str]:
    """What is to be known of the runs of these levels, each with a folder, before they are compared."""
    if tool not in IN_TURNS:
        return []
    sides: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        sides.setdefault(row[by], []).append(row)
    told = []
    for side, runs in sides.items():
        if failed := sum(int(run["failed"]) for run in runs):
            told.append(f"{side}: {failed} requests failed, and are in no figure.")
    loads = {side: " / ".join(dict.fromkeys(run.get("load", "") for run in runs)) for side, runs in sides.items()}
    if len(set(loads.values())) > 1:
        told.append(f"the sides had unlike load, so that more than one thing differs: {'; '.join(loads.values())}.")
    if min(map(len, sides.values())) < FEWEST:
        told.append(how_to_settle(tool, folders))
    return told
