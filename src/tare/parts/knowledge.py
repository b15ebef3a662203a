"""The table of knowledge (knowledge.csv): what a difference of recorded keys means, and how likely it costs something.

It orders suspects and words them. A difference without a row is a suspect all the same.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

VARIABLE = "env."
EITHER_WAY = "either way"  # a flag: it may cost or save, so that its value alone tells nothing


class Row(NamedTuple):
    """One row; the first whose keys fit decides."""

    keys: str  # a regular expression
    kind: str  # the cause, or the kind of `recorded`, that it belongs to; `-` where it costs nothing
    prior: float  # 0 to 1: how likely it costs something
    flag: str
    words: str


@cache
def rows() -> tuple[Row, ...]:
    with Path(__file__).with_suffix(".csv").open(newline="") as file:
        return tuple(Row(**{**row, "prior": float(row["prior"] or 0)}) for row in csv.DictReader(file))  # type: ignore[arg-type]


@cache
def row_of(key: str) -> Row:
    unknown = Row(key, "other", 0.1, "", "no row of the catalogue knows it")
    return next((row for row in rows() if re.fullmatch(row.keys, key)), unknown)


@cache
def variables(kind: str) -> Mapping[str, tuple[str, float]]:
    """The variables of a cause by their names: what each does, and how sure it is to cost."""
    named = {row.keys.removeprefix(VARIABLE): row for row in rows() if row.keys.startswith(VARIABLE)}
    return {name: (row.words, row.prior) for name, row in named.items() if row.kind == kind}


def costly_variables(*kinds: str) -> dict[str, str]:
    """Those that cost whatever the other side has, and what each does."""
    found = [row for row in rows() if row.kind in kinds and row.flag != EITHER_WAY]
    return {row.keys.removeprefix(VARIABLE): row.words for row in found if row.keys.startswith(VARIABLE)}
