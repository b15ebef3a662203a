"""Every built-in workload, a few steps of it, on bare metal and in a container: it works, adds up, and is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tare.host import LocalHost, Site
from tare.parts.find import find
from tare.parts.presets import PRESETS, Preset
from tare.parts.protocols import Mark
from tare.parts.workloads.torch_train import TorchTrain
from tare.trial.desk import make_desk, remove_folders
from tare.trial.summary import Steps, steps_from
from tare_inside import named
from tare_inside.marks import load as load_marks

RUNS_BESIDE_OTHERS = True

TINY = {  # by part: as little as makes every network do something
    "torch_train": {"epochs": 1, "steps_per_epoch": 3, "items": 12, "batch": 4, "workers": 1, "threads": 1},
    "torch_infer": {"requests": 12, "batch": 4, "threads": 1},
    "application": {"requests": 4, "threads": 1},
}
SMALL = 64  # pixels; AlexNet needs that many
SHORT = 16  # tokens
INFERRED = ("pre_process", "inference", "post_process")

SCALES = {"mobilebert": 0.1, "lstm": 0.1, "bert_large": 0.05, "rnnt": 0.1, "dlrm": 0.001, "vgg11": 0.1}
IN_DOCKER = ("lenet5", "image-classification")  # the rest in runc, which is quicker; the platforms have tests of theirs


def tiny(preset: Preset) -> dict[str, Any]:
    """The preset's workload, made small."""
    ((part, fields),) = preset.workload().items()
    fields = {**fields, **TINY[part]}
    model = named.find("models", preset.model)
    if preset.model in SCALES:
        fields["scale"] = SCALES[preset.model]
    if part == "torch_train" and model.KIND == "tokens":
        fields |= {"length": SHORT, "classes": 500}
    if part == "torch_train" and model.INPUT[-1] > SMALL and model.KIND == "image":
        fields["pixels"] = SMALL
    return {part: fields}


def places() -> list[Any]:
    found = []
    for preset in PRESETS:
        platform = "docker" if preset.name in IN_DOCKER else "runc"
        found.append(pytest.param(preset, platform, id=preset.name, marks=pytest.mark.machine("root", platform)))
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def ran_once(workload: Any, platform: str, folder: Path) -> tuple[Steps, dict[str, Any]]:
    """The steps and the outcome of one run on a platform, without what a study does around it."""
    host, name = LocalHost(), f"tare-every-{platform}-{os.getpid()}"
    scratch = folder / name
    scratch.mkdir()
    with ExitStack() as stack:
        stack.callback(remove_folders, name, folder)
        desk = make_desk(name, scratch)
        part: Any = find("platforms", platform)()
        place = part.open(host, Site(name, scratch, reads=workload.inputs(), writes=(desk,)))
        stack.callback(place.close)
        ended = place.spawn(workload.job(place, desk, seed=3)).wait(240)
        assert ended.code == 0, ended.err
        rows, lost = load_marks(str(desk / "marks.bin"))
        outcome = json.loads((desk / "outcome.json").read_text())
    assert lost == 0
    steps = steps_from(Mark(*row) for row in rows)
    assert steps is not None
    return steps, outcome


