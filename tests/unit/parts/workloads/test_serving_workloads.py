"""The workloads that answer requests: their fields, what they read, and what keeps them from running."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tare.base.host import Completed
from tare.parts.find import find
from tare.parts.workloads.inference import Application, LoadGen, TorchInfer
from tare.testing import FakeHost


def saying(words: str, code: int, out: str) -> FakeHost:
    """A host that answers a command with these words in it by this; anything else works and says nothing."""

    def answer(argv: Sequence[str]) -> Completed:
        asked = any(words in word for word in argv)
        return Completed(tuple(argv), code if asked else 0, out if asked else "", "")

    return FakeHost(answer=answer, python="/opt/python")


def willing() -> FakeHost:
    """A host on which everything works."""
    return saying("nothing in particular", 0, "")


def order(workload: Any, tmp_path: Path) -> dict[str, Any]:
    """The order as the program inside gets it."""
    read: dict[str, Any] = json.loads(workload.job(FakeHost(), tmp_path, seed=7).argv[-1])
    return read


@pytest.mark.parametrize(
    ("workload", "title", "units"),
    [
        (TorchInfer(), "LeNet-5 inference, batch 16", 300),
        (Application(), "image classification (ResNet-50), batch 1", 100),
        (Application(name="speech", requests=7, batch=2), "speech recognition (RNN-T), batch 2", 7),
        (LoadGen(), "LoadGen SingleStream: image classification (ResNet-50)", None),
        (LoadGen(application=None, model="lenet5", scenario="Offline"), "LoadGen Offline: LeNet-5", None),
    ],
)
def test_each_says_what_it_is_and_how_much_it_does(workload: Any, title: str, units: int | None) -> None:
    assert (workload.title(), workload.units()) == (title, units)
    assert find("workloads", workload.part_name()) is type(workload)
    assert hash(workload) == hash(type(workload).model_validate(workload.fields()))
    assert workload.meets == "ready"


@pytest.mark.parametrize(
    ("part", "fields", "said"),
    [
        (TorchInfer, {"model": "resnet5"}, "No model 'resnet5'"),
        (TorchInfer, {"model": "resnet5"}, "Did you mean 'resnet50'?"),
        (TorchInfer, {"model": "mobilenet"}, "Did you mean 'mobilenet_v3_large'?"),
        (TorchInfer, {"backend": "tensorrt"}, "No backend 'tensorrt'. Available: compile, eager, onnx."),
        (TorchInfer, {"model": "bert_large"}, "bert_large takes questions: data in memory are images"),
        (TorchInfer, {"timing": "async"}, "`timing: async` is for a GPU"),
        (TorchInfer, {"timing": "async", "device": "cuda", "concurrency": 2}, "one request after another"),
        (TorchInfer, {"rate": "50"}, "'50' has no unit; write one of /s"),
        (TorchInfer, {"rate": "0/s"}, "greater than 0"),
        (Application, {"name": "images"}, "No application 'images'"),
        (Application, {"name": "speech", "pixels": 32}, "`pixels` is for images and rnnt takes speech"),
        (Application, {"items": 3, "batch": 4}, "a batch of 4 needs 4 items and `items` is 3"),
        (Application, {"items": 3, "data_path": "/my/pictures"}, "with `data_path` the files say it"),
        (Application, {"data_path": "pictures"}, "`data_path` is an absolute path"),
        (LoadGen, {"model": "lenet5"}, "with `model`, set `application: null`"),
        (LoadGen, {"application": None}, "either an `application` or a `model` answers"),
        (LoadGen, {"application": None, "model": "lenet5", "items": 5}, "data in memory: leave `data_path`"),
        (LoadGen, {"scenario": "Batch"}, "SingleStream"),
        (LoadGen, {"latency_percentile": 99}, "less than 1"),
    ],
)
def test_fields_that_make_no_sense_are_refused(part: Any, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        part.model_validate(fields)
    assert said in str(refused.value)


def test_a_rate_has_a_unit() -> None:
    assert TorchInfer.model_validate({"rate": "30/min"}).rate == 0.5
    assert LoadGen.model_validate({"target_qps": "20/s"}).target_qps == 20.0


def test_a_network_alone_reads_nothing(tmp_path: Path) -> None:
    workload = TorchInfer(rate=50.0)

    assert workload.inputs() == ()
    asked = order(workload, tmp_path)
    assert (asked["rate_per_s"], asked["seed"], asked["requests"]) == (50.0, 7, 300)
    assert "application" not in asked


@pytest.mark.parametrize(
    ("workload", "folder"),
    [
        (Application(requests=10, batch=2), "imagenet-20-0"),
        (Application(requests=10, warm_up=30), "imagenet-30-0"),
        (Application(requests=5000), "imagenet-1000-0"),
        (Application(items=8), "imagenet-8-0"),
        (Application(name="recommendation", requests=10), "criteo-1000-0"),
        (LoadGen(), "imagenet-64-0"),
        (LoadGen(application="question", items=9), "questions-9-0"),
    ],
)
def test_synthetic_data_are_as_many_as_are_asked_for(
    workload: Any, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_DATA", str(tmp_path / "data"))
    host = willing()
    workload.prepare(host)

    assert workload.inputs() == (tmp_path / "data" / folder,)
    assert order(workload, tmp_path)["data_path"] == str(tmp_path / "data" / folder)
    (made,) = host.asked
    assert str(tmp_path / "data" / folder) in made


def test_data_of_ones_own_are_read_where_they_lie(tmp_path: Path) -> None:
    workload = Application(data_path=tmp_path)
    host = willing()
    workload.prepare(host)

    assert workload.inputs() == (tmp_path,)
    assert host.asked == []
    assert [*map(str, workload.obstacles(host))] == [
        f"{tmp_path}: there are no folders with pictures in it, one a class."
    ]


@pytest.mark.parametrize("workload", [TorchInfer(backend="onnx"), Application(backend="onnx"), LoadGen(backend="onnx")])
def test_a_back_end_that_is_not_there_is_told_in_its_own_words(workload: Any) -> None:
    host = saying("named.find('backends'", 0, "`backend: onnx` needs onnx: `pip install onnx`.\n")

    assert [*map(str, workload.obstacles(host))] == ["`backend: onnx` needs onnx: `pip install onnx`."]
    assert workload.obstacles(willing()) == []


def test_a_back_end_that_cannot_be_asked_is_told_too() -> None:
    (found,) = TorchInfer(backend="compile").obstacles(saying("named.find('backends'", 1, "Segmentation fault"))

    assert found.code == "host.not-asked"
    assert str(found) == "/opt/python could not be asked whether `backend: compile` works: Segmentation fault"


def test_without_loadgen_the_package_is_named() -> None:
    (sentence,) = map(str, LoadGen().obstacles(saying("import mlperf_loadgen", 3, "")))

    assert sentence.startswith("/opt/python has no MLCommons LoadGen: `/opt/python -m pip install mlcommons-loadgen`")


def test_loadgen_gets_its_settings_in_base_units(tmp_path: Path) -> None:
    fields = {"scenario": "Server", "target_qps": "2/s", "target_latency": "50 ms", "min_duration": "1 min"}
    asked = order(LoadGen.model_validate(fields), tmp_path)

    assert (asked["target_qps"], asked["target_latency_s"], asked["min_duration_s"]) == (2.0, 0.05, 60.0)
    assert (asked["application"], asked["pre_process"]) == ("image", "untimed")
