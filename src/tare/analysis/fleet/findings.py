"""All about the devices of a fleet, as one answer.

What a device does not share with its twins: candidates for why it is unlike them, and no more than that.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any, TypeAlias

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
from tare.analysis.fleet.random_effects import FEWEST, Candidate, Centre, Effect, Fleet, Odd, Quantity, Spread, spread
from tare.analysis.labels import text
from tare.analysis.observations import records_of
from tare.analysis.parity import flat, rule_for
from tare.analysis.selection import DEFAULT_BY, Request, fit_for, level_against, pick_metric, request, why_not
from tare.analysis.sentences import percent
from tare.base.declare import Role
from tare.base.errors import StudyError
from tare.records.model import (
    DEVICE,
    TYPE,
    Record,
    StoreTrials,
    TrialRow,
    collected,
    grouped,
    is_usable,
    rows_of_stores,
    usable_trials,
)
from tare.records.store import Store

MOST = 5  # candidates that a sentence can hold
FEWEST_C, FEWEST_SHARE = 5.0, 0.05  # how far outside its twins' range a reading must lie
STEADY = 2  # values of one fact on one device: what has more changes by itself
LOOKED_AT = 3  # trials of a device whose series are asked
_PASSING = re.compile(r"(^|[._])(boot_id|name|id|serial|hostname|address|title)$")  # differ from device to device
_READINGS = re.compile(r"temperature|_mhz$|_hz$|throttle|cooling|alarm", re.IGNORECASE)
_SLOWED = frozenset({"heat.throttled", "heat.stopped", "heat.hot-start", "heat.alarm", "clock.below", "clock.above",
                     "clock.slept", "gpu.clock", "gpu.slowed", "gpu.power-limit", "cpu.quota", "memory.swapped",
                     "control.not-held"})  # fmt: skip
_SECTIONS = ("device", "controls", "settled", "place")
# Most telling first: what is known to change speed, then what the kernel was told, then the rest.
_ORDER = (
    "throttl",
    "temperature",
    "governor",
    "power_mode",
    "hz",
    "kernel",
    "cpu",
    "cores",
    "storage",
    "torch",
    "cuda",
)

Channels = Callable[[TrialRow], Sequence[Mapping[str, Any]]]  # of a trial: name, quantiles


def candidates(device: str, twins: Sequence[str], seen: Sequence[TrialRow], channels: Channels) -> list[Candidate]:
    """The likeliest first: how often it was throttled, how warm and how fast it ran, what it is and what it runs."""
    mine = [each for each in seen if each.device == device]
    theirs = [[each for each in seen if each.device == name] for name in twins]
    found = [*_troubles(mine, theirs), *_readings(mine, theirs, channels), *_facts(mine, theirs)]
    once = list({each.what: each for each in reversed(found)}.values())[::-1]
    return sorted(once, key=lambda each: _rank(each.what))[:MOST]


def _rank(what: str) -> int:
    return next((place for place, word in enumerate(_ORDER) if word in what.lower()), len(_ORDER))


def _troubles(mine: Sequence[Record], theirs: Sequence[Sequence[Record]]) -> Iterable[Candidate]:
    """Trials that were doubted or refused for heat, clocks or memory; its twins had none, or far fewer."""
    ours, others = _troubled(mine), [_troubled(records) for records in theirs]
    usual = median(share for share, _ in others) if others else 0.0
    if ours[0] > max(0.1, 3 * usual):
        count = round(ours[0] * len(mine))
        yield Candidate(
            "throttled or doubted in", f"{count} of {len(mine)} trials: {ours[1]}", f"{usual:.0%} of theirs"
        )


def _troubled(records: Sequence[Record]) -> tuple[float, str]:
    said = [next((reason for reason in record.reasons if reason.code in _SLOWED), None) for record in records]
    found = [str(reason) for reason in said if reason is not None]
    return (len(found) / len(records) if records else 0.0), (found[0].rstrip(".") if found else "")


def _readings(
    mine: Sequence[TrialRow], theirs: Sequence[Sequence[TrialRow]], channels: Channels
) -> Iterable[Candidate]:
    """Temperatures, clocks and throttle counts that lie outside the range of its twins."""
    ours = _typical(mine, channels)
    others = [_typical(trials, channels) for trials in theirs]
    for name, value in ours.items():
        known = [found[name] for found in others if name in found]
        if len(known) < 2:
            continue
        far = FEWEST_C if name.endswith("_c") else FEWEST_SHARE * max(abs(end) for end in (*known, value))
        if value > max(known) + far or value < min(known) - far:
            yield Candidate(_spoken(name), f"{value:.4g}", f"{min(known):.4g} to {max(known):.4g}")


def _typical(trials: Sequence[TrialRow], channels: Channels) -> dict[str, float]:
    """Channel -> the median over a few trials of its median in each."""
    values: list[tuple[str, float]] = []
    for each in [trial for trial in trials if is_usable(trial)][:LOOKED_AT]:
        for channel in channels(each):
            name, quantiles = str(channel["name"]), channel.get("quantiles")
            if _READINGS.search(name) and quantiles:
                values.append((name, float(quantiles[len(quantiles) // 2])))
        for zone, degrees in ((each.facts.get("warmth") or {}).get("start_c") or {}).items():
            values.append((f"temperature.{zone}_c", float(degrees)))
    return {name: median(found) for name, found in collected(values).items()}


def _facts(mine: Sequence[Record], theirs: Sequence[Sequence[Record]]) -> Iterable[Candidate]:
    """Facts that most twins share, and this device does not."""
    ours, others = _known(mine), [_known(records) for records in theirs]
    for key in dict.fromkeys((*ours, *(key for found in others for key in found))):
        counts = Counter(found.get(key, "none") for found in others)
        usual, times = counts.most_common(1)[0] if counts else ("none", 0)
        if 2 * times > len(others) and ours.get(key, "none") != usual:
            yield Candidate(key, ours.get(key, "none"), usual)


def _known(records: Sequence[Record]) -> dict[str, str]:
    """What is known of a device and of its software; what changes from trial to trial is left out."""
    values: list[tuple[str, str]] = []
    for record in records:
        facts = {"tare": record.tare_version} if record.tare_version else {}
        for section in _SECTIONS:
            facts |= flat(record.facts.get(section) or {}, "" if section == "device" else f"{section}.")
        inside = flat(record.facts.get("inside") or {})
        facts |= {key: value for key, value in inside.items() if key not in facts and rule_for(key).matters}
        values += ((key, text(value)) for key, value in facts.items() if not _PASSING.search(key))
    known = {key: dict.fromkeys(found) for key, found in collected(values).items()}
    return {key: " | ".join(found) for key, found in known.items() if len(found) <= STEADY}


def _spoken(name: str) -> str:
    """`temperature.cpu_c` as `temperature cpu (°C)`."""
    base, _, unit = name.rpartition("_")
    units = {"c": "°C", "mhz": "MHz", "hz": "Hz", "s": "s"}
    return f"{base.replace('.', ' ')} ({units[unit]})" if unit in units else name.replace(".", " ")


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


BESIDE = (Role.ENERGY_STEP.metric, Role.POWER.metric)  # told next to the headline, where trials have them
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
