"""Why one side is slower: where the time goes, and what became of each cause that was tried.

A cause is tried by an intervention: the slow side without it and, where that can be made, the other side with it, in
interleaved blocks with both sides as they are. All comparisons that answer one question are one family (Holm).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from tare.analysis.compare import Contest, judge
from tare.analysis.model import Comparison, Measurement
from tare.analysis.parity import flat
from tare.analysis.statistics import median_estimate
from tare.base.errors import TareError
from tare.records.model import Record
from tare.records.trials import grouped, is_usable, usable_trials

Role: TypeAlias = str
QUICK, SLOW = "quick", "slow"
Outcome: TypeAlias = Literal["the cause", "a part", "not it", "cannot tell"]

STEP, WHOLE = "step_mean_s", "wall_s"
_PHASES = (  # what people call it, and the figures that tell it, the first that both sides have
    ("data", ("stall_mean_s",)),
    ("gpu", ("gpu_step_mean_s", "gpu_step_s")),
    ("compute", ("compute_mean_s",)),
)
_MOST = 0.8  # whoever removes as much of the cost leaves none to look for
_SEEN = 0.1  # of the whole cost: a phase that has less of it is not named


def without(cause: str) -> Role:
    return f"without {cause}"


def added(cause: str) -> Role:
    return f"with {cause}"


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of a run, on both sides, in seconds per run."""

    name: str
    quick_s: float
    slow_s: float
    share: float  # of what the whole run has more


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one cause."""

    cause: str
    outcome: Outcome
    removed: Comparison | None  # the slow side without it, against the slow side as it is
    left: Comparison | None  # the slow side without it, against the other side
    brought: Comparison | None = None  # the other side with it, against the other side as it is
    share: float | None = None  # of the cost that went with it, in logs

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole cost and what explains it."""

    metric: str
    total: Comparison  # the slow side against the other one
    tried: tuple[Tried, ...] = ()
    cured: Comparison | None = None  # the slow side without all that counts, against the other one

    @property
    def causes(self) -> tuple[Tried, ...]:
        """What surely costs: the causes first, then parts, the largest first."""
        found = [each for each in self.tried if each.outcome in ("the cause", "a part")]
        return tuple(sorted(found, key=lambda each: (each.outcome != "the cause", -(each.share or 0.0))))

    @property
    def explained(self) -> bool:
        """Whether nothing beyond the margin is left without the causes."""
        if any(each.outcome == "the cause" for each in self.tried):
            return True
        return self.cured is not None and _is_gone(self.cured)

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "causes": [each.cause for each in self.causes],
            "explained": self.explained,
        }


def facts_of(records: Iterable[Record]) -> dict[str, Any]:
    """What the trials of one side recorded about software, place and device: flat, of each key the first value."""
    found: dict[str, Any] = {}
    for record in records:
        facts = record.facts
        device = {f"device.{key}": value for key, value in flat(facts.get("device") or {}).items()}
        place = {f"place.{key}": value for key, value in flat(facts.get("place") or {}).items()}
        found = {**flat(facts.get("inside") or {}), **place, **device, **found}
    return found


def metrics_of(records: Sequence[Record]) -> dict[str, float]:
    """The median of each figure over the trials of one side."""
    names = dict.fromkeys(name for record in records for name in record.metrics)
    return {
        name: median_estimate(values).value
        for name in names
        if (values := [record.metrics[name] for record in records if math.isfinite(record.metrics.get(name, math.nan))])
    }


def phases(slow: Mapping[str, float], quick: Mapping[str, float]) -> tuple[Phase, ...]:
    """Where a run is slower: before and after its steps, waiting for data, computing; the largest difference first."""
    more = slow.get(WHOLE, 0.0) - quick.get(WHOLE, 0.0)
    if more <= 0:
        return ()
    steps = [side.get("steps", 0.0) * side.get(STEP, 0.0) for side in (quick, slow)]
    parts = [("start and end", quick[WHOLE] - steps[0], slow[WHOLE] - steps[1])]
    for name, figures in _PHASES:
        figure = next((each for each in figures if each in slow and each in quick), None)
        if figure is not None and all(side.get("steps") for side in (slow, quick)):
            before, after = (side["steps"] * side[figure] for side in (quick, slow))
            parts.append((name, before, after))
    if len(parts) == 1 and any(steps):
        parts.append(("steps", steps[0], steps[1]))
    found = [Phase(name, before, after, (after - before) / more) for name, before, after in parts]
    return tuple(sorted((each for each in found if each.share >= _SEEN), key=lambda each: -each.share))


