"""All about the devices of a fleet, as one answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.fleet.candidates import Channels, candidates
from tare.analysis.fleet.effects import effect, few_blocks, too_few
from tare.analysis.fleet.outliers import Aside, Twins, could_see, levels, outlying
from tare.analysis.fleet.random_effects import FEWEST
from tare.analysis.fleet.results import Candidate, Effect, Fleet, Odd, Quantity, Spread
from tare.analysis.fleet.selection import FleetSelection, Question, factor_of, metrics_of, select_for_fleet
from tare.analysis.fleet.spread import spread
from tare.analysis.observations import records_of
from tare.analysis.selection import fit_for, pick_metric, request
from tare.analysis.sentences import percent
from tare.base.errors import StudyError
from tare.records.model import StoreTrials, TrialRow, grouped, rows_of_stores
from tare.records.store import Store

NAMED = 4


def odd_sentence(
    metric: str, what: str, name: str, twins: Sequence[str], away: float, why: Sequence[Candidate], margin: float
) -> str:
    """`orin-3 is an outlier among identical devices (orin-1, orin-2): its step_s is 20.1 % more.`"""
    more = "more" if away > 0 else "less"
    figure = (
        f"{what} on {metric} differs by {percent(abs(away))}"
        if what
        else f"its {metric} is {percent(abs(away))} {more}"
    )
    small = "" if abs(away) > margin else f", within the margin of {percent(margin)}"
    start = f"{name} is an outlier among identical devices ({_some(twins)}): {figure}{small}."
    if not why:
        return f"{start} Nothing recorded distinguishes it from them: check cooling, power supply and storage."
    told = "; ".join(candidate.text() for candidate in why)
    return f"{start} What it does not share with them, any of which may be why: {told}."


def pair_note(twins: Twins) -> str:
    """Two of a kind differ; nobody can say which of them is odd."""
    first, second = twins.names
    apart = abs(math.expm1(float(twins.values[0] - twins.values[1])))
    return (
        f"{first} and {second} are the only devices of the type {twins.type!r} and differ by {percent(apart)}: which "
        "of them is the outlier takes a third device to see."
    )


def spread_without(names: Sequence[str], spreads: Sequence[Spread], rest: Sequence[Spread]) -> list[str]:
    """What the odd devices do to the spread between devices."""
    fewer = {each.where: _between(each) for each in rest}
    told = [
        f"{percent(whole)} becomes {percent(left)}{f' ({each.where})' if each.where else ''}"
        for each in spreads
        if (whole := _between(each)) is not None and (left := fewer.get(each.where)) is not None
    ]
    return [f"Without {_some(names)} the spread between devices of {told[0]}."] if told else []


def _between(found: Spread) -> float | None:
    """Of devices within their type."""
    return next((each.deviation.value for each in found.components if "devices" in each.level), None)


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


NOTHING = "there is no usable trial here. `tare show STORE` lists how each one ended."
ONE_DEVICE = "There is one device here: comparing devices needs several."
NO_EFFECT = "Nothing but the device varies here, so there is no effect to report."


@dataclass(frozen=True)
class Judged:
    """A question, at the level that Holm lets it be judged at, and the devices that it finds."""

    question: Question
    level: float
    odd: tuple[Odd, ...] = ()

    @property
    def found_odd(self) -> list[Aside]:
        return outlying(self.question.tested, self.level)


def fleet_of_stores(stores: Sequence[Store], **asked: Any) -> Fleet:
    """What these open stores say about their devices: fleets' stores, or one store for each device."""
    tables = [StoreTrials(store.path.resolve().name, records_of(store)) for store in stores]

    def channels(each: TrialRow) -> Sequence[Mapping[str, Any]]:
        return stores[each.store].channels(each.trial, each.attempt)

    return fleet_of_records(tables, stores[0].study, channels, **asked)


