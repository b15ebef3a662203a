"""Arrays of many trials in few bytes, and back without loss: what a thinned pack (thin_pack.py) keeps its series in.

One *stream* holds the same column of every trial. Decimal fractions become integers, integers become differences where
those are smaller, and each number is spread over byte planes: xz finds then what repeats. The description of a stream
is plain data; its bytes follow those of the stream before it.

Columns as one file of plain arrays: what the series of an opened pack lie in while a command reads them.

DuckDB takes 3 to 5 ms to write or to read a Parquet file, however small; one of these takes a tenth of a millisecond.
They stand under the names of the files that they are read for, in a private folder that goes with the command
(`unpack.each_pack_once`): a store never has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.base import strict_json

if TYPE_CHECKING:
    from tare.records.model import Json

Array: TypeAlias = npt.NDArray[Any]

_SCALES = (1, 10, 100, 1000, 10**6, 10**9)
_EXACT = 2**53  # up to here a float holds every integer
_TYPES = ("int64", "int32", "uint64", "uint32", "int16", "uint16", "int8", "uint8", "bool", "float64")
_TEXT = "text"


class StreamError(ValueError):
    """The bytes are not what `StreamWriter` makes."""


class StreamWriter:
    """Collects streams; `body` is their bytes one after another."""

    def __init__(self) -> None:
        self.body = bytearray()

    def add(self, arrays: Sequence[Array]) -> Json:
        """One column of several trials; returns the description that `StreamReader.take` needs."""
        whole = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
        about: dict[str, Json] = {"lengths": [len(each) for each in arrays]}
        if whole.dtype == np.object_:
            words = sorted({word for word in whole.tolist() if word is not None})
            places: dict[Any, int] = {None: 0} | {word: place for place, word in enumerate(words, 1)}
            return {**about, "type": _TEXT, "words": words, **self._add(np.array([places[w] for w in whole.tolist()]))}
        if whole.dtype.name not in _TYPES:
            raise StreamError(f"a column of {whole.dtype.name} cannot be kept")
        about["type"] = whole.dtype.name
        integers, about["scale"] = _integers(whole)
        steps = [(level, _differences(integers, about["lengths"], level)) for level in (0, 1, 2)]
        about["level"], chosen = min(steps, key=lambda step: float(np.log2(_folded(step[1]) + 1.0).sum()))
        return about | self._add(chosen)

    def _add(self, values: Array) -> Json:
        octets = _folded(values.astype(np.int64)).astype("<u8").view(np.uint8).reshape(-1, 8)
        planes = [place for place in range(8) if octets[:, place].any()]
        for place in planes:
            self.body += octets[:, place].tobytes()
        return {"planes": planes}


class StreamReader:
    """The streams of a body, in the order in which they were added; never more than `most` numbers in all."""

    def __init__(self, body: memoryview, most: int) -> None:
        self._body = body
        self._left = most

    def take(self, about: Json) -> list[Array]:
        """The arrays of the next stream; texts as places in its `words`, from 1, and 0 for one that is missing."""
        lengths, kind = list(map(int, about["lengths"])), about["type"]
        self._left -= sum(lengths)
        if min(lengths, default=0) < 0 or self._left < 0 or kind not in (*_TYPES, _TEXT):
            raise StreamError("a column that is too long, or of an unknown kind")
        values = self._values(sum(lengths), about["planes"])
        if kind == _TEXT:
            whole = values
            if values.size and not 0 <= values.min() <= values.max() <= len(about["words"]):
                raise StreamError("a text that is not in its list")
        else:
            for _ in range(int(about["level"])):
                values = _sums(values, lengths)
            whole = _restored(values, kind, int(about["scale"]))
        ends = np.cumsum(lengths).tolist()
        return [whole[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def end(self) -> None:
        if len(self._body):
            raise StreamError("there is more in it than its list says")

    def _values(self, count: int, planes: Sequence[int]) -> Array:
        octets = np.zeros((count, 8), np.uint8)
        for place in planes:
            if len(self._body) < count:
                raise EOFError
            octets[:, place] = np.frombuffer(self._body[:count], np.uint8)
            self._body = self._body[count:]
        folded = octets.reshape(-1).view("<u8").astype(np.uint64)
        return (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)


def _folded(values: Array) -> Array:
    """Small numbers for small values, whatever their sign: 0, -1, 1, -2 as 0, 1, 2, 3."""
    found: Array = ((values << 1) ^ (values >> 63)).view(np.uint64)
    return found


def _integers(values: Array) -> tuple[Array, int]:
    """The values as integers, and what they are to be divided by; 0: they are the bits of floats."""
    if values.dtype.kind != "f":
        return values.astype(np.uint64).view(np.int64) if values.dtype.kind == "u" else values.astype(np.int64), 1
    bits = values.view(np.int64)
    with np.errstate(invalid="ignore", over="ignore"):
        for scale in _SCALES:
            scaled = np.round(values * scale)
            if bool((np.abs(scaled) < _EXACT).all()) and np.array_equal((scaled / scale).view(np.int64), bits):
                return scaled.astype(np.int64), scale
    return bits, 0


def _restored(values: Array, kind: str, scale: int) -> Array:
    if kind != "float64":
        return values.view(np.uint64) if kind == "uint64" else values.astype(kind)
    return values / scale if scale else values.view(np.float64)


def _differences(values: Array, lengths: Sequence[int], level: int) -> Array:
    """From one value of a trial to the next, `level` times; a trial's first counts from 0. Overflow comes back."""
    begins = _begins(lengths)
    for _ in range(level):
        before = np.roll(values, 1)
        before[begins] = 0
        values = values - before
    return values


