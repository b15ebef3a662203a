"""Which trials answer a question: the factor, its baseline, the metric, who is used, and who is left out and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

from tare.analysis.cells import Cells, SeveralWays, baseline_level, cells, level_name, resolve_factor, usual_reach
from tare.analysis.compare import Contest, contests, largest_floor, pick_baseline
from tare.analysis.estimators import in_common
from tare.analysis.labels import Namer, make_labels, text
from tare.analysis.model import Estimate, FlaggedTrial, Measurement
from tare.analysis.noise import LOOKING_ALPHA, seen_alpha
from tare.analysis.numeric.medians import median_estimate, outliers
from tare.analysis.sentences import stands_out
from tare.base.declare import Group, Role, before
from tare.base.errors import StudyError, unknown_name
from tare.base.rulings import Ruling
from tare.base.text import natural_key, unit_of
from tare.base.units import parse_share
from tare.records.model import (
    TYPE,
    Record,
    TrialRow,
    collected,
    counted_attempts,
    device_of,
    grouped,
    is_usable,
    sides_that_never_ran,
    started_s,
    varied,
)

DEFAULT_BY = "platform"
DEFAULT_MARGIN = 0.05


@dataclass(frozen=True)
class Request:
    """The question, complete but for what only the records can tell."""

    by: str
    against: Any  # a level as the caller or the study wrote it; None where nobody did
    named: bool  # whether the caller named it: then a level that is not there is an error
    margin: float
    metric: str | None  # asked for by the caller, else by the study
    its_metric: str | None  # what the study declares, whatever the caller asks for
    until: float | None  # the stop rule's target for half an interval, where one was declared
    least_blocks: int | None
    most_blocks: int | None
    seen: tuple[int, ...]  # blocks that had been judged, each time that more were added
    declared: bool  # whether factor and baseline are those that the stop rule looked at
    listed: tuple[str, ...] = ()  # the levels of the factor in the order of the study file
    rises: bool | None = None  # the caller's statement that more of the metric is better; None: its name decides
    cpu_time: bool = False  # the study declares that CPU time is judged too
    question: Mapping[str, Any] = field(default_factory=dict)  # of the study, unless the caller asks another

    @property
    def alpha(self) -> float:
        """A run that looks at its interval after each block pays for it; so does one to which blocks were added."""
        return seen_alpha(self.seen) if self.until is None else LOOKING_ALPHA


def request(
    study: Mapping[str, Any],
    records: Sequence[Record] = (),
    *,
    by: str | None = None,
    against: str | None = None,
    margin: float | None = None,
    metric: str | None = None,
    rises: bool | None = None,
) -> Request:
    """The question that the caller and the study put together."""
    declared, repeat = _mapping(study.get("compare")), _mapping(study.get("repeat"))
    its_by, its_against = _request_baseline(declared)
    its_factor = _factor(records, its_by or DEFAULT_BY)
    factor = its_factor if by is None else _factor(records, by)
    until = repeat.get("until")
    return Request(
        by=factor,
        # The study's baseline is a level of its own factor: it says nothing about another.
        against=against if against is not None else its_against if factor == its_factor else None,
        named=against is not None,
        margin=margin if margin is not None else _share(declared.get("margin"), "compare.margin") or DEFAULT_MARGIN,
        metric=metric or declared.get("metric"),
        its_metric=declared.get("metric"),
        until=_share(until, "repeat.until"),
        seen=tuple(repeat.get("seen") or ()),
        least_blocks=repeat.get("min"),
        most_blocks=repeat.get("max"),
        declared=factor == its_factor and against in (None, text(its_against)),
        listed=tuple(listed_levels(study, factor)),
        rises=rises,
        cpu_time=_mapping(study.get("design")).get("cpu_time") is True,
        question=_question(study) if (metric, by, against) == (None, None, None) else {},
    )


def _question(study: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the study asks; of a store from before studies said so, what is declared of its name."""
    return _mapping(study.get("question")) or before().questions.get(str(study.get("study")), {})


