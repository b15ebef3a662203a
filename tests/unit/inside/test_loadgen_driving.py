"""LoadGen asks and our side answers: against a stand-in of its interface, and the real one where it is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pretend_loadgen
from inference_jobs import application_job, make_data, network_job, spans_ns
from pretend_loadgen import SCENARIOS, PretendLoadGen
from tare.testing import FakeClock
from tare_inside import marks
from tare_inside.workloads.applications import Image
from tare_inside.workloads.programs import infer, loadgen

RECORDED = Path(__file__).parents[2] / "recordings" / "loadgen"
FIELDS = {
    "scenario": "SingleStream", "target_qps": 50.0, "target_latency_s": 0.1, "latency_percentile": None,
    "min_duration_s": 0.2, "min_queries": 3, "max_queries": 5, "samples_per_query": 2, "pre_process": "untimed",
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loadgen")
    make_data(folder)
    return folder


def driven(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, module: Any) -> tuple[dict[str, Any], list[Any]]:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", module)
    try:
        outcome = loadgen.run(asked)
    finally:
        marks.close_marks()
    return outcome, marks.load(asked["marks"])[0]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_sample_is_answered_and_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str) -> None:
    module = PretendLoadGen(queries=6, samples=3)
    asked = network_job(tmp_path, **{**FIELDS, "scenario": scenario, "batch": 2, "concurrency": 2})
    outcome, loaded = driven(asked, monkeypatch, module)

    samples = 6 if scenario == "Offline" else 18
    assert outcome["metrics"]["samples"] == samples
    assert len([mark for mark in loaded if mark[1:3] == ("step", "end")]) >= samples // 2
    assert module.destroyed == ["QSL", "SUT"]
    assert outcome["loadgen"]["result"] == "INVALID"
    assert outcome["loadgen"]["scenario"] == scenario
    assert outcome["loadgen"]["reasons"] == ["* Only processed 6 queries. * Need to process at least 64 queries."]
    assert "Result is : INVALID" in outcome["loadgen"]["summary"]
    assert "steps" not in outcome  # how many there are depends on the time


@pytest.fixture
def _pictures_take_a_quarter_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """To pre-process, and an answer 10 ms: on one clock for both sides, on which nothing else takes any time."""
    clock, pre, post = FakeClock(marks.now_ns()), Image.pre, Image.post
    monkeypatch.setattr(marks, "now_ns", clock.now_ns)
    monkeypatch.setattr(pretend_loadgen, "time", SimpleNamespace(monotonic=lambda: clock.ns / 1e9))
    monkeypatch.setattr(Image, "pre", lambda *arguments: clock.advance(0.25) or pre(*arguments))
    monkeypatch.setattr(Image, "post", lambda *arguments: clock.advance(0.01) or post(*arguments))


@pytest.mark.usefixtures("_pictures_take_a_quarter_of_a_second")
def test_untimed_pre_processing_is_in_our_clock_and_not_in_loadgens(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = application_job(tmp_path, data, "image", **{**FIELDS, "batch": 1})
    outcome, loaded = driven(asked, monkeypatch, PretendLoadGen(queries=6, samples=1))
    spans, metrics = spans_ns(loaded), outcome["metrics"]

    assert [span for (name, _), span in spans.items() if name == "load"] == [250_000_000] * 6
    names = ("end_to_end_s", "loadgen_mean_s", "loadgen_gap_s")
    assert [metrics[name] for name in names] == pytest.approx([0.26, 0.01, 0.25], abs=1e-6)
    assert ("pre_process", 0) not in spans
    assert ("join", 0) in spans


@pytest.mark.usefixtures("_pictures_take_a_quarter_of_a_second")
def test_timed_pre_processing_is_in_both_clocks(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = application_job(tmp_path, data, "image", **{**FIELDS, "batch": 1, "pre_process": "timed"})
    outcome, loaded = driven(asked, monkeypatch, PretendLoadGen(queries=6, samples=1))
    spans = spans_ns(loaded)

    assert spans["pre_process", 0] == 250_000_000
    names = ("end_to_end_s", "loadgen_mean_s", "loadgen_gap_s")
    assert [outcome["metrics"][name] for name in names] == pytest.approx([0.26, 0.26, 0], abs=1e-6)


@pytest.mark.parametrize("name", ["speech", "question", "recommendation"])
def test_samples_that_were_made_ready_one_by_one_are_joined(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked = application_job(tmp_path, data, name, **{**FIELDS, "scenario": "Offline", "batch": 3})
    outcome, loaded = driven(asked, monkeypatch, PretendLoadGen(queries=6))

    assert outcome["metrics"]["samples"] == 6
    assert len([mark for mark in loaded if mark[1:3] == ("step", "end")]) == 2


def test_joined_samples_have_the_answers_of_a_batch(tmp_path: Path, data: Path) -> None:
    asked = application_job(tmp_path, data, "speech", any_batch=True)
    task, _, _ = infer.made_ready(asked, 100)
    loaded = loadgen.Loaded(task)
    loaded.load([0, 1, 2])
    marks.close_marks()
    together, apart = task.pre([0, 1, 2]), loaded.pre([0, 1, 2])

    assert task.post(task.infer(*together[0]), together[1]) == task.post(task.infer(*apart[0]), apart[1])


def test_a_problem_in_a_thread_ends_the_run_with_its_sentence(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, outputs: Any, known: Any) -> Any:
        if marks.load(asked["marks"])[0] and any(mark[1] == "ready" for mark in marks.load(asked["marks"])[0]):
            raise ValueError("0.JPEG: this is not a whole picture")
        return [[0]] * len(known)

    asked = application_job(tmp_path, data, "image", **FIELDS)
    monkeypatch.setattr(Image, "post", broken)
    with pytest.raises(ValueError, match=r"0\.JPEG: this is not a whole picture"):
        driven(asked, monkeypatch, PretendLoadGen())


def test_without_loadgen_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="MLCommons LoadGen is not installed: `pip install mlcommons-loadgen`"):
        driven(network_job(tmp_path, **FIELDS), monkeypatch, None)


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (
            "SingleStream",
            {"single_stream_expected_latency_ns": 20_000_000, "single_stream_target_latency_percentile": 0.9},
        ),
        ("MultiStream", {"multi_stream_samples_per_query": 2, "multi_stream_target_latency_percentile": 0.9}),
        ("Server", {"server_target_qps": 50.0, "server_target_latency_ns": 100_000_000}),
        ("Offline", {"offline_expected_qps": 50.0, "min_query_count": 3, "max_query_count": 5, "min_duration_ms": 200}),
    ],
)
def test_fields_become_loadgens_settings(scenario: str, expected: dict[str, float]) -> None:
    settings = loadgen.settings(PretendLoadGen(), {**FIELDS, "scenario": scenario, "latency_percentile": 0.9})

    assert expected.items() <= vars(settings).items()


def test_what_loadgen_wrote_is_read() -> None:
    valid, invalid = loadgen.read(str(RECORDED / "single_stream")), loadgen.read(str(RECORDED / "offline"))

    assert (valid["result"], valid["scenario"], valid["reasons"]) == ("VALID", "SingleStream", [])
    assert valid["results"]["mean_latency_ns"] == 2233668
    assert valid["settings"]["min_duration_ms"] == 500
    assert "90.0th percentile latency (ns) : 2265272" in valid["summary"]
    assert invalid["result"] == "INVALID"
    assert invalid["reasons"] == ["Increase expected QPS so the loadgen pre-generates a larger (coalesced) query."]


def test_a_log_without_a_result_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"LoadGen wrote no mlperf_log_summary\.txt"):
        loadgen.read(str(tmp_path))
    (tmp_path / "mlperf_log_summary.txt").write_text("")
    (tmp_path / "mlperf_log_detail.txt").write_text(':::MLLOG {"key": "loadgen_version", "value": "6"}\n:::MLLOG {"ke')
    with pytest.raises(ValueError, match="LoadGen left no result in"):
        loadgen.read(str(tmp_path))


@pytest.fixture(scope="module")
def real_runs(tmp_path_factory: pytest.TempPathFactory, program_forks: Callable[..., None]) -> Path:
    """The real LoadGen in every scenario, a folder for each."""
    folder, orders = tmp_path_factory.mktemp("real"), []
    for scenario in SCENARIOS:
        (folder / scenario).mkdir()
        asked = network_job(folder / scenario, **{**FIELDS, "scenario": scenario, "threads": 1})
        orders.append(["tare_inside.workloads.programs.loadgen", json.dumps(asked), str(folder / scenario)])
    program_forks(*orders)
    return folder


@pytest.mark.machine("loadgen")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_real_loadgen_drives_it(real_runs: Path, scenario: str) -> None:
    folder = real_runs / scenario
    assert ((folder / "code").read_text(), (folder / "err").read_text()) == ("0", "")
    outcome = json.loads((folder / "outcome.json").read_text())
    assert outcome["loadgen"]["result"] in ("VALID", "INVALID")
    assert outcome["loadgen"]["scenario"] == scenario
    assert outcome["metrics"]["samples"] >= FIELDS["min_queries"]
    loaded, _ = marks.load(str(folder / "marks.bin"))
    steps_s = [span / 1e9 for (name, _), span in spans_ns(loaded).items() if name == "step"]
    assert steps_s
    # Ours starts after LoadGen's and stops before it, however long each waits for the CPU; so it is never the longer
    # one, but for what the system's time, which is LoadGen's, is corrected meanwhile.
    metrics = outcome["metrics"]
    assert metrics["loadgen_gap_s"] < 1e-3 * metrics["loadgen_mean_s"]
