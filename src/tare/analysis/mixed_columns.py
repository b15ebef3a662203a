"""Columns that a table's configurations mix: rows of several models, say, that are taken for trials of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tare.analysis.observations import Setting, number, setting_column
from tare.analysis.table import Table, read_table
from tare.records.unpacking import is_store


def mixed_notes(source: Path, settings: Sequence[str] | None, group: str | None) -> list[str]:
    """A sentence for each column of text that differs within configurations; of a store there is none."""
    if is_store(source) or settings is None or group is not None:
        return []
    table = read_table(source)
    columns = [setting_column(table, name) for name in settings]
    configurations = list(zip(*columns, strict=True))
    return [
        f"column {name!r} differs within configurations: --group {name} keeps its values apart."
        for name in table.columns
        if name not in settings and _is_mixed(_labels(table, name), configurations)
    ]


def _is_mixed(labels: Sequence[str | None], configurations: Sequence[tuple[Setting | None, ...]]) -> bool:
    """Whether one configuration has several of these labels; labels that never recur name rows and part nothing."""
    seen: dict[tuple[Setting | None, ...], set[str]] = {}
    for label, configuration in zip(labels, configurations, strict=True):
        if label is not None:
            seen.setdefault(configuration, set()).add(label)
    present = [label for label in labels if label is not None]
    return len(set(present)) < len(present) and any(len(found) > 1 for found in seen.values())


def _labels(table: Table, name: str) -> list[str | None]:
    """The cells of a column of text; nothing where the column is one of numbers."""
    cells = [cell.strip() if cell is not None and cell.strip() else None for cell in table.column(name)]
    return [None] * len(cells) if all(number(cell) is not None for cell in cells if cell is not None) else cells
