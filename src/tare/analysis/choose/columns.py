"""The column of a source that holds a figure, by its name or by a word such as time or energy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.analysis.directions import direction_of
from tare.analysis.observations import number, setting_column
from tare.analysis.tables.table import Table, read_table
from tare.base.declare import Role
from tare.base.errors import StudyError, unknown_name
from tare.records.model import collected
from tare.records.schema import is_store

# What a word may be called in a store or in a table, the likeliest first.
NAMES: Mapping[str, tuple[str, ...]] = {
    "time": (
        Role.STEP_MEDIAN.metric, "time_s", "step_ms", "time_ms", Role.EPOCH.metric, "e2e_s", "ms", "seconds", "s",
        Role.WHOLE_RUN.metric, "time",
    ),
    "energy": (
        Role.ENERGY_STEP.metric, "step_j", Role.ENERGY.metric, "energy_mj", "joules", "j", "energy_wh", "wh", "energy",
    ),
    "power": (Role.POWER.metric, "power_w", "watts", "w", "power_mw", "power"),
    "cost": ("cost", "cost_usd", "usd", "dollars"),
    "latency": ("latency_s", "latency_ms", "request_s", "latency", Role.STEP_MEDIAN.metric),
    "latency_p99": (
        "latency_p99_s", "latency_p99_ms", "p99_s", "p99_ms", "latency_p99", "p99", Role.STEP_TAIL.metric,
    ),
    "stall": (Role.STALL.metric, "stall_ms", "fetch_stall_s", "stall"),
    "compute": (Role.COMPUTE.metric, "compute_ms", "compute"),
}  # fmt: skip
_UNITS: Mapping[str, float] = {  # the last part of a column's name -> base units in one of it
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "seconds": 1.0, "min": 60.0, "minutes": 60.0, "h": 3600.0,
    "j": 1.0, "mj": 1e-3, "kj": 1e3, "joules": 1.0, "wh": 3600.0, "kwh": 3.6e6,
    "w": 1.0, "mw": 1e-3, "kw": 1e3, "watts": 1.0,
}  # fmt: skip
_MEGA: Mapping[str, float] = {"MJ": 1e6, "MW": 1e6}  # only here the case of a letter tells units apart


@dataclass(frozen=True, slots=True)
class Column:
    """A column that holds a figure, and how many base units (seconds, joules, watts) one of its units is."""

    name: str
    factor: float


def column_for(word: str, known: Sequence[str]) -> Column | None:
    """The column of this name, else the one that the word usually means; None where there is neither."""
    found = word if word in known else next((name for name in NAMES.get(word, ()) if name in known), None)
    return None if found is None else Column(found, base_factor(found))


def is_better_higher(name: str) -> bool:
    """Whether more of a figure is better, as declared or as its name says; a name that does not say is minimised."""
    direction = direction_of(name)
    return direction.rises and direction.settled


def need_direction(figures: Iterable[str], source: Path) -> None:
    """Refuse figures of which more is neither better nor worse."""
    for name in figures:
        if direction_of(name).source == "neutral":
            raise StudyError(
                f"{source}: {name}: more of it is neither better nor worse, so no configuration is the best by it. "
                "Name a time, an energy, or another figure with a direction."
            )


def need_less_is_better(figure: str, source: Path) -> None:
    """Refuse to minimise what is better when it is more: the slowest would win."""
    need_direction([figure], source)
    if is_better_higher(figure):
        raise StudyError(
            f"{source}: {figure}: {direction_of(figure)}, so it is not minimised. Name the time of the same work."
        )


def need_column(word: str, known: Sequence[str], option: str, source: Path) -> Column:
    """The same, where nothing can be said without it; `option` is how a user names it."""
    found = column_for(word, known)
    if found is None:
        raise StudyError(f"{source}: {unknown_name('column', word, list(known))} {option} names it.")
    return found


def base_factor(name: str) -> float:
    """`step_ms` is a thousandth of a second; a name that ends in no unit is taken as it is."""
    unit = name.rpartition("_")[2]
    return _MEGA[unit] if unit in _MEGA else _UNITS.get(unit.lower(), 1.0)


def mixed_notes(source: Path, settings: Sequence[str] | None, group: str | None) -> list[str]:
    """A sentence for each column of text that differs within configurations; of a store there is none."""
    if is_store(source) or settings is None or group is not None:
        return []
    table = read_table(source)
    labels = {name: _labels(table, name) for name in table.columns if name not in settings}
    # Labels that never recur name rows, and part nothing.
    labels = {
        name: cells for name, cells in labels.items() if any(n > 1 for n in Counter(filter(None, cells)).values())
    }
    if not labels:
        return []
    columns = [setting_column(table, name) for name in settings]
    configurations = list(zip(*columns, strict=True))
    told = []
    for name, cells in labels.items():
        present = [pair for pair in zip(configurations, cells, strict=True) if pair[1] is not None]
        if any(len(set(found)) > 1 for found in collected(present).values()):
            told.append(f"column {name!r} differs within configurations: --group {name} keeps its values apart.")
    return told


def _labels(table: Table, name: str) -> list[str | None]:
    """The cells of a column of text; nothing where the column is one of numbers."""
    cells = [cell.strip() if cell is not None and cell.strip() else None for cell in table.column(name)]
    return [None] * len(cells) if all(number(cell) is not None for cell in cells if cell is not None) else cells
