"""GLD-23k (Google Landmarks, the small federated split): photographs of landmarks, and who took which.

    images/IMAGE_ID.jpg
    data_user_dict/gld23k_user_dict_train.csv    user_id,image_id,class: as FedML lays it out; TensorFlow Federated's
                                                 mini_gld_train_split.csv in the folder itself is read too

The real one has 23,080 pictures of 800x600 by 233 users, 203 landmarks, 2.82 GB.
"""

import csv
import math
import os

from tare_inside.workloads.formats import make as making
from tare_inside.workloads.formats import pictures, synthetic

TITLE = "GLD-23k"
KIND = "image"
FORMAT = "csv + images/*.jpg"
ITEMS = 23080
BYTES = 2820000000
CLASSES = 203
NEEDS = ("PIL",)

IMAGES = "images"
TABLE = "data_user_dict/gld23k_user_dict_train.csv"

_TABLES = (TABLE, "gld23k_user_dict_train.csv", "mini_gld_train_split.csv")
_COLUMNS = ("user_id", "image_id", "class")
_USERS = 233
_WIDTH, _HEIGHT, _QUALITY = 800, 600, 85
_SPREAD = 0.4  # of the logarithm of a file's size
_MEDIAN_BYTES = 1.02 * BYTES / ITEMS / math.exp(_SPREAD**2 / 2)  # measured: without the 1.02 they come out smaller
_SMALLEST, _LARGEST = 45000, 300000
_UNIT = 16  # pictures


def units(count):
    """In how many units it is made."""
    return 1 + (count + _UNIT - 1) // _UNIT


def maker(count, seed):
    """From a unit to its files: the table first, then pictures."""
    made = []

    def files_of(unit):
        if unit == 0:
            rows = [_row(seed, index) for index in range(count)]
            lines = [",".join(_COLUMNS)] + ["{},{},{}".format(*row) for row in rows]
            return [(TABLE, "\n".join(lines).encode() + b"\n")]
        if not made:
            made.append(synthetic.Scenes(seed, _WIDTH, _HEIGHT, _QUALITY))
        return _pictures(made[0], seed, range((unit - 1) * _UNIT, min(count, unit * _UNIT)))

    return files_of


def _pictures(artist, seed, indices):
    for index in indices:
        _, name, label = _row(seed, index)
        luck = making.chance("gld23k", seed, index)
        size = min(_LARGEST, max(_SMALLEST, _MEDIAN_BYTES * math.exp(luck.gauss(0, _SPREAD))))
        yield os.path.join(IMAGES, name + ".jpg"), artist.jpeg(luck, label, _WIDTH, _HEIGHT, size)


def _row(seed, index):
    luck = making.chance("gld23k row", seed, index)
    return luck.randrange(_USERS), "{:08x}{:08x}".format(luck.getrandbits(32), index), luck.randrange(CLASSES)


def obstacle(folder, items):
    """Why this folder cannot be trained on, as a sentence; None if it can."""
    try:
        paths, _, _ = _table(folder)
    except (OSError, ValueError) as problem:
        return str(problem)
    if len(paths) < items:
        return pictures.too_few(folder, len(paths), items)
    if not os.path.exists(paths[0]):
        return "{}: it is in the table and there is no such file.".format(paths[0])
    return None


def describe(folder):
    """What is there, for `tare device data check`."""
    return pictures.described(*_table(folder))


def recognise(folder):
    """Whether the folder looks like this data set."""
    return _table_path(folder) is not None


class Dataset(pictures.Pictures):
    """Items (picture, landmark); see pictures.py for what is done to a picture at each read."""

    def __init__(self, folder, pixels=None, crop="centre"):
        super(Dataset, self).__init__(*_table(folder), pixels=pixels, crop=crop)


def _table_path(folder):
    for name in _TABLES:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    return None


def _table(folder):
    """Paths, labels and the number of classes, from the table."""
    table = _table_path(folder)
    if table is None:
        raise FileNotFoundError("{}: there is none of {}.".format(folder, ", ".join(_TABLES)))
    paths, labels = [], []
    with open(table, newline="") as file:
        rows = csv.DictReader(file)
        if rows.fieldnames is None or not set(_COLUMNS) <= set(rows.fieldnames):
            raise ValueError("{}: its first line should be {}.".format(table, ",".join(_COLUMNS)))
        for row in rows:
            if not (row["class"] or "").isdigit():
                raise ValueError("{}:{}: {!r} is no class.".format(table, rows.line_num, row["class"]))
            paths.append(os.path.join(folder, IMAGES, row["image_id"] + ".jpg"))
            labels.append(int(row["class"]))
    if not paths:
        raise ValueError("{}: there are no pictures in it.".format(table))
    return paths, labels, max(CLASSES, max(labels) + 1)
