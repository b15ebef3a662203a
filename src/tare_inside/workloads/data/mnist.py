"""MNIST as it lies on disk: two idx files. Real ones work; `make` writes synthetic ones of the same format and size.

    train-images-idx3-ubyte    magic 2051, count, 28, 28 (big-endian u32), then 784 bytes an image
    train-labels-idx1-ubyte    magic 2049, count, then one byte a label

The synthetic images are about as sparse as handwriting and can be told apart, so that training on them learns.
"""

import os
import random
import struct

from tare_inside.workloads.formats import pictures

TITLE = "MNIST"
ITEMS = 60000
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
CLASSES = 10
KIND = "image"
FORMAT = "idx"
BYTES = 47100024

_ROWS = _COLUMNS = 28
_IMAGE_BYTES = _ROWS * _COLUMNS
_IMAGE_HEADER, _LABEL_HEADER = struct.Struct(">IIII"), struct.Struct(">II")
_IMAGE_MAGIC, _LABEL_MAGIC = 2051, 2049
_LAYOUTS = ("", "raw", os.path.join("MNIST", "raw"))  # the files themselves, or as torchvision lays them out
_MEAN, _DEVIATION = 0.1307, 0.3081


def units(count):
    """In how many units it is made."""
    return 1


def maker(count, seed):
    """From the one unit there is to its two files."""

    def files_of(unit):
        chance = random.Random(seed)
        # Each class lights its own fifth of the pixels, as bright as chance has it.
        lit = []
        for _ in range(CLASSES):
            pixels = bytes(255 if chance.random() < 0.2 else 0 for _ in range(_IMAGE_BYTES))
            lit.append(int.from_bytes(pixels, "big"))
        labels = bytes(chance.randrange(CLASSES) for _ in range(count))
        images = (chance.getrandbits(8 * _IMAGE_BYTES) & lit[label] for label in labels)
        image_header = _IMAGE_HEADER.pack(_IMAGE_MAGIC, count, _ROWS, _COLUMNS)
        yield IMAGES, image_header + b"".join(image.to_bytes(_IMAGE_BYTES, "big") for image in images)
        yield LABELS, _LABEL_HEADER.pack(_LABEL_MAGIC, count) + labels

    return files_of


def obstacle(folder, items):
    """Why this folder cannot be trained on, as a sentence; None if it can."""
    try:
        images, labels = _files(folder)
        count = _count(images, _IMAGE_HEADER, _IMAGE_MAGIC, _IMAGE_BYTES)
        if count != _count(labels, _LABEL_HEADER, _LABEL_MAGIC, 1):
            return "{}: there are not as many labels as images.".format(folder)
    except (OSError, ValueError) as problem:
        return str(problem)
    return pictures.too_few(folder, count, items, "images")


def recognise(folder):
    """Whether the folder looks like this data set."""
    return any(os.path.exists(os.path.join(folder, layout, IMAGES)) for layout in _LAYOUTS)


def describe(folder):
    """What is there, for `tare device data check`."""
    reported = {"classes": CLASSES, "problems": [problem for problem in [obstacle(folder, 0)] if problem]}
    if not reported["problems"]:
        images, labels = _files(folder)
        reported["items"] = _count(images, _IMAGE_HEADER, _IMAGE_MAGIC, _IMAGE_BYTES)
        reported["bytes"] = os.path.getsize(images) + os.path.getsize(labels)
        found = set(pictures.read(labels)[_LABEL_HEADER.size :])
        reported["classes"] = len(found)
        if max(found) >= CLASSES:
            reported["problems"].append("{}: it has labels above {}.".format(labels, CLASSES - 1))
    return reported


class Dataset(object):
    """Items (image, label) read from disk one by one, decoded and normalised at each read, as a real loader does."""

    def __init__(self, folder, pixels=None):
        import torch

        self._view = (folder, pixels)
        self.classes = CLASSES
        images, labels = _files(folder)
        self._count = _count(images, _IMAGE_HEADER, _IMAGE_MAGIC, _IMAGE_BYTES)
        self._images, self._labels = os.open(images, os.O_RDONLY), os.open(labels, os.O_RDONLY)
        self._decode = pictures.plane_normaliser(torch, 1, _ROWS, (_MEAN,), (_DEVIATION,), pixels)

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        # pread moves no file position: forked loader workers can share the descriptors.
        image = os.pread(self._images, _IMAGE_BYTES, _IMAGE_HEADER.size + index * _IMAGE_BYTES)
        label = os.pread(self._labels, 1, _LABEL_HEADER.size + index)
        return self._decode(image), label[0]

    def __reduce__(self):
        return Dataset, self._view  # spawned loader workers open the files again

    def __del__(self):
        for descriptor in (getattr(self, "_images", None), getattr(self, "_labels", None)):
            if descriptor is not None:
                os.close(descriptor)


def _files(folder):
    for layout in _LAYOUTS:
        images, labels = os.path.join(folder, layout, IMAGES), os.path.join(folder, layout, LABELS)
        if os.path.exists(images) and os.path.exists(labels):
            return images, labels
    raise FileNotFoundError(
        "{}: no {} with its {}. Unpack the .gz files of MNIST there, or leave data_path out for synthetic data.".format(
            folder, IMAGES, LABELS
        )
    )


def _count(path, header, magic, item_bytes):
    """How many items the file says it has; ValueError unless it is what it should be and has them all."""
    with open(path, "rb") as file:
        start = file.read(header.size)
    if len(start) < header.size or header.unpack(start)[0] != magic:
        raise ValueError("{}: this is not an idx file of MNIST (its first number should be {}).".format(path, magic))
    count = header.unpack(start)[1]
    wanted, there = header.size + count * item_bytes, os.path.getsize(path)
    if there != wanted:
        raise ValueError("{}: it says {} items, so {} bytes; it has {}.".format(path, count, wanted, there))
    return count
