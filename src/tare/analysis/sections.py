"""The answer to a question, and the sections that show it: sentences, tables, charts, notes and lists as typed values.

The module of a question makes its sections beside its computation. A renderer (tare.report.sections) chooses columns,
fonts and escapes, and computes nothing. JSON and Python read the result of an answer, never its sections.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from tare.analysis.model import Comparison, Estimate
from tare.base.text import (
    effect_text,
    estimate_texts,
    interval_text,
    numbers_in_one_unit,
    quantity_texts,
    safe_text,
    scaled,
    share_text,
)
from tare.records.schema import is_store
from tare.records.store import Store

Level: TypeAlias = Literal["first", "page", "verbose"]
Form: TypeAlias = Literal["intervals", "lines", "bars", "stack", "scatter", "spread", "grid", "steps"]
EFFECT = "effect_share"  # the metric of a difference between two sides

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure of a sentence or a table. Two that have one metric and one `of` are the same figure."""

    metric: str  # its name, which decides the unit
    value: Estimate | float
    of: str = ""  # what it is a figure of: a cell, or a level against its baseline
    signed: bool = False  # a difference: with its sign, and no claim without an interval

    @property
    def numbers(self) -> tuple[float, ...]:
        """The value, and the ends of its interval where it has one."""
        if not isinstance(self.value, Estimate):
            return (self.value,)
        found = self.value
        return (found.value,) if found.low is None or found.high is None else (found.value, found.low, found.high)

    @property
    def alone(self) -> Shown:
        """Without its interval."""
        return replace(self, value=self.numbers[0])

    def __str__(self) -> str:
        return " ".join(filter(None, shown_texts([self])[0]))


Sentence: TypeAlias = Sequence["str | Shown"]
Cell: TypeAlias = "str | Shown | None"


def effect_shown(contrast: Comparison, of: str) -> Shown | None:
    """The effect of a contrast with its interval; None where its sides were not compared."""
    if contrast.effect is None:
        return None
    estimate = Estimate(
        contrast.effect, contrast.low, contrast.high, contrast.n, contrast.method, level=contrast.confidence
    )
    return Shown(EFFECT, estimate, of, signed=True)


def share_shown(estimate: Estimate, of: str) -> Shown:
    """A difference as a share; without an interval where there are too few trials for one."""
    return Shown(EFFECT, estimate if estimate.low is not None else estimate.value, of, signed=True)


def sentence_text(sentence: Sentence) -> str:
    """A sentence of plain text may be a `str`."""
    return "".join(map(str, sentence))


def shown_texts(figures: Sequence[Shown]) -> list[tuple[str, str]]:
    """Figures of one metric, each with its interval, in one unit and precision; each in its own where they lie far
    apart. The second text is empty where there is no interval."""
    first = figures[0]
    if scaled(first.metric, [1.0])[0] == "%":
        return [_share_texts(each) for each in figures]
    if first.signed:
        return [_estimate_texts(each) for each in figures]
    values = quantity_texts(first.metric, [each.numbers[0] for each in figures])
    if all(len(each.numbers) == 1 for each in figures):
        return [(value, "") for value in values]
    if len({_unit(value) for value in values}) > 1:
        return [_estimate_texts(each) for each in figures]
    numbers, unit = numbers_in_one_unit(first.metric, [number for each in figures for number in each.numbers])
    rest = iter(numbers)
    parts = [[next(rest) for _ in each.numbers] for each in figures]
    return [(f"{value} {unit}".rstrip(), f"[{', '.join(ends)}]" if ends else "") for value, *ends in parts]


def _unit(text: str) -> str:
    return text.partition(" ")[2]


def _estimate_texts(figure: Shown) -> tuple[str, str]:
    value, low, high = (*figure.numbers, None, None)[:3]
    return estimate_texts(figure.metric, value or 0.0, low, high, signed=figure.signed)


