"""Pictures on disk: read by others as by us, the pixels of torchvision, and errors that name the file."""

from __future__ import annotations

import copy
import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision_shim import import_torchvision

from tare_inside.workloads.data import cifar10, gld23k, imagenet, mnist
from tare_inside.workloads.data.cifar10 import array, pickled
from tare_inside.workloads.formats import make, pictures, synthetic
from tare_inside.workloads.formats.make import chance

COLOUR = {"mean": pictures.MEAN, "std": pictures.DEVIATION}


def levels_apart(ours: torch.Tensor, theirs: torch.Tensor, deviation: tuple[float, ...]) -> float:
    """How far two normalised pictures are apart, in 1/255."""
    scale = torch.tensor(deviation).view(-1, 1, 1)
    return float(((ours - theirs) * scale).abs().max()) * 255


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "imagenet"
    make.make("imagenet", str(folder), 12, 5, processes=1)
    return folder


@pytest.fixture(scope="module")
def landmarks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "gld23k"
    make.make("gld23k", str(folder), 10, 5, processes=1)
    return folder


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "cifar10"
    make.make("cifar10", str(folder), 50, 5, processes=1)
    return folder


def test_an_image_folder_is_what_torchvision_reads(photographs: Path) -> None:
    datasets = import_torchvision().datasets
    theirs, ours = datasets.ImageFolder(str(photographs / "train")), imagenet.Dataset(str(photographs))

    assert len(ours) == len(theirs) == 12
    assert ours.classes == len(theirs.classes)
    assert [(ours.path(index), ours[index][1]) for index in range(12)] == theirs.samples


@pytest.mark.parametrize("pixels", [224, 64])
def test_the_middle_of_a_picture_is_that_of_torchvision(photographs: Path, pixels: int) -> None:
    vision = import_torchvision()
    transforms = vision.transforms
    work = [transforms.Resize(round(pixels * 256 / 224)), transforms.CenterCrop(pixels), transforms.ToTensor()]
    theirs = vision.datasets.ImageFolder(
        str(photographs / "train"), transforms.Compose([*work, transforms.Normalize(**COLOUR)])
    )
    ours = imagenet.Dataset(str(photographs), pixels=pixels)

    for index in range(len(ours)):
        assert ours[index][0].shape == (3, pixels, pixels)
        assert levels_apart(ours[index][0], theirs[index][0], pictures.DEVIATION) < 1.01


def test_a_random_part_is_that_of_torchvision_for_the_same_box(photographs: Path) -> None:
    functional = import_torchvision().transforms.functional
    picture = Image.open(imagenet.Dataset(str(photographs)).path(3)).convert("RGB")
    torch.manual_seed(1)
    left, top, right, bottom = pictures.part(torch.rand, *picture.size)
    mirrored = torch.rand(1).item() < 0.5
    torch.manual_seed(1)
    ours = pictures.random_part(torch, Image, picture, 96)
    theirs = functional.resized_crop(picture, top, left, bottom - top, right - left, [96, 96])

    assert ours.tobytes() == (functional.hflip(theirs) if mirrored else theirs).tobytes()


def test_random_parts_stay_in_the_picture_and_have_the_wanted_shapes() -> None:
    torch.manual_seed(0)
    for width, height in ((800, 600), (50, 400), (400, 50), (3, 3)):
        for _ in range(200):
            left, top, right, bottom = pictures.part(torch.rand, width, height)
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height
    boxes = [pictures.part(torch.rand, 800, 600) for _ in range(500)]
    shares = [(right - left) * (bottom - top) / 480000 for left, top, right, bottom in boxes]

    assert 0.07 < min(shares) < 0.15
    assert 0.85 < max(shares) <= 1


def test_landmarks_have_the_real_ones_size_and_weight(landmarks: Path) -> None:
    sizes = [path.stat().st_size for path in (landmarks / "images").iterdir()]
    said = gld23k.describe(str(landmarks))

    assert said["commonest_pixels"] == ["800x600"]
    assert said["problems"] == []
    assert (said["items"], said["classes"]) == (10, 203)
    assert 80_000 < sum(sizes) / len(sizes) < 170_000
    assert max(sizes) > 1.5 * min(sizes)


def test_a_scene_has_about_the_size_that_was_asked_for() -> None:
    artist = synthetic.Scenes(0, 400, 300, 90)
    for wanted in (20_000, 40_000, 60_000):
        made = [len(artist.jpeg(chance(wanted, number), number, 400, 300, wanted)) for number in range(6)]

        assert sum(made) / len(made) == pytest.approx(wanted, rel=0.15)


