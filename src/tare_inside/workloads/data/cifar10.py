"""CIFAR-10 as it lies on disk: the Python version, or the binary one.

    cifar-10-batches-py/data_batch_1 .. 5, test_batch, batches.meta    pickles: data (rows of 3 planes of 32x32), labels
    cifar-10-batches-bin/data_batch_1.bin .. 5, test_batch.bin         a byte for the label, then the three planes

The real one has 50,000 items to train on and 10,000 to test. The pickles are read without running anything in them.
"""

import io
import os
import pickle

from tare_inside.workloads.formats import make as making
from tare_inside.workloads.formats import pictures

TITLE = "CIFAR-10"
KIND = "image"
FORMAT = "cifar-10-batches-py"
ITEMS = 50000
BYTES = 184700000
CLASSES = 10
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

PYTHON, BINARY = "cifar-10-batches-py", "cifar-10-batches-bin"
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

_SIDE = 32
_ITEM_BYTES = 3 * _SIDE * _SIDE
_BATCHES = 5
_TRAIN = ["data_batch_{}".format(number) for number in range(1, _BATCHES + 1)]
_TEST, _META = "test_batch", "batches.meta"


def units(count):
    """In how many units it is made; a fifth as many items again to test with."""
    return _BATCHES + 1


def maker(count, seed):
    """From a unit to its files: five batches, then the one to test with and the names."""
    patterns = [making.chance("cifar10", seed, "pattern", label).getrandbits(8 * _ITEM_BYTES) for label in range(10)]

    def files_of(unit):
        if unit < _BATCHES:
            items = range(unit * count // _BATCHES, (unit + 1) * count // _BATCHES)
            about = "training batch {} of {}".format(unit + 1, _BATCHES)
            return [(os.path.join(PYTHON, _TRAIN[unit]), _batch(seed, patterns, items, about))]
        test = _batch(seed, patterns, range(count, count + count // _BATCHES), "testing batch 1 of 1")
        meta = {"num_cases_per_batch": count // _BATCHES, "label_names": list(NAMES), "num_vis": _ITEM_BYTES}
        return [(os.path.join(PYTHON, _TEST), test), (os.path.join(PYTHON, _META), pickled(meta))]

    return files_of


def _batch(seed, patterns, items, about):
    half = int.from_bytes(b"\x7f" * _ITEM_BYTES, "big")
    images, labels, names = [], [], []
    for index in items:
        luck = making.chance("cifar10", seed, index)
        label = luck.randrange(CLASSES)
        # Half of each byte is the pattern of the class, half is chance.
        mixed = ((patterns[label] >> 1) & half) + ((luck.getrandbits(8 * _ITEM_BYTES) >> 1) & half)
        images.append(mixed.to_bytes(_ITEM_BYTES, "big"))
        labels.append(label)
        names.append("{}_s_{:06d}.png".format(NAMES[label], index))
    rows = array(len(labels), _ITEM_BYTES, b"".join(images))
    return pickled({"batch_label": about, "labels": labels, "data": rows, "filenames": names})


def obstacle(folder, items):
    """Why this folder cannot be trained on, as a sentence; None if it can."""
    try:
        count = len(Dataset(folder))
    except (OSError, ValueError) as problem:
        return str(problem)
    return pictures.too_few(folder, count, items, "images")


def recognise(folder):
    """Whether the folder looks like this data set."""
    return _version(folder) is not None


def describe(folder):
    """What is there, for `tare device data check`."""
    problems, items, size, labels = [], 0, 0, set()
    paths, opened = _version(folder)
    for path in paths:
        try:
            size += os.path.getsize(path)
            batch = opened(path)
            items += len(batch.labels)
            labels |= set(batch.labels)
        except (OSError, ValueError) as problem:
            problems.append(str(problem))
    return {"items": items, "bytes": size, "classes": len(labels), "problems": problems}


class Dataset(object):
    """Items (image, label) read from disk one by one, decoded, resized and normalised at each read."""

    def __init__(self, folder, pixels=None):
        import torch

        self._view = (folder, pixels)
        self.classes = CLASSES
        version = _version(folder)
        if version is None:
            raise FileNotFoundError(
                "{}: there is neither {}/{} nor {}/{}.bin. Unpack cifar-10-python.tar.gz there, or leave data_path out "
                "for synthetic data.".format(folder, PYTHON, _TRAIN[0], BINARY, _TRAIN[0])
            )
        self._batches = [version[1](path) for path in version[0]]
        self._items = [(batch, row) for batch in self._batches for row in range(len(batch.labels))]
        self._decode = pictures.plane_normaliser(torch, 3, _SIDE, MEAN, DEVIATION, pixels)

    def __len__(self):
        return len(self._items)

    def __getitem__(self, index):
        batch, row = self._items[index]
        return self._decode(batch.read(row)), batch.labels[row]

    def __reduce__(self):
        return Dataset, self._view  # spawned loader workers open the files again


class Batch(object):
    """One open file: its labels, and where in it the images lie."""

    def __init__(self, path, labels, first, stride, loose=None):
        if any(not 0 <= label < CLASSES for label in labels):
            raise ValueError("{}: it has labels that are not 0 to {}.".format(path, CLASSES - 1))
        self.labels = labels
        self._first, self._stride, self._loose = first, stride, loose
        self._file = os.open(path, os.O_RDONLY)

    def read(self, row):
        """The three planes of an image; pread moves no file position, so forked workers can share the file."""
        if self._loose is not None:
            return self._loose[row * _ITEM_BYTES : (row + 1) * _ITEM_BYTES]
        return os.pread(self._file, _ITEM_BYTES, self._first + row * self._stride)

    def __del__(self):
        if hasattr(self, "_file"):
            os.close(self._file)


def _version(folder):
    """The paths of the batches to train on and how to open one, in whichever version is there; None if none is."""
    for name, ending, opened in ((PYTHON, "", _open_pickle), (BINARY, ".bin", _open_binary)):
        for top in (os.path.join(folder, name), folder):
            paths = [os.path.join(top, batch + ending) for batch in _TRAIN]
            if os.path.exists(paths[0]):
                return paths, opened
    return None


def _open_pickle(path):
    content = pictures.read(path)
    held = unpickled(content, path)
    rows, labels = (held.get(key) for key in (b"data", b"labels")) if isinstance(held, dict) else (None, None)
    fits = isinstance(rows, Array) and isinstance(labels, list)
    if not fits or rows.shape != (len(labels), _ITEM_BYTES):
        raise ValueError(
            "{}: this is not a batch of CIFAR-10 (a label and {} bytes an item).".format(path, _ITEM_BYTES)
        )
    first = content.find(rows.content[:_ITEM_BYTES])
    as_they_lie = first >= 0 and content[first : first + len(rows.content)] == rows.content
    # A pickle that was written by Python 3 for Python 2 has the bytes in another form: those stay in memory.
    return Batch(path, labels, first, _ITEM_BYTES, None if as_they_lie else rows.content)


def _open_binary(path):
    content, stride = pictures.read(path), 1 + _ITEM_BYTES
    if not content or len(content) % stride:
        raise ValueError("{}: {} bytes are not whole items of {}.".format(path, len(content), stride))
    return Batch(path, list(content[::stride]), 1, stride)


# Pickles that hold plain data and byte arrays of numpy, read without running anything in them.
#
# A pickle is a program. Here it can call nothing but stand-ins for the few functions by which numpy says how an array
# lies in memory; a file that asks for anything else is refused. numpy itself is not needed, nor its version.

_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")


class Array(object):
    """An array of bytes as it was pickled: its shape, and its content row after row."""

    def __init__(self, *_):
        self.shape, self.content = (), b""

    def __setstate__(self, state):
        _, self.shape, kind, by_column, content = state
        if kind.name not in ("u1", b"u1") or len(self.shape) != 2:
            raise pickle.UnpicklingError("it holds an array that is not rows of bytes")
        self.content = content if isinstance(content, bytes) else content.encode("latin-1")
        if by_column:
            rows = self.shape[0]
            self.content = b"".join(self.content[row::rows] for row in range(rows))
        if len(self.content) != self.shape[0] * self.shape[1]:
            raise pickle.UnpicklingError("it holds an array with another size than it says")


class Kind(object):
    """What the items of an array are; only its name is looked at."""

    def __init__(self, name, *_):
        self.name = name

    def __setstate__(self, state):
        pass


def _encoded(text, encoding):
    """How pickles of Python 3 for Python 2 write bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError("it holds text in {!r}".format(encoding))
    return text.encode("latin-1")


_KNOWN = {("numpy", "ndarray"): Array, ("numpy", "dtype"): Kind, ("_codecs", "encode"): _encoded}
_KNOWN.update({(module, "_reconstruct"): Array for module in _NUMPY})


class _Reader(pickle.Unpickler):
    def find_class(self, module, name):
        known = _KNOWN.get((module, name))
        if known is None:
            raise pickle.UnpicklingError("it asks for {}.{}, and plain data need no such thing".format(module, name))
        return known


def unpickled(content, path):
    """What the pickle holds, with arrays as `Array`; ValueError, naming the file, for anything that is not plain."""
    try:
        return _Reader(io.BytesIO(content), encoding="bytes").load()
    except Exception as problem:  # a broken pickle can raise anything
        raise ValueError("{}: this is not a file of plain data: {}".format(path, problem or type(problem).__name__))


def pickled(content):
    """A pickle, protocol 2, of a dict from text to numbers, text, lists of them, or an `Array`: read by any numpy."""
    return b"\x80\x02}(" + b"".join(_text(key) + _value(value) for key, value in content.items()) + b"u."


def array(rows, columns, content):
    """An array of so many rows of bytes."""
    made = Array()
    made.shape, made.content = (rows, columns), content
    return made


def _value(value):
    if isinstance(value, Array):
        return _array(value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_value, value)) + b"e"
    return _number(value) if isinstance(value, int) else _text(value)


def _number(number):
    return b"J" + number.to_bytes(4, "little", signed=True)


def _text(text):
    """As Python 2 wrote it: bytes to whoever reads it as bytes, and text to whoever does not."""
    content = text.encode()
    return b"T" + len(content).to_bytes(4, "little") + content


def _array(made):
    """numpy's own words: an empty array, then its state (version, shape, kind, row after row, content)."""
    kind = b"cnumpy\ndtype\n" + _text("u1") + b"K\x00K\x01\x87R(K\x03" + _text("|") + b"NNN" + b"J\xff\xff\xff\xff" * 2
    shape = _number(made.shape[0]) + _number(made.shape[1]) + b"\x86"
    content = b"T" + len(made.content).to_bytes(4, "little") + made.content
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _text("b") + b"\x87R"
    return empty + b"(K\x01" + shape + kind + b"K\x00tb" + b"\x89" + content + b"tb"