def _share_texts(figure: Shown) -> tuple[str, str]:
    value, *ends = figure.numbers
    if not figure.signed:
        interval = ", ".join(share_text(end).removesuffix(" %") for end in ends)
        return share_text(value), f"[{interval}]" if ends else ""
    if ends:
        low, high = ends
        return effect_text(value, ends), interval_text(low, high, beside=[value])
    known = figure.value
    few = f"n = {known.n}: too small for {100 * known.level:.3g} %" if isinstance(known, Estimate) else ""
    return effect_text(value), few


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Its figures have one unit; with `interval`, a second column has their intervals."""

    title: str
    interval: str = ""  # the title of the second column


class Grid(NamedTuple):
    """A table as text, with what a renderer aligns by."""

    headers: list[str]
    rows: list[list[str]]
    numeric: list[bool]


@dataclass(frozen=True, slots=True)
class Table:
    """Figures of several things; `notes` belong to the table and stand below it."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[Sentence, ...] = ()

    def column(self, title: str) -> list[Cell]:
        """The cells of one column."""
        place = [column.title for column in self.columns].index(title)
        return [row[place] for row in self.rows]

    def grid(self) -> Grid:
        """Headers, cells and whether a column has figures; a column without any content is left out."""
        headers: list[str] = []
        texts: list[list[str]] = []
        numeric: list[bool] = []
        for place, column in enumerate(self.columns):
            cells = [row[place] for row in self.rows]
            if not any(cells):
                continue
            figures = [cell if column.interval else cell.alone for cell in cells if isinstance(cell, Shown)]
            pairs = iter(shown_texts(figures) if figures else [])
            both = [next(pairs) if isinstance(cell, Shown) else (safe_text(cell or ""), "") for cell in cells]
            headers.append(column.title)
            texts.append([value for value, _ in both])
            numeric.append(bool(figures))
            if column.interval and any(intervals := [interval for _, interval in both]):
                headers.append(column.interval)
                texts.append(intervals)
                numeric.append(True)
        return Grid(headers, [list(row) for row in zip(*texts, strict=True)], numeric)


@dataclass(frozen=True, slots=True)
class Line:
    """A dashed line through a chart of points: a front, a limit, what belongs together."""

    points: tuple[tuple[float, float], ...]  # in the units of the table's figures


@dataclass(frozen=True, slots=True)
class Chart:
    """Figures of a table as a drawing: `x`, `y` and `series` are titles of its columns."""

    form: Form
    table: Table
    x: str
    y: tuple[str, ...]  # several: the parts of a stack, in their order
    reading: Sentence  # what to see in it
    series: str = ""  # what colours tell apart
    marks: tuple[Line, ...] = ()


def stack_chart(
    parts: Mapping[str, Mapping[str, float]], names: Mapping[str, str], metric: str, reading: Sentence = ()
) -> Chart:
    """Label -> part -> its amount, as a stack for each label; `names` are the titles of the parts in their order."""
    used = [part for part in names if any(part in known for known in parts.values())]
    rows = tuple(
        (label, *(Shown(metric, known[part], f"{label}, {part}") if part in known else None for part in used))
        for label, known in parts.items()
    )
    titles = tuple(names[part] for part in used)
    return Chart("stack", Table((Column("level"), *map(Column, titles)), rows), "level", titles, reading)


@dataclass(frozen=True, slots=True)
class Note:
    """What limits an answer; each sentence is one note."""

    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class List:
    """Sentences, each of which can be read alone."""

    sentences: tuple[Sentence, ...]


Body: TypeAlias = Table | Chart | Note | List


@dataclass(frozen=True, slots=True)
class Section:
    """One piece of an answer. It is made when a renderer asks for it, while the source is open."""

    name: str  # unique in an answer, and an anchor on a page
    title: str
    make: Callable[[], Body]
    level: Level = "page"  # first: beside the answer itself; verbose: only on request


def _has_content(body: Body) -> bool:
    match body:
        case Table():
            return bool(body.rows or body.notes)
        case Chart():
            return bool(body.table.rows)
        case Note() | List():
            return bool(body.sentences)


def anchor(*parts: str) -> str:
    """Words as a part of an address: `energy-resnet-18-training`."""
    return "-".join(re.findall(r"[a-z0-9]+", " ".join(parts).lower()))


@dataclass(frozen=True, slots=True)
class Answer(Generic[Result]):
    """What a question found: a sentence, the contrasts that it rests on, a typed result, and sections that show it."""

    sentence: Sentence
    result: Result
    sections: tuple[Section, ...]
    contrasts: tuple[Comparison, ...] = ()

    def shown(self) -> Iterator[tuple[Section, Body]]:
        """Each section with its body; sections without content are left out."""
        for section in self.sections:
            body = section.make()
            if _has_content(body):
                yield section, body


class Question(Protocol[Result]):
    """A question about a store or a table: one small class each, whose fields are its parameters."""

    def answer(self, source: Any, /) -> Answer[Result]: ...


@contextmanager
def ask(source: Any, question: Question[Result]) -> Iterator[Answer[Result]]:
    """The answer, for as long as its sections can be made: the store of a path is open meanwhile."""
    if isinstance(source, Path) and is_store(source):
        with Store.open(source) as store:
            yield question.answer(store)
    else:
        yield question.answer(source)
