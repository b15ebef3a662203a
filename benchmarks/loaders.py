"""Loader throughput: our data sets against torchvision's own, on the same files, with the same work and workers.

    python -m benchmarks.loaders [ROUNDS]

MNIST (idx files, ToTensor, Normalize) and JPEG (an ImageFolder of 800x600 photographs: Resize 256, CenterCrop 224 or
RandomResizedCrop 224 with RandomHorizontalFlip, ToTensor, Normalize), through a DataLoader with 0 and 2 workers. Rounds
are interleaved; first it is checked that both give the same pixels, within 1/255.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.rounds import Rounds
from tare.analysis.numeric.medians import median_estimate
from tare_inside.workloads.data import gld23k, imagenet, mnist
from tare_inside.workloads.formats import make

ROUNDS = 7
WORKERS = (0, 2)
BATCH = 16
MNIST_ITEMS, JPEG_ITEMS = 2000, 112
CLOSE = 1.001 / 255  # and a little for rounding
DEVIATION = (0.229, 0.224, 0.225)

Pair = tuple[Any, Any]

_kept: list[Any] = []  # torch forgets a library that nothing refers to


def measure(rounds: int = ROUNDS) -> dict[str, Any]:
    """Images a second of both, and the ratio ours / theirs, for each path and number of workers."""
    torch.set_num_threads(1)
    transforms, datasets = _torchvision()
    found, kept = {}, Rounds()
    with tempfile.TemporaryDirectory() as folder:
        for name, pair in _pairs(Path(folder), transforms, datasets):
            for workers in WORKERS:
                found[f"{name}, {workers} workers"] = _compared(pair, workers, rounds, kept, name)
    kept.keep("loaders")  # seconds an image
    return found


def _pairs(folder: Path, transforms: Any, datasets: Any) -> Iterable[tuple[str, Pair]]:
    idx = folder / "mnist" / "MNIST" / "raw"
    make.make("mnist", str(idx), MNIST_ITEMS, 0)
    (idx / mnist.IMAGES).with_name("t10k-images-idx3-ubyte").symlink_to(idx / mnist.IMAGES)
    (idx / mnist.LABELS).with_name("t10k-labels-idx1-ubyte").symlink_to(idx / mnist.LABELS)
    tensor = transforms.ToTensor()
    grey = transforms.Compose([tensor, transforms.Normalize((0.1307,), (0.3081,))])
    theirs = datasets.MNIST(str(folder / "mnist"), train=True, transform=grey)
    yield "MNIST", _alike(mnist.Dataset(str(folder / "mnist")), theirs, (0.3081,))

    pictures = _image_folder(folder)
    colour = transforms.Normalize((0.485, 0.456, 0.406), DEVIATION)
    middle = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), tensor, colour])
    theirs = datasets.ImageFolder(str(pictures / "train"), middle)
    yield "JPEG, centre crop", _alike(imagenet.Dataset(str(pictures), pixels=224), theirs, DEVIATION)

    # Random crops differ from draw to draw; that a given box gives the same pixels is in the tests.
    flip = transforms.RandomHorizontalFlip()
    anywhere = transforms.Compose([transforms.RandomResizedCrop(224), flip, tensor, colour])
    theirs = datasets.ImageFolder(str(pictures / "train"), anywhere)
    yield "JPEG, random crop", (imagenet.Dataset(str(pictures), pixels=224, crop="random"), theirs)


def _image_folder(folder: Path) -> Path:
    """Photographs of GLD's size, two classes of them, in ImageFolder's layout."""
    made = folder / "gld"
    make.make("gld23k", str(made), JPEG_ITEMS, 0)
    for number, path in enumerate(sorted((made / gld23k.IMAGES).iterdir())):
        place = folder / "folder" / "train" / f"n{number % 2:08d}"
        place.mkdir(parents=True, exist_ok=True)
        path.rename(place / path.name)
    return folder / "folder"


def _alike(ours: Any, theirs: Any, deviation: tuple[float, ...]) -> Pair:
    """Both, once it is sure that they give the same: labels equal, pixels within 1/255 before they are normalised."""
    assert len(ours) == len(theirs)
    scale = torch.tensor(deviation).view(-1, 1, 1)
    for index in range(0, len(ours), max(1, len(ours) // 24)):
        (our_image, our_label), (their_image, their_label) = ours[index], theirs[index]
        assert our_label == their_label, f"item {index}: {our_label} and {their_label}"
        apart = ((our_image - their_image) * scale).abs().max().item()
        assert apart <= CLOSE, f"item {index}: pixels are {apart:.4f} apart"
    return ours, theirs


def _compared(pair: Pair, workers: int, rounds: int, kept: Rounds, name: str) -> dict[str, Any]:
    rates: tuple[list[float], list[float]] = ([], [])
    order = random.Random(1)
    for round_ in range(rounds + 1):  # the first one warms up, and does not count
        for side in order.sample((0, 1), 2):
            rate = _images_a_second(pair[side], workers)
            if round_:
                rates[side].append(rate)
                kept.add(f"{name}, {workers} workers, {('tare', 'torchvision')[side]}", 1 / rate)
    ratios = [ours / theirs for ours, theirs in zip(*rates, strict=True)]
    named = zip(("ours_per_s", "torchvision_per_s", "ours_over_torchvision"), (*rates, ratios), strict=True)
    return {name: _estimate(values) for name, values in named}


def _images_a_second(dataset: Any, workers: int) -> float:
    """One pass, without the start of the workers: the clock starts with the first batch."""
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=workers, shuffle=True)
    batches = iter(loader)
    next(batches)
    begin_s, images = time.perf_counter(), 0
    for batch, _ in batches:
        images += len(batch)
    return images / (time.perf_counter() - begin_s)


def _estimate(values: list[float]) -> dict[str, float | None]:
    found = median_estimate(values)
    return {"value": found.value, "low": found.low, "high": found.high, "n": found.n}


def _torchvision() -> tuple[Any, Any]:
    """torchvision; beside a torch without CUDA its own library cannot load, and two operators must be named first."""
    try:
        from torchvision import datasets, transforms
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
        from torchvision import datasets, transforms
    return transforms, datasets


def text(result: dict[str, Any]) -> str:
    def shown(figure: dict[str, float], form: str) -> str:
        low, high = figure["low"], figure["high"]
        interval = "" if low is None else f" [{low:{form}}, {high:{form}}]"
        return f"{figure['value']:{form}}{interval}"

    return "\n".join(
        f"  {name:28} ours {shown(row['ours_per_s'], '.0f')} images/s, torchvision "
        f"{shown(row['torchvision_per_s'], '.0f')}; ours / torchvision {shown(row['ours_over_torchvision'], '.2f')}"
        for name, row in result.items()
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    words = [word for word in sys.argv[1:] if word != "--json"]
    result = measure(*map(int, words))
    print(json.dumps(result, indent=1) if "--json" in sys.argv else text(result))
