"""Criteo's click log, as of the Kaggle challenge: a line an advertisement, fields apart by tabs.

    train.txt    label (0 or 1), 13 whole numbers, 26 categories of 8 hexadecimal digits; any but the label may be empty

The real one has 45,840,617 lines, 11 GB. Made-up ones come as several files, train_00000.txt and so on, with the real
one's number of values in each category, the commonest of them as common as Zipf has it, and as many fields empty.
"""

import bisect
import math
import os
import re

from tare_inside.workloads.formats import make as making

TITLE = "Criteo Kaggle click log"
KIND = "clicks"
FORMAT = "tsv: label, 13 numbers, 26 categories"
ITEMS = 45840617
BYTES = 11147184845

NUMBERS, CATEGORIES = 13, 26
CARDINALITIES = (  # how many values each category of the real one has
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip

_CLICKED = 0.256
_EMPTY_NUMBERS = (0.45, 0.0, 0.21, 0.22, 0.03, 0.22, 0.04, 0.0, 0.04, 0.45, 0.04, 0.77, 0.22)
_EMPTY_CATEGORIES = {2: 0.03, 3: 0.03, 5: 0.12, 11: 0.03, 15: 0.03, 18: 0.44, 19: 0.44, 20: 0.03, 21: 0.76, 23: 0.03,
                     24: 0.44, 25: 0.44}  # fmt: skip
_LARGEST_NUMBERS = (50, 250, 500, 30, 60000, 2000, 150, 50, 600, 4, 15, 20, 150)
_UNIT = 20000  # lines
_BLOCK_BYTES = 1 << 16
_LINE = re.compile(rb"[01](?:\t-?[0-9]*){13}(?:\t(?:[0-9a-f]{8})?){26}\r?\n?$")


def units(count):
    """In how many units it is made."""
    return (count + _UNIT - 1) // _UNIT


def maker(count, seed):
    """From a unit to its file; a column at a time, which is quicker than a line at a time."""

    def files_of(unit):
        rows = min(_UNIT, count - unit * _UNIT)
        luck = making.chance("criteo", seed, unit)
        draw = luck.random
        columns = [["1" if draw() < _CLICKED else "0" for _ in range(rows)]]
        for largest, empty in zip(_LARGEST_NUMBERS, _EMPTY_NUMBERS):
            columns.append(["" if draw() < empty else str(int(largest ** draw()) - 1) for _ in range(rows)])
        for place, values in enumerate(CARDINALITIES):
            # Odd factors give each rank a number of its own. The logarithm of a rank is even, as Zipf has it.
            factor, empty = (2654435761 + 2 * place * 40503) & 0xFFFFFFFF, _EMPTY_CATEGORIES.get(place, 0.0)
            columns.append(
                ["" if draw() < empty else "%08x" % (int(values ** draw()) * factor & 0xFFFFFFFF) for _ in range(rows)]
            )
        text = "\n".join(map("\t".join, zip(*columns))) + "\n"
        return [("train_{:05d}.txt".format(unit), text.encode())]

    return files_of


def obstacle(folder, items):
    """Why this folder cannot be used, as a sentence; None if it can."""
    try:
        paths, there = _files(folder), 0
        for path in paths:
            there += count_lines(path, items - there)
        with open(paths[0], "rb") as file:
            fields(file.readline().rstrip(b"\n"), paths[0] + ":1")
    except (OSError, ValueError) as problem:
        return str(problem)
    if there < items:
        return "{}: {} lines are needed and there are {}.".format(folder, items, there)
    return None


def recognise(folder):
    """Whether the folder looks like this data set: a text file whose first line has the fields."""
    try:
        with open(_files(folder)[0], "rb") as file:
            return len(file.readline().split(b"\t")) == 1 + NUMBERS + CATEGORIES
    except (OSError, ValueError):
        return False


def describe(folder):
    """What is there, for `tare device data check`."""
    problems, items, size, clicked = [], 0, 0, 0
    for path in _files(folder):
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                items, size = items + 1, size + len(line)
                clicked += line.startswith(b"1")
                if _LINE.match(line) is None:
                    problems.append("{}:{}: this is not a line of the log.".format(path, number))
    return {"items": items, "bytes": size, "classes": 2, "problems": problems, "clicked": clicked}


def fields(line, path):
    """(label, 13 numbers, 26 categories) of a line, with None for what is empty; ValueError says where it is wrong."""
    parts = line.split(b"\t")
    if len(parts) != 1 + NUMBERS + CATEGORIES:
        raise ValueError("{}: a line has {} fields instead of {}.".format(path, len(parts), 1 + NUMBERS + CATEGORIES))
    try:
        label = int(parts[0])
        numbers = [int(part) if part else None for part in parts[1 : 1 + NUMBERS]]
        categories = [int(part, 16) if part else None for part in parts[1 + NUMBERS :]]
    except ValueError as problem:
        raise ValueError("{}: a field is no number: {}".format(path, problem))
    if label not in (0, 1):
        raise ValueError("{}: the label is {}, and it should be 0 or 1.".format(path, label))
    return label, numbers, categories


class Dataset(object):
    """Items ((numbers, categories), label): a line read, cut, and made ready for DLRM at each read.

    Numbers become log(1 + x), 0 where they are empty or negative; a category becomes its number modulo `rows`, the
    sizes of the tables it is looked up in, and an empty one the last row.
    """

    def __init__(self, folder, rows=CARDINALITIES):
        import torch

        self._view = (folder, tuple(rows))
        self._tensor, self._floats, self._rows = torch.tensor, torch.float32, tuple(rows)
        self._log = Lines(_files(folder))
        self.classes = 2

    def __len__(self):
        return len(self._log)

    def line(self, index):
        """The line as it lies in the file."""
        return self._log[index]

    def __getitem__(self, index):
        label, numbers, categories = fields(self._log[index], self._log.path(index))
        scaled = [math.log1p(number) if number is not None and number > 0 else 0.0 for number in numbers]
        places = [rows - 1 if category is None else category % rows for category, rows in zip(categories, self._rows)]
        return (self._tensor(scaled, dtype=self._floats), self._tensor(places)), label

    def __reduce__(self):
        return Dataset, self._view


def _files(folder):
    if not os.path.isdir(folder):
        raise FileNotFoundError("{}: no such folder.".format(folder))
    names = sorted(name for name in os.listdir(folder) if name.startswith("train") and name.endswith(".txt"))
    names = [name for name in names if os.path.getsize(os.path.join(folder, name))]
    if not names:
        raise ValueError("{}: no train.txt in it that is not empty.".format(folder))
    return [os.path.join(folder, name) for name in names]


def count_lines(path, enough):
    """How many lines a file has; it is not read further than to `enough` of them."""
    there, block = 0, b"\n"
    with open(path, "rb", buffering=0) as file:
        while there < enough:
            content = file.read(_BLOCK_BYTES)
            if not content:
                return there + (not block.endswith(b"\n"))
            block = content
            there += block.count(b"\n")
    return there


class Lines(object):
    """The lines of several files, one after the other; each is read from disk when it is asked for.

    What is kept in memory is only how many lines begin before each block of 64 KiB.
    """

    def __init__(self, paths):
        self._paths, self._files = paths, []
        self._blocks, self._before = [], [0]  # (file, offset) of each block; how many lines end before it
        for number, path in enumerate(paths):
            self._files.append(os.open(path, os.O_RDONLY))
            self._index(number)

    def _index(self, number):
        offset, file, content = 0, self._files[number], b"\n"
        while True:
            block = os.pread(file, _BLOCK_BYTES, offset)
            if not block:
                break
            content = block
            self._blocks.append((number, offset))
            self._before.append(self._before[-1] + block.count(b"\n"))
            offset += len(block)
        if not content.endswith(b"\n"):
            self._before[-1] += 1  # the last line of a file may lack its end

    def __len__(self):
        return self._before[-1]

    def path(self, index):
        """The file that a line is in."""
        return self._paths[self._blocks[bisect.bisect_right(self._before, index) - 1][0]]

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(index)
        block = bisect.bisect_right(self._before, index) - 1
        number, offset = self._blocks[block]
        content = self._read(block)
        lines = content.split(b"\n")
        place = index - self._before[block]
        line = lines[place]
        if place == 0:  # it may have begun in blocks before this one
            while offset > 0:
                block -= 1
                offset = self._blocks[block][1]
                head, found, tail = self._read(block).rpartition(b"\n")
                line = (tail if found else tail or head) + line
                if found:
                    break
        return line

    def _read(self, block):
        number, offset = self._blocks[block]
        return os.pread(self._files[number], _BLOCK_BYTES, offset)

    def close(self):
        """Close the files."""
        while self._files:
            os.close(self._files.pop())

    def __del__(self):
        self.close()