def _sums(values: Array, lengths: Sequence[int]) -> Array:
    """The reverse of one level."""
    found: Array = np.cumsum(values, dtype=np.int64)
    begins = _begins(lengths)
    before = np.where(begins > 0, found[begins - 1], 0) if len(begins) else found[:0]
    found -= np.repeat(before, [length for length in lengths if length])
    return found


def _begins(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    ends = np.cumsum([length for length in lengths if length], dtype=np.int64)
    return np.concatenate([[0], ends[:-1]]).astype(np.int64) if len(ends) else ends


_MAGIC = b"tare arrays\n\0\0\0\0"  # eight bytes twice: what follows is where a number may be
_EIGHT = 8


def write_plain(path: Path, columns: Mapping[str, npt.NDArray[Any]], words: Mapping[str, Sequence[str]]) -> bytes:
    """Arrays of one length; a column that is in `words` holds places in them, from 1, and 0 for a missing text.

    Returns what is in the file now.
    """
    about, parts = [], []
    for name, column in columns.items():
        used = None
        if name in words:
            used, column = _used([None, *words[name]], column)
        about.append((name, column.dtype.str, len(column), used))
        parts.append(_padded(column.tobytes()))
    header = _padded(strict_json.dump(about), b" ")
    data = b"".join((_MAGIC, len(header).to_bytes(_EIGHT, "little"), header, *parts))
    path.write_bytes(data)
    return data


def _padded(data: bytes, filling: bytes = b"\0") -> bytes:
    return data + filling * (-len(data) % _EIGHT)


def _used(words: Sequence[str | None], places: npt.NDArray[Any]) -> tuple[list[str | None], npt.NDArray[np.int32]]:
    """Those of the words that occur, each once, and for each row which one it has."""
    is_used = np.zeros(len(words), bool)
    is_used[places] = True
    known: dict[str | None, int] = {}
    again = np.zeros(len(words), np.int32)
    for place in np.flatnonzero(is_used).tolist():
        again[place] = known.setdefault(words[place], len(known))
    return list(known), again[places]


class PlainColumns(dict[str, "npt.NDArray[Any]"]):
    """The columns, and of those of texts also which of the words each row has."""

    coded: Mapping[str, tuple[Sequence[str], npt.NDArray[np.int32]]]


def read_plain(path: Path) -> PlainColumns | None:
    """The columns, texts as objects; None where this is another kind of file."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return None
        size = int.from_bytes(file.read(_EIGHT), "little")
        about, data = strict_json.load(file.read(size)), np.fromfile(file, np.uint8)
    found, at = PlainColumns(), 0
    found.coded = coded = {}
    for name, kind, count, words in about:
        size = count * np.dtype(kind).itemsize
        column = data[at : at + size].view(kind)
        at += size + -size % _EIGHT
        found[name] = column if words is None else _texts(words, column)
        if words is not None:
            coded[name] = (words, column)
    return found


def _texts(words: Sequence[str | None], places: npt.NDArray[Any]) -> npt.NDArray[Any]:
    texts: npt.NDArray[Any] = np.array([*words, ""], object)[places]  # never without a word: it stays of objects
    if None not in words:
        return texts
    masked: npt.NDArray[Any] = np.ma.array(texts, mask=places == words.index(None))
    return masked
