"""The section about devices, as values: sentences, and the tables behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare.analysis.fleet.model import Fleet, Quantity
from tare.report.devices import (
    EFFECT_HEADS,
    MOST_SPREADS,
    SPREAD_HEADS,
    STANDING_HEADS,
    effect_rows,
    effect_title,
    fleet_sentences,
    population_sentence,
    spread_rows,
    spread_title,
    standing_row,
)
from tare.report.figure import Cell
from tare.report.words import metric_name

_NUMERIC = frozenset({"effect", "95 % interval", "blocks", "groups", "deviation", "of the variance", "trials",
                      "from its twins", "its own"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class DevicesSection:
    """What holds for devices, and which is unlike its twins."""

    sentences: tuple[str, ...]
    sheets: tuple[Sheet, ...]


def devices_section(found: Fleet) -> DevicesSection:
    """The headline figure's; `tare devices` has the others."""
    told: list[str] = []
    sheets: list[Sheet] = []
    for quantity in found.quantities:
        told += [each.sentence for each in quantity.odd]  # a name stays as it is written
        for effect in quantity.effects:
            told += [_title(f"{effect_title(effect)}: {population_sentence(each)}") for each in effect.populations]
        told += [sentence.removeprefix("note: ") for sentence in fleet_sentences(quantity)[len(quantity.odd) :]]
        sheets += _sheets(quantity)
    return DevicesSection((*told, *found.notes), tuple(sheets))


def _sheets(quantity: Quantity) -> list[Sheet]:
    name = metric_name(quantity.metric)
    made = [_sheet(f"{name}: {effect_title(each)}", EFFECT_HEADS, effect_rows(each)) for each in quantity.effects]
    rows = [standing_row(each) for each in quantity.standings]
    made.append(_sheet(f"{name}: each device among its twins", STANDING_HEADS, rows))
    for spread in quantity.spreads[:MOST_SPREADS]:
        made.append(_sheet(f"{name}: {spread_title(spread)}", SPREAD_HEADS, spread_rows(spread)))
    return made


def _sheet(title: str, headers: tuple[str, ...], rows: Iterable[Sequence[str]]) -> Sheet:
    return Sheet(
        _title(title),
        headers,
        tuple(
            tuple(Cell(text, numeric=head in _NUMERIC) for head, text in zip(headers, row, strict=True)) for row in rows
        ),
    )


def _title(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