def fleet_of_records(
    stores: Sequence[StoreTrials],
    study: Mapping[str, Any],
    channels: Channels = lambda each: (),
    *,
    by: str | None = None,
    against: str | None = None,
    margin: float | None = None,
    metrics: Sequence[str] = (),
) -> Fleet:
    """The same of records; `channels` tells of the series of a trial, where someone keeps them."""
    seen = rows_of_stores(stores)
    if not any(map(fit_for(pick_metric(seen, None)), seen)):
        raise StudyError(NOTHING)
    factor = factor_of(study, seen, by)
    asked = request(study, seen, by=factor, against=against, margin=margin)
    types = {
        kind: tuple(dict.fromkeys(str(each.device) for each in rows))
        for kind, rows in grouped(seen, lambda each: each.device_type).items()
    }
    several = sum(map(len, types.values())) > 1
    names = metrics_of(seen, asked.its_metric, metrics) if several else ()
    selected = [found for name in names if (found := select_for_fleet(seen, name, factor, asked)).used]
    judged = _judged(selected, seen, channels, asked.margin)
    return Fleet(
        study=str(study.get("study") or seen[0].study),
        types=types,
        margin=asked.margin,
        by=factor,
        quantities=tuple(_quantity(each, judged, asked.margin) for each in selected),
        notes=(ONE_DEVICE,) if not several else () if factor is not None else (NO_EFFECT,),
    )


def _judged(
    selected: Sequence[FleetSelection], seen: Sequence[TrialRow], channels: Channels, margin: float
) -> dict[str, list[Judged]]:
    """Figure -> its questions; all questions of the answer are one family."""
    questions = [question for each in selected for question in each.questions()]
    found: dict[str, list[Judged]] = {each.metric: [] for each in selected}
    for question, level in zip(questions, levels([each.tested for each in questions]), strict=True):
        odd = tuple(_odd(Judged(question, level), seen, channels, margin))
        found[question.metric].append(Judged(question, level, odd))
    return found


def _odd(judged: Judged, seen: Sequence[TrialRow], channels: Channels, margin: float) -> list[Odd]:
    question, twins = judged.question, judged.question.twins
    places = [test.place for test in judged.found_odd]
    others = [name for place, name in enumerate(twins.names) if place not in places]
    made = []
    for test in judged.found_odd:
        name = twins.names[test.place]
        away = math.expm1(float(twins.values[test.place]) - twins.others(test.place, places))
        why = tuple(candidates(name, others, seen, channels))
        sentence = odd_sentence(question.metric, question.what, name, others, away, why, margin)
        made.append(Odd(name, twins.type, len(others), question.what, away, test.p, why, sentence, question.effect))
    return made


def _quantity(each: FleetSelection, judged: Mapping[str, Sequence[Judged]], margin: float) -> Quantity:
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
    """Type -> the share by which a device must differ from identical devices to stand out."""
    found = {}
    for one in figure:
        twins = one.question.twins
        distance = could_see(one.question.tested, len(twins.names), one.level)
        if distance is not None:
            found[twins.type] = math.expm1(min(distance, 10.0))
    return found


def _spreads(each: FleetSelection, without: Sequence[str] = ()) -> tuple[Spread, ...]:
    """One for each configuration: a device's share of one says nothing about another."""
    found = [spread(members, each.metric, where) for where, members in each.configurations(without).items()]
    return tuple(one for one in found if one is not None)


def _notes(
    each: FleetSelection, effects: Sequence[Effect], spreads: Sequence[Spread], figure: Sequence[Judged]
) -> list[str]:
    pairs = [one.question.twins for one in figure if len(one.question.twins.names) == FEWEST - 1]
    notes = [pair_note(twins) for twins in pairs]
    few = [len(one.devices) for one in effects if len(one.devices) < FEWEST]
    notes += [too_few(min(few))] if few else []
    notes += [note for note in (few_blocks(effects),) if note is not None]
    themselves = list(dict.fromkeys(odd.device for one in figure for odd in one.odd))
    return notes + (spread_without(themselves, spreads, _spreads(each, themselves)) if themselves else [])
