"""What a table of the user's own says, judged as a store is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tare.analysis import sentences
from tare.analysis.compare import compare
from tare.analysis.model import Estimate, Left, Measurement, Weighing
from tare.analysis.noise import drift, loud_levels
from tare.analysis.question import question
from tare.analysis.request import DEFAULT_MARGIN
from tare.analysis.stats import median_estimate, outliers
from tare.analysis.table import measurements_from_table
from tare.errors import StudyError
from tare.records.model import USABLE


def weigh_table(
    path: Path | str,
    *,
    by: str,
    value: str,
    block: str | None = None,
    against: str | None = None,
    margin: float | None = None,
) -> Weighing:
    """Everything that a report says about a table, which has neither facts nor other metrics."""
    values = measurements_from_table(path, by, value, block)
    try:
        found = compare(values, against=against, margin=DEFAULT_MARGIN if margin is None else margin, metric=value)
    except StudyError as error:
        raise StudyError(f"{path}, column {by!r}: {error}") from None
    base = found[0].against
    drifted = drift(values)
    return Weighing(
        study=Path(path).name,
        question=question([each.level for each in found], base, by, []),
        by=by,
        against=base,
        metric=value,
        comparisons=tuple(found),
        outliers=tuple(_table_outliers(values, value)),
        notes=(*loud_levels(values), *([drifted] if drifted else [])),
        counts={"planned": len(values), "ok": len(values)},
        measurements=tuple(values),
        medians=_table_medians(values, value),
    )


def _table_outliers(values: Sequence[Measurement], metric: str) -> list[Left]:
    levels: dict[str, list[Measurement]] = {}
    for m in values:
        levels.setdefault(m.level, []).append(m)
    why = sentences.stands_out(metric)
    return [
        Left(trials[place].trial, level, _block_number(trials[place]), USABLE[0], (why,))
        for level, trials in levels.items()
        for place in outliers([m.value for m in trials])
    ]


def _block_number(m: Measurement) -> int:
    return int(m.block) if m.block is not None and m.block.isdecimal() else 0


def _table_medians(values: Sequence[Measurement], metric: str) -> dict[str, Mapping[str, Estimate]]:
    levels: dict[str, list[float]] = {}
    for m in values:
        levels.setdefault(m.level, []).append(m.value)
    return {level: {metric: median_estimate(figures)} for level, figures in levels.items()}
