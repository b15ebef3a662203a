"""What an analysis says. Effects are shares (0.07 is +7 %), times are seconds; a missing figure is None."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from tare.base.declare import STEP, declared, learnt
from tare.base.rulings import Ruling
from tare.base.text import metric_name

# Is more of a metric better, or worse? By its name, unless the user states it; what no name settles is a guess.

Source: TypeAlias = Literal["name", "option", "guess", "neutral"]
Kind: TypeAlias = Literal["speed", "amount", "quality"]


def _named(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SECONDS = _named("s sec secs second seconds")
_TIMES = _SECONDS | _named("ms us ns msec usec nsec min mins minute minutes h hour hours")
_PAID = _TIMES | _named(
    "j joule joules mj kj wh kwh w watt watts mw kw usd eur dollar dollars euro"
)  # what a job spends
_SIZES = _named("bytes byte b kib mib gib kb mb gb")
_WAITS = _named(
    "time latency duration elapsed wall runtime delay jitter stall wait overhead startup ttft tpot itl makespan "
    "slowdown"
)
_LESS = _WAITS | _named(
    "energy power cost price memory mem rss vram loss error errors err perplexity ppl wer cer mae mse rmse faults "
    "misses retries drop drops gap regression degradation footprint cycles instructions switches migrations "
    "std stddev stdev iqr"
)
_QUALITY = _named(
    "accuracy acc top1 top5 auc auroc f1 bleu rouge rouge1 rouge2 map miou iou precision recall psnr ssim efficiency"
)  # fmt: skip
_OPERATIONS = _named("ops iops flops mflops gflops tflops")
_MORE = _QUALITY | _OPERATIONS | _named(
    "throughput goodput fps qps rps tps ips mfu hfu bandwidth bw bps kbps mbps gbps speed speedup"
)  # fmt: skip
_EFFORT = _named("epochs steps iters iterations batches samples examples tokens")  # that a target takes
_COUNTED = _EFFORT - {"epochs"} | _named(
    "images imgs img toks tok its it requests reqs req queries frames seqs sequences words records rows"
)
# Beside these a word of the others says nothing: free memory, a battery's life, instructions per cycle.
_OPEN = _named(
    "free available availability unused remaining left spare headroom capacity budget limit quota life lifetime uptime "
    "scale temperature score cycle"
)
# But these only say which, where such a word stands behind them (`gc_free_ms`), or at any place (`f1_score`).
_CLOSED_BEHIND = {"free": _TIMES | _WAITS, "scale": _TIMES | _WAITS, "capacity": _MORE}
_CLOSED_BESIDE = {"score": _QUALITY | _TIMES | _WAITS, "cycle": _PAID | _WAITS | {"energy", "power"}}
_WORDS = re.compile(r"[a-z]+\d*|\d+", re.IGNORECASE)
_PER = re.compile(r"(?:^|[_\W])per(?=[_\W])|/", re.IGNORECASE)
_FOLDERS = re.compile(  # as loggers write them: `train/loss`
    r"(?:(?:train|training|val|valid|validation|eval|test|perf|performance|stats|system|timing|profiler)/)+",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"@|[_\W](?:at|until|till|under|within)(?=[_\W])", re.IGNORECASE)
_TARGET = re.compile(r"[_\W](?:to|with|without)(?=[_\W])", re.IGNORECASE)  # also of `end_to_end`
_AIM = re.compile(r"[_\W](?:to|until|till)(?=[_\W])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Direction:
    """Which way a metric is better, and how that is known."""

    rises: bool  # more of it is better
    source: Source

    @property
    def settled(self) -> bool:
        """Whether a gate may act on it: the name states it, or the user did."""
        return self.source in _SOURCES

    def __str__(self) -> str:
        if not self.settled:
            return f"{_UNSETTLED[self.source]} (--higher-is-better or --lower-is-better states it)"
        return f"{'higher' if self.rises else 'lower'} is better ({_SOURCES[self.source]})"


LOWER = Direction(False, "name")
_SOURCES: dict[Source, str] = {"name": "by its name", "option": "as requested"}
_UNSETTLED: dict[Source, str] = {
    "guess": "its name does not show which way is better",
    "neutral": "more of it is neither better nor worse",
}


def direction_of(metric: str, asked: bool | None = None) -> Direction:
    """`step_s` is better lower, `tokens_per_second` and `it/s` higher; `asked` is the user's own statement."""
    if asked is not None:
        return Direction(asked, "option")
    if (known := declared(metric)) is not None:
        return Direction(known.better == "higher", "neutral" if known.better == "neutral" else "name")
    name = _deciding(metric)
    if _is_open(words_of(name)):
        return Direction(False, "guess")
    if _AIM.match(_bare(metric), len(name)) and _EFFORT.intersection(words_of(name)[-1:]):
        return LOWER  # epochs to an accuracy
    found = _by_rate(name)
    return _by_words(name) if found is None else Direction(found, "name")


