"""A paper's table: what it printed in each row, and how the same is asked of a store.

A row's `ours` is one of three questions, or a list of them of which the first that has an answer counts:

    {study, metric, where, by, from, to}   a figure at one level of a factor against another: a change
    {study, metric, where, than}           a figure against another of the same trials: a change too
    {study, metric, where[, part_of]}      a figure alone, or its share in another
    {claim[, of_modes]}                    an ordering: a claim says whether it holds

`metric` may be a list: the first that the trials have. A list in `where`, `from` or `to` means the first of these
levels that was run, null being a setting that was left alone; `least` and `most` mean the ends of what was run. A row
that tare cannot measure has `why_not`. One with `as_decrease` tells a change as the paper does, (old - new) / new; one
with `on_board` is answered by edge boards alone. `hazard` says what is wrong with what was printed, `ours_note` what to
know of our figure at a scale: {small: ...}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML

from tare.base.errors import StudyError, unknown_name


def _several(value: Any) -> Any:
    """One thing, or a list of them."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


Scalar: TypeAlias = bool | int | float | str | None
Levels: TypeAlias = Annotated[tuple[Scalar, ...], BeforeValidator(_several)]
Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_several)]

_CHANGE = "change"
_DERIVED = "="
_QUANTITY = re.compile(r"^~?([+-]?[\d,]*\.?\d+) ?(ns|us|ms|s|W|Wh|GB|MB|MHz|%|x)?( less)?$")
_BASE: Mapping[str, float] = {
    "": 1.0, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "W": 1.0, "Wh": 3600.0, "GB": 1e9, "MB": 1e6, "MHz": 1e6,
    "%": 0.01,
}  # fmt: skip


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Printed(_Frozen):
    """What the paper printed: its sides by the names that it gives them, and the change; as text, with units.

    A value that begins with `=` is not printed there: it is derived from what is.
    """

    sides: Mapping[str, str] = Field(default_factory=dict)
    change: str | None = None
    derived: frozenset[str] = frozenset()  # the names of sides, or `change`

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, data: Any) -> Any:
        """`{bare: 3.91 ms, container: 6.01 ms, change: +53.7 %}`: whatever is not the change is a side."""
        if empty := [str(name) for name, value in dict(data).items() if value is None]:
            raise ValueError(f"nothing is printed for {', '.join(empty)}; a name with a comma in it takes quotes")
        derived = frozenset(str(name) for name, value in dict(data).items() if str(value).startswith(_DERIVED))
        written = {str(name): str(value).removeprefix(_DERIVED) for name, value in dict(data).items()}
        return {"change": written.pop(_CHANGE, None), "sides": written, "derived": derived}

    def text(self) -> str:
        """`bare 3.91 ms, container 6.01 ms: +53.7 %`; what the paper does not print is marked as derived."""
        sides = ", ".join(f"{name} {value}{self._mark(name)}" for name, value in self.sides.items())
        change = f"{self.change}{self._mark(_CHANGE)}" if self.change else ""
        return ": ".join(part for part in (sides, change) if part)

    def _mark(self, name: str) -> str:
        return " (derived)" if name in self.derived else ""

    def numbers(self) -> dict[str, float]:
        """What of it is a plain number, in base units; a change as a share: `6.7x` is 5.7, `2.5x less` is -0.6."""
        written = {**self.sides, **({_CHANGE: self.change} if self.change is not None else {})}
        found = {name: number(value, is_change=name == _CHANGE) for name, value in written.items()}
        return {name: value for name, value in found.items() if value is not None}


class _OfTrials(_Frozen):
    """What is asked of the trials of a study, of those that have these levels."""

    study: str
    metric: Names
    where: Mapping[str, Levels] = Field(default_factory=dict)

    @property
    def figures(self) -> tuple[str, ...]:
        """Those that a trial may have to have for it."""
        return self.metric


class Change(_OfTrials):
    """A figure at one level of a factor against another."""

    by: str
    start: Levels = Field(alias="from")
    end: Levels = Field(alias="to")


class Within(_OfTrials):
    """A figure against another of the same trials: the first epoch against the later ones."""

    than: str

    @property
    def figures(self) -> tuple[str, ...]:
        return (*self.metric, self.than)


class Value(_OfTrials):
    """A figure alone, or its share in another."""

    part_of: str | None = None

    @property
    def figures(self) -> tuple[str, ...]:
        return (*self.metric, self.part_of) if self.part_of is not None else self.metric


class ByClaim(_Frozen):
    """An ordering, which a claim decides."""

    claim: str
    of_modes: bool = False  # it is about power modes: what stands in for them is told


Question: TypeAlias = Change | Within | Value | ByClaim


class Row(_Frozen):
    """One row of a paper's table."""

    id: str  # as in the list of the papers' figures; letters part what stands in one line there
    section: str
    quantity: str
    paper: Printed
    hazard: str | None = None  # what is wrong with what was printed
    ours_note: Mapping[str, str] = Field(default_factory=dict)  # scale -> what to know of our figure there
    ours: Annotated[tuple[Question, ...], BeforeValidator(_several)] = ()
    why_not: str | None = None
    as_decrease: bool = False  # the paper says "decreases by 3.1x" and means (old - new) / new: so is ours told
    on_board: bool = False  # it is about an edge board, and a server does not answer it

    @model_validator(mode="after")
    def _asked_or_not(self) -> Row:
        if bool(self.ours) == bool(self.why_not):
            raise ValueError(f"row {self.id}: either `ours` or `why_not`, and not both")
        if self.ours_note and all(isinstance(one, ByClaim) for one in self.ours):
            raise ValueError(f"row {self.id}: `ours_note` belongs to a study, and `ours` names none")
        return self


class Paper(_Frozen):
    """A paper: what it asks, what to know about its figures, the conditions that it had, and its rows."""

    paper: str  # "S0"
    about: str
    note: str
    conditions: Mapping[str, Levels]  # setting -> what the paper had, or any of these; null: what library or data have
    data: Mapping[str, str] = Field(default_factory=dict)  # model -> the data set that the paper trained it with
    rows: tuple[Row, ...]
    shared: tuple[Any, ...] = Field(default=(), repr=False)  # only holds what the file names more than once

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Paper:
        ids = [row.id for row in self.rows]
        if twice := sorted({each for each in ids if ids.count(each) > 1}):
            raise ValueError(f"{self.paper}: rows with the same id: {', '.join(twice)}")
        return self


def number(text: str, *, is_change: bool = False) -> float | None:
    """`3.91 ms` as 0.00391, a change of `6.7x` as 5.7; None for words, bounds and ranges."""
    match = _QUANTITY.match(text)
    if match is None:
        return None
    value, unit = float(match[1].replace(",", "")), match[2] or ""
    if unit != "x":
        return None if is_change and unit != "%" else value * _BASE[unit]  # 0.2 GB more is no share
    ratio = 1 / value if match[3] else value
    return ratio - 1 if is_change else ratio


_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The papers that have a file here, in order."""
    return sorted(path.stem for path in _FOLDER.glob("s*.yaml"))


@cache
def paper(name: str) -> Paper:
    """One of them by its short name, `s0` or `S0`."""
    if name.lower() not in names():
        raise StudyError(unknown_name("paper", name, names()))
    return read(_FOLDER / f"{name.lower()}.yaml")


def read(path: Path) -> Paper:
    """A file of this form; what is wrong with it is told."""
    try:
        return Paper.model_validate(YAML(typ="safe").load(path))
    except ValidationError as error:
        raise StudyError(f"{path}: {error}") from None
