"""The built-in inference program on a network alone, run as a trial runs it but shorter."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from inference_jobs import answered, network_job, spans_ns
from tare.base.host import LocalHost
from tare.parts.workloads.inference import TorchInfer
from tare_inside import named
from tare_inside.workloads.backends import Compile, Onnx, check
from tare_inside.workloads.programs import infer, tasks


def test_every_request_is_marked_and_its_parts_fill_it(tmp_path: Path) -> None:
    outcome, loaded = answered(network_job(tmp_path, requests=6))

    parts = ("fetch", "copy", "inference", "compute", "step")
    assert Counter(name for _, name, edge, step in loaded if edge == "end" and step >= 0) == dict.fromkeys(parts, 6)
    spans = spans_ns(loaded)
    for step in range(6):
        assert spans["inference", step] == spans["compute", step]
        assert sum(spans[name, step] for name in ("fetch", "copy", "compute")) == spans["step", step]
    assert outcome["steps"] == 6
    assert outcome["metrics"]["items_per_s"] == pytest.approx(2 * outcome["metrics"]["requests_per_s"])


def test_loading_and_warm_up_come_before_the_first_step(tmp_path: Path) -> None:
    _, loaded = answered(network_job(tmp_path, warm_up=3))
    at_ns = {(name, edge): t_ns for t_ns, name, edge, step in reversed(loaded)}

    order = [("model_load", "end"), ("warm_up", "begin"), ("warm_up", "end"), ("ready", "point"), ("step", "begin")]
    assert [at_ns[each] for each in order] == sorted(at_ns[each] for each in order)


def test_the_same_seed_gives_the_same_answers_and_another_gives_others(tmp_path: Path) -> None:
    digests = [
        answered(network_job(tmp_path / name, **changes))[0]["answers_digest"]
        for name, changes in {
            "first": {}, "again": {"warm_up": 0}, "beside": {"concurrency": 3}, "other": {"seed": 4},
        }.items()
    ]  # fmt: skip

    assert digests[0] == digests[1] == digests[2]
    assert digests[3] != digests[0]


def test_requests_in_flight_overlap_and_keep_their_own_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    both = threading.Barrier(2, timeout=20)
    plain = tasks.InMemory.pre

    def meet(self: Any, items: Any) -> Any:
        both.wait()  # passes only while two requests are in flight
        return plain(self, items)

    monkeypatch.setattr(tasks.InMemory, "pre", meet)
    _, loaded = answered(network_job(tmp_path, requests=6, concurrency=2, warm_up=0))

    assert sorted(step for _, name, edge, step in loaded if (name, edge) == ("step", "end")) == list(range(6))


def test_a_request_that_waits_for_a_thread_is_waiting_from_its_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer, "poisson_ns", lambda requests, rate_per_s, seed: [0] * requests)
    _, loaded = answered(network_job(tmp_path, requests=5, rate_per_s=50.0))
    spans = spans_ns(loaded)

    for step in range(1, 5):  # all arrived at once: each waits for those before it
        assert spans["fetch", step] >= spans["step", step - 1]


def test_a_network_with_batch_normalisation_tells_inputs_apart() -> None:
    images = tasks.noise((4, 3, 48, 48), 1)
    network = tasks.seeded("resnet18", 3, (images,), scale=0.25)
    with torch.no_grad():
        outputs = network(images)

    assert len({tuple(row) for row in outputs.topk(5).indices.tolist()}) == 4
    assert not network.training


@pytest.mark.machine("onnxruntime")
@pytest.mark.parametrize("model", ["lenet5", "mobilenet_v3_large"])
def test_onnx_runtime_computes_what_pytorch_does(tmp_path: Path, model: str) -> None:
    shape = named.find("models", model).INPUT
    images = tasks.noise((3, *(shape if shape[0] == 1 else (3, 64, 64))), 1)
    network = tasks.seeded(model, 3, (images,))
    options = {"device": "cpu", "folder": str(tmp_path), "threads": 1}
    run, tensors_on = Onnx.opened(network, (images[:2],), options)
    with torch.no_grad():
        expected = network(images)

    assert tensors_on == "cpu"
    # Three, though it was exported with two.
    torch.testing.assert_close(run(images), expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.machine("onnxruntime")
def test_a_session_that_would_fall_back_to_the_cpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession  # as the build for CUDA opens it where CUDA's libraries do not load
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda path, asked, providers: session(path, asked))
    options = {"device": "cuda", "folder": str(tmp_path)}

    with pytest.raises(ValueError, match="could not load its CUDAExecutionProvider and would have computed on the CPU"):
        Onnx.opened(torch.nn.Linear(3, 2).eval(), (torch.ones(1, 3),), options)


@pytest.mark.machine("onnxruntime")
def test_the_back_end_changes_the_time_and_not_the_answers(tmp_path: Path) -> None:
    eager, _ = answered(network_job(tmp_path / "eager"))
    onnx, loaded = answered(network_job(tmp_path / "onnx", backend="onnx", threads=1))

    assert onnx["answers_digest"] == eager["answers_digest"]
    assert len([mark for mark in loaded if mark[1:3] == ("step", "end")]) == 4


@pytest.mark.machine("onnxruntime")
def test_an_export_that_computes_something_else_is_refused() -> None:
    network = torch.nn.Linear(3, 2)
    with pytest.raises(ValueError, match="computes something else than PyTorch: they differ by up to"):
        check(network, lambda inputs: network(inputs).detach() + 1, (torch.ones(1, 3),))


def test_torch_compile_without_a_compiler_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)

    assert Compile.obstacle("cpu") == (
        "torch.compile needs a C++ compiler and there is none on PATH: install g++, or set `backend: eager`."
    )


def test_torch_compile_of_an_old_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "compile")

    assert "has no torch.compile (2.0 and later have it)" in str(Compile.obstacle("cpu"))


def test_torch_compile_is_used_as_opened_and_its_cache_is_the_trials_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[bool] = []

    def pretend_compile(network: Any, dynamic: bool) -> Any:
        called.append(dynamic)
        return network

    monkeypatch.setattr(torch, "compile", pretend_compile)
    monkeypatch.setattr(Compile, "obstacle", lambda device: None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/the/users")
    compiled, _ = answered(network_job(tmp_path / "compile", backend="compile"))
    eager, _ = answered(network_job(tmp_path / "eager"))

    assert called == [False]
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "compile" / "inductor")
    assert compiled["answers_digest"] == eager["answers_digest"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"backend": "tensorrt"}, "no 'tensorrt' in backends. Available: compile, eager, onnx"),
        ({"model": "bert_large"}, "bert_large takes questions: only networks for images run on data in memory."),
    ],
)
def test_what_cannot_be_done_ends_the_program_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], said: str
) -> None:
    infer.marks.close_marks()
    code = infer.main([json.dumps(network_job(tmp_path, **changes))])
    infer.marks.close_marks()

    assert code == 1
    assert capsys.readouterr().err == f"tare: {said}\n"
    assert not (tmp_path / "outcome.json").exists()


def test_a_batch_larger_than_memory_ends_with_a_sentence_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = infer.main([json.dumps(network_job(tmp_path, batch=1 << 40))])
    infer.marks.close_marks()

    said = capsys.readouterr().err
    assert code == 1
    assert said.startswith("tare: ")
    assert "there is not enough memory for a batch of 1099511627776: lower `batch`, or give the platform more." in said


def test_a_job_runs_as_a_trial_runs_it(workdir: Path, program_forks: Callable[..., None]) -> None:
    """In a process that has torch already; one from its very start has the job of test_built_in_training.py."""
    workload = TorchInfer(batch=4, requests=5, warm_up=1, threads=1)
    job = workload.job(LocalHost(), workdir, seed=3)
    program_forks([*job.argv[-2:], str(workdir)])

    assert [(workdir / name).read_text() for name in ("code", "err")] == ["0", ""]
    outcome = json.loads((workdir / "outcome.json").read_text())
    said = json.loads((workdir / "out").read_text())
    assert said == {name: outcome[name] for name in ("steps", "answers_digest", "answer")}
    assert outcome["steps"] == workload.units() == 5
    assert outcome["threads"] == 1
    assert json.loads((workdir / "fingerprint.json").read_text())["torch"]["threads"] == 1
