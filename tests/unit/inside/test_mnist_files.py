from __future__ import annotations

import copy
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tare_inside.workloads.data import mnist
from tare_inside.workloads.formats import make


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "mnist"
    make.make("mnist", str(folder), 200, 1)
    return folder


def test_the_files_have_the_format_of_the_real_ones(folder: Path) -> None:
    images, labels = (folder / mnist.IMAGES).read_bytes(), (folder / mnist.LABELS).read_bytes()

    assert struct.unpack(">IIII", images[:16]) == (2051, 200, 28, 28)
    assert len(images) == 16 + 200 * 784
    assert struct.unpack(">II", labels[:8]) == (2049, 200)
    assert len(labels) == 8 + 200
    assert set(labels[8:]) == set(range(10))


def test_images_are_as_sparse_as_handwriting(folder: Path) -> None:
    pixels = (folder / mnist.IMAGES).read_bytes()[16:]

    assert 0.15 < sum(pixel > 0 for pixel in pixels) / len(pixels) < 0.25


def test_the_manifest_says_count_seed_and_digests(folder: Path) -> None:
    said = json.loads((folder / make.MANIFEST).read_text())

    assert (said["data"], said["count"], said["seed"], said["files"]) == ("mnist", 200, 1, 2)
    assert set(make.listing(str(folder)) or {}) == {mnist.IMAGES, mnist.LABELS}


def test_the_same_seed_makes_the_same_files_and_another_seed_others(folder: Path, tmp_path: Path) -> None:
    make.make("mnist", str(tmp_path / "same"), 200, 1)
    make.make("mnist", str(tmp_path / "other"), 200, 2)

    assert (tmp_path / "same" / mnist.IMAGES).read_bytes() == (folder / mnist.IMAGES).read_bytes()
    assert (tmp_path / "other" / mnist.IMAGES).read_bytes() != (folder / mnist.IMAGES).read_bytes()


def test_what_is_there_and_whole_is_not_made_again(tmp_path: Path) -> None:
    make.make("mnist", str(tmp_path), 20, 0)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    make.make("mnist", str(tmp_path), 20, 0)

    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert set(before) == {mnist.IMAGES, mnist.LABELS, make.MANIFEST, make.LISTING}


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    make.make("mnist", str(tmp_path), 20, 0)
    good = (tmp_path / mnist.IMAGES).read_bytes()
    (tmp_path / mnist.IMAGES).write_bytes(good[:-1] + b"\xff")
    make.make("mnist", str(tmp_path), 20, 0)

    assert (tmp_path / mnist.IMAGES).read_bytes() == good


def test_a_run_that_was_killed_before_the_manifest_starts_over(tmp_path: Path) -> None:
    make.make("mnist", str(tmp_path), 20, 0)
    (tmp_path / make.MANIFEST).unlink()
    (tmp_path / mnist.LABELS).write_bytes(b"half")
    make.make("mnist", str(tmp_path), 20, 0)

    assert mnist.obstacle(str(tmp_path), 20) is None


def test_an_item_is_read_decoded_and_normalised(folder: Path) -> None:
    dataset = mnist.Dataset(str(folder))
    image, label = dataset[7]
    raw = (folder / mnist.IMAGES).read_bytes()[16 + 7 * 784 :][:784]
    wanted = (torch.tensor(list(raw), dtype=torch.float32) / 255 - 0.1307) / 0.3081

    assert len(dataset) == 200
    assert image.shape == (1, 28, 28)
    assert torch.allclose(image.flatten(), wanted)
    assert label == (folder / mnist.LABELS).read_bytes()[8 + 7]


def test_a_loader_worker_that_is_spawned_gets_the_same_items(folder: Path) -> None:
    dataset = mnist.Dataset(str(folder))
    twin = copy.copy(dataset)

    assert torch.equal(twin[3][0], dataset[3][0])


@pytest.mark.parametrize("layout", ["raw", "MNIST/raw"])
def test_the_layouts_of_torchvision_are_found(folder: Path, tmp_path: Path, layout: str) -> None:
    (tmp_path / layout).mkdir(parents=True)
    for name in (mnist.IMAGES, mnist.LABELS):
        (tmp_path / layout / name).write_bytes((folder / name).read_bytes())

    assert mnist.obstacle(str(tmp_path), 200) is None
    assert len(mnist.Dataset(str(tmp_path))) == 200


def test_a_folder_without_the_files_says_what_to_do(tmp_path: Path) -> None:
    sentence = mnist.obstacle(str(tmp_path), 1)

    assert sentence is not None
    assert str(tmp_path) in sentence
    assert "Unpack the .gz files" in sentence


def test_too_few_images_for_an_epoch_are_named(folder: Path) -> None:
    assert mnist.obstacle(str(folder), 201) == (
        f"{folder}: an epoch needs 201 images and there are 200; ask for fewer steps_per_epoch."
    )


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (mnist.IMAGES, b"\x1f\x8b compressed, sixteen bytes and more", "not an idx file"),
        (mnist.IMAGES, struct.pack(">IIII", 2051, 3, 28, 28) + bytes(784), "it says 3 items"),
        (mnist.LABELS, struct.pack(">II", 2049, 1) + bytes(1), "not as many labels as images"),
    ],
)
def test_files_that_are_not_what_they_should_be_are_refused(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    make.make("mnist", str(tmp_path), 20, 0)
    (tmp_path / name).write_bytes(content)

    assert said in (mnist.obstacle(str(tmp_path), 1) or "")


def test_as_a_program_it_says_where_it_could_not_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = subprocess.run(
        [sys.executable, str(make.__file__), "mnist", str(tmp_path / "file" / "data"), "10", "0"],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert done.stderr == f"tare: cannot make the data set in {tmp_path}/file/data: Not a directory\n"