def listed_levels(study: Mapping[str, Any], by: str) -> list[str]:
    """The levels of a factor as the study file lists them; empty where it does not say."""
    kind, _, field_name = by.partition(".")
    if by in ("platform", "workload"):
        return [level_name(level)[0] for level in _list(study.get(by))]
    bodies = [level_name(level)[1] for level in _list(study.get(kind))] if kind in ("platform", "workload") else []
    if kind == "control":
        control, _, field_name = field_name.partition(".")
        bodies = [body for body in _list(_mapping(study.get(kind)).get(control)) if isinstance(body, Mapping)]
    found = [body.get(field_name, _mapping(body.get("vary")).get(field_name)) for body in bodies]
    return list(dict.fromkeys(text(level) for each in found if each is not None for level in _list(each)))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _factor(records: Sequence[Record], name: str) -> str:
    """The whole name of a factor: `workload.batch` for `batch`. A wrong one is refused later, where it is used."""
    try:
        return resolve_factor(records, name)
    except StudyError:
        return name


def _request_baseline(declared: Mapping[str, Any]) -> tuple[str | None, Any]:
    """`against: {platform: bare}` names factor and level; `against: bare` the level alone."""
    by, against = declared.get("by"), declared.get("against")
    if isinstance(against, Mapping):
        factor = by if by in against else next(iter(against), None)
        return by or factor, against.get(factor)
    return by or (DEFAULT_BY if against is not None else None), against


def _share(value: Any, where: str) -> float | None:
    try:
        return None if value is None else parse_share(value)
    except ValueError as error:
        raise StudyError(f"the study in the store: {where}: {error}.") from None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


MEAN_STEP, MEDIAN_STEP, START_UP = Role.STEP_MEAN.metric, Role.STEP_MEDIAN.metric, Role.START_UP.metric
TAIL, SHORT_TAIL = Role.STEP_TAIL.metric, Role.STEP_SHORT_TAIL.metric
FIRST_TOKEN, GOODPUT, GOAL_RATE = Role.FIRST_TOKEN.metric, Role.GOODPUT.metric, Role.GOAL_RATE.metric
WHOLE, COVERED, AT_ONCE = Role.OUTSIDE.metric, Role.IN_STEPS.metric, Role.AT_ONCE.metric
RUN = Role.WHOLE_RUN.metric
APART = "epoch0_"  # epoch 0 is measured and kept apart, and is never the headline (docs/explanation/verdicts.md)
EACH_DEVICE_ONCE = Ruling(
    "compare.each-device-once",
    "note",
    "",
    "Each device counts once, by the median of its trials: n is the number of devices, not of trials.",
)


@dataclass(frozen=True)
class Selection:
    """A store's trials, selected for one question."""

    request: Request
    label: Cells
    against: str | None  # None where there is nothing to compare
    metric: str
    attempts: tuple[Record, ...]  # every one that has the factor
    used: tuple[Record, ...]  # the attempt that counts of each trial that has the metric
    left_out: tuple[FlaggedTrial, ...]
    repeated: int = 0  # attempts that a later one of the same trial has made up for

    @cached_property
    def unit(self) -> str:
        """What a step of all these trials is for people."""
        return unit_of(record.settings.get("workload") for record in self.attempts)

    @cached_property
    def levels(self) -> list[str]:
        """Of every attempt, usable or not; numbers in their order, others as the study lists them."""
        return ordered_levels(self.attempts, self.label, self.request.listed)

    def by_label(self) -> dict[str, list[Record]]:
        return grouped(self.used, self.label.label)

    def sides(self, level: str, against: str) -> tuple[list[Record], list[Record]]:
        """The trials behind a comparison, one a block; an A/A repeat is the same trial again."""
        return self._first_runs.get(level, []), self._first_runs.get(against, [])

    def in_common(self, level: str, against: str) -> tuple[list[Record], list[Record]]:
        """Of these the trials of the blocks that hold both sides, which is what a paired effect is made of."""
        sides = self.sides(level, against)
        reach_s = blocks_reach_s(self.used)
        kept = in_common(*(measurements(side, self.label, self.metric, reach_s) for side in sides))
        trials = {each.trial for side in kept for each in side}
        ours, theirs = ([record for record in side if record.trial in trials] for side in sides)
        return ours, theirs

    @cached_property
    def _first_runs(self) -> dict[str, list[Record]]:
        return grouped((record for record in self.used if not record.twin), self.label.label)

    def measurements(self) -> list[Measurement]:
        return measurements(self.used, self.label, self.metric)

    def family(self, metric: str | None = None, used: Sequence[Record] | None = None) -> list[Contest]:
        """Every level against the baseline, within equal settings of all other factors: one family."""
        if self.against is None:
            return []
        metric, used = metric or self.metric, self.used if used is None else used
        here = grouped(used, self.label.surroundings)
        family: list[Contest] = []
        places, unit = {level: place for place, level in enumerate(self.levels)}, self.unit
        reach_s = blocks_reach_s(used)
        surroundings = grouped(self.attempts, self.label.surroundings)
        for around in sorted(surroundings, key=natural_key):
            attempts = sorted(surroundings[around], key=lambda record: places[self.label.level(record)])
            figures = measurements(here.get(around, []), self.label, metric, reach_s)
            notes: tuple[Ruling, ...] = ()
            if self.label.by == TYPE:  # the devices are the sample: their trials are not pooled (faults.md I8)
                figures, notes = one_per_device(here.get(around, []), self.label, metric), (EACH_DEVICE_ONCE,)
            levels = list(dict.fromkeys(map(self.label.label, attempts)))
            made = contests(figures, self.label.joined(self.against, around), notes, levels=levels)
            family += [replace(each, unit=unit) for each in made]
        # A study runs one cell twice; what that shows of the noise holds for the cells that were not.
        known = largest_floor(each.noise for each in family)
        return [each if each.floor is not None else each.with_noise(known) for each in family]