def test_classes_can_be_told_apart() -> None:
    """Scenes of one class look more alike, made small, than those of two."""
    artist = synthetic.Scenes(0, 400, 300, 90)

    def small(label: int, number: int) -> Any:
        picture = Image.open(io.BytesIO(artist.jpeg(chance("told", number), label, 400, 300, 40_000)))
        return np.asarray(picture.resize((5, 5), Image.BOX), dtype=float)

    first, second = [small(0, number) for number in range(6)], [small(1, number) for number in range(6, 12)]
    within = np.mean([np.abs(one - other).mean() for one in first for other in first])
    between = np.mean([np.abs(one - other).mean() for one in first for other in second])

    assert between > 1.2 * within


@pytest.mark.parametrize("table", ["mini_gld_train_split.csv", "gld23k_user_dict_train.csv"])
def test_the_tables_of_other_tools_are_read(landmarks: Path, tmp_path: Path, table: str) -> None:
    (tmp_path / table).write_bytes((landmarks / gld23k.TABLE).read_bytes())
    (tmp_path / "images").symlink_to(landmarks / "images")

    assert len(gld23k.Dataset(str(tmp_path), pixels=32)) == 10
    assert gld23k.recognise(str(tmp_path))
    assert not imagenet.recognise(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("user_id,image_id,class\n1,ab,x\n", "'x' is no class"),
        ("a,b\n", "first line"),
        ("user_id,image_id,class\n", "no"),
    ],
)
def test_a_table_that_is_wrong_says_where(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "mini_gld_train_split.csv").write_text(content)

    sentence = gld23k.obstacle(str(tmp_path), 1) or ""
    assert said in sentence
    assert str(tmp_path / "mini_gld_train_split.csv") in sentence


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:9000]), "not a whole picture"),
        (lambda path: path.write_bytes(b"no picture"), "not a whole picture"),
        (lambda path: path.write_bytes(b""), "not a whole picture"),
    ],
)
def test_a_picture_that_is_missing_or_broken_is_named(tmp_path: Path, damage: Any, said: str) -> None:
    for name in ("n1/a.JPEG", "n2/b.JPEG"):
        (tmp_path / name).parent.mkdir()
        Image.effect_noise((300, 200), 90).convert("RGB").save(tmp_path / name, "JPEG")
    dataset = imagenet.Dataset(str(tmp_path), pixels=64)
    damage(tmp_path / "n2/b.JPEG")

    with pytest.raises(ValueError, match=said) as error:
        dataset[1]
    assert str(tmp_path / "n2/b.JPEG") in str(error.value)
    assert dataset[0][0].shape == (3, 64, 64)


def test_a_truncated_picture_is_found_by_looking(tmp_path: Path) -> None:
    make.make("gld23k", str(tmp_path), 2, 0, processes=1)
    path = next((tmp_path / "images").iterdir())
    path.write_bytes(path.read_bytes()[:20000])

    assert gld23k.describe(str(tmp_path))["problems"] == [
        f"{path}: the end of the picture is missing (20000 bytes are there)."
    ]