@pytest.mark.parametrize(("preset", "platform"), places())
def test_a_workload_runs_on_both_sides_adds_up_and_computes_the_same(
    preset: Preset, platform: str, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_DATA", str(data))
    ((part, fields),) = tiny(preset).items()
    workload: Any = find("workloads", part).model_validate(fields)
    assert workload.obstacles(LocalHost()) == []
    workload.prepare(LocalHost())
    digests = set()
    for each in ("bare", platform):
        steps, outcome = ran_once(workload, each, tmp_path)
        assert workload.units() in (None, len(steps.numbers))
        parts = sum(steps.seconds[name] for name in parts_in(steps))
        assert (parts <= 1.01 * steps.seconds["step"]).all()
        assert parts.sum() > 0.5 * steps.seconds["step"].sum()
        digests.add(outcome.get("loss_digest") or outcome.get("answers_digest"))
    assert len(digests) == 1, "the same computation on both sides, bit for bit"
    assert digests != {None}


def parts_in(steps: Steps) -> list[str]:
    """Every marked part of a step, but not what lies in another one: the phases of training are in compute."""
    names = ["fetch", "copy", *(INFERRED if "inference" in steps.seconds else ("compute",))]
    return [name for name in names if name in steps.seconds]


def ran(study: dict[str, Any], folder: Path, data: Path) -> tuple[list[dict[str, Any]], str]:
    """The records of a study, run to its end by the command line."""
    (folder / "study.yaml").write_text(json.dumps(study))
    own = {"TARE_DATA": data, "TARE_STATE": folder / "state", "TARE_LOCK_DIR": folder / "lock"}
    env = {**os.environ, **{name: str(path) for name, path in own.items()}}
    tare = [sys.executable, "-m", "tare.cli"]
    run, show = [*tare, "run", "study.yaml", "-o", "store", "--json"], [*tare, "show", "store", "--json"]
    done, shown = (
        subprocess.run(words, check=False, capture_output=True, text=True, cwd=folder, timeout=300, env=env)
        for words in (run, show)
    )
    assert shown.returncode == 0, done.stderr + shown.stderr
    return json.loads(shown.stdout)["trials"], done.stderr


@pytest.mark.machine("root", "runc")
def test_a_trial_that_cannot_work_is_kept_as_failed_and_the_study_goes_on(tmp_path: Path, data: Path) -> None:
    """Corrupt pictures, too many classes, too little memory: each is one level, and the last one works."""
    folder = tmp_path / "pictures"
    named.find("data", "imagenet").make(str(folder), 8, 0, processes=1)
    for path in sorted(folder.glob("train/*/*.JPEG"))[4:]:
        path.write_bytes(b"not a picture")
    base = {"model": "resnet18", "scale": 0.25, "pixels": 32, "batch": 4, "steps_per_epoch": 2, "epochs": 1}
    base |= {"data": "imagenet", "workers": 1, "threads": 1}
    levels = [
        {**base, "data_path": str(folder)},
        {**base, "items": 8, "classes": 3},
        {**base, "items": 8},
    ]
    study = {
        "study": "trouble", "platform": "runc", "workload": [{"torch_train": level} for level in levels],
        "repeat": 1, "aa": False, "order": {"shuffle": False}, "limit": "1 min",
    }  # fmt: skip
    records, said = ran(study, tmp_path, data)

    by_position = {record["position"]: record for record in records}  # the last attempt at each
    corrupt, classes, works = (by_position[position] for position in sorted(by_position))
    assert corrupt["state"] == "failed", said
    assert f"{folder}/train/" in corrupt["reasons"][0]
    assert ".JPEG: " in corrupt["reasons"][0]
    assert classes["state"] == "failed"
    assert "`classes` is 3" in classes["reasons"][0]
    assert works["metrics"]["steps"] == 2


@pytest.mark.machine("root", "runc")
def test_a_batch_that_the_containers_memory_does_not_hold_is_said_to_be_one(tmp_path: Path, data: Path) -> None:
    fields = {"batch": 20_000, "items": 20_000, "steps_per_epoch": 1, "epochs": 1, "workers": 0, "threads": 1}
    study = {
        "study": "small", "platform": [{"runc": {"memory": "400 MiB"}}], "workload": {"torch_train": fields},
        "repeat": 1, "aa": False, "limit": "1 min",
    }  # fmt: skip
    (record, *_), said = ran(study, tmp_path, data)

    assert record["state"] in ("oom", "failed"), said
    assert "memory" in record["reasons"][0]


def test_every_network_that_is_trained_has_a_workload_here() -> None:
    trained = {preset.model for preset in PRESETS if preset.mode == "train"}

    assert len(trained) >= 9
    assert all(TorchTrain.model_validate(tiny(preset)["torch_train"]) for preset in PRESETS if preset.mode == "train")
