"""All about the devices of a fleet, as one answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.analysis.energy.baseload import records_of
from tare.analysis.fleet.effects import effect, few_blocks, too_few
from tare.analysis.fleet.gathering import Sighting, sightings
from tare.analysis.fleet.model import Effect, Fleet, Odd, Quantity, Spread
from tare.analysis.fleet.random_effects import FEWEST
from tare.analysis.fleet.reasons import Channels, candidates
from tare.analysis.fleet.scene import Question, Scene, factor_of, metrics_of, scene
from tare.analysis.fleet.spread import spread
from tare.analysis.fleet.telling import odd_sentence, pair_note, spread_without
from tare.analysis.fleet.unlike import Aside, could_see, levels, unlike
from tare.analysis.request import request
from tare.analysis.trials import pick_metric, why_not
from tare.errors import StudyError
from tare.records.model import Record
from tare.records.store import Store

NOTHING = "There is no usable trial here: `tare show` says how each one ended."
ONE_DEVICE = "There is one device here: how it stands among others like it, and what holds for them, takes several."
NO_EFFECT = "Nothing but the device varies here, so there is no effect to tell."


@dataclass(frozen=True)
class Judged:
    """A question, at the level that Holm lets it be judged at, and the devices that it finds."""

    question: Question
    level: float
    odd: tuple[Odd, ...] = ()

    @property
    def found_odd(self) -> list[Aside]:
        return unlike(self.question.tested, self.level)


def fleet_of_stores(roots: Sequence[Path], **asked: Any) -> Fleet:
    """What these stores say about their devices: fleets' stores, or one store for each device."""
    with ExitStack() as stack:
        stores = [stack.enter_context(Store.open(root)) for root in roots]
        records = [(root.resolve().name, records_of(store)) for root, store in zip(roots, stores, strict=True)]

        def channels(each: Sighting) -> Sequence[Mapping[str, Any]]:
            return stores[each.home].channels(each.record.trial, each.record.attempt)

        return fleet_of_records(records, stores[0].study, channels, **asked)


def fleet_of_records(
    stores: Sequence[tuple[str, Sequence[Record]]],
    study: Mapping[str, Any],
    channels: Channels = lambda each: (),
    *,
    by: str | None = None,
    against: str | None = None,
    margin: float | None = None,
    metrics: Sequence[str] = (),
) -> Fleet:
    """The same of records; `channels` tells of the series of a trial, where someone keeps them."""
    seen = sightings(stores)
    records = [each.record for each in seen]
    headline = pick_metric(records, None)
    if not any(why_not(record, headline) is None for record in records):
        raise StudyError(NOTHING)
    factor = factor_of(study, records, by)
    asked = request(study, records, by=factor, against=against, margin=margin)
    types: dict[str, dict[str, None]] = {}
    for each in seen:
        types.setdefault(each.type, {})[each.device] = None
    several = sum(map(len, types.values())) > 1
    names = metrics_of(records, asked.its_metric, metrics) if several else ()
    scenes = [found for name in names if (found := scene(seen, name, factor, asked)).used]
    judged = _judged(scenes, seen, channels, asked.margin)
    return Fleet(
        study=str(study.get("study") or records[0].study),
        types={name: tuple(devices) for name, devices in types.items()},
        margin=asked.margin,
        by=factor,
        quantities=tuple(_quantity(each, judged, asked.margin) for each in scenes),
        notes=(ONE_DEVICE,) if not several else () if factor is not None else (NO_EFFECT,),
    )


def _judged(
    scenes: Sequence[Scene], seen: Sequence[Sighting], channels: Channels, margin: float
) -> dict[str, list[Judged]]:
    """Figure -> its questions; all questions of the answer are one family."""
    questions = [question for each in scenes for question in each.questions()]
    found: dict[str, list[Judged]] = {each.metric: [] for each in scenes}
    for question, level in zip(questions, levels([each.tested for each in questions]), strict=True):
        odd = tuple(_odd(Judged(question, level), seen, channels, margin))
        found[question.metric].append(Judged(question, level, odd))
    return found


def _odd(judged: Judged, seen: Sequence[Sighting], channels: Channels, margin: float) -> list[Odd]:
    question, twins = judged.question, judged.question.twins
    places = [test.place for test in judged.found_odd]
    others = [name for place, name in enumerate(twins.names) if place not in places]
    made = []
    for test in judged.found_odd:
        name = twins.names[test.place]
        away = math.expm1(float(twins.values[test.place]) - twins.others(test.place, places))
        why = tuple(candidates(name, others, seen, channels))
        sentence = odd_sentence(question.metric, question.what, name, others, away, why, margin)
        made.append(Odd(name, twins.type, len(others), question.what, away, test.p, why, sentence))
    return made


def _quantity(each: Scene, judged: Mapping[str, Sequence[Judged]], margin: float) -> Quantity:
    mine = judged[each.metric]
    figure = [one for one in mine if not one.question.what]
    effects = tuple(
        effect(centres, each.types, each.metric, margin, names) for names, centres in each.centres.items() if centres
    )
    spreads = _spreads(each)
    standings = [
        standing
        for one in figure
        for standing in one.question.twins.standings(one.question.tested, [test.place for test in one.found_odd])
    ]
    return Quantity(
        metric=each.metric,
        effects=effects,
        spreads=spreads,
        standings=tuple(standings),
        odd=tuple(odd for one in mine for odd in one.odd),
        could_see=_could_see(figure),
        notes=tuple(_notes(each, effects, spreads, figure)),
    )


def _could_see(figure: Sequence[Judged]) -> dict[str, float]:
    """Type -> the share by which a device must differ from its twins to stand out."""
    found = {}
    for one in figure:
        twins = one.question.twins
        distance = could_see(one.question.tested, len(twins.names), one.level)
        if distance is not None:
            found[twins.type] = math.expm1(min(distance, 10.0))
    return found


def _spreads(each: Scene, without: Sequence[str] = ()) -> tuple[Spread, ...]:
    """One for each configuration: a device's share of one says nothing about another."""
    found = [spread(members, each.metric, where) for where, members in each.configurations(without).items()]
    return tuple(one for one in found if one is not None)


def _notes(each: Scene, effects: Sequence[Effect], spreads: Sequence[Spread], figure: Sequence[Judged]) -> list[str]:
    pairs = [one.question.twins for one in figure if len(one.question.twins.names) == FEWEST - 1]
    notes = [pair_note(twins) for twins in pairs]
    few = [len(one.devices) for one in effects if len(one.devices) < FEWEST]
    notes += [too_few(min(few))] if few else []
    notes += [note for note in (few_blocks(effects),) if note is not None]
    themselves = list(dict.fromkeys(odd.device for one in figure for odd in one.odd))
    return notes + (spread_without(themselves, spreads, _spreads(each, themselves)) if themselves else [])