def test_a_grey_picture_gets_three_planes(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        (tmp_path / name).mkdir()
        Image.new("L", (40, 30), 77).save(tmp_path / name / "x.png")

    assert imagenet.Dataset(str(tmp_path), pixels=16)[0][0].shape == (3, 16, 16)
    assert imagenet.Dataset(str(tmp_path))[0][0].shape == (3, 30, 40)


@pytest.mark.parametrize(("inside", "said"), [([], "no folders with pictures"), (["n1"], "no picture in it")])
def test_an_empty_folder_says_so(tmp_path: Path, inside: list[str], said: str) -> None:
    for name in inside:
        (tmp_path / name).mkdir()

    assert said in (imagenet.obstacle(str(tmp_path), 1) or "")
    assert "no such folder" in (imagenet.obstacle(str(tmp_path / "nowhere"), 1) or "")


def test_an_epoch_that_needs_more_than_there_is_says_so(photographs: Path, landmarks: Path, batches: Path) -> None:
    for data, folder, there in ((imagenet, photographs, 12), (gld23k, landmarks, 10), (cifar10, batches, 50)):
        assert data.obstacle(str(folder), there) is None  # type: ignore[attr-defined]
        assert "an epoch needs 99" in data.obstacle(str(folder), 99)  # type: ignore[attr-defined]


def test_workers_that_are_spawned_get_the_same_items(photographs: Path, batches: Path) -> None:
    for dataset in (imagenet.Dataset(str(photographs), pixels=32), cifar10.Dataset(str(batches), pixels=64)):
        assert torch.equal(copy.copy(dataset)[3][0], dataset[3][0])


def test_a_batch_of_cifar_is_what_numpy_reads(batches: Path) -> None:
    dataset = cifar10.Dataset(str(batches))
    for number in range(5):
        path = batches / "cifar-10-batches-py" / f"data_batch_{number + 1}"
        held = pickle.loads(path.read_bytes(), encoding="bytes")  # noqa: S301
        assert (held[b"data"].shape, held[b"data"].dtype) == ((10, 3072), np.uint8)
        image, label = dataset[10 * number + 7]
        stored = torch.from_numpy(held[b"data"][7].copy()).view(3, 32, 32).float() / 255
        wanted = (stored - torch.tensor(cifar10.MEAN).view(3, 1, 1)) / torch.tensor(cifar10.DEVIATION).view(3, 1, 1)
        assert torch.allclose(image, wanted, atol=1e-5)
        assert label == held[b"labels"][7]
    meta = pickle.loads((batches / "cifar-10-batches-py" / "batches.meta").read_bytes())  # noqa: S301
    assert meta["label_names"] == list(cifar10.NAMES)


def test_cifar_made_larger_is_what_torchvision_makes(batches: Path) -> None:
    functional = import_torchvision().transforms.functional
    small, large = cifar10.Dataset(str(batches)), cifar10.Dataset(str(batches), pixels=96)
    scale = torch.tensor(cifar10.DEVIATION).view(3, 1, 1)
    stored = ((small[4][0] * scale + torch.tensor(cifar10.MEAN).view(3, 1, 1)) * 255).round().byte()
    theirs = functional.to_tensor(functional.resize(functional.to_pil_image(stored), [96, 96]))
    theirs = functional.normalize(theirs, cifar10.MEAN, cifar10.DEVIATION)

    assert levels_apart(large[4][0], theirs, cifar10.DEVIATION) < 1.01


def write_batches(folder: Path, content: bytes) -> Path:
    top = folder / "cifar-10-batches-py"
    top.mkdir()
    for number in range(1, 6):
        (top / f"data_batch_{number}").write_bytes(content)
    return top / "data_batch_1"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_of_numpy_itself_are_read(tmp_path: Path, protocol: int, order: Any) -> None:
    rows = np.asarray(np.random.default_rng(0).integers(0, 256, (4, 3072)), dtype=np.uint8, order=order)
    write_batches(tmp_path, pickle.dumps({b"data": rows, b"labels": [3, 1, 4, 1]}, protocol=protocol))
    image, label = cifar10.Dataset(str(tmp_path))[6]

    stored = (image * torch.tensor(cifar10.DEVIATION).view(3, 1, 1) + torch.tensor(cifar10.MEAN).view(3, 1, 1)) * 255
    assert torch.equal(stored.round().byte().flatten(), torch.from_numpy(rows[2].copy()))
    assert label == 4


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harm-was-done",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps({b"data": Harmful(), b"labels": []}), "it asks for posix.mkdir"),
        (pickle.dumps({b"labels": [1]}), "not a batch of CIFAR-10"),
        (pickle.dumps([1, 2]), "not a batch of CIFAR-10"),
        (pickled({"data": array(1, 3072, bytes(3072)), "labels": [10]}), "not 0 to 9"),
        (pickled({"data": array(2, 3072, bytes(6144)), "labels": [1]}), "not a batch"),
        (pickled({"data": array(1, 3072, bytes(3072)), "labels": [1]})[:2000], "plain data"),
        (b"", "plain data"),
    ],
)
def test_a_batch_that_is_no_batch_is_refused_and_nothing_in_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_batches(tmp_path, content)

    sentence = cifar10.obstacle(str(tmp_path), 1) or ""
    assert said in sentence
    assert str(path) in sentence
    assert not (tmp_path / "harm-was-done").exists()


def test_the_binary_version_of_cifar_is_read(tmp_path: Path) -> None:
    top = tmp_path / "cifar-10-batches-bin"
    top.mkdir()
    items = [bytes([label]) + bytes([10 * label + 1]) * 3072 for label in (7, 2, 9)]
    for number in range(1, 6):
        (top / f"data_batch_{number}.bin").write_bytes(b"".join(items))
    dataset = cifar10.Dataset(str(tmp_path))

    assert len(dataset) == 15
    assert [dataset[index][1] for index in (0, 4, 14)] == [7, 2, 9]
    assert float(dataset[4][0][0, 5, 5]) == pytest.approx((21 / 255 - 0.4914) / 0.2470, abs=1e-5)
    (top / "data_batch_3.bin").write_bytes(b"".join(items)[:-1])
    assert "data_batch_3.bin: 9218 bytes are not whole items" in (cifar10.obstacle(str(tmp_path), 1) or "")


def test_mnist_can_be_had_larger(tmp_path: Path) -> None:
    make.make("mnist", str(tmp_path), 5, 0)

    assert mnist.Dataset(str(tmp_path), pixels=32)[2][0].shape == (1, 32, 32)
