"""Columns with units, for other libraries: pandas, polars, Arrow. None of them is needed to read the values."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tare.base.errors import ObstacleError

_ENDINGS = {"_s": "s", "_ns": "ns", "_j": "J", "_w": "W", "_bytes": "B", "_share": "1", "_mhz": "MHz", "_c": "°C",
            "_per_s": "1/s"}  # fmt: skip
_FEWEST_SHOWN = 8


def unit_of(name: str) -> str:
    """The unit that a column's name ends in: `step_s` is in seconds; empty where there is none."""
    found = [ending for ending in _ENDINGS if name.endswith(ending)]
    return _ENDINGS[max(found, key=len)] if found else ""


@dataclass(frozen=True)
class Table:
    """Columns of equal length, each with its unit.

    >>> table = Table({"platform": ["bare", "runc"], "step_s": [0.010, 0.011]})
    >>> len(table), table.units["step_s"], table["platform"]
    (2, 's', ['bare', 'runc'])
    """

    columns: Mapping[str, Sequence[Any]]
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len({len(column) for column in self.columns.values()}) > 1:
            raise ValueError("the columns of a table are of one length")
        units = {name: self.units.get(name, unit_of(name)) for name in self.columns}
        object.__setattr__(self, "units", {name: unit for name, unit in units.items() if unit})

    @classmethod
    def of_rows(cls, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
        """From rows, of which each may lack some of the columns."""
        return cls({name: [row.get(name) for row in rows] for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.columns[name]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Row by row."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def __repr__(self) -> str:
        shown = ", ".join(list(self.columns)[:_FEWEST_SHOWN])
        more = ", ..." if len(self.columns) > _FEWEST_SHOWN else ""
        return f"<tare.Table of {len(self)} rows: {shown}{more}>"

    def to_pandas(self) -> Any:
        """A pandas DataFrame; its `attrs["units"]` has the units."""
        frame = _library("pandas").DataFrame(dict(self.columns))
        frame.attrs["units"] = dict(self.units)
        return frame

    def to_polars(self) -> Any:
        """A polars DataFrame."""
        return _library("polars").DataFrame(dict(self.columns), strict=False)

    def to_arrow(self) -> Any:
        """An Arrow table; each field's metadata has its `unit`."""
        arrow = _library("pyarrow")
        made = arrow.table({name: list(column) for name, column in self.columns.items()})
        fields = [each.with_metadata({"unit": self.units.get(each.name, "")}) for each in made.schema]
        return made.cast(arrow.schema(fields))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ObstacleError(f"there is no {name} in this Python; `pip install {name}` brings it.", []) from None
