"""What an analysis says. Effects are shares (0.07 is +7 %), times are seconds; a missing figure is None."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from tare.analysis.directions import LOWER, Direction
from tare.base.declare import STEP
from tare.base.rulings import Ruling
from tare.base.text import metric_name

Word: TypeAlias = Literal["slower", "faster", "equivalent", "cannot_tell"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and how sure it is. `low` and `high` are None where n is too small for the interval."""

    value: float
    low: float | None
    high: float | None
    n: int
    method: str  # "median, order statistics 96.9 %"
    level: float = 0.95  # the coverage that was asked for


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement, the figure that it rests on, and where else it was found."""

    statement: str  # a sentence without its figure: "one worker hides most of the stall"
    estimate: Estimate | None = None
    unit: str = "share"  # of the estimate: "share", or the unit that a metric's name ends in ("s", "j", "w")
    trials: tuple[str, ...] = ()  # what it rests on
    source: str = ""  # the paper and section that say the same: "S3 5.6.1"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One trial's figure: what every comparison is made of. The trial is the unit, never the mini-batch."""

    level: str
    value: float
    block: str | None = None
    twin: int = 0
    trial: str = ""
    started_s: float | None = None  # of a store: when it began, in seconds since 1970
    reach_s: float = 0.0  # of a store: how far from the middle of a block its trials usually begin, of all levels
    place: float | None = None  # of a table: when it was run, as a number; None where chance decided, or nobody knows


@dataclass(frozen=True, slots=True)
class Comparison:
    """One level against another, in one of four words."""

    metric: str  # "step_s"
    level: str
    against: str
    effect: float | None  # None only where a side has no usable trial
    low: float | None
    high: float | None
    verdict: Word
    margin: float
    n: int  # blocks that hold both sides, or the smaller side where nothing is paired
    mde: float | None  # the smallest effect that this run had an 80 % chance to see
    notes: tuple[Ruling, ...] = ()
    paired: bool = False
    method: str = ""
    p: float | None = None  # two-sided, before Holm
    tost_p: float | None = None  # the larger of the two one-sided tests against the margin, before Holm
    confidence: float = 0.95  # of the interval; higher than 0.95 where Holm asks for it
    more_trials: int | None = None  # with "cannot_tell": about how many more blocks it would take
    aa_floor: float | None = None  # |effect| between two runs of the same thing, in this run
    aa_most: float | None = None  # the upper end of that, with 95 % confidence: one draw says little
    ours: Estimate | None = None  # median of `level`, over the blocks that hold both sides
    theirs: Estimate | None = None  # the same of `against`
    ratio_of_medians: Estimate | None = None  # 1.016 is +1.6 %; block bootstrap, beside the headline
    tainted: tuple[str, ...] = ()  # differences between the sides that make the effect hard to blame on the level
    direction: Direction = LOWER  # which way the metric is better, and how that is known
    withheld: tuple[Ruling, ...] = ()  # what the metric hides: with any of these no level is called equivalent
    unit: str = STEP  # what a step is for people: a step, a request, a token

    @property
    def called(self) -> str:
        """The metric as people call it: `mean step`, of a server `mean latency`."""
        return metric_name(self.metric, self.unit)

    @property
    def harm(self) -> float | None:
        """By how much the level is worse, positive where it is: the sign of a rate is turned round."""
        return None if self.effect is None else -self.effect if self.direction.rises else self.effect

    def inverse(self) -> Comparison:
        """Of one over the metric: half the rate is twice the time. The verdict is the same."""
        low, high = (None if end is None else _inverse(end) for end in (self.high, self.low))
        way = replace(self.direction, rises=not self.direction.rises)
        effect = None if self.effect is None else _inverse(self.effect)
        return replace(self, effect=effect, low=low, high=high, direction=way)

    def in_time(self) -> Comparison:
        """Of a rate the effect on the time that its work takes, of all else as it is."""
        return self.inverse() if self.direction.rises else self

    @property
    def sure(self) -> bool:
        """Whether there is surely a difference: the interval leaves out zero, the effect is above the A/A floor, and
        nothing else explains it as well (the order of the runs, copied rows).
        """
        if self.effect is None or self.low is None or self.high is None:
            return False
        if self.verdict == "cannot_tell" and not self.withheld:
            return False
        return (self.low > 0 or self.high < 0) and (self.aa_floor is None or abs(self.effect) > self.aa_floor)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _inverse(effect: float) -> float:
    """An interval with little freedom may reach down to -1, and its inverse further than a float does."""
    return -effect / (1 + effect) if effect > -1 else sys.float_info.max


@dataclass(frozen=True, slots=True)
class Interaction:
    """Whether a level costs more in one cell than in another: the ratio of its two effects, paired by block."""

    factor: str  # what the cells differ in: "workload.batch"
    level: str  # "docker"
    against: str  # "bare"
    here: str  # "batch 16"
    there: str  # "batch 64"
    found: Comparison  # its effect: (1 + effect here) / (1 + effect there) - 1
    gains: bool = False  # the level is better than the baseline in both cells, by more than the margin


@dataclass(frozen=True, slots=True)
class Marked:
    """How many trials of a level are suspect, and what its word would be without them."""

    level: str
    suspect: int
    trials: int
    without: Word | None = None  # None: it is a baseline, or too few are left


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the two sides of a comparison do not share."""

    key: str  # "torch.version"
    level: str
    against: str
    ours: Any
    theirs: Any
    matters: bool  # it could explain a difference in time, and is not what the comparison is about
    why: str = ""


@dataclass(frozen=True, slots=True)
class FlaggedTrial:
    """A trial that is excluded, or marked as an outlier, and why."""

    trial: str
    label: str
    block: int
    state: str
    reasons: tuple[Ruling, ...]


@dataclass(frozen=True, slots=True)
class Weighing:
    """Everything that a report says about one store, as values."""

    study: str
    question: str  # "container (docker) vs bare, LeNet-5 training, batch 16"
    by: str  # the factor: "platform"
    against: str
    metric: str  # the headline metric
    comparisons: tuple[Comparison, ...]  # headline metric, one per level
    tested: tuple[Comparison, ...] = ()  # the same levels on what else is tested: the tail of requests, the start-up
    interactions: tuple[Interaction, ...] = ()  # whether a level costs more in one cell than in another
    others: tuple[Comparison, ...] = ()  # the same levels on further metrics (cpu_s, stall_s, wall_s ...), no claims
    differences: tuple[Difference, ...] = ()
    left_out: tuple[FlaggedTrial, ...] = ()
    outliers: tuple[FlaggedTrial, ...] = ()  # marked, and included
    marked: tuple[Marked, ...] = ()  # levels with suspect trials
    notes: tuple[str, ...] = ()  # malloc lottery, stop rule and whether it was met, missing cells
    never_ran: tuple[Ruling, ...] = ()  # sides of which no trial came to its end: the first thing to say
    counts: Mapping[str, int] = field(default_factory=dict)  # {"planned": 24, "ok": 22, "invalid": 2}
    measurements: tuple[Measurement, ...] = ()  # headline metric, for figures
    medians: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)  # level -> metric -> median
    phases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # level -> phase -> median seconds
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the device, from the first record
    unit: str = STEP  # what a step is for people: a step, a request, a token
    knees: tuple[str, ...] = ()  # of servers at several rates: up to which one each keeps up
    headline: tuple[str, ...] = ()  # the answer to the question of the study, where its contrasts alone are not that

    @property
    def called(self) -> str:
        """The headline metric as people call it."""
        return metric_name(self.metric, self.unit)
