"""Files of load generators for language models, compared: a run is the unit, and one run proves nothing."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tare.analysis.tables.foreign import recognised
from tare.cli import tare

BEGAN_NS = 1_760_000_000_000_000_000


def request(began_ns: int, seconds: float, **changed: Any) -> dict[str, Any]:
    """As AIPerf writes one (`MetricRecordInfo`), times in milliseconds."""
    metadata = {"session_num": 0, "request_start_ns": began_ns, "benchmark_phase": "profiling", "was_cancelled": False}
    metrics = {
        "request_latency": {"value": seconds * 1e3, "unit": "ms"},
        "time_to_first_token": {"value": seconds * 2e2, "unit": "ms"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
    }
    made = {"metadata": metadata, "metrics": metrics, "error": None}
    return {**made, **changed, "metadata": {**metadata, **changed.get("metadata", {})}}


def aiperf_run(folder: Path, seconds: float, place: int = 0, requests: int = 20, seed: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    began = BEGAN_NS + place * 60_000_000_000
    lines = [request(began - 10**9, 99 * seconds, metadata={"benchmark_phase": "warmup"})]
    lines += [request(began + n, seconds * chance.uniform(0.7, 1.3)) for n in range(requests)]
    (folder / "profile_export.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    return folder


def vllm_run(file: Path, seconds: float, **changed: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    held = {
        "date": "20261119-120000", "backend": "openai", "model_id": "tiny", "num_prompts": 100, "request_rate": 5.0,
        "max_concurrency": None, "duration": 20.0, "completed": 100, "failed": 0, "request_throughput": 5.0,
        "mean_ttft_ms": seconds * 2e2, "mean_tpot_ms": seconds * 10, "p99_tpot_ms": seconds * 20, **changed,
    }  # fmt: skip
    file.write_text(json.dumps({name: value for name, value in held.items() if value != "absent"}))
    return file


def compared(*words: object) -> Result:
    return CliRunner().invoke(tare, ["compare", *map(str, words), "--json"], catch_exceptions=False)


def in_turns(folder: Path, write: Any, factor: float) -> list[Path]:
    """Eight runs of each side, in shuffled turns."""
    chance, place = random.Random(3), 0
    for run in range(1, 9):
        for side in chance.sample(["old", "new"], 2):
            write(folder / side, run, place, factor if side == "new" else 1.0, 1 + 0.002 * chance.random())
            place += 1
    return [folder / "old", folder / "new"]


def test_runs_of_aiperf_in_turns_are_judged(tmp_path: Path) -> None:
    def write(side: Path, run: int, place: int, factor: float, noise: float) -> None:
        aiperf_run(side / str(run), 0.5 * factor * noise, place, seed=run)

    sides = in_turns(tmp_path, write, 1.2)
    done = compared(*sides, "--block", "run", "--against", "old")
    (found,) = json.loads(done.stdout)["comparisons"]

    assert (found["level"], found["verdict"], found["n"], found["metric"]) == ("new", "slower", 8, "time_s")
    assert found["effect"] == pytest.approx(0.2, abs=0.01)
    assert "settles" not in done.stderr


def test_the_mean_and_the_tail_are_of_the_requests_that_were_answered(tmp_path: Path) -> None:
    aiperf_run(tmp_path, 0.5)
    file = tmp_path / "profile_export.jsonl"
    failed = request(BEGAN_NS, 60.0, metrics={}, error={"code": 499, "type": "Timeout", "message": "x"})
    cancelled = request(BEGAN_NS, 60.0, metadata={"was_cancelled": True})
    file.write_text(file.read_text() + json.dumps(failed) + "\n" + json.dumps(cancelled) + "\n")
    found = recognised(file)
    assert found is not None
    (row,) = found.rows
    values = [json.loads(line)["metrics"]["request_latency"]["value"] for line in file.read_text().splitlines()[1:21]]

    assert (found.tool, row["requests"], row["failed"]) == ("AIPerf", "20", "2")
    assert float(row["time_s"]) == pytest.approx(fmean(values) * 1e-3)
    assert float(row["time_to_first_token_s"]) == pytest.approx(float(row["time_s"]) * 0.2)
    other = aiperf_run(tmp_path / "other", 0.5)
    assert f"{tmp_path.name}: 2 requests failed" in compared(tmp_path, other).stderr


@pytest.mark.parametrize("requests", [20, 2000])
def test_one_run_a_side_claims_nothing_and_ends_with_what_settles_it(tmp_path: Path, requests: int) -> None:
    sides = [aiperf_run(tmp_path / name, seconds, requests=requests) for name, seconds in (("a", 1.0), ("b", 1.5))]
    done = compared(*(side / "profile_export.jsonl" for side in sides))
    (found,) = json.loads(done.stdout)["comparisons"]

    assert (found["verdict"], found["low"], found["n"]) == ("cannot_tell", None, 1)
    assert found["effect"] == pytest.approx(0.5, abs=1e-6)
    assert f"shuf -e -- {sides[0]} {sides[1]} |" in done.stderr
    assert f"tare compare --block run -- {sides[0]} {sides[1]}`" in done.stderr


def test_the_command_that_settles_it_runs_as_it_is_written(tmp_path: Path) -> None:
    sides = [aiperf_run(tmp_path / name, 1.0) for name in ("old image", "new; image")]
    done = compared(*sides)
    (command,) = re.findall("This settles it: `(.*?)`", done.stderr.replace("\n", " "))
    writes = 'for folder; do :; done; mkdir -p "$folder"; cp "$RUN" "$folder/profile_export.jsonl"'
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("aiperf", f'#!/bin/bash\ncat; {writes}; echo "$folder"\n'), ("tare", "#!/bin/sh\necho $#\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "RUN": str(sides[0] / "profile_export.jsonl")}
    *runs, words = subprocess.run(
        ["bash", "-euc", command], env=env, capture_output=True, text=True, check=True
    ).stdout.splitlines()  # fmt: skip

    assert sorted(runs) == sorted(f"{side}/{n}" for side in sides for n in range(1, 9))
    assert words == "6"  # compare --block run -- and two folders


def test_the_summaries_of_aiperf_and_of_genai_perf(tmp_path: Path) -> None:
    for side, mean_ms, name in (("a", 100, "profile_export_aiperf.json"), ("b", 150, "profile_export_genai_perf.json")):
        (tmp_path / side).mkdir()
        latency = {"unit": "ms", "avg": mean_ms, "p99": 3 * mean_ms}
        held = {"request_latency": latency, "request_count": {"unit": "requests", "avg": 40.0}, "input_config": {}}
        (tmp_path / side / name).write_text(json.dumps(held))
    done = compared(tmp_path / "a" / "profile_export_aiperf.json", tmp_path / "b", "--against", "a")
    (found,) = json.loads(done.stdout)["comparisons"]
    tail = json.loads(compared(tmp_path / "a", tmp_path / "b", "--metric", "time_p99_s").stdout)["comparisons"][0]

    assert (found["level"], found["effect"], found["verdict"]) == ("b", pytest.approx(0.5), "cannot_tell")
    assert tail["metric"] == "time_p99_s"


def test_runs_of_vllm_are_judged_by_the_time_per_token_or_the_whole_latency(tmp_path: Path) -> None:
    def write(side: Path, run: int, place: int, factor: float, noise: float) -> None:
        vllm_run(side / f"{run}.json", factor * noise, date=f"20261119-12{place:02}00")

    sides = in_turns(tmp_path, write, 0.8)
    (found,) = json.loads(compared(*sides, "--block", "run", "--against", "old").stdout)["comparisons"]
    assert (found["metric"], found["level"], found["verdict"]) == ("time_per_output_token_s", "new", "faster")

    for side, factor in zip(sides, (1.0, 1.5), strict=True):
        for file in side.iterdir():
            file.write_text(json.dumps({**json.loads(file.read_text()), "mean_e2el_ms": 100 * factor}))
    (found,) = json.loads(compared(*sides, "--block", "run", "--against", "old").stdout)["comparisons"]
    assert (found["metric"], found["effect"]) == ("time_s", pytest.approx(0.5))


def test_latencies_that_vllm_kept_are_averaged_without_those_of_failures(tmp_path: Path) -> None:
    file = vllm_run(tmp_path / "x.json", 1.0, latencies=[0.5, 0.0, 1.5], completed=2, num_prompts=3, failed="absent")
    found = recognised(file)
    assert found is not None

    assert (float(found.rows[0]["time_s"]), found.rows[0]["failed"]) == (1.0, "1")


def test_runs_that_vllm_appended_to_one_file_are_runs(tmp_path: Path) -> None:
    for side in ("a", "b"):
        runs = [vllm_run(tmp_path / "one.json", 1.0 + n / 1e3).read_text() for n in range(6)]
        (tmp_path / f"{side}.json").write_text("\n".join(runs))
    done = compared(tmp_path / "a.json", tmp_path / "b.json")

    assert json.loads(done.stdout)["comparisons"][0]["n"] == 6
    assert "settles" not in done.stderr


def test_unlike_load_is_noted(tmp_path: Path) -> None:
    files = [vllm_run(tmp_path / f"{name}.json", 1.0, request_rate=rate) for name, rate in (("a", 5.0), ("b", "inf"))]

    assert "the sides had unlike load" in compared(*files).stderr


def test_repetitions_of_llama_bench_are_compared_test_by_test(tmp_path: Path) -> None:
    def tests(factor: float) -> list[dict[str, Any]]:
        chance = random.Random(1)
        shared = {"build_commit": "x", "model_type": "llama 1B Q4_0", "avg_ns": 1, "test_time": "2026-11-19T12:00:00Z"}
        return [
            {**shared, "n_prompt": size[0], "n_gen": size[1], "n_depth": 0,
             "samples_ns": [round(1e9 * factor * chance.uniform(0.999, 1.001)) for _ in range(8)]}
            for size in ((512, 0), (0, 128))
        ]  # fmt: skip

    (tmp_path / "old.json").write_text(json.dumps(tests(1.0), indent=2))
    (tmp_path / "new.json").write_text("".join(json.dumps(each) + "\n" for each in tests(1.1)))  # -o jsonl
    done = compared(tmp_path / "old.json", tmp_path / "new.json", "--against", "old", "--order", "shuffled")
    found = json.loads(done.stdout)["comparisons"]

    assert [each["level"] for each in found] == ["llama 1B Q4_0 pp512, new", "llama 1B Q4_0 tg128, new"]
    assert [each["effect"] for each in found] == pytest.approx([0.1, 0.1], abs=0.001)


@pytest.mark.parametrize(
    "text",
    [
        '{"metadata": {"benchmark_phase": "x"}, "metrics": {"request_latency": {"value": "x", "unit": "ms"}}}\n',
        '{"metadata": {"benchmark_phase": "x"}, "metrics": {"request_latency": {"value": 1, "unit": "year"}}}\n',
        '{"request_throughput": 1, "completed": 1, "duration": 1, "model_id": "m", "mean_ttft_ms": "soon"}',
        '[{"samples_ns": 3, "n_prompt": 1, "n_gen": 0}]',
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    done = CliRunner().invoke(tare, ["compare", str(file), str(file)])

    assert "x.json: it looks like JSON of" in str(done.exception)


def test_a_table_of_json_lines_and_a_folder_of_other_json_are_left_alone(tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    table.write_text('{"platform": "bare", "step_s": 1}\n{"platform": "docker", "step_s": 2}\n')
    (tmp_path / "package.json").write_text('{"name": "x"}')

    assert recognised(table) is None
    assert recognised(tmp_path) is None


def test_a_reader_of_another_package_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "theirs-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[tare.importers]\ntheirs = their_reader:read\n")
    (tmp_path / "site" / "their_reader.py").write_text(
        "from tare.analysis.tables.foreign import Foreign\n"
        "def read(path):\n"
        "    if path.suffix == '.theirs':\n"
        "        rows = [{'benchmark': path.stem, 'time_s': line} for line in path.read_text().split()[1:]]\n"
        "        return Foreign('theirs', rows)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for name, times in (("a", "1.0 1.1 1.2"), ("b", "2.0 2.1 2.2")):
        (tmp_path / f"{name}.theirs").write_text(f"times: {times}")
    done = compared(tmp_path / "a.theirs", tmp_path / "b.theirs")

    assert json.loads(done.stdout)["comparisons"][0]["effect"] == pytest.approx(0.909, abs=0.01)