def select(records: Sequence[Record], request: Request) -> Selection:
    """Levels come from every attempt, usable or not: a level whose trials all failed must not vanish."""
    by = resolve_factor(records, request.by) if records else request.by
    having = tuple(record for record in records if by in record.settings)
    label = cells(having, by)
    metric = pick_metric(having, request.metric, request.its_metric)
    counted = [(record, why_not(record, metric)) for record in counted_attempts(having, fit_for(metric))]
    alone = throttled_alone([record for record, why in counted if not why], label)
    counted = [(record, why or ((alone[record.trial],) if record.trial in alone else ())) for record, why in counted]
    left_out = [
        FlaggedTrial(record.trial, label.label(record), record.block, record.state, why)
        for record, why in counted
        if why
    ]
    missing = Ruling("figure.missing", "invalid", by, f"it has no {by}.")
    left_out += [
        FlaggedTrial(record.trial, "", record.block, record.state, (missing,))
        for record in records
        if by not in record.settings
    ]
    base, used = _baseline(having, label, request), tuple(record for record, why in counted if not why)
    repeated = len(having) - len(counted)
    return Selection(replace(request, by=by), label, base, metric, having, used, tuple(left_out), repeated)


THROTTLED = frozenset({"heat.throttled", "heat.alarm", "gpu.slowed"})


def throttled_alone(records: Iterable[Record], label: Cells) -> dict[str, Ruling]:
    """The trials in which the device throttled itself while it did not in others of their block, and why they cannot be
    used: they have measured its cooling. Where it did in all of the block, the sides share it."""
    found = {}
    for members in grouped(records, lambda record: (label.surroundings(record), block_of(record))).values():
        slowed = [record for record in members if _is_throttled(record)]
        for record in slowed if len(slowed) < len(members) else ():
            why = next(str(each) for each in record.reasons if each.code in THROTTLED)
            sentence = f"it was throttled, and others of its block were not: {why}"
            found[record.trial] = Ruling("trial.throttled-alone", "invalid", "", sentence)
    return found


def without_throttled_alone(records: Sequence[Record], by: str = "platform") -> list[Record]:
    """Of the counted attempts those that may be compared by this factor."""
    if not any(map(_is_throttled, records)):
        return list(records)
    alone = throttled_alone(records, cells(records, by))
    return [record for record in records if record.trial not in alone]


def _is_throttled(record: Record) -> bool:
    return record.state == "suspect" and any(each.code in THROTTLED for each in record.reasons)


