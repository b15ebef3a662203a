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

    name: npt.NDArray[np.object_]
    step: Ints  # -1 where the mark belongs to no step
    begin_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.step)

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def names(self) -> list[str]:
        """The names that there are, in order of their first end."""
        return list(dict.fromkeys(self.name.tolist()))

    def where(self, kept: npt.NDArray[Any]) -> Intervals:
        return Intervals(self.name[kept], self.step[kept], self.begin_ns[kept], self.end_ns[kept])

    def named(self, name: str) -> Intervals:
        return self.where(self.name == name)

    def of_steps(self) -> Intervals:
        """Without those that belong to no step."""
        return self.where(self.step >= 0)


def intervals(marks: Marks, *names: str) -> Intervals:
    """An end closes the newest begin of the same name and step; what is not both begun and ended is no interval.

    With `names`, only those.
    """
    is_end = np.asarray(marks["edge"] == "end", bool)
    is_edge = is_end | np.asarray(marks["edge"] == "begin", bool)
    if names:
        is_edge &= np.isin(marks["name"], names)
    places = np.flatnonzero(is_edge)
    steps = np.asarray(marks["step"], np.int64)[places]
    named = marks["name"][places].tolist()
    numbers = {name: number for number, name in enumerate(dict.fromkeys(named))}
    ids = np.fromiter(map(numbers.__getitem__, named), np.int64, len(named))
    order = np.lexsort((steps, ids))  # stable: marks of one name and step stay in the order in which they came
    begins, ends = order[:-1], order[1:]
    is_end = is_end[places]
    pairs = ~is_end[begins] & is_end[ends] & (ids[begins] == ids[ends]) & (steps[begins] == steps[ends])
    begins, ends = begins[pairs], ends[pairs]
    by_end = np.argsort(ends)
    begins, ends = places[begins[by_end]], places[ends[by_end]]
    t_ns = np.asarray(marks["t_ns"], np.int64)
    return Intervals(
        np.asarray(marks["name"], object)[ends], np.asarray(marks["step"], np.int64)[ends], t_ns[begins], t_ns[ends]
    )


def mark_columns(rows: Iterable[tuple[int, str, str, int]]) -> dict[str, npt.NDArray[Any]]:
    """Single marks (t_ns, name, edge, step) as columns."""
    if isinstance(rows, MarkRows):
        return dict(rows.columns)
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
