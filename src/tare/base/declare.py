"""What is declared of metrics, settings and parts: plain data that says how a name reads, in which unit, which way up.

`before()` are those of all stores that were written before records carried declarations of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_args

from tare.base.units import LONGEST_WORDS, Better, Channel

MOST_DECLARED = 4000  # metrics, by records that may be anybody's
_NAME = re.compile(r"[a-z0-9_.{}]{1,120}")
_UNIT = re.compile(r"[A-Za-z0-9/]{1,12}")
STEP = "step"  # what the marks of a workload call a step, where nothing else is declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure of a trial. The name of a family has one field, behind a literal prefix: `tenant{n}_step_s`."""

    name: str
    words: str  # "mean {time}", "energy per {step}"; of a family with its own field
    unit: str  # s J W bytes share 1 Hz 1/s
    better: Better = "neutral"
    traced: bool = False  # a tracer itself has taken this time: it may be compared beside one
    said: Mapping[str, str] = field(default_factory=dict)  # in other words, by what a step is

    def as_json(self) -> dict[str, str]:
        """As a record has it, by its name."""
        return {"words": self.words, "unit": self.unit, "better": self.better}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting by its whole name, or, for its counts and its unit, by the last part of it alone."""

    words: str = ""  # "{} page cache"
    levels: Mapping[str, str] = field(default_factory=dict)  # values that would not read well in these words
    counts: tuple[str, str] | None = None  # of one and of several: "worker", "workers"
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part by its kind and name: `platform.docker`."""

    words: str = ""  # standing alone: "container (docker)"
    does: str = ""  # behind what it is done with: "training"
    step: str = STEP  # what a step of this workload is: "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """All that is known of names. What is not declared is no error: other packages have metrics of their own."""

    metrics: Mapping[str, Metric]
    families: tuple[Metric, ...]
    settings: Mapping[str, Setting]
    parts: Mapping[str, Part]
    times: Mapping[str, str]  # what a step is, where it has another word -> what its time is called: "latency"
    channels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> words, group and rank

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
