"""A container's weight, layer by layer: what each adds to those before it, and what the whole loses without it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tare.analysis.compare import Contest, Floor, judge, largest_floor, noise_floor
from tare.analysis.model import Comparison, Measurement
from tare.analysis.numeric.medians import FLOOR, median_estimate
from tare.analysis.selection import pick_metric, without_throttled_alone
from tare.base.declare import STEP
from tare.base.errors import StudyError, TareError
from tare.base.text import unit_of
from tare.records.model import ISOLATION, Record, grouped, is_usable, usable_trials, varied

# What may say why a time changed, in the order in which people should look.
COUNTERS = (
    "cgroup_nr_throttled", "cgroup_throttled_s", "minor_faults_training", "major_faults_training", "minor_faults",
    "major_faults", "system_calls", "voluntary_switches", "involuntary_switches", "migrations_training", "cpu_s",
)  # fmt: skip
STATES = ("process.Seccomp", "process.Speculation_Store_Bypass", "process.NoNewPrivs", "torch.threads")
_LEAST = 0.10  # a smaller change explains no change of time


@dataclass(frozen=True, slots=True)
class Moved:
    """One counter, or one word about the software, on both sides."""

    name: str
    before: float | str
    after: float | str
    share: float | None = None  # by how much it changed; None for words, and from nothing
    unit: str = STEP  # what a step is for people


def moved(ours: Sequence[Record], theirs: Sequence[Record]) -> tuple[Moved, ...]:
    """Counters whose change is sure and not small, and words that differ. The counters of a layer are one family."""
    sides = {name: (_counters_values(name, ours), _counters_values(name, theirs)) for name in COUNTERS}
    known = {name: pair for name, pair in sides.items() if min(map(len, pair)) >= FLOOR}
    family = [Contest(name, "before", after, before) for name, (after, before) in known.items()]
    tested = judge(family, margin=_LEAST, metric="count", resamples=0)
    found = [_counter(one.level, *known[one.level]) for one in tested if _leaves_out_zero(one)]
    unit = unit_of(record.settings.get("workload") for record in (*ours, *theirs))
    return tuple([replace(each, unit=unit) for each in found if each is not None] + _words(ours, theirs))


def _leaves_out_zero(found: Comparison) -> bool:
    return found.low is not None and found.high is not None and not found.low <= 0 <= found.high


def _counter(name: str, after: Sequence[Measurement], before: Sequence[Measurement]) -> Moved | None:
    """What the counter was before and after; None where it changed by little."""
    high, low = (median_estimate([one.value - 1 for one in side]).value for side in (after, before))
    share = high / low - 1 if low > 0 else None
    return Moved(name, low, high, share) if share is None or abs(share) >= _LEAST else None


def _counters_values(name: str, records: Sequence[Record]) -> list[Measurement]:
    """One more than what was counted: a ratio needs more than nothing, and nothing is a common count."""
    return [
        Measurement("", record.metrics[name] + 1, str(record.block))
        for record in records
        if not record.twin and math.isfinite(record.metrics.get(name, math.nan))
    ]


def _words(ours: Sequence[Record], theirs: Sequence[Record]) -> list[Moved]:
    found = []
    for name in STATES:
        after, before = _said(name, ours), _said(name, theirs)
        if after is not None and before is not None and after != before:
            found.append(Moved(name.rpartition(".")[2], before, after))
    return found


def _said(name: str, records: Sequence[Record]) -> str | None:
    for record in records:
        value: Any = record.facts.get("inside", {})
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return str(value)
    return None


BARE = "bare"
MEAN_STEP = "step_mean_s"
ROOT = "mounts"  # the mount namespace with an overlay root: the first thing that makes it a container
ASIDE = "user"  # Docker's containers have no user namespace: it is put on last, beside the engine


@dataclass(frozen=True, slots=True)
class Stage:
    """One make of container: its layers in order, on a platform."""

    platform: str
    layers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        if self.platform != "runc":
            return self.platform
        return "+".join((ROOT, *self.layers))


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What one layer costs, seen from both ends."""

    layer: str
    added: Comparison | None  # with it against all those before it
    kept: Comparison | None  # the whole container against the same without it
    moved: tuple[Moved, ...] = ()  # counters that changed when it was added


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The whole, and what it is made of."""

    metric: str
    total: Comparison  # the last stage against bare metal
    layers: tuple[LayerCost, ...]
    noise_floor: float | None
    noise_most: float | None  # its upper end, 95 %
    left_out: int = 0  # trials that could not be used

    @property
    def guilty(self) -> tuple[LayerCost, ...]:
        """The layers that are surely slower, the dearest first; seen from either end."""
        found = [layer for layer in self.layers if _slower(layer.added) or _slower(layer.kept)]
        return tuple(sorted(found, key=_cost, reverse=True))

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "guilty": [layer.layer for layer in self.guilty]}


def waterfall(records: Sequence[Record], *, margin: float, metric: str | None = None) -> Waterfall:
    """From the trials of bare metal and of every stage; layers in the order in which they were added."""
    name = metric or _whole_time(records)
    newest = usable_trials(records, lambda record: is_usable(record) and record.compared.get(name, 0) > 0)
    stages = grouped(without_throttled_alone(newest), lambda record: stage_of(record.settings))
    bare = Stage(BARE)
    if bare not in stages or len(stages) < 2:
        raise TareError(f"there is nothing to compare: {_unusable(records)}")
    _refuse_mixed(stages)
    chain = _chain(stages)
    floor = _floor(stages.values(), name)
    pairs = steps_of(stages)
    whole = max((stage for stage in chain if stage.platform == "runc"), key=lambda s: len(s.layers), default=chain[-1])
    without = {layer: Stage("runc", tuple(each for each in whole.layers if each != layer)) for layer in whole.layers}
    ends = [(layer, stage) for layer, stage in without.items() if stage in stages]
    family = [_contest(stages, ours, theirs, name, floor) for ours, theirs in [(chain[-1], bare), *pairs]]
    family += [_contest(stages, whole, theirs, name, floor) for _, theirs in ends]
    total, *found = judge(family, margin=margin, metric=name, resamples=0)
    added = {new_layer(ours, theirs): each for (ours, theirs), each in zip(pairs, found, strict=False)}
    kept = {layer: each for (layer, _), each in zip(ends, found[len(pairs) :], strict=True)}
    changed = {new_layer(ours, theirs): moved(stages[ours], stages[theirs]) for ours, theirs in pairs}
    layers = tuple(
        LayerCost(layer, added.get(layer), kept.get(layer), changed.get(layer, ())) for layer in {**added, **kept}
    )
    left_out = len({record.trial for record in records}) - len(newest)
    seen, most = (floor.seen, floor.most) if floor else (None, None)
    return Waterfall(name, total, layers, seen, most, left_out)


def _whole_time(records: Sequence[Record]) -> str:
    """The mean step where there is one: a quota or a reclaim stops a few steps for long, and a median hides them."""
    known = {name for record in records if is_usable(record) for name in record.compared}
    return MEAN_STEP if MEAN_STEP in known else pick_metric(records, None)


def _unusable(records: Sequence[Record]) -> str:
    """Which sides have no usable trial, with the first reason of each."""
    sides = {"bare metal": True, "the container": False}
    told = []
    for name, is_bare in sides.items():
        mine = [record for record in records if (record.settings["platform"] == BARE) == is_bare]
        if not any(map(is_usable, mine)):
            why = next((str(record.reasons[0]) for record in mine if record.reasons), "none has run.")
            told.append(f"no trial of {name} could be used ({why.rstrip('.')})")
    return "; ".join(told) + "."


def stage_of(settings: Mapping[str, Any]) -> Stage:
    layers = settings.get(ISOLATION) or ()
    if isinstance(layers, str):
        layers = json.loads(layers)
    return Stage(str(settings["platform"]), tuple(layers))


def _chain(stages: Iterable[Stage]) -> list[Stage]:
    """Bare metal, then containers each of which has the layers of the one before and one more, then other engines."""
    found = list(stages)
    plain = [stage for stage in found if stage.platform == "runc" and ASIDE not in stage.layers]
    ours = sorted(plain, key=lambda stage: len(stage.layers))
    chain = [Stage(BARE)]
    longest = ours[-1].layers if ours else ()
    chain += [stage for stage in ours if stage.layers == longest[: len(stage.layers)]]
    return chain + [stage for stage in found if stage.platform not in (BARE, "runc")]


def steps_of(stages: Iterable[Stage]) -> list[tuple[Stage, Stage]]:
    """Each stage with the one that it adds a layer to."""
    found = list(stages)
    return [*_steps_up(_chain(found)), *_aside(found)]


def _steps_up(chain: Sequence[Stage]) -> list[tuple[Stage, Stage]]:
    """Each stage with the one that it stands on; every engine stands on the whole container, not on another engine."""
    ours = [stage for stage in chain if stage.platform in (BARE, "runc")]
    engines = [stage for stage in chain if stage not in ours]
    return [*zip(ours[1:], ours, strict=False), *((engine, ours[-1]) for engine in engines)]


def _refuse_mixed(stages: Mapping[Stage, Sequence[Record]]) -> None:
    """Trials that differ in more than their layers would be taken for repetitions of each other."""
    members = [record for records in stages.values() for record in records]
    around = [name for name in varied([record.settings for record in members]) if not name.startswith("platform")]
    within = [name for group in stages.values() for name in varied([record.settings for record in group])]
    if others := sorted({*around, *within} - {"platform"}):
        raise StudyError(f"these trials differ in more than their layers ({', '.join(others)}): take them one by one.")


def _aside(stages: Iterable[Stage]) -> list[tuple[Stage, Stage]]:
    found = list(stages)
    with_it = [stage for stage in found if ASIDE in stage.layers]
    pairs = [(stage, Stage("runc", tuple(each for each in stage.layers if each != ASIDE))) for stage in with_it]
    return [(ours, theirs) for ours, theirs in pairs if theirs in found]


def new_layer(ours: Stage, theirs: Stage) -> str:
    """The layer that the one has and the other has not; several are named together."""
    if ours.platform != "runc":
        return ours.platform
    if theirs.platform == BARE:
        return "+".join((ROOT, *ours.layers))
    return "+".join(layer for layer in ours.layers if layer not in theirs.layers)


def _contest(
    stages: Mapping[Stage, Sequence[Record]], ours: Stage, theirs: Stage, metric: str, floor: Floor | None
) -> Contest:
    left, right = (_values(stages[stage], metric) for stage in (ours, theirs))  # with A/A repeats: both runs count
    unit = unit_of(record.settings.get("workload") for stage in (ours, theirs) for record in stages[stage])
    return Contest(ours.name, theirs.name, left, right, unit=unit).with_noise(floor)


def _values(records: Iterable[Record], metric: str) -> list[Measurement]:
    return [
        Measurement("", record.metrics[metric], str(record.block), record.twin, trial=record.trial)
        for record in records
    ]


def _floor(groups: Iterable[Sequence[Record]], metric: str) -> Floor | None:
    pairs = [grouped(_values(group, metric), lambda each: bool(each.twin)) for group in groups]
    return largest_floor(noise_floor(pair.get(True, []), pair.get(False, [])) for pair in pairs)


def _slower(found: Comparison | None) -> bool:
    return found is not None and found.verdict == "slower"


def _cost(layer: LayerCost) -> float:
    effects = [found.effect for found in (layer.added, layer.kept) if _slower(found) and found is not None]
    return max((effect for effect in effects if effect is not None), default=0.0)


_FIGURES = ("system_calls_step", "system_calls")  # the first that every trial has


@dataclass(frozen=True, slots=True)
class LayerCalls:
    """How many system calls the workload made without a layer and with it, in one traced trial each."""

    layer: str
    without: float
    with_it: float

    @property
    def share(self) -> float | None:
        """By how much they changed; None from nothing."""
        return self.with_it / self.without - 1 if self.without > 0 else None


@dataclass(frozen=True, slots=True)
class Calls:
    """All layers' calls, or why there are none."""

    metric: str = ""
    layers: tuple[LayerCalls, ...] = ()
    missing: str = ""  # a sentence

    def of(self, layer: str) -> LayerCalls | None:
        return next((each for each in self.layers if each.layer == layer), None)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def calls_by_layer(records: Iterable[Record]) -> Calls:
    """From the traced trials of every stage; a stage whose trial could not be used is left out."""
    usable = usable_trials(records, repeats=False)
    metric = next((name for name in _FIGURES if usable and all(name in record.metrics for record in usable)), "")
    if not metric:
        return Calls(missing="system calls were not counted: no traced trial could be used.")
    counted: dict[Stage, float] = {stage_of(record.settings): record.metrics[metric] for record in usable}
    found = [
        LayerCalls(new_layer(ours, theirs), counted[theirs], counted[ours])
        for ours, theirs in steps_of(counted)
        if ours in counted and theirs in counted
    ]
    return Calls(metric, tuple(found))
