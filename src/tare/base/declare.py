"""What is declared of metrics, settings and parts: plain data that says how a name reads, in which unit, which way up.

`before()` are those of all stores that were written before records carried declarations of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tare.base.units import Channel

Better: TypeAlias = Literal["lower", "higher", "neutral"]
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
