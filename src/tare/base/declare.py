"""What is declared of metrics, settings and parts: plain data that says how a name reads, in which unit, which way up.

`before()` are those of all stores that were written before records carried declarations of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tare.base.units import LONGEST_WORDS, Better, Channel

MOST_DECLARED = 4000  # metrics, by records that may be anybody's
_NAME = re.compile(r"[a-z0-9_.{}]{1,120}")
_UNIT = re.compile(r"[A-Za-z0-9/]{1,12}")
STEP = "step"  # what the marks of a workload call a step, where nothing else is declared


class Role(StrEnum):
    """What analysis and reports ask for, instead of a metric's name: which metric it is, is declared."""

    STEP_MEAN = auto()
    STEP_MEDIAN = auto()
    STEP_TAIL = auto()  # the 99th percentile
    STEP_SHORT_TAIL = auto()  # the 90th, where steps are too few for the other
    START_UP = auto()
    PLATFORM_OPEN = auto()
    WHOLE_RUN = auto()
    OUTSIDE = auto()  # the whole run, timed from outside
    IN_STEPS = auto()  # of that, the time that steps cover
    AT_ONCE = auto()  # steps that were open at a time
    STALL = auto()
    STALL_MEAN = auto()
    COPY = auto()
    COMPUTE = auto()
    COMPUTE_MEAN = auto()
    OVERHEAD = auto()
    INFERENCE = auto()
    EPOCH = auto()
    EPOCH_REST = auto()
    CPU = auto()
    THROTTLED = auto()
    THROTTLES = auto()
    FIRST_TOKEN = auto()
    TOKEN_TIME = auto()
    OFFERED = auto()
    GOODPUT = auto()
    GOAL_RATE = auto()
    ENERGY = auto()
    ENERGY_STEP = auto()
    ENERGY_TOKEN = auto()
    ENERGY_WINDOW = auto()
    BASELOAD = auto()
    INCREMENTAL = auto()
    POWER = auto()
    GPU_STEP = auto()
    GPU_BUSY = auto()
    GPU_IDLE = auto()
    GPU_ENERGY = auto()

    @property
    def metric(self) -> str:
        """The name of the metric that has this role."""
        return before().roles[self]


class Group(StrEnum):
    """Metrics that are shown or judged together, in the order of their declarations."""

    HEADLINES = auto()  # the first that trials have is compared, where nobody names a metric
    BESIDE = auto()  # compared next to the headline, without a claim
    SPEEDS = auto()  # a run's report of how quick it was, which the time from outside may contradict
    RUN_PHASES = auto()
    OUTSIDE_STEPS = auto()  # phases of a run that are neither start-up nor steps
    STEP_PARTS = auto()
    MEAN_PARTS = auto()  # parts that add up to the mean step
    TRAINING_PARTS = auto()
    REQUEST_PARTS = auto()
    CPU_TIME = auto()
    MAJOR_FAULTS = auto()  # the nearest to the steps first
    GPU = auto()
    GPU_TIME = auto()  # what a GPU did and waited for

    @property
    def metrics(self) -> tuple[str, ...]:
        return before().groups.get(self, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure of a trial. The name of a family has one field, behind a literal prefix: `tenant{n}_step_s`."""

    name: str
    words: str  # "mean {time}", "energy per {step}"; of a family with its own field
    unit: str  # s J W bytes share 1 Hz 1/s
    better: Better = "neutral"
    traced: bool = False  # a tracer itself has taken this time: it may be compared beside one
    said: Mapping[str, str] = field(default_factory=dict)  # in other words, by what a step is
    spoken: str = ""  # as a part of a step, within a sentence: "the wait for data"
    role: str = ""
    mark: str = ""  # of a workload, whose intervals this is the median of
    groups: Sequence[str] = ()
    sample: str = ""  # the metric that it is for one sample, where it is of one step

    def as_json(self) -> dict[str, str]:
        """As a record has it, by its name."""
        return {"words": self.words, "unit": self.unit, "better": self.better}


# What a setting says of a trial: part of which job it is, of its title, what work is done, or a condition that nobody
# chooses for speed: the load of a server, what is cached, how much there is to do.
Says: TypeAlias = Literal["job", "title", "work", "condition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting by its whole name, or, for its counts and its unit, by the last part of it alone."""

    words: str = ""  # "{} page cache"
    levels: Mapping[str, str] = field(default_factory=dict)  # values that would not read well in these words
    says: Sequence[Says] = ()
    counts: tuple[str, str] | None = None  # of one and of several: "worker", "workers"
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part by its kind and name: `platform.docker`."""

    words: str = ""  # standing alone: "container (docker)"
    does: str = ""  # behind what it is done with: "training"
    step: str = STEP  # what a step of this workload is: "request"


@dataclass(frozen=True, kw_only=True)
class Declared:
    """All that is known of names. What is not declared is no error: other packages have metrics of their own."""

    metrics: Mapping[str, Metric]
    families: tuple[Metric, ...]
    settings: Mapping[str, Setting]
    parts: Mapping[str, Part]
    times: Mapping[str, str]  # what a step is, where it has another word -> what its time is called: "latency"
    channels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> words, group and rank
    questions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of studies, by their names

    @cached_property
    def roles(self) -> dict[str, str]:
        """Role -> the metric that has it."""
        return {each.role: name for name, each in self.metrics.items() if each.role}

    @cached_property
    def marks(self) -> dict[str, str]:
        """Mark of a workload -> the metric of its intervals."""
        return {each.mark: name for name, each in self.metrics.items() if each.mark}

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Group -> its metrics, in their order."""
        names = dict.fromkeys(group for each in self.metrics.values() for group in each.groups)
        return {group: tuple(name for name, each in self.metrics.items() if group in each.groups) for group in names}

    def metric(self, name: str) -> Metric | None:
        """Of a record: by its whole name, else by its family. A user's column is of no family."""
        if (found := self.metrics.get(name)) is not None:
            return found
        for family in self.families:
            before, _, rest = family.name.partition("{")
            after = rest.partition("}")[2]
            if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after):
                return family
        return None

    def setting(self, name: str) -> Setting:
        return self.settings.get(name, _NO_SETTING)

    def saying(self, what: Says) -> tuple[str, ...]:
        """The settings that say this, in their order."""
        return self._sayings[what]

    @cached_property
    def _sayings(self) -> dict[str, tuple[str, ...]]:
        kinds = get_args(Says)
        return {kind: tuple(name for name, each in self.settings.items() if kind in each.says) for kind in kinds}

    def channel(self, sealed: Mapping[str, Any]) -> Channel:
        """A channel as it was sealed; what its probe did not declare then is what is declared here of its name."""
        return Channel.of({**self.channels.get(str(sealed.get("name")), {}), **sealed})

    def part(self, kind: str, name: str) -> Part:
        return self.parts.get(f"{kind}.{name}", _NO_PART)

    def words(self, metric: Metric, step: str) -> str:
        """Of a metric, where a step is a step or one of `times`."""
        if step in metric.said:
            return metric.said[step]
        one = step if step in self.times else STEP
        return metric.words.replace("{step}", one).replace("{time}", self.times.get(step, STEP))

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Declared:
        return cls(
            metrics={name: Metric(name=name, **each) for name, each in data["metrics"].items()},
            families=tuple(Metric(name=name, **each) for name, each in data["families"].items()),
            settings={name: Setting(**each) for name, each in data["settings"].items()},
            parts={name: Part(**each) for name, each in data["parts"].items()},
            times=data["times"],
            channels=data.get("channels", {}),
            questions=data.get("questions", {}),
        )


