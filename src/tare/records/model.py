"""What one trial leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from tare.base.rulings import Ruling, Weight, read_rulings
from tare.base.text import unit_of

Json: TypeAlias = Any
Value = TypeVar("Value")
State: TypeAlias = Literal["planned", "running", "ok", "suspect", "invalid", "failed", "timeout", "oom", "interrupted"]
AA_REPEAT = "A/A repeat"  # the baseline, run a second time in the same block
USABLE: tuple[State, ...] = ("ok", "suspect")  # their times may be compared; a suspect one is marked
# What a resume does not run again, but for an invalid one that has reruns left.
FINISHED: tuple[State, ...] = ("ok", "suspect", "invalid", "failed", "timeout", "oom")


_KINDS: dict[str, type] = {
    "trial": str, "attempt": int, "study": str, "block": int, "position": int, "twin": int, "settings": dict,
    "state": str, "metrics": dict, "phases": dict, "facts": dict, "start_ns": int, "end_ns": int,
}  # fmt: skip
_STATES = frozenset(get_args(State))
_WEIGHTS: dict[str, Weight] = {"invalid": "invalid", "suspect": "suspect"}  # of reasons from before there were codes
_PHASES_BEFORE = {"open.furnish": "open.prepare"}  # phases by the names that an older tare gave them
_COUNTED_IN_SECONDS = ("writeback_", "flush_", "syscall_")  # times that a tracer itself has taken


@lru_cache(maxsize=4096)
def depends_on_speed(metric: str) -> bool:
    """Whether a figure is how long the workload took, or what it drew meanwhile; tracing changes both."""
    return metric.endswith(("_s", "_w", "_j")) and not metric.startswith(_COUNTED_IN_SECONDS)


@dataclass(frozen=True, slots=True)
class Record:
    """One attempt at one trial: settings, what was found, how it ended. Series and marks lie beside it."""

    trial: str  # the hash of what was asked: the same trial in another run has the same id
    attempt: int
    study: str
    block: int
    position: int  # place in the block's shuffled order
    twin: int  # 1: the baseline run a second time under another name, for the A/A noise floor
    settings: Mapping[str, Json]  # flat: {"platform": "docker", "workload": "torch_train", "workload.batch": 16}
    state: State
    reasons: tuple[Ruling, ...] = ()  # why it is not plainly ok
    notes: tuple[Ruling, ...] = ()  # worth knowing, without doubt on the numbers
    metrics: Mapping[str, float] = field(default_factory=dict)  # base units: {"step_s": 0.00184, "cpu_s": 3.1}
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds: {"open": 0.31, "run": 4.2, "close": 0.2}
    facts: Mapping[str, Json] = field(default_factory=dict)  # {"device": {...}, "inside": {...software...}}
    started_utc: str = ""
    start_ns: int = 0  # monotonic clock of the device
    end_ns: int = 0
    tare_version: str = ""

    @property
    def traced(self) -> bool:
        """Whether a tracer ran beside it: then its times are not compared (docs/explanation/validity.md)."""
        return "traced" in self.facts

    @property
    def compared(self) -> Mapping[str, float]:
        """The figures that may be compared with other trials': beside a tracer all but times, power and energy."""
        if not self.traced:
            return self.metrics
        return {name: value for name, value in self.metrics.items() if not depends_on_speed(name)}

    @property
    def unit(self) -> str:
        """What its steps are for people: steps, requests or decode steps."""
        return unit_of([self.settings.get("workload")])

    def as_json(self) -> dict[str, Json]:
        """Its fields as plain data; what is in them is not copied."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return told | {name: tuple(each.as_json() for each in told[name]) for name in ("reasons", "notes")}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Record:
        """The reverse of `as_json`; keys that a newer tare added are ignored."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        known["reasons"] = read_rulings(known.get("reasons", ()), _WEIGHTS.get(known.get("state", ""), "failed"))
        known["notes"] = read_rulings(known.get("notes", ()), "note")
        for name, kind in _KINDS.items():
            if not isinstance(known.get(name, kind()), kind):
                raise ValueError(f"its {name} is a {type(known[name]).__name__}")
        if known.get("state") not in _STATES:
            raise ValueError(f"its state is {known.get('state')!r:.80}")
        for name in ("metrics", "phases"):
            for key, value in known.get(name, {}).items():
                if not isinstance(value, int | float) or isinstance(value, bool):
                    raise ValueError(f"its {name}.{key:.80} is a {type(value).__name__}, not a number")
        if "phases" in known:
            known["phases"] = {_PHASES_BEFORE.get(name, name): value for name, value in known["phases"].items()}
        return cls(**known)


_NO_FACTORS = ("probes",)
_LINES = ("workload.argv", "workload.label")


def varied(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The platform, and what tells these settings apart beyond it.

    `platform.image` of a container is no factor because bare metal has none: it is one if it differs between
    containers of the same platform. The same goes for the fields of a workload.
    """
    seen: dict[str, dict[str, set[str]]] = {"platform": {}}
    for each in settings:
        for name, value in each.items():
            of = str(each.get(name.partition(".")[0], "")) if "." in name else ""
            seen.setdefault(name, {}).setdefault(of, set()).add(str(value))
    found = [
        name
        for name, values in seen.items()
        if name == "platform" or (name not in _NO_FACTORS and any(len(of_one) > 1 for of_one in values.values()))
    ]
    for name in _LINES:  # a command's levels stand alone too, where the study names them (`vary`)
        others = [each for each in found if each not in _LINES]
        if name in found and _combinations(settings, others) == _combinations(settings, [*others, name]):
            found.remove(name)
    return found


def _combinations(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    return len({tuple(str(each.get(name)) for name in names) for each in settings})


class MadeWhenAsked(Mapping[str, Value]):
    """What has a name, and is made each time that it is asked for."""

    def __init__(self, made: Mapping[str, Callable[[], Value]]) -> None:
        self._made = made

    def __getitem__(self, name: str) -> Value:
        return self._made[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