def _baseline(records: Sequence[Record], label: Cells, request: Request) -> str | None:
    """The level to compare against, or None where there is nothing to compare yet."""
    levels = levels_of(records, label)
    if request.against is None:
        first_listed = ordered_levels(records, label, request.listed, numbers=False)
        return pick_baseline(first_listed, None) if len(levels) > 1 else None
    try:
        base = baseline_level(records, label, request.against)
    except SeveralWays:
        if request.named:
            raise
        return None  # it is the study's, perhaps by default: the trials are listed, and what to ask for is said
    if request.named and base not in levels and levels:
        raise StudyError(unknown_name("level", base, levels))
    # A baseline that the study declares and that has not run yet stays the baseline: the words will say so.
    if base not in levels and isinstance(request.against, str | int | float):
        base = Namer([record.settings for record in records], (label.by,)).setting(label.by, request.against)
    return base if len({*levels, base}) > 1 and levels else None


def levels_of(records: Iterable[Record], label: Cells) -> list[str]:
    """The levels of the factor, in order of appearance."""
    return list(dict.fromkeys(map(label.level, records)))


def ordered_levels(
    records: Iterable[Record], label: Cells, listed: Sequence[str], *, numbers: bool = True
) -> list[str]:
    """The levels in the order of the study file, those that it does not list by their names; `numbers`: as numbers."""
    values = {label.level(record): text(record.settings[label.by]) for record in records}
    if numbers and all(_is_number(value) for value in values.values()):
        return sorted(values, key=lambda level: (float(values[level]), natural_key(level)))
    places = {value: place for place, value in enumerate(listed)}
    if not places:
        return list(values)
    return sorted(values, key=lambda level: (places.get(values[level], len(places)), natural_key(level)))


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def level_against(records: Sequence[Record], label: Cells, against: Any) -> str:
    """The level to compare against, of records that have several: the one asked for, else the usual one."""
    return (
        pick_baseline(levels_of(records, label), None) if against is None else baseline_level(records, label, against)
    )


def never_ran(records: Sequence[Record], rehearsals: Sequence[Record]) -> Iterator[Ruling]:
    """The sides that were tried and never came to their end; the subject is the side, the sentence says why."""
    failed = sides_that_never_ran(records, rehearsals)
    several = [record.settings for record in (*rehearsals, *records)]
    names = [name for name in varied(several) if name.partition(".")[0] in ("platform", "workload")] if failed else []
    called = make_labels(several, names)
    first: dict[str, str] = {}  # a reason that several sides share is given once
    for record in failed:
        side = str(called.words(record.settings))
        why = " ".join(map(str, record.reasons)) or f"it ended as {record.state}."
        same = first.setdefault(str(record.reasons[0]) if record.reasons else why, side)
        yield Ruling(
            "side.never-ran",
            "failed",
            side,
            f"{side} never ran: {why if same == side else f'for the same reason as {same}.'}",
        )


# Whether a trial has the figure


def pick_metric(records: Sequence[Record], asked: str | None, declared: str | None = None) -> str:
    """The metric that was asked for, else the mean step if any usable trial has one, else the whole run's time.

    Where no trial is usable, the one that the study declares is taken at its word, and another must be known.
    """
    usable = [record for record in records if is_usable(record)]
    if asked is None:
        # One trial without marks must not change what all the others are compared by: it is left out, and said.
        anywhere = [name for name in Group.HEADLINES.metrics if any(name in record.compared for record in usable)]
        of_goal = any(GOAL_RATE in record.metrics for record in records)
        return anywhere[0] if anywhere else GOAL_RATE if of_goal else RUN
    if asked.startswith(APART):
        raise StudyError(f"{asked!r} is of epoch 0, which is kept apart: it is shown, but never compared as a claim.")
    told = {name for record in usable or records for name in record.metrics if not name.startswith(APART)}
    known = sorted(told if usable else {*told, *Group.HEADLINES.metrics, *Group.BESIDE.metrics})
    if asked not in known and (usable or asked != declared):
        usual = [name for name in Group.HEADLINES.metrics if name in known]
        known = [*usual, *(name for name in known if name not in usual)]
        raise StudyError(f"{unknown_name('metric', asked, known, usual)} `tare show STORE --json` has all of them.")
    return asked


