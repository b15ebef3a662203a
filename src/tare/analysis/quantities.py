"""Which column a word such as `energy` means, and how many base units one unit of that column is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.errors import StudyError

# What a word may be called in a store or in a table, the likeliest first.
NAMES: Mapping[str, tuple[str, ...]] = {
    "time": ("step_s", "time_s", "step_ms", "time_ms", "epoch_s", "e2e_s", "ms", "seconds", "s", "wall_s", "time"),
    "energy": ("energy_step_j", "step_j", "energy_j", "energy_mj", "joules", "j", "energy_wh", "wh", "energy"),
    "power": ("power_mean_w", "power_w", "watts", "w", "power_mw", "power"),
    "cost": ("cost", "cost_usd", "usd", "dollars"),
    "latency": ("latency_s", "latency_ms", "request_s", "latency"),
    "latency_p99": ("latency_p99_s", "latency_p99_ms", "p99_s", "p99_ms", "latency_p99", "p99"),
    "stall": ("stall_s", "stall_ms", "fetch_stall_s", "stall"),
    "compute": ("compute_s", "compute_ms", "compute"),
}
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


def need_column(word: str, known: Sequence[str], option: str, source: Path) -> Column:
    """The same, where nothing can be said without it; `option` is how a user names it."""
    found = column_for(word, known)
    if found is None:
        from tare.analysis.compare import unknown_name

        raise StudyError(f"{source}: {unknown_name('column', word, list(known))} {option} names it.")
    return found


def base_factor(name: str) -> float:
    """`step_ms` is a thousandth of a second; a name that ends in no unit is taken as it is."""
    unit = name.rpartition("_")[2]
    return _MEGA[unit] if unit in _MEGA else _UNITS.get(unit.lower(), 1.0)
