"""Arrays of many trials in few bytes, and back without loss: what a thinned pack (thin_pack.py) keeps its series in.

One *stream* holds the same column of every trial. Decimal fractions become integers, integers are divided by what all
of them are multiples of (`unit`), become differences where those are smaller, and each number is spread over byte
planes: xz finds then what repeats. The description of a stream is plain data; its bytes follow those of the stream
before it.

`PlainColumns` are what a command reads of an opened pack (`unpack.each_pack_once`), each made of its bytes when it is
asked for: DuckDB takes 3 to 5 ms to write or to read a Parquet file, however small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.records.model import MadeOnce

if TYPE_CHECKING:
    from tare.records.model import Json

Array: TypeAlias = npt.NDArray[Any]

_SCALES = (1, 10, 100, 1000, 10**6, 10**9)
_EXACT = 2**53  # up to here a float holds every integer
_TYPES = ("int64", "int32", "uint64", "uint32", "int16", "uint16", "int8", "uint8", "bool", "float64")
_TEXT = "text"
_LEVELS = (0, 1, 2)
_EIGHT = 8


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
        if (unit := int(np.gcd.reduce(integers))) > 1:
            about["unit"], integers = unit, integers // unit
        steps = [(level, _differences(integers, about["lengths"], level)) for level in _LEVELS]
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

    def take(self, about: Json) -> Stream:
        """The next stream: there is all of it, and it can be read."""
        lengths, kind = list(map(int, about["lengths"])), about["type"]
        if min(lengths, default=0) < 0 or kind not in (*_TYPES, _TEXT):
            raise StreamError("a column of less than nothing, or of an unknown kind")
        self.count(count := sum(lengths))
        planes: dict[int, Array] = {}
        for place in about["planes"]:
            if len(self._body) < count:
                raise EOFError
            planes[range(_EIGHT)[place]], self._body = np.frombuffer(self._body[:count], np.uint8), self._body[count:]
        level, scale, unit = (int(about.get(name, usual)) for name, usual in (("level", 0), ("scale", 1), ("unit", 1)))
        found = Stream(lengths, kind, planes, level, scale, unit, about.get("words", []))
        if level not in _LEVELS or scale not in (0, *_SCALES) or not 1 <= unit < 1 << 63:
            raise StreamError("a column of unknown differences, or of an unknown scale")
        refuse_strange(found.words)
        if found.is_text and count:
            values = found.whole
            if not 0 <= values.min() <= values.max() <= len(found.words):
                raise StreamError("a text that is not in its list")
        return found

    def count(self, numbers: int) -> None:
        """So many more that the streams make; refused past `most`."""
        self._left -= numbers
        if self._left < 0:
            raise StreamError("a column that is too long")

    def end(self) -> None:
        if len(self._body):
            raise StreamError("there is more in it than its list says")


def refuse_strange(words: Json) -> None:
    """Only a list of texts that can be written passes: half a surrogate pair cannot."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise StreamError("a list of words that is none")
    "".join(words).encode()


@dataclass(frozen=True)
class Stream:
    """One column of several trials. Texts are places in its `words`, from 1, and 0 for one that is missing."""

    lengths: Sequence[int]
    kind: str
    planes: Mapping[int, Array]
    level: int
    scale: int
    unit: int
    words: Sequence[str]

    @property
    def is_text(self) -> bool:
        return self.kind == _TEXT

    @property
    def whole(self) -> Array:
        """Of all trials, one after another."""
        return self._made(slice(None), self.lengths)

    def each(self) -> list[Array]:
        """Of each trial."""
        return np.split(self.whole, np.cumsum(self.lengths)[:-1]) if self.lengths else []

    def of(self, place: int) -> Array:
        """Of one trial, from its bytes alone."""
        begin = sum(self.lengths[:place])
        return self._made(slice(begin, begin + self.lengths[place]), [self.lengths[place]])

    def _made(self, rows: slice, lengths: Sequence[int]) -> Array:
        width = next(size for size in (1, 2, 4, _EIGHT) if max(self.planes, default=0) < size)
        octets = np.zeros((sum(lengths), width), np.uint8)
        for place, plane in self.planes.items():
            octets[:, place] = plane[rows]
        folded = octets.reshape(-1).view(f"<u{width}").astype(f"u{width}", copy=False)
        values: Array = (folded >> 1).view(f"i{width}") ^ -(folded & 1).view(f"i{width}")
        if self.is_text:
            return values
        values = values.astype(np.int64, copy=False)
        for _ in range(self.level):
            values = _sums(values, lengths)
        return _restored(values * self.unit, self.kind, self.scale)


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
            if not bool((np.abs(scaled) < _EXACT).all()):
                continue
            integers = scaled.astype(np.int64)
            if np.array_equal((integers / scale).view(np.int64), bits):  # -0.0 has no integer, and is kept by its bits
                return integers, scale
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
    if len(lengths) == 1:
        return found
    begins = _begins(lengths)
    before = np.where(begins > 0, found[begins - 1], 0) if len(begins) else found[:0]
    found -= np.repeat(before, [length for length in lengths if length])
    return found


def _begins(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    ends = np.cumsum([length for length in lengths if length], dtype=np.int64)
    return np.concatenate([[0], ends[:-1]]).astype(np.int64) if len(ends) else ends


def _used(words: Sequence[str | None], made: Callable[[], Array]) -> tuple[list[str | None], npt.NDArray[np.int32]]:
    """Those of the words that occur, each once, and for each row which one it has; `made` has their places."""
    places = made()
    is_used = np.zeros(len(words), bool)
    is_used[places] = True
    known: dict[str | None, int] = {}
    again = np.zeros(len(words), np.int32)
    for place in np.flatnonzero(is_used).tolist():
        again[place] = known.setdefault(words[place], len(known))
    return list(known), again[places]


class PlainColumns(MadeOnce[Array]):
    """Columns of one length, each made once and never written: texts as objects, masked where one is missing.

    `coded` has of texts the different words, and which of them each row has; `made` has places in `words`, from 1.
    `by_channel` has the same of readings, where they were kept so.
    """

    def __init__(
        self,
        made: Mapping[str, Callable[[], Array]],
        words: Mapping[str, Sequence[str]],
        by_channel: Mapping[str, tuple[Array, Array]] | None = None,
    ) -> None:
        super().__init__(made)
        named = words.keys() & made
        self.coded = MadeOnce({name: partial(_used, [None, *words[name]], made[name]) for name in named})
        self.by_channel = by_channel

    def __getitem__(self, name: str) -> Array:
        if name not in self._found:
            if name in self.coded:
                self._found[name] = _texts(*self.coded[name])
            super().__getitem__(name).flags.writeable = False  # whoever asks next is given the same
        return self._found[name]


def _texts(words: Sequence[str | None], places: npt.NDArray[Any]) -> Array:
    texts: Array = np.array([*words, ""], object)[places]  # never without a word: it stays of objects
    return np.ma.array(texts, mask=places == words.index(None)) if None in words else texts