def judged_metric(records: Sequence[Record]) -> str:
    """The mean step where every usable trial has one, else the whole run."""
    usable = [record for record in records if is_usable(record)]
    return STEP if usable and all(STEP in record.metrics for record in usable) else WHOLE


def answer(
    records: Sequence[Record],
    roles: Mapping[Role, Mapping[str, Any]],
    *,
    margin: float,
    metric: str | None = None,
    cured: Role | None = None,
) -> Answer:
    """What the trials of both sides, and of each intervention, say; `roles`: the platform settings of each."""
    name = metric or judged_metric(records)
    sides = {role: _trials(records, settings, name) for role, settings in roles.items()}
    for role in (QUICK, SLOW):
        if not sides.get(role):
            raise TareError(f"no trial of the {'other' if role == QUICK else 'slow'} side could be used.")
    causes = list(dict.fromkeys(role.partition(" ")[2] for role in roles if role not in (QUICK, SLOW, cured)))
    # Each question is a family of its own: does it cost, does removing a cause help, what is left, does it bring it.
    families = (
        [(SLOW, QUICK)],
        [(without(cause), SLOW) for cause in causes],
        [(without(cause), QUICK) for cause in causes],
        [(added(cause), QUICK) for cause in causes],
        [(cured, QUICK)] if cured is not None else [],
    )
    judged: dict[tuple[Role, Role], Comparison] = {}
    for pairs in families:
        held = [(ours, theirs) for ours, theirs in pairs if sides.get(ours)]
        family = [Contest(ours, theirs, sides[ours], sides[theirs]) for ours, theirs in held]
        judged |= zip(held, judge(family, margin=margin, metric=name, resamples=0), strict=True)
    total = judged[SLOW, QUICK]
    tried = tuple(_tried(cause, judged, total, margin) for cause in causes)
    return Answer(name, total, tried, judged.get((cured or "", QUICK)))


def _trials(records: Sequence[Record], settings: Mapping[str, Any], metric: str) -> list[Measurement]:
    """The usable trials with these settings; what a record does not know counts as not set."""
    usable = usable_trials(records, lambda record: is_usable(record) and metric in record.metrics, repeats=False)
    wanted = {name: _plain(value) for name, value in settings.items()}
    by_settings = grouped(usable, lambda record: all(_plain(record.settings.get(n)) == v for n, v in wanted.items()))
    return [
        Measurement("", record.metrics[metric], str(record.block), trial=record.trial)
        for record in by_settings.get(True, [])
    ]


def _plain(value: Any) -> str:
    """A setting as a store may have it: containers are texts there."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value or None, sort_keys=True, default=str)


def _tried(cause: str, judged: Mapping[tuple[Role, Role], Comparison], total: Comparison, margin: float) -> Tried:
    removed, left = judged.get((without(cause), SLOW)), judged.get((without(cause), QUICK))
    brought = judged.get((added(cause), QUICK))
    share = None
    if removed is not None and removed.effect is not None and total.effect:
        share = -math.log1p(removed.effect) / math.log1p(total.effect)
    return Tried(cause, _outcome(removed, left, brought, share, margin), removed, left, brought, share)


def _outcome(
    removed: Comparison | None, left: Comparison | None, brought: Comparison | None, share: float | None, margin: float
) -> Outcome:
    if removed is None or removed.low is None or removed.high is None:
        return _by_addition(brought, margin)
    if removed.high < 0 and removed.verdict != "equivalent":
        gone = left is not None and _is_gone(left)
        return "the cause" if gone or ((share or 0.0) >= _MOST and not _is_surely_left(left)) else "a part"
    if removed.low > -margin:
        return "not it"
    return "cannot tell"


def _by_addition(brought: Comparison | None, margin: float) -> Outcome:
    """Where it could not be removed, putting it on the other side tells whether it costs at all."""
    if brought is None or brought.low is None or brought.high is None:
        return "cannot tell"
    return "a part" if brought.verdict == "slower" else "not it" if brought.high < margin else "cannot tell"


def _is_gone(left: Comparison) -> bool:
    """Whether nothing beyond the margin is left."""
    return left.high is not None and left.high <= left.margin


def _is_surely_left(left: Comparison | None) -> bool:
    return left is None or left.low is None or left.low > 0
