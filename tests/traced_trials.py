"""TrialTraces trials that no machine has run: tables and marks as a store would give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tare.kernel.model import TrialTraces
from tare.records.model import Record
from tare.records.parquet import TableName


class Shelf:
    """Answers as a store does, for one trial."""

    def __init__(self, tables: dict[tuple[str, str], dict[str, Any]], marks: list[tuple[int, str, str, int]]) -> None:
        self._tables, self._marks = tables, marks

    def trace(self, trial: str, attempt: int, probe: str, table: str) -> dict[str, Any]:
        return {name: column(values) for name, values in self._tables[probe, table].items()}

    def marks(self, trial: str, attempt: int) -> dict[str, Any]:
        columns = list(zip(*self._marks, strict=True)) or [(), (), (), ()]
        return {name: column(values) for name, values in zip(("t_ns", "name", "edge", "step"), columns, strict=True)}


def column(values: Any) -> np.ndarray:
    array = np.asarray(values)
    return array.astype(object) if array.dtype.kind in "UO" or not len(array) else array


def traced(
    platform: str,
    tables: dict[tuple[str, str], dict[str, Any]],
    *,
    block: int = 0,
    steps: float | None = None,
    marks: list[tuple[int, str, str, int]] | None = None,
) -> TrialTraces:
    record = Record(
        trial=f"{platform}-{block}",
        attempt=1,
        study="kernel",
        block=block,
        position=0,
        twin=0,
        settings={"platform": platform},
        state="ok",
        metrics={} if steps is None else {"steps": steps},
    )
    kept = frozenset(TableName(*name) for name in tables)
    shelf: Any = Shelf(tables, marks or [])
    return TrialTraces(shelf, record, platform, "", kept)
