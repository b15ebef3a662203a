"""The lines of large text files, by number: each is read from disk when it is asked for.

What is kept in memory is only how many lines begin before each block of 64 KiB.

Reads pickles that hold plain data and byte arrays of numpy, such as CIFAR's, without running anything in them.

A pickle is a program. Here it can call nothing but stand-ins for the few functions by which numpy says how an array
lies in memory; a file that asks for anything else is refused. numpy itself is not needed, nor its version.
"""

import bisect
import io
import os
import pickle

_BLOCK_BYTES = 1 << 16


def count(path, enough):
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
    """The lines of several files, one after the other."""

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


def read(content, path):
    """What the pickle holds, with arrays as `Array`; ValueError, naming the file, for anything that is not plain."""
    try:
        return _Reader(io.BytesIO(content), encoding="bytes").load()
    except Exception as problem:  # a broken pickle can raise anything
        raise ValueError("{}: this is not a file of plain data: {}".format(path, problem or type(problem).__name__))


def write(content):
    """A pickle, protocol 2, of a dict from text to numbers, text, lists of them, or an `Array`: read by any numpy."""
    return b"\x80\x02" + _dict(content) + b"."


def array(rows, columns, content):
    """An array of so many rows of bytes."""
    made = Array()
    made.shape, made.content = (rows, columns), content
    return made


def _dict(content):
    return b"}(" + b"".join(_text(key) + _value(value) for key, value in content.items()) + b"u"


def _value(value):
    return _WRITERS[type(value)](value)


def _number(number):
    return b"J" + number.to_bytes(4, "little", signed=True)


def _text(text):
    """As Python 2 wrote it: bytes to whoever reads it as bytes, and text to whoever does not."""
    content = text.encode()
    return b"T" + len(content).to_bytes(4, "little") + content


def _list(values):
    return b"](" + b"".join(_value(value) for value in values) + b"e"


def _array(made):
    """numpy's own words: an empty array, then its state (version, shape, kind, row after row, content)."""
    kind = b"cnumpy\ndtype\n" + _text("u1") + b"K\x00K\x01\x87R(K\x03" + _text("|") + b"NNN" + b"J\xff\xff\xff\xff" * 2
    shape = _number(made.shape[0]) + _number(made.shape[1]) + b"\x86"
    content = b"T" + len(made.content).to_bytes(4, "little") + made.content
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _text("b") + b"\x87R"
    return empty + b"(K\x01" + shape + kind + b"K\x00tb" + b"\x89" + content + b"tb"


_WRITERS = {int: _number, str: _text, list: _list, Array: _array}
