"""Every built-in workload, a few steps of it, on bare metal and in a container: it works, adds up, and is the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import warm_tare

from tare.base.host import Job, LocalHost, Site
from tare.drivers.torch_programs import PRESETS, Preset
from tare.figures.steps import Steps, steps_from
from tare.parts.find import find
from tare.parts.protocols import Mark
from tare.parts.workloads.torch_train import TorchTrain
from tare.trial.tenants import prepare_workdir, remove_folders
from tare_inside import named
from tare_inside.marks import load as load_marks
from tare_inside.workloads.formats import make

FORKS = Path(__file__).parents[1] / "unit" / "inside" / "forked_programs.py"

TINY = {  # by part: as little as makes every network do something
    "torch_train": {"epochs": 1, "steps_per_epoch": 3, "items": 12, "batch": 4, "workers": 1, "threads": 1},
    "torch_infer": {"requests": 4, "warm_up": 1, "batch": 4, "threads": 1},
    "application": {"requests": 4, "warm_up": 1, "threads": 1},
    "generate": {"size": "tiny", "requests": 2, "prompt": 4, "output": 5, "warm_up": 1, "threads": 1},
    "finetune": {"size": "tiny", "epochs": 1, "steps_per_epoch": 3, "batch": 2, "length": 16, "threads": 1},
}
SMALL = 64  # pixels; AlexNet needs that many
SHORT = 16  # tokens
INFERRED = ("pre_process", "inference", "post_process")

SCALES = {
    "alexnet": 0.1,
    "resnet18": 0.25,
    "resnet50": 0.25,
    "mobilebert": 0.1,
    "lstm": 0.1,
    "bert_large": 0.05,
    "rnnt": 0.1,
    "dlrm": 0.001,
    "vgg11": 0.1,
}
ALWAYS = ("lenet5", "gpt2-lora")  # the others in `make deep`
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
    if part != "application" and model.KIND == "image" and model.INPUT[-1] > SMALL:
        fields["pixels"] = SMALL
    return {part: fields}


PLACES = [(preset, "docker" if preset.name in IN_DOCKER else "runc") for preset in PRESETS]


def places() -> list[Any]:
    marks = {name: [] if name in ALWAYS else [pytest.mark.deep] for name in (preset.name for preset in PRESETS)}
    return [
        pytest.param(
            preset, platform, id=preset.name, marks=[pytest.mark.machine("root", platform), *marks[preset.name]]
        )
        for preset, platform in PLACES
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@dataclass(frozen=True)
class Ran:
    """What a program left in its workdir."""

    code: int
    err: str
    steps: Steps | None
    lost: int
    outcome: dict[str, Any]


def left_on(workdir: Path) -> Ran:
    rows, lost = load_marks(str(workdir / "marks.bin")) if (workdir / "marks.bin").exists() else ([], 0)
    outcome = workdir / "outcome.json"
    return Ran(
        int((workdir / "code").read_text()),
        (workdir / "err").read_text(),
        steps_from(Mark(*row) for row in rows),
        lost,
        json.loads(outcome.read_text()) if outcome.exists() else {},
    )


def workload_of(preset: Preset) -> Any:
    ((part, fields),) = tiny(preset).items()
    return find("workloads", part).model_validate(fields)


def ran_in(platform: str, presets: Sequence[Preset], folder: Path) -> dict[str, Ran]:
    """Every preset, once, in one place: each a fork of one process that has torch."""
    host, name = LocalHost(), f"tare-every-{platform}-{os.getpid()}"
    workloads = {preset.name: workload_of(preset) for preset in presets}
    with ExitStack() as stack:
        workdirs = {}
        for each, workload in workloads.items():
            assert workload.obstacles(host) == []
            workload.prepare(host)
            stack.callback(remove_folders, f"{name}-{each}", folder)
            workdirs[each] = prepare_workdir(f"{name}-{each}", folder)
        part: Any = find("platforms", platform)()
        reads = {path for workload in workloads.values() for path in workload.inputs()} | {FORKS.parent}
        place = part.open(host, Site(name, folder, reads=tuple(reads), writes=tuple(workdirs.values())))
        stack.callback(place.close)
        jobs = {each: workloads[each].job(place, workdir, seed=3) for each, workdir in workdirs.items()}
        orders = [[*job.argv[-2:], str(workdirs[each])] for each, job in jobs.items()]
        ended = place.spawn(Job((place.python, str(FORKS), json.dumps(orders)), common(jobs.values()))).wait(1200)
        assert ended.code == 0, ended.err
        return {each: left_on(workdir) for each, workdir in workdirs.items()}


def common(jobs: Iterable[Job]) -> dict[str, str]:
    """The environment that all have: threads and the allocator's settings count from the start of a process."""
    own = ("PYTHONPATH", "TARE_MARKS")
    first, *others = ({name: value for name, value in job.env.items() if name not in own} for job in jobs)
    assert all(each == first for each in others)
    return first


