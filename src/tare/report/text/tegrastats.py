"""Lines of tegrastats as a table: one row a line, only the columns that some line has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tare.base.text import size_text
from tare.report.columns import table

Said = Mapping[str, Any]


def tegrastats_table(lines: Sequence[tuple[int, Said]], width: int = 80) -> str:
    """The figures of each line, with its number in the log."""
    columns = {head: [cell(said) for _, said in lines] for head, cell in _COLUMNS.items()}
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    rows = [[number, *(cells[place] for cells in shown.values())] for place, (number, _) in enumerate(lines)]
    return table(rows, ["line", *shown], width)


def _size(name: str) -> Callable[[Said], str]:
    return lambda said: size_text(said[name]) if said.get(name) else ""


def _cores(said: Said) -> str:
    on = [core for core in said.get("cpus", ()) if core is not None]
    return f"{len(on)} of {len(said['cpus'])}" if said.get("cpus") else ""


def _cpu(said: Said) -> str:
    on = [core["util"] for core in said.get("cpus", ()) if core is not None]
    return f"{sum(on) / len(on):.0%}" if on else ""


def _share(name: str) -> Callable[[Said], str]:
    return lambda said: f"{said[name]:.0%}" if name in said else ""


def _gpu_clock(said: Said) -> str:
    return f"{said['gpu_hz'] / 1e6:.0f} MHz" if "gpu_hz" in said else ""


def _hottest(said: Said) -> str:
    """The PMIC's sensor says 100 on every board that has one, whatever it is like there."""
    real = {name: value for name, value in said.get("temps_c", {}).items() if name.upper() != "PMIC"}
    name = max(real, key=lambda each: real[each], default=None)
    return "" if name is None else f"{name} {real[name]:.0f} °C"


def _power(said: Said) -> str:
    return f"{said['power_total_w']:.2f} W" if "power_total_w" in said else ""


_COLUMNS: Mapping[str, Callable[[Said], str]] = {
    "RAM": _size("ram_used_bytes"),
    "swap": _size("swap_used_bytes"),
    "cores": _cores,
    "CPU": _cpu,
    "GPU": _share("gpu_util"),
    "clock": _gpu_clock,
    "EMC": _share("emc_util"),
    "hottest": _hottest,
    "module": _power,
}
