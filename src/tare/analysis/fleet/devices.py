"""The devices of a fleet as sections: the effect on each and over all, how they scatter, and which are outliers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tare.analysis.fleet.results import Effect, Fleet, Population, Quantity, Spread, Standing
from tare.analysis.model import Estimate
from tare.analysis.sections import (
    EFFECT,
    Answer,
    Cell,
    Column,
    List,
    Note,
    Section,
    Sentence,
    Shown,
    Table,
    anchor,
    share_shown,
)
from tare.base.text import count_text, interval_text, metric_name, share_text

MOST_SPREADS = 4  # configurations that an answer shows; the rest is in JSON
WORDS = {"equivalent": "equivalent", "slower": "slower", "faster": "faster", "cannot_tell": "cannot tell"}
_INTERVAL = "95 % interval"


def devices_answer(found: Fleet) -> Answer[Fleet]:
    """What holds for devices in general, and which device is an outlier among identical devices."""
    types = ", ".join(f"{len(devices)} {name}" for name, devices in found.types.items())
    notes = [*found.notes, *(note for quantity in found.quantities for note in _notes(quantity))]
    return Answer(
        (f"{found.study}: {count_text(len(found.devices), 'device')} ({types}).",),
        found,
        (
            Section("devices-outliers", "", partial(List, tuple(_outliers(found.quantities)))),
            *(section for quantity in found.quantities for section in _sections(quantity)),
            Section("devices-notes", "", partial(Note, tuple((note,) for note in notes))),
        ),
    )


def _sections(found: Quantity) -> Iterator[Section]:
    name = metric_name(found.metric)
    about = f"{name[:1].upper()}{name[1:]}"
    for effect in found.effects:
        where = f" ({effect.where})" if effect.where else ""
        title = f"{about}: the effect of {effect.level} against {effect.against}{where}"
        yield Section(anchor("devices", name, effect.level, effect.where), title, partial(effects_table, [effect]))
    yield Section(
        anchor("devices", name), f"{about}: each device among identical devices", partial(standings_table, found)
    )
    for spread in found.spreads[:MOST_SPREADS]:
        where = f" of {spread.where}" if spread.where else ""
        title = f"{about}: spread{where}, {count_text(spread.trials, 'trial')}"
        yield Section(anchor("devices-spread", name, spread.where), title, partial(_spread_table, spread))


def _outliers(quantities: Sequence[Quantity]) -> Iterator[Sentence]:
    """Each outlier; of each type without one, what would have been seen."""
    for quantity in quantities:
        for odd in quantity.odd:
            yield (odd.sentence,)
        for kind, distance in quantity.could_see.items():
            if not any(odd.type == kind and not odd.what for odd in quantity.odd):
                yield (f"No device of the type {kind!r} is an outlier; {share_text(distance)} would have been seen.",)


def _notes(found: Quantity) -> list[str]:
    left = len(found.spreads) - MOST_SPREADS
    more = [f"the spread of {count_text(left, 'more configuration')} is in --json."] if left > 0 else []
    return [*more, *found.notes]


def effects_table(effects: Sequence[Effect]) -> Table:
    """A row for each device, then one for each population; the first column says which of several effects it is."""
    rows: list[tuple[Cell, ...]] = []
    notes: list[Sentence] = []
    for effect in effects:
        which = effect_name(effect) if len(effects) > 1 else None
        for each in effect.devices:
            shown = Shown(EFFECT, each.effect, f"{effect_name(effect)}, {each.device}", signed=True)
            rows.append((which, each.device, each.type, shown, f"{each.effect.n:,}"))
        for population in effect.populations:
            name = population_name(population)
            mean = Shown(EFFECT, population.mean, f"{effect_name(effect)}, {name}", signed=True)
            rows.append((which, name, None, mean, None))
            notes.append(_population_sentence(population))
    columns = (Column("effect of"), Column("device"), Column("type"), Column("effect", _INTERVAL), Column("blocks"))
    return Table(columns, tuple(rows), tuple(notes))


def effect_name(effect: Effect) -> str:
    return f"{effect.level}, {effect.where}" if effect.where else effect.level


def population_name(found: Population) -> str:
    return f"all {found.of}" if found.of else "all devices"


def _population_sentence(found: Population) -> Sentence:
    """`all devices (6): slower; the effect differs between devices by 0.8 % ...`."""
    ahead = interval_text(found.next_low, found.next_high, [found.mean.value])
    return (
        f"{population_name(found)} ({found.mean.n}): {WORDS[found.verdict]}; the effect differs between devices by ",
        Shown("deviation_share", found.tau),
        f", and on one more device it is expected in {ahead} %.",
    )


def _spread_table(spread: Spread) -> Table:
    rows = tuple(
        (
            each.level.removeprefix("between "),
            f"{each.deviation.n:,}",
            Shown("deviation_share", each.deviation, f"{spread.where}, {each.level}"),
            Shown("variance_share", each.share, f"{spread.where}, {each.level}"),
        )
        for each in spread.components
    )
    columns = (
        Column("varies between"),
        Column("groups"),
        Column("deviation", _INTERVAL),
        Column("of variance", "its interval"),
    )
    return Table(columns, rows)


def standings_table(found: Quantity) -> Table:
    """How far each device is from identical devices; `its own` is its random effect, drawn to the mean of its type."""
    columns = (Column("device"), Column("type"), Column("trials"), Column("from the others", _INTERVAL),
               Column("its own"), Column(""))  # fmt: skip
    return Table(columns, tuple(map(_standing_row, found.standings)))


def _standing_row(found: Standing) -> tuple[Cell, ...]:
    away = own = None
    if found.deviation is not None:
        estimate = Estimate(found.deviation, found.low, found.high, found.trials, "against identical devices")
        away = share_shown(estimate, found.device)
    if found.random_effect is not None:
        own = Shown(EFFECT, found.random_effect, f"{found.device}, its own", signed=True)
    return found.device, found.type, f"{found.trials:,}", away, own, "unlike" if found.unlike else None