@pytest.fixture(scope="module")
def ran_everywhere(
    data: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str], dict[str, Ran]]:
    """What each preset of the selected tests left, by platform; run when it is first asked for."""
    cases = [each.callspec.params for each in request.session.items if hasattr(each, "callspec")]
    wanted = {case["preset"].name for case in cases if "preset" in case}

    @cache
    def everything(platform: str) -> dict[str, Ran]:
        chosen = [preset for preset, other in PLACES if platform in ("bare", other) and preset.name in wanted]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TARE_DATA", str(data))
            return ran_in(platform, chosen, tmp_path_factory.mktemp(platform))

    return everything


@pytest.mark.parametrize(("preset", "platform"), places())
def test_a_workload_runs_on_both_sides_adds_up_and_computes_the_same(
    preset: Preset, platform: str, ran_everywhere: Callable[[str], dict[str, Ran]]
) -> None:
    digests = set()
    for each in ("bare", platform):
        ran = ran_everywhere(each)[preset.name]
        assert ran.code == 0, ran.err
        assert ran.lost == 0
        steps, units = ran.steps, workload_of(preset).units()
        assert steps is not None
        assert units in (None, len(steps.numbers))
        parts = sum(steps.seconds[name] for name in parts_in(steps))
        assert (parts <= 1.01 * steps.seconds["step"]).all()
        assert parts.sum() > 0.5 * steps.seconds["step"].sum()
        digests.add(ran.outcome.get("loss_digest") or ran.outcome.get("answers_digest"))
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
    run, show = ("run", "study.yaml", "-o", "store", "--json"), ("show", "store", "--json")
    done, shown = (warm_tare.run(*words, cwd=folder, env=env, like="without_reruns") for words in (run, show))
    assert shown.returncode == 0, done.stderr + shown.stderr
    return json.loads(shown.stdout)["trials"], done.stderr


@pytest.mark.machine("root", "runc")
@pytest.mark.deep
def test_a_trial_that_cannot_work_is_kept_as_failed_and_the_study_goes_on(tmp_path: Path, data: Path) -> None:
    """Corrupt pictures are one level, and the next one works; test_failures.py has the other ways to fail."""
    folder = tmp_path / "pictures"
    make.make("imagenet", str(folder), 8, 0, processes=1)
    for path in sorted(folder.glob("train/*/*.JPEG"))[4:]:
        path.write_bytes(b"not a picture")
    base = {"model": "resnet18", "scale": 0.25, "pixels": 32, "batch": 4, "steps_per_epoch": 2, "epochs": 1}
    base |= {"data": "imagenet", "workers": 1, "threads": 1}
    levels = [
        {**base, "data_path": str(folder)},
        {**base, "items": 8},
    ]
    study = {
        "study": "trouble", "platform": "runc", "workload": [{"torch_train": level} for level in levels],
        "repeat": 1, "aa": False, "order": {"shuffle": False}, "limit": "1 min",
    }  # fmt: skip
    records, said = ran(study, tmp_path, data)

    by_position = {record["position"]: record for record in records}  # the last attempt at each
    corrupt, works = (by_position[position] for position in sorted(by_position))
    assert corrupt["state"] == "failed", said
    assert f"{folder}/train/" in corrupt["reasons"][0]["sentence"]
    assert ".JPEG: " in corrupt["reasons"][0]["sentence"]
    assert works["metrics"]["steps"] == 2


@pytest.mark.machine("root", "runc")
def test_a_batch_that_the_containers_memory_does_not_hold_is_said_to_be_one(tmp_path: Path, data: Path) -> None:
    fields = {"batch": 20_000, "items": 20_000, "steps_per_epoch": 1, "epochs": 1, "workers": 0, "threads": 1}
    study = {
        "study": "small", "platform": [{"runc": {"memory": "400 MiB"}}], "workload": {"torch_train": fields},
        "repeat": 1, "aa": False, "limit": "1 min",
    }  # fmt: skip
    (record, *_), said = ran(study, tmp_path, data)

    assert record["state"] == "oom", said
    assert "memory" in record["reasons"][0]["sentence"]


def test_every_network_that_is_trained_has_a_workload_here() -> None:
    trained = [preset for preset in PRESETS if preset.part == "torch_train"]

    assert len({preset.model for preset in trained}) >= 9
    assert all(TorchTrain.model_validate(tiny(preset)["torch_train"]) for preset in trained)
