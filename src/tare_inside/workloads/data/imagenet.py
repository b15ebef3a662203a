"""ImageNet, or a part of it: a folder a class, as torchvision's ImageFolder reads it.

    train/n01440764/n01440764_10026.JPEG    the class folders may also lie in the folder itself

The papers train on a part of 50,000 pictures, 6.74 GB. Made-up ones have the spread of sizes
and shapes of the real ones.
"""

import math
import os

from tare_inside.workloads.formats import make as making
from tare_inside.workloads.formats import pictures, synthetic

TITLE = "ImageNet subset"
KIND = "image"
FORMAT = "ImageFolder: train/CLASS/*.JPEG"
ITEMS = 50000
BYTES = 6740000000
CLASSES = 1000
NEEDS = ("PIL",)

TRAIN = "train"

_QUALITY = 97
_SHAPES = (  # what most of ImageNet has, and how often; the rest is anything between _LEAST and _MOST
    ((500, 375), 0.5),
    ((375, 500), 0.13),
    ((500, 333), 0.12),
    ((333, 500), 0.05),
    ((500, 500), 0.04),
)
_LEAST, _MOST = 250, 800
_SPREAD = 0.35  # of the logarithm of the bits a pixel
_MEDIAN_BITS = 5.09  # with the shapes above: 135 kB a file
_UNIT = 16  # pictures


def units(count):
    """In how many units it is made."""
    return (count + _UNIT - 1) // _UNIT


def maker(count, seed):
    """From a unit to its files."""
    artist = synthetic.Scenes(seed, _MOST, _MOST, _QUALITY)
    classes = min(CLASSES, count)

    def files_of(unit):
        for index in range(unit * _UNIT, min(count, (unit + 1) * _UNIT)):
            luck = making.chance("imagenet", seed, index)
            width, height = _shape(luck)
            size = width * height * _MEDIAN_BITS * math.exp(luck.gauss(0, _SPREAD)) / 8
            label = index % classes
            name = "n{:08d}".format(1440000 + 7 * label)
            picture = artist.jpeg(luck, label, width, height, size)
            yield os.path.join(TRAIN, name, "{}_{}.JPEG".format(name, index)), picture

    return files_of


def _shape(luck):
    at = luck.random()
    for shape, share in _SHAPES:
        at -= share
        if at < 0:
            return shape
    return luck.randrange(_LEAST, _MOST + 1), luck.randrange(_LEAST, _MOST + 1)


def obstacle(folder, items):
    """Why this folder cannot be trained on, as a sentence; None if it can."""
    try:
        paths, _, _ = _listed(folder)
    except (OSError, ValueError) as problem:
        return str(problem)
    return pictures.too_few(folder, len(paths), items)


def describe(folder):
    """What is there, for `tare device data check`."""
    return pictures.described(*_listed(folder))


def recognise(folder):
    """Whether the folder looks like this data set."""
    top, names = _class_folders(folder)
    return sum(1 for name in names if pictures.listed_folder(os.path.join(top, name))) > 1


class Dataset(pictures.Pictures):
    """Items (picture, class); see pictures.py for what is done to a picture at each read."""

    def __init__(self, folder, pixels=None, crop="centre"):
        super(Dataset, self).__init__(*_listed(folder), pixels=pixels, crop=crop)


def _listed(folder):
    """Paths, labels and the number of classes: each folder with pictures in it is a class, in the order of names."""
    if not os.path.isdir(folder):
        raise FileNotFoundError("{}: no such folder.".format(folder))
    top, names = _class_folders(folder)
    paths, labels = [], []
    for label, name in enumerate(names):
        found = pictures.listed_folder(os.path.join(top, name))
        if not found:
            raise ValueError("{}: no picture in it, and each folder is a class.".format(os.path.join(top, name)))
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise ValueError("{}: there are no folders with pictures in it, one a class.".format(top))
    return paths, labels, len(names)


def _class_folders(folder):
    """Where the folders of the classes are, and their names in order."""
    top = os.path.join(folder, TRAIN)
    if not os.path.isdir(top):
        top = folder
    return top, sorted(name for name in os.listdir(top) if os.path.isdir(os.path.join(top, name)))
