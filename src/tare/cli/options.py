"""Options and their types: each is declared once, and means the same for every verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from tare.base.errors import StudyError, unknown_name
from tare.base.units import parse_quantity, parse_share

Function = TypeVar("Function", bound=Callable[..., Any])
Option = Callable[[Any], Any]

_UNITS: Mapping[str, Mapping[str, float]] = {
    "time": {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "power": {"W": 1.0, "mW": 1e-3, "kW": 1e3},
    "energy": {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": 3600.0, "kWh": 3.6e6},
}


def need(condition: bool, message: str) -> None:
    """Refuse the command line with a sentence."""
    if not condition:
        raise StudyError(message)


# Types


class ShareOption(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """A share such as `5%` or `0.05`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            share = parse_share(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 0 < share < 1:
            hint = f"; did you mean {value}%?" if share >= 1 and "%" not in str(value) else ""
            self.fail(f"{value}: it must be more than 0 % and less than 100 %{hint}", param, ctx)
        return share


class NamesOption(click.ParamType):  # type: ignore[type-arg]
    """Names separated by commas; of a closed list, if there is one."""

    name = "names"

    def __init__(self, what: str = "", known: tuple[str, ...] = ()) -> None:
        self._what, self._known = what, known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(",") if part.strip())
        if not names:
            self.fail("give at least one name; separate several by commas", param, ctx)
        if len(set(names)) < len(names):
            self.fail(f"{value!r} names the same thing twice", param, ctx)
        for name in names if self._known else ():
            if name not in self._known:
                self.fail(unknown_name(self._what, name, self._known), param, ctx)
        return names


class QuantityOption(click.ParamType):  # type: ignore[type-arg]
    """A number with a unit, such as `30min` or `64MiB`; with `several`, a list of them separated by commas.

    `parse` raises ValueError with a sentence; `words` are accepted in place of a number.
    """

    def __init__(
        self, name: str, parse: Callable[[str], Any], *, several: bool = False, words: Mapping[str, Any] | None = None
    ) -> None:
        self.name, self._parse, self._several, self._words = name, parse, several, words or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            found = [self._one(part.strip()) for part in (value.split(",") if self._several else [value])]
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return tuple(dict.fromkeys(found)) if self._several else found[0]

    def _one(self, part: str) -> Any:
        return self._words[part] if part in self._words else self._parse(part)


def _positive(what: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        found = parse_quantity(text, dict(_UNITS[what]), what)
        if found <= 0:
            raise ValueError(f"{text} leaves nothing; it must be more than zero")
        return found

    return parse


def _duration(text: str) -> float:
    seconds = parse_quantity(text, {"s": 1.0, "min": 60.0, "h": 3600.0}, "time", bare_unit="s")
    if not 0 < seconds <= 86400:
        raise ValueError(f"{text} is not between 0 s and one day")
    return seconds


SHARE = ShareOption()
NAMES = NamesOption()
TIME, POWER, ENERGY = (QuantityOption(what, _positive(what)) for what in _UNITS)
DURATION = QuantityOption("duration", _duration)
# A store, a pack, or a table in its place. Whether it may be read is for the reader to say, with its own exit code:
# click would call the command line wrong.
STORE = click.Path(path_type=Path, readable=False)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path)

# What several verbs have

json_option: Option = click.option("--json", "as_json", is_flag=True, help="Print the data as JSON on stdout.")
trust_option: Option = click.option("--trust", is_flag=True, help="Accept a file that other users may write.")
by_option: Option = click.option(
    "--by", metavar="FACTOR", help="The factor (of a table: column) whose levels are compared.  "
    "[default: as in the study, or platform]",
)  # fmt: skip
against_option: Option = click.option(
    "--against", metavar="LEVEL", help="The level to compare with.  [default: as in the study, or bare]"
)
group_option: Option = click.option(
    "--group", metavar="COLUMN", help="A column, such as the model: a separate result for each of its values."
)
order_option: Option = click.option(
    "--order", metavar="COLUMN", help="Of a table: the column with the time or number of each run, or `shuffled`. "
    "Runs that it cannot order go by row.  [default: the order of the rows]",
)  # fmt: skip
settings_option: Option = click.option(
    "--settings", type=NAMES, metavar="COLUMNS",
    help="The columns that make a configuration, such as model,batch.  [default for a store: all that vary]",
)  # fmt: skip


def margin_option(default: str | None = None) -> Option:
    """`--margin`; without a default the study's."""
    shown = default is not None
    help_text = "Differences below this count as equivalent."
    return click.option(
        "--margin", type=SHARE, default=default, show_default=shown,
        help=help_text if shown else f"{help_text}  [default: as in the study, or 5%]",
    )  # fmt: skip


def metric_option(default: str = "as in the study, step_mean_s or wall_s", *, multiple: bool = False) -> Option:
    """`--metric`: of a store one of its metrics, of a table a column."""
    help_text = f"The metric of a store, or the column of a table.  [default: {default}]"
    if multiple:
        return click.option("--metric", "metrics", multiple=True, metavar="NAME", help=f"{help_text} Repeatable.")
    return click.option("--metric", metavar="NAME", help=help_text)


higher_option: Option = click.option(
    "--higher-is-better/--lower-is-better", "rises", default=None,
    help="Which way the metric is better.  [default: by its name]",
)  # fmt: skip


def output_option(help_text: str, kind: click.ParamType = FILE) -> Option:  # type: ignore[type-arg]
    """`-o`: the file or the folder that the verb writes."""
    return click.option("-o", "--output", type=kind, help=help_text)


def comparing(function: Function) -> Function:
    """The options that say what is compared with what."""
    for option in (metric_option(), margin_option(), against_option, by_option):
        function = option(function)
    return function
