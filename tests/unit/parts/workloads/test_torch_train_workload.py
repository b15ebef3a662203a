from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tare.base.errors import TareError
from tare.base.host import Completed, LocalHost
from tare.drivers.storage.checkpoints import checkpoints_of_site
from tare.drivers.storage.data_sets import data_dir
from tare.parts.find import find
from tare.parts.workloads.torch_train import TorchTrain
from tare.testing import FakeHost, FakeInnerHost
from tare_inside.workloads.data import mnist


def answering(code: int, err: str = "") -> FakeHost:
    return FakeHost(answer=lambda argv: Completed(tuple(argv), code, "", err), python="/opt/python")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TARE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_defaults_are_lenet5_on_mnist() -> None:
    workload = TorchTrain()

    assert find("workloads", "torch_train") is TorchTrain
    assert workload.title() == "LeNet-5 training, batch 16"
    assert (workload.batch, workload.workers, workload.prefetch) == (16, 4, 2)
    assert (workload.lr, workload.momentum) == (0.01, 0.9)
    assert (workload.epochs, workload.malloc, workload.device, workload.timing) == (3, "fixed", "cpu", "sync")
    assert hash(workload) == hash(TorchTrain.model_validate(workload.fields()))


@pytest.mark.parametrize(
    ("fields", "units"),
    [
        ({"epochs": 2, "steps_per_epoch": 7}, 14),
        ({"epochs": 1, "steps_per_epoch": None}, 3750),
        ({"epochs": 2, "steps_per_epoch": None, "items": 33, "batch": 16}, 4),
        ({"steps_per_epoch": None, "data_path": "/my/mnist"}, None),
        ({"epochs": 2, "steps_per_epoch": 7, "marks": False}, 0),
    ],
)
def test_units_are_all_the_steps_where_they_are_known(fields: dict[str, Any], units: int | None) -> None:
    assert TorchTrain.model_validate(fields).units() == units


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "lenet"}, "No model 'lenet'. Did you mean 'lenet5'? Available: "),
        ({"model": "lenet"}, "Did you mean 'lenet5'?"),
        ({"model": "mobilenet"}, "Did you mean 'mobilenet_v3_large'?"),
        ({"data": "mnits"}, "Did you mean 'mnist'?"),
        ({"model": "lstm"}, "lstm learns from text data and mnist is image; use wikipedia"),
        ({"model": "dlrm"}, "dlrm is for inference"),
        ({"length": 9}, "`length` is for text and lenet5 takes images; set `pixels`"),
        ({"model": "lstm", "data": "wikipedia", "pixels": 9}, "`pixels` is for images and lstm takes text"),
        ({"scale": 0}, "greater than 0"),
        ({"timing": "async"}, "`timing: async` is for a GPU"),
        ({"pin": True}, "`pin` is for a GPU"),
        ({"phases": True, "marks": False}, "`phases` are marks, and `marks` is false"),
        ({"batch": 0}, "greater than 0"),
        ({"workers": -1}, "greater than or equal to 0"),
        ({"lr": float("inf")}, "finite"),
        ({"momentum": 1.0}, "less than 1"),
        ({"device": "tpu"}, "'cpu' or 'cuda'"),
        ({"prefetch": 0}, "greater than 0"),
        ({"items": 100}, "an epoch of 100 mini-batches of 16 needs 1600 items and there are 100"),
        ({"data_path": "mnist"}, "`data_path` is an absolute path"),
        ({"data_path": "/mnist", "items": 5}, "`items` is the size of synthetic data"),
        ({"epoch": 3}, "Extra inputs are not permitted"),
    ],
)
def test_impossible_values_are_refused_with_a_sentence(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TorchTrain.model_validate(fields)

    assert said in str(refused.value)


def test_data_lie_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_DATA", "/big/disk")
    assert data_dir() == Path("/big/disk")
    monkeypatch.delenv("TARE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_dir() == Path("/cache/tare/data")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert data_dir() == Path("/home/ada/.cache/tare/data")


def test_inputs_are_the_data_set(data: Path) -> None:
    assert TorchTrain().inputs() == (data / "mnist-60000-0",)
    assert TorchTrain(data_path=Path("/my/mnist")).inputs() == (Path("/my/mnist"),)


def test_data_are_made_once_through_the_host(data: Path) -> None:
    workload = TorchTrain(items=32, batch=4, steps_per_epoch=8)
    workload.prepare(LocalHost())
    (folder,) = workload.inputs()
    before = (folder / mnist.IMAGES).stat().st_mtime_ns
    workload.prepare(LocalHost())

    assert mnist.obstacle(str(folder), 32) is None
    assert (folder / mnist.IMAGES).stat().st_mtime_ns == before


def test_data_of_ones_own_are_not_made(tmp_path: Path) -> None:
    host = FakeHost()
    TorchTrain(data_path=tmp_path).prepare(host)

    assert host.asked == []


def test_data_that_cannot_be_made_say_where_and_what_to_do(data: Path) -> None:
    data.write_text("a file is in the way")

    with pytest.raises(TareError, match="Set TARE_DATA to a folder with room for it") as failed:
        TorchTrain().prepare(LocalHost())

    assert f"{data}/mnist-60000-0: Not a directory" in str(failed.value)


def test_an_interpreter_with_torch_has_no_obstacle() -> None:
    assert TorchTrain().obstacles(LocalHost()) == []


def test_an_interpreter_without_torch_says_how_to_get_it() -> None:
    assert [*map(str, TorchTrain().obstacles(answering(3)))] == [
        "/opt/python has no PyTorch: `/opt/python -m pip install torch` puts it there, "
        "or name an interpreter that has it: `--python PATH`, `--set workload.python=PATH`, or `python` of torch_train "
        "in the study."
    ]


def test_torch_is_looked_for_in_the_interpreter_that_will_run() -> None:
    host = answering(0)
    TorchTrain(python="/conda/bin/python").obstacles(host)

    assert host.asked[0][0] == "/conda/bin/python"


def test_an_interpreter_that_cannot_be_asked_is_quoted() -> None:
    assert [*map(str, TorchTrain().obstacles(answering(127, "/opt/python: no such command on this machine")))] == [
        "/opt/python could not be asked whether it has PyTorch: /opt/python: no such command on this machine."
    ]


def test_a_gpu_that_torch_does_not_see_is_an_obstacle_only_where_it_is_asked_for() -> None:
    def no_gpu(argv: Sequence[str]) -> Completed:
        return Completed(tuple(argv), 3 if "cuda" in argv[2] else 0, "", "")

    assert TorchTrain().obstacles(FakeHost(answer=no_gpu)) == []
    (sentence,) = map(str, TorchTrain(device="cuda").obstacles(FakeHost(answer=no_gpu)))
    assert "sees no GPU" in sentence


def test_an_interpreter_that_cannot_decode_pictures_says_how_to_get_it() -> None:
    host = FakeHost(answer=lambda argv: Completed(tuple(argv), 0, "PIL\n" if "PIL" in argv else "", ""), python="/py")

    assert TorchTrain().obstacles(host) == []
    assert [*map(str, TorchTrain(model="resnet18", data="imagenet").obstacles(host))] == [
        "/py has no pillow, which torch_train needs here: `/py -m pip install pillow` puts it there."
    ]


def test_text_is_trained_on_by_networks_for_text(data: Path) -> None:
    workload = TorchTrain(model="lstm", data="wikipedia", length=32, scale=0.5, items=2000)
    asked = json.loads(workload.job(FakeHost(), Path("/workdir"), seed=5).argv[-1])

    assert (asked["length"], asked["scale"], asked["pixels"], asked["marked"]) == (32, 0.5, None, True)


def test_a_folder_that_is_not_there_is_not_called_empty(tmp_path: Path) -> None:
    (sentence,) = map(str, TorchTrain(data_path=tmp_path / "nowhere").obstacles(answering(0)))

    assert sentence.startswith(f"no folder {tmp_path / 'nowhere'}")


def test_a_folder_without_ones_own_data_is_an_obstacle(tmp_path: Path) -> None:
    (sentence,) = map(str, TorchTrain(data_path=tmp_path).obstacles(answering(0)))

    assert sentence.startswith(f"{tmp_path}: no train-images-idx3-ubyte")


def test_the_job_says_everything_and_touches_nothing(data: Path) -> None:
    workload = TorchTrain(batch=8, workers=2, prefetch=4, threads=1, phases=True, python="/conda/bin/python")
    job = workload.job(FakeHost(python="/opt/python"), Path("/no/such/workdir"), seed=5)
    asked = json.loads(job.argv[-1])

    assert job.argv[0] == "/opt/python"
    assert job.argv[-4:-1] == ("/conda/bin/python", "-m", "tare_inside.workloads.programs.train")
    assert {name: asked[name] for name in ("batch", "workers", "prefetch", "threads", "phases", "seed")} == {
        "batch": 8, "workers": 2, "prefetch": 4, "threads": 1, "phases": True, "seed": 5,
    }  # fmt: skip
    assert asked["data_path"] == str(data / "mnist-60000-0")
    assert asked["marks"] == "/no/such/workdir/marks.bin"
    assert job.env["OMP_NUM_THREADS"] == "1"
    assert job.env["MALLOC_TRIM_THRESHOLD_"] == "4294967296"
    assert job.env["MIMALLOC_PURGE_DELAY"] == "-1"
    assert job.cwd == "/no/such/workdir"


def test_threads_and_malloc_are_left_alone_where_the_study_says_so() -> None:
    job = TorchTrain(malloc="default").job(FakeHost(python=sys.executable), Path("/workdir"), seed=5)

    assert not {name for name in job.env if name.startswith(("OMP_", "MALLOC_", "MIMALLOC_"))}


def test_two_platforms_get_the_same_job_but_for_the_interpreter() -> None:
    here, there = (TorchTrain().job(FakeHost(name=name), Path("/workdir"), seed=5) for name in ("bare", "docker"))

    assert here == there


@pytest.mark.parametrize(("usable", "threads"), [(0.5, 1), (1.5, 2), (4.0, 4)])
def test_threads_can_follow_the_cores_that_the_platform_may_use(tmp_path: Path, usable: float, threads: int) -> None:
    place = FakeInnerHost(facts={"usable_cores": usable})

    job = TorchTrain(threads="quota").job(place, tmp_path, 1)

    assert job.env["OMP_NUM_THREADS"] == str(threads)
    assert json.loads(job.argv[-1])["threads"] == threads


def test_threads_by_the_quota_of_a_place_that_says_nothing_are_torchs_own_choice(tmp_path: Path) -> None:
    job = TorchTrain(threads="quota").job(FakeHost(), tmp_path, 1)

    assert "OMP_NUM_THREADS" not in job.env


def test_checkpoints_go_to_a_disk_under_the_trials_own_name_and_go_with_it(tmp_path: Path) -> None:
    workload = TorchTrain.model_validate({"checkpoint_every": 2, "epochs": 4})
    job = workload.job(LocalHost(), Path("/dev/shm/tare-1-workdir"), 0)

    asked = json.loads(job.argv[-1])
    assert (asked["checkpoint_every"], asked["checkpoint_file"]) == (2, "new")
    assert asked["checkpoint_folder"] == str(checkpoints_of_site("tare-1")) == "/var/tmp/tare-1-checkpoints"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"checkpoint_file": "same"}, "set `checkpoint_every`"),
        ({"checkpoint_every": 9, "epochs": 4}, "never comes in 4 epochs"),
        ({"checkpoint_every": 0}, "greater than 0"),
    ],
)
def test_checkpoints_that_would_never_be_written_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TorchTrain.model_validate(fields)
