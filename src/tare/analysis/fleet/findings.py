"""All about the devices of a fleet, as one answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from tare.analysis.baseload import records_of
from tare.analysis.cells import Cells, cells, join, resolve_factor
from tare.analysis.fleet.effects import (
    Aside,
    Twins,
    centres_by_device,
    could_see,
    effect,
    few_blocks,
    levels,
    outlying,
    too_few,
    twins_in_effect,
    twins_in_level,
)
from tare.analysis.fleet.model import Effect, Fleet, Odd, Quantity, Spread
from tare.analysis.fleet.random_effects import FEWEST, Centre, spread
from tare.analysis.fleet.reasons import Channels, candidates, odd_sentence, pair_note, spread_without
from tare.analysis.selection import DEFAULT_BY, Request, fit_for, level_against, pick_metric, request, why_not
from tare.base.errors import StudyError
from tare.records.model import Record
from tare.records.store import Store
from tare.records.trials import DEVICE, TYPE, StoreTrials, TrialRow, grouped, rows_of_stores, usable_trials

BESIDE = ("energy_step_j", "power_mean_w")  # told next to the headline, where trials have them
Contrast: TypeAlias = tuple[str, str, str]  # level, against, where


@dataclass(frozen=True)
class Question:
    """One figure of the devices of one type, or one effect on it."""

    metric: str
    what: str  # "" for the figure itself
    twins: Twins
    effect: tuple[str, str] | None = None  # level and against

    @cached_property
    def tested(self) -> list[Aside]:
        return self.twins.tested()


@dataclass(frozen=True)
class FleetSelection:
    """The trials of all devices that are used for one figure, and the effect of each level on each device."""

    metric: str
    label: Cells
    used: Sequence[TrialRow]
    centres: Mapping[Contrast, Mapping[str, Centre]] = field(default_factory=dict)

    @cached_property
    def types(self) -> dict[str, str]:
        return {str(each.device): each.device_type for each in self.used}

    def configurations(self, without: Sequence[str] = ()) -> dict[str, list[TrialRow]]:
        """Trials of the same settings, whatever device they ran on."""
        return grouped((each for each in self.used if each.device not in without), self.label.label)

    def questions(self) -> list[Question]:
        """The figure itself, and each effect on it, for each type."""
        made = []
        for kind in dict.fromkeys(self.types.values()):
            made.append(Question(self.metric, "", twins_in_level(kind, self._values(kind))))
            for (level, against, where), centres in self.centres.items():
                of_kind = {name: centre for name, centre in centres.items() if self.types[name] == kind}
                if len(of_kind) >= FEWEST:
                    what = join(f"the effect of {level} against {against}", where)
                    made.append(Question(self.metric, what, twins_in_effect(kind, of_kind), (level, against)))
        return made

    def _values(self, kind: str) -> dict[str, dict[str, list[float]]]:
        """Configuration -> device of this type -> its values."""
        found = {}
        for where, members in self.configurations().items():
            devices = grouped((each for each in members if each.device_type == kind), lambda each: str(each.device))
            if devices:
                found[where] = {name: [each.metrics[self.metric] for each in its] for name, its in devices.items()}
        return found


def select_for_fleet(seen: Sequence[TrialRow], metric: str, factor: str | None, asked: Request) -> FleetSelection:
    """One usable attempt of each trial; an A/A repeat is the same thing again, and would count a trial twice."""
    by = factor or DEFAULT_BY
    having = [each for each in seen if by in each.settings]
    label = cells(having, by)
    # Device by device: two devices that ran one study apart have trials of the same names.
    devices = grouped(having, lambda each: each.device).values()
    used = [each for its in devices for each in usable_trials(its, fit_for(metric), repeats=False)]
    if factor is None or not used:
        return FleetSelection(metric, label, used)
    base = level_against(having, label, asked.against)
    pairs = dict.fromkeys((label.level(each), label.surroundings(each)) for each in used)
    contrasts = [(level, base, where) for level, where in pairs if level != base]
    return FleetSelection(metric, label, used, {one: centres_by_device(used, label, metric, *one) for one in contrasts})


def factor_of(study: Mapping[str, Any], records: Sequence[Record], by: str | None) -> str | None:
    """Whose effect is told: what was asked for, else what the study compares, else the platforms; None: nothing is."""
    if by in (DEVICE, TYPE):
        raise StudyError("this verb reports on devices: --by names another factor, such as platform.")
    declared = (request(study, records).by, DEFAULT_BY) if by is None else (resolve_factor(records, by),)
    wanted = [name for name in declared if name not in (DEVICE, TYPE)]
    varied = [name for name in wanted if len({str(each.settings.get(name)) for each in records}) > 1]
    return varied[0] if varied else None


def metrics_of(records: Sequence[Record], declared: str | None, asked: Sequence[str]) -> list[str]:
    """The figures to tell of: those that were asked for, else the headline with power and energy beside it."""
    if asked:
        return [pick_metric(records, metric) for metric in asked]
    beside = [name for name in BESIDE if any(not why_not(record, name) for record in records)]
    return list(dict.fromkeys([pick_metric(records, declared), *beside]))


NOTHING = "No usable trial here. See `tare show` for how each one ended."
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
