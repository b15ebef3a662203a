"""What ends a training, brought about for real where this machine can, and the one sentence that is said of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tare_inside import marks
from tare_inside.workloads.formats import make
from tare_inside.workloads.programs import running, train

Ended: TypeAlias = Callable[..., tuple[int, str]]
JOB = {"model": "resnet18", "batch": 64, "workers": 4, "prefetch": 2, "pixels": 224}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "mnist"
    make.make("mnist", str(folder), 64, 0)
    return folder


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "imagenet"
    make.make("imagenet", str(folder), 6, 0, processes=1)
    return folder


def job(folder: Path, **changes: Any) -> str:
    """Two mini-batches of a small network, as JSON."""
    return json.dumps({
        "model": "lenet5", "data": "mnist", "batch": 2, "workers": 0, "prefetch": 2, "epochs": 1,
        "steps_per_epoch": 2, "lr": 0.01, "momentum": 0.9, "threads": 1, "phases": False, "device": "cpu", "seed": 3,
        "marks": str(folder / "marks.bin"), "outcome": str(folder / "outcome.json"),
        "fingerprint": str(folder / "fingerprint.json"),
    } | changes)  # fmt: skip


@pytest.fixture
def ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., tuple[int, str]]]:
    """Exit code and stderr of the program, run in this process."""

    def run(**changes: Any) -> tuple[int, str]:
        code = train.main([job(tmp_path, **changes)])
        assert not (tmp_path / "outcome.json").exists()
        (tmp_path / "marks.bin").unlink(missing_ok=True)
        return code, capfd.readouterr().err

    yield run
    marks.close_marks()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupt_picture_is_named_and_nothing_else_is_said(ended: Ended, pictures: Path, workers: int) -> None:
    for path in sorted(pictures.glob("train/*/*.JPEG"))[1:]:
        path.write_bytes(path.read_bytes()[:300])
    code, said = ended(
        model="resnet18", data="imagenet", data_path=str(pictures), workers=workers, pixels=32, scale=0.25
    )

    assert code == 1
    (line,) = said.splitlines()
    assert line.startswith(f"tare: {pictures}/train/")
    assert ".JPEG: " in line


def test_a_folder_that_is_not_there_or_empty_is_named(ended: Ended, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("nowhere", "empty"):
        code, said = ended(data="imagenet", model="resnet18", data_path=str(tmp_path / folder))

        assert code == 1
        (line,) = said.splitlines()
        assert line.startswith(f"tare: {tmp_path / folder}: ")


def test_a_class_count_that_does_not_fit_names_the_field_and_the_data(ended: Ended, digits: Path) -> None:
    assert ended(data_path=str(digits), classes=3) == (
        1,
        f"tare: `classes` is 3, and {digits} has labels of 10 classes: make it 10 or more, or leave it out.\n",
    )


def test_a_mini_batch_that_memory_does_not_hold_names_the_field(
    tmp_path: Path, program_forks: Callable[..., None]
) -> None:
    make.make("mnist", str(tmp_path / "many"), 10_000, 0)
    order = job(tmp_path, data_path=str(tmp_path / "many"), batch=10_000, steps_per_epoch=1)
    program_forks(
        ["tare_inside.workloads.programs.train", order, str(tmp_path), 150 << 20]
    )  # the first layer makes 188 MB

    assert (tmp_path / "code").read_text() == "1"
    (line,) = (tmp_path / "err").read_text().splitlines()
    assert line.startswith("tare: there is not enough memory for mini-batches of 10000: lower `batch`, ")


def test_images_that_are_too_small_for_the_network_are_said_to_be(ended: Ended, pictures: Path) -> None:
    code, said = ended(model="alexnet", data="imagenet", data_path=str(pictures), pixels=16)

    assert code == 1
    assert "alexnet cannot run on items of this size" in said
    assert "set `pixels` or `length` higher" in said
    assert len(said.splitlines()) == 1


def test_what_nobody_foresaw_keeps_its_traceback(ended: Ended, digits: Path) -> None:
    with pytest.raises(TypeError):
        ended(data_path=str(digits), lr="fast")


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; ...)"), "the GPU's memory does not hold"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible"), "larger `shm`"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), "want of memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "mini-batches of 64"),
        (MemoryError(), "lower `batch` or `pixels`"),
        (RuntimeError("Found no NVIDIA driver on your system."), "the GPU cannot be used"),
        (ImportError("No module named 'PIL'"), "No module named 'PIL'"),
    ],
)
def test_other_ends_name_the_field_to_change(problem: Exception, says: str) -> None:
    sentence = running.explained(problem, JOB)

    assert sentence is not None
    assert says in sentence
    assert "\n" not in sentence


def test_the_end_of_a_program_is_not_spent_on_a_search_for_garbage(tmp_path: Path) -> None:
    script = (
        "import gc, sys; from tare_inside.workloads.programs.running import program; gc.disable()\n"
        "class Ring:\n    def __del__(self): print('searched')\n"
        "ring = Ring(); ring.itself = ring; del ring\n"
        "sys.exit(program(lambda job: {'steps': 1}, dict(outcome=sys.argv[1], fingerprint=sys.argv[2]), ('steps',)))"
    )
    files = (str(tmp_path / "outcome.json"), str(tmp_path / "fingerprint.json"))
    done = subprocess.run([sys.executable, "-c", script, *files], check=True, capture_output=True, text=True)
    assert done.stdout == '{"steps": 1}\n'


def test_a_mistake_of_ours_is_not_explained_away() -> None:
    assert running.explained(KeyError("batch"), JOB) is None
    assert running.explained(RuntimeError("one of the variables needed for gradient computation"), JOB) is None
