"""Options that the deciding verbs share: lists of columns, and quantities with a unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tare.cli.options import say
from tare.measures import parse_quantity

_UNITS: Mapping[str, Mapping[str, float]] = {
    "time": {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "power": {"W": 1.0, "mW": 1e-3, "kW": 1e3},
    "energy": {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": 3600.0, "kWh": 3.6e6},
}


class NamesOption(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(",") if part.strip())
        if not names:
            self.fail("name at least one, with commas between them", param, ctx)
        if len(set(names)) < len(names):
            self.fail(f"{value!r} names the same thing twice", param, ctx)
        return names


class QuantityOption(click.ParamType):  # type: ignore[type-arg]
    """A number with a unit, turned into seconds, watts or joules."""

    def __init__(self, what: str) -> None:
        self.name = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            found = parse_quantity(value, dict(_UNITS[self.name]), self.name)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found <= 0:
            self.fail(f"{value} leaves nothing; it must be more than zero", param, ctx)
        return found


NAMES = NamesOption()
TIME, POWER, ENERGY = QuantityOption("time"), QuantityOption("power"), QuantityOption("energy")


def say_left_out(source: Path) -> None:
    """Say on stderr what of a store is not used, or is used with doubt."""
    from tare.analysis.observations import source_notes

    for note in source_notes(source):
        say(f"note: {note}")


def say_mixed(source: Path, settings: Sequence[str] | None, group: str | None) -> None:
    """Say on stderr which columns of a table are mixed up for want of --group."""
    from tare.analysis.mixed_columns import mixed_notes

    for note in mixed_notes(source, settings, group):
        say(f"note: {note}")
