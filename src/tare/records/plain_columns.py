"""Columns as one file of plain arrays: what the series of an opened pack lie in while a command reads them.

DuckDB takes 3 to 5 ms to write or to read a Parquet file, however small; one of these takes a tenth of a millisecond.
They stand under the names of the files that they are read for, in a private folder that goes with the command
(`unpack.each_pack_once`): a store never has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tare.base import strict_json

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
