"""The trials as a plain table, one row each: for a spreadsheet, pandas or R."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.records.model import Record
from tare.report.words import safe_text

_FIRST = ("trial", "attempt", "study", "block", "position", "twin", "state", "reasons", "started_utc", "traced")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run what begins so (faults.md S22)


def trial_rows(records: Sequence[Record]) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of the columns in order, and the rows; a setting, metric or phase that a trial lacks is absent."""
    rows = [_row(record) for record in records]
    found = dict.fromkeys(name for row in rows for name in row)
    return [*_FIRST, *(name for name in found if name not in _FIRST)], rows


def _row(record: Record) -> dict[str, Any]:
    return {
        "trial": record.trial, "attempt": record.attempt, "study": record.study, "block": record.block,
        "position": record.position, "twin": record.twin, "state": record.state,
        "reasons": " ".join(record.reasons), "started_utc": record.started_utc, "traced": record.traced,
        **{f"setting.{name}": value for name, value in record.settings.items() if value is not None},
        **{f"metric.{name}": value for name, value in record.metrics.items()},
        **{f"phase.{name}_s": value for name, value in record.phases.items()},
    }  # fmt: skip


def as_csv(records: Sequence[Record]) -> str:
    """Numbers as they are; a text that a spreadsheet would run gets a quote before it."""
    names, rows = trial_rows(records)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = safe_text(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_parquet(records: Sequence[Record], path: Path) -> None:
    """Each column has one type: numbers where every value is one, else text."""
    from tare.records.parquet import engine, insert, write_table

    names, rows = trial_rows(records)
    with engine(path.parent / f".{path.name}.spill") as db:
        insert(db, "trials", {name: _column(rows, name) for name in names}, new=True)
        write_table(db, "trials", path)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    import numpy as np

    values = [row.get(name) for row in rows]
    present = [value for value in values if value is not None]
    if (
        present
        and all(isinstance(value, int) and not isinstance(value, bool) for value in present)
        and None not in values
    ):
        return np.array(values, dtype=np.int64)
    if present and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        masked = [float("nan") if value is None else float(value) for value in values]
        return np.ma.masked_invalid(np.array(masked))
    return [None if value is None else safe_text(value) for value in values]