def why_not(record: Record, metric: str) -> tuple[Ruling, ...]:
    """Why this record's figure cannot be used; empty if it can."""
    if not is_usable(record):
        return record.reasons or (Ruling("trial.unusable", "invalid", "", f"it ended as {record.state}."),)
    value = record.compared.get(metric)
    if value is None and metric in record.metrics:
        sentence = f"a tracer was running, so its {metric} is not compared."
        return (Ruling("figure.traced", "invalid", metric, sentence),)
    if value is None:
        return (Ruling("figure.missing", "invalid", metric, f"it has no {metric}."),)
    if not (math.isfinite(value) and value > 0):
        sentence = f"its {metric} is {value}, and a ratio needs more than zero."
        return (Ruling("figure.not-positive", "invalid", metric, sentence),)
    return ()


def fit_for(metric: str) -> Callable[[Record], bool]:
    """Whether an attempt may count for this metric."""
    return lambda record: not why_not(record, metric)


# Figures of the selected


def measurements(
    records: Sequence[Record], label: Cells, metric: str, reach_s: float | None = None
) -> list[Measurement]:
    """Their figures; `reach_s` is how far blocks reach, where other trials of these blocks are not among them."""
    reach_s = blocks_reach_s(records) if reach_s is None else reach_s
    return [
        Measurement(
            label.label(record),
            record.metrics[metric],
            block_of(record),
            record.twin,
            record.trial,
            started_s(record),
            reach_s,
        )
        for record in records
    ]


def blocks_reach_s(records: Iterable[Record]) -> float:
    """How far from the middle of its block a trial usually begins, over trials of all levels."""
    return usual_reach(
        (block, start) for each in records if (block := block_of(each)) and (start := started_s(each)) is not None
    )


def block_of(record: Record) -> str | None:
    """What it was run together with, as a name that means the same in all of the records."""
    return record.block_id if isinstance(record, TrialRow) else str(record.block)


def one_per_device(records: Iterable[Record], label: Cells, metric: str) -> list[Measurement]:
    """The median of each device, without blocks: two devices have none in common. A/A repeats are left out."""
    first = [record for record in records if not record.twin]
    devices = grouped(first, lambda record: (label.label(record), str(device_of(record))))
    return [
        Measurement(level, median([record.metrics[metric] for record in found]), trial=device)
        for (level, device), found in devices.items()
    ]


def marked_outliers(records: Sequence[Record], label: Cells, metric: str) -> list[FlaggedTrial]:
    """Trials more than ten robust standard deviations from the median of their level; they are used anyway."""
    found = []
    for level, trials in grouped(records, label.label).items():
        for place in outliers([record.metrics[metric] for record in trials]):
            record = trials[place]
            reasons = (stands_out(metric), *record.reasons, *record.notes)
            found.append(FlaggedTrial(record.trial, level, record.block, record.state, reasons))
    return found


def level_medians(records: Iterable[Record], label: Cells) -> dict[str, Mapping[str, Estimate]]:
    """Level -> metric -> median over its trials; the A/A repeats are not pooled in."""
    found = grouped((record for record in records if not record.twin), label.label)
    medians = {level: _medians([record.metrics for record in trials]) for level, trials in found.items()}
    return {level: figures for level, figures in medians.items() if figures}


def level_phases(records: Iterable[Record], label: Cells) -> dict[str, Mapping[str, float]]:
    """Level -> phase of the trial -> median seconds; a part of a phase (`open.boot`) is in it already."""
    phases: dict[str, Mapping[str, float]] = {}
    for level, trials in grouped(records, label.label).items():
        whole = [{name: s for name, s in record.phases.items() if "." not in name} for record in trials]
        if found := _medians(whole):
            phases[level] = {name: estimate.value for name, estimate in found.items()}
    return phases


def _medians(several: Iterable[Mapping[str, float]]) -> dict[str, Estimate]:
    """The median of each figure over those that have it."""
    figures = collected(pair for each in several for pair in each.items() if math.isfinite(pair[1]))
    return {name: median_estimate(values) for name, values in figures.items()}