def kind_of(metric: str) -> Kind:
    """Which words fit it: of a time or a rate *slower*, of joules, bytes or a loss *more*, of accuracy *worse*.

    What no name settles is taken as a time, as its direction is.
    """
    if (known := learnt(metric)) is not None:
        return "speed" if known.unit == "s" or known.unit.endswith("/s") else "amount"
    name = _deciding(metric)
    of, each = _split(name)
    words = of if each else _with_whole(name)
    if words and words[-1] in _SIZES and _last_meaning(words) in _MORE:
        return "speed"
    if words[-1:] == ["error"] and words[-2:-1] and words[-2] in _QUALITY:
        return "quality"
    for word in reversed(words):
        if word in _TIMES | _WAITS:
            return "speed"
        if word in _PAID | _SIZES | _LESS:
            return "speed" if word in _SIZES and each and each[0] in _TIMES else "amount"
        if word in _QUALITY:
            return "quality"
        if word in _MORE:
            break
    return "quality" if each and each[0] in _PAID - _TIMES else "speed"


def _is_open(words: list[str]) -> bool:
    """Whether a word leaves it open which way is better: `free` of `mem_free_mb`, and not of `gc_free_ms`."""
    for place, word in enumerate(words):
        behind, beside = _CLOSED_BEHIND.get(word, frozenset()), _CLOSED_BESIDE.get(word, frozenset())
        if word in _OPEN and not behind.intersection(words[place + 1 :]) and not beside.intersection(words):
            return True
    return False


def is_amount(metric: str) -> bool:
    """Whether it is a time, an energy or a power by its last word: what a clock or a meter reads."""
    words = words_of(metric)
    return bool(words) and words[-1] in _PAID


def rises_when_faster(metric: str) -> bool:
    """Whether more of it is better, by its name; what a name does not settle is taken as a time."""
    return direction_of(metric).rises


def _deciding(metric: str) -> str:
    """The part of a name that decides: `time` of `time_to_accuracy`, `latency` of `latency_at_100_qps`."""
    name = _bare(metric)
    if (found := _CONDITION.search(name)) and words_of(name[: found.start()]):
        return name[: found.start()]
    for found in _TARGET.finditer(name):
        if _PAID.union(_SIZES, _LESS, _MORE, _EFFORT).intersection(words_of(name[: found.start()])):
            return name[: found.start()]
    return name


def _split(name: str) -> tuple[list[str], list[str]]:
    """What is counted, and per what; the second is empty where the name is no rate: `val/accuracy`."""
    for found in _PER.finditer(name):
        of, each = words_of(name[: found.start()]), words_of(name[found.end() :])
        if each and (each[0] in _PAID or (of and (of[-1] in _PAID | _SIZES or _LESS.intersection(of)))):
            return of, each
    return words_of(name), []


def _by_rate(name: str) -> bool | None:
    """`samples/s` and `images_per_joule` rise; `s/it`, `ms_per_token` and `joules_per_second` fall."""
    of, each = _split(name)
    if not each:
        return None
    if of and of[-1] in _PAID | _SIZES and not (of[-1] in _SIZES and each[0] in _PAID):
        return False
    if of and of[-1] in _SIZES and _last_meaning(of) in _LESS:
        return None  # memory_gb_per_s: a bandwidth, or how fast it grows
    return _last_meaning(of) not in _LESS


def _by_words(name: str) -> Direction:
    """The unit at the end decides; then the last word that has a meaning. Words that contradict each other guess."""
    words = _with_whole(name)
    unit = words[-1] if words else ""
    before, meaning = words[-2] if len(words) > 1 else "", _last_meaning(words)
    if unit in _TIMES and before in _COUNTED:  # tokens per second, or seconds for tokens; `step_s` is a time
        return Direction(True, "guess")
    if unit in _SECONDS and before in _SIZES | _OPERATIONS:  # mb_s; of memory perhaps GB times seconds
        return Direction(True, "guess" if meaning in _LESS else "name")
    if unit in _TIMES and before in _SIZES and meaning not in _LESS:
        return Direction(True, "guess")
    if unit in _PAID | _SIZES:
        return Direction(unit in _SIZES, "guess") if meaning in _MORE else LOWER
    return Direction(meaning in _MORE, "name" if meaning else "guess")


def _last_meaning(words: list[str]) -> str:
    """The last word that says whether more is better, or nothing."""
    return next((word for word in reversed(words) if word in _LESS | _MORE), "")


def _with_whole(name: str) -> list[str]:
    """The words, and the whole name where it is one (mAP); without the `min` that is a minimum: `fps_min`."""
    words, whole = words_of(name), name.replace(" ", "").lower()
    if words[-1:] == ["min"] and words[-2:-1] and words[-2] in _MORE:
        words.pop()
    return [*words, whole] if whole in _MORE | _LESS else words


def words_of(name: str) -> list[str]:
    """`tokensPerSecond` and `tokens_per_second` as tokens, per, second."""
    return [word.lower() for word in _WORDS.findall(_spaced(name))]


def _bare(metric: str) -> str:
    """Without the folders of a logger, and with its words apart."""
    name = _spaced(metric.strip())
    return name[found.end() :] if (found := _FOLDERS.match(name)) else name


def _spaced(name: str) -> str:
    """`tokensPerSecond` as `tokens Per Second`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)


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
