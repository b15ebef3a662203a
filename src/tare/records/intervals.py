"""Marks to intervals: the one rule of which end closes which begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

Marks: TypeAlias = Mapping[str, "npt.NDArray[Any]"]  # columns: t_ns, name, edge, step
Ints: TypeAlias = "npt.NDArray[np.int64]"

COLUMNS = ("t_ns", "name", "edge", "step")
Row = TypeVar("Row", bound=tuple[int, str, str, int])


@dataclass(frozen=True)
class Intervals:
    """Intervals as columns, in the order in which they ended."""

    words: tuple[str, ...]
    word: Ints  # which of the words is its name
    step: Ints  # -1 where the mark belongs to no step
    begin_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.step)

    @property
    def name(self) -> npt.NDArray[np.object_]:
        return np.array([*self.words, None], object)[self.word]

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def names(self) -> list[str]:
        """The names that there are, in order of their first end."""
        return [self.words[word] for word in dict.fromkeys(self.word.tolist())]

    def where(self, kept: npt.NDArray[Any]) -> Intervals:
        return Intervals(self.words, self.word[kept], self.step[kept], self.begin_ns[kept], self.end_ns[kept])

    def named(self, *names: str) -> Intervals:
        kept = np.zeros(len(self), bool)
        for name in names:
            kept |= self.word == _place(name, self.words)
        return self.where(kept)

    def of_steps(self) -> Intervals:
        """Without those that belong to no step."""
        return self.where(self.step >= 0)


class MarkColumns(dict[str, "npt.NDArray[Any]"]):
    """Columns of marks, as a store gives them: their intervals are looked for once."""

    def __init__(self, columns: Marks) -> None:
        super().__init__(columns)
        self.coded = getattr(columns, "coded", {})  # where they are known: words, and which of them each row has

    @cached_property
    def intervals(self) -> Intervals:
        return _intervals(self)

    def where(self, kept: npt.NDArray[Any], renamed: Callable[[str], str] = str) -> MarkColumns:
        """These marks alone; names may be changed, but two not into one."""
        found = MarkColumns({name: column[kept] for name, column in self.items()})
        found.coded = {name: (words, word[kept]) for name, (words, word) in self.coded.items()}
        words, word = coded(found, "name")
        used, word = np.unique(word, return_inverse=True)  # a word of no mark may have the new name of another
        names = [renamed(words[place]) for place in used.tolist()]
        found["name"], found.coded["name"] = np.array([*names, None], object)[word], (names, word)
        return found


def intervals(marks: Marks, *names: str) -> Intervals:
    """An end closes the newest begin of the same name and step; what is not both begun and ended is no interval.

    With `names`, only those.
    """
    if isinstance(marks, MarkColumns):
        return marks.intervals.named(*names) if names else marks.intervals
    return _intervals(marks, names)


def are(marks: Marks, column: str, word: str) -> npt.NDArray[np.bool_]:
    """Which marks have this word as their name or edge."""
    if isinstance(marks, MarkColumns) and column in marks.coded:
        words, places = marks.coded[column]
        return np.asarray(places == _place(word, words))
    return np.asarray(marks[column] == word, bool)


def begin_with(marks: Marks, prefixes: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Which marks have a name that begins with one of these."""
    words, word = coded(marks, "name")
    return np.array([*(each.startswith(prefixes) for each in words), False], bool)[word]


def _intervals(marks: Marks, names: Sequence[str] = ()) -> Intervals:
    edges, edge = coded(marks, "edge")
    is_end, is_edge = edge == _place("end", edges), (edge == _place("begin", edges))
    is_edge |= is_end
    if names:
        is_edge &= np.isin(marks["name"], names)
    places = np.flatnonzero(is_edge)
    words, word = coded(marks, "name")
    steps, ids = np.asarray(marks["step"], np.int64)[places], word[places]
    order = np.lexsort((steps, ids))  # stable: marks of one name and step stay in the order in which they came
    begins, ends = order[:-1], order[1:]
    is_end = is_end[places]
    pairs = ~is_end[begins] & is_end[ends] & (ids[begins] == ids[ends]) & (steps[begins] == steps[ends])
    begins, ends = begins[pairs], ends[pairs]
    by_end = np.argsort(ends)
    begins, ends = begins[by_end], ends[by_end]
    t_ns = np.asarray(marks["t_ns"], np.int64)[places]
    return Intervals(tuple(words), ids[ends], steps[ends], t_ns[begins], t_ns[ends])


def coded(marks: Marks, column: str) -> tuple[Sequence[str], Ints]:
    """The different words of a column, and which of them each row has; of a table, too."""
    if column in (known := getattr(marks, "coded", {})):
        words, word = known[column]
        return words, word
    cells = marks[column].tolist()
    numbers = {word: number for number, word in enumerate(dict.fromkeys(cells))}
    return list(numbers), np.fromiter(map(numbers.__getitem__, cells), np.int64, len(cells))


def _place(word: str, words: Sequence[str]) -> int:
    return words.index(word) if word in words else -1


def mark_columns(rows: Iterable[tuple[int, str, str, int]]) -> Marks:
    """Single marks (t_ns, name, edge, step) as columns."""
    if isinstance(rows, MarkRows):
        return rows.columns
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = (np.int64, object, object, np.int64)
    return {name: np.array(values, kind) for name, values, kind in zip(COLUMNS, columns, kinds, strict=True)}


class MarkRows(Sequence[Row], Generic[Row]):
    """Columns of marks as the rows that they hold, which are made when one of them is wanted first."""

    def __init__(self, columns: Marks, make: Callable[[tuple[int, str, str, int]], Row]) -> None:
        self.columns = columns
        self._make = make

    @cached_property
    def _rows(self) -> list[Row]:
        rows = zip(*(self.columns[name].tolist() for name in COLUMNS), strict=True)
        return list(map(self._make, rows))

    def __len__(self) -> int:
        return len(self.columns["t_ns"])

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        return self._rows[place]