_NO_SETTING, _NO_PART = Setting(), Part()


@cache
def before() -> Declared:
    """The declarations for stores that have none: made from the tables that tare had until then."""
    return Declared.of_json(json.loads(Path(__file__).with_name("before.json").read_text(encoding="utf-8")))


def declared(name: str) -> Metric | None:
    """The metric of this whole name: as tare itself has it, else as the records that were read declare it."""
    return before().metrics.get(name) or learnt(name)


def learnt(name: str) -> Metric | None:
    """The same of a metric that tare knows from records alone."""
    return None if name in before().metrics else _learnt.get(name)


_learnt: dict[str, Metric] = {}


def learn(told: object) -> None:
    """Keep what a record declares of its metrics; ValueError where that is no declaration.

    Of two records the later has the words. Where they differ in unit or direction, the metric is a bare number.
    """
    if not isinstance(told, Mapping) or len(told) > MOST_DECLARED:
        raise ValueError(f"it declares more than {MOST_DECLARED:,} metrics, or none in a way that is known")
    for name, each in told.items():
        metric = _read(name, each)
        known = _learnt.get(name)
        if known is not None and (known.unit, known.better) != (metric.unit, metric.better):
            metric = Metric(name=name, words=metric.words, unit="1")
        if known is not None or len(_learnt) < MOST_DECLARED:
            _learnt[name] = metric


def _read(name: object, told: object) -> Metric:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"it declares {str(name)[:80]!r}, which is no name of a metric")
    words, unit, better = (told.get(key) if isinstance(told, Mapping) else None for key in ("words", "unit", "better"))
    if not (isinstance(words, str) and words and len(words) <= LONGEST_WORDS):
        raise ValueError(f"it declares {name} in other than 1 to {LONGEST_WORDS} characters")
    way: Better | None = next((each for each in get_args(Better) if each == better), None)
    if not (isinstance(unit, str) and _UNIT.fullmatch(unit)) or way is None:
        raise ValueError(f"it declares {name} with a unit or a direction that is none")
    return Metric(name=name, words=words, unit=unit, better=way)


def can_be_declared(name: str) -> bool:
    """Whether a metric of a probe can have this name; those of tare have no dot."""
    return "." in name and _NAME.fullmatch(name) is not None
