"""How the experiment is laid out: how often, in which order, compared with what. Declared before anything runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, TypeAdapter, model_validator

from tare.base.units import Seconds, parse_share
from tare.parts.protocols import Json
from tare.studies.select import DEVICE_KEYS, Factors, Selector, label
from tare.studies.yaml import Complaint

_TIME = TypeAdapter(Seconds)


def time_between(low_s: float, high_s: float, span: str, example: str) -> Callable[[Json], float]:
    """A validator; a number without a unit is refused, because seconds and minutes are equally likely."""

    def convert(value: Json) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            wrong = "has no unit" if math.isfinite(value) else "is not a finite time"
            raise ValueError(f"{{given}} {wrong}; write it like '{example}'")
        negative = isinstance(value, str) and value.lstrip().startswith("-")
        try:
            seconds: float = _TIME.validate_python(value.lstrip()[1:] if negative else value)
        except ValueError:
            raise ValueError(f"{{given}} is not a time; write it like '{example}'") from None
        if negative or not low_s <= seconds <= high_s:
            raise ValueError(f"must be {span}, not {{given}}")
        return seconds

    return convert


def written(seconds: float) -> str:
    """A time as a study file has it, to the last digit."""
    return f"{seconds!r} s"


SEVERAL_REPEATS = 8  # of several comparisons: the fewest whose corrected interval ranks can reach
ENOUGH_REPEATS = 6  # the fewest that have a 95 % interval of the median (docs/explanation/validity.md)
MOST_REPEATS = 20  # with a stop rule that names no cap
MOST_BLOCKS = 1_000_000  # so that everything which is counted from it stays a number
DEFAULT_MARGIN = 0.05
MAX_SEED = 2**31 - 1

_METRIC = re.compile(r"[a-z][a-z0-9_.]{0,63}")


def _share(value: Json) -> float:
    """A share of more than 0 % and less than 100 %."""
    try:
        share = parse_share(value)
    except ValueError:
        raise ValueError("{given} is not a share; write it like '5%' or 0.05") from None
    if not 0 < share < 1:
        slip = f" ({share:.0%}).\nDid you mean '{value}%'?" if type(value) is int and 1 <= value < 100 else ""
        raise ValueError(f"must be more than 0 % and less than 100 %, not {{given}}{slip}")
    return share


def _blocks(value: Json) -> int:
    if type(value) is not int or not 1 <= value <= MOST_BLOCKS:
        raise ValueError(f"must be a whole number from 1 to {MOST_BLOCKS:,} blocks, not {{given}}")
    return value


def _metric(value: Json) -> str:
    if not isinstance(value, str) or not _METRIC.fullmatch(value):
        raise ValueError("{given} is not the name of a metric; write it like 'step_s'")
    return value


OpenShare = Annotated[float, BeforeValidator(_share)]
_WITHIN = time_between(1, 30 * 86400, "from 1 s to 30 d", "10 min")
Count = Annotated[int, BeforeValidator(_blocks)]


def blocks_for(comparisons: int, lines: int = 1) -> int:
    """The fewest blocks whose ranks reach the confidence of so many comparisons that are corrected together (Holm).

    n blocks reach 1 - 2/2^n. Six are enough for one comparison on one line, and none of two or more could be claimed by
    ranks: steady state and start-up of one level take seven, several levels eight or more. One stray block moves the
    estimate of so few hardly, but may still set the interval's end: that takes twelve at 95 %.
    """
    least = SEVERAL_REPEATS if comparisons > 1 else ENOUGH_REPEATS
    return max(least, 1 + math.ceil(math.log2(max(1, comparisons) * lines / 0.05)))


class Repeat(BaseModel):
    """How many blocks: a fixed number, or at least `min` and then until a declared rule says that it is enough."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: Count = ENOUGH_REPEATS
    max: Count = ENOUGH_REPEATS
    until: OpenShare | None = None
    """Stop when every interval reaches no further than this to each side of its estimate."""
    within_s: Annotated[float, BeforeValidator(_WITHIN)] | None = Field(None, alias="within")
    """Begin no block past `min` that would end later than this after the start."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Json) -> Json:
        if type(value) is int:
            return {"min": value, "max": value}
        if not isinstance(value, dict):
            raise ValueError(
                "must be a number of blocks, or a stop rule like {min: 6, max: 20, until: 2%}, not {given}"
            )
        ruled = any(value.get(rule) is not None for rule in ("until", "within"))
        if ruled or ("min" in value and "max" in value):
            least = value.get("min", ENOUGH_REPEATS)
            return {"min": least, "max": max(least, MOST_REPEATS) if type(least) is int else MOST_REPEATS} | value
        fixed = value.get("min", value.get("max", ENOUGH_REPEATS))
        return {"min": fixed, "max": fixed} | value

    @model_validator(mode="after")
    def _sensible(self) -> Repeat:
        if self.max < self.min:
            raise ValueError(f"max ({self.max}) is less than min ({self.min})")
        if self.until is None and self.within_s is None and self.max != self.min:
            raise ValueError(f"min ({self.min}) and max ({self.max}) differ, so say when to stop: add 'until: 2%'")
        if self.until is not None and self.min < ENOUGH_REPEATS:
            raise ValueError(
                f"'until' looks at a 95 % interval, which needs {ENOUGH_REPEATS} blocks, and min is {self.min}"
            )
        return self

    def sentence(self) -> str:
        """The stop rule in words, for plans and reports."""
        if self.min == self.max:
            return f"exactly {self.min} block{'' if self.min == 1 else 's'}."
        text = f"at least {self.min} and at most {self.max} blocks"
        text += "" if self.until is None else f", until every interval is within ±{self.until * 100:g} %"
        return text + ("." if self.within_s is None else f"; no block that would end after {self.within_s:g} s.")

    def as_plain(self) -> dict[str, Json]:
        """The rule as a study file has it."""
        plain: dict[str, Json] = {"min": self.min, "max": self.max}
        plain |= {} if self.until is None else {"until": self.until}
        return plain | ({} if self.within_s is None else {"within": written(self.within_s)})


_SLICE = time_between(0.05, 60, "from 50 ms to 1 min", "300 ms")
LEAVE_OUT = 3
MOST_AT_ONCE = 4  # processes of one block that share the memory and the cores


def _left_out_steps(value: Json) -> int:
    if type(value) is not int or not 1 <= value <= 1000:
        raise ValueError("must be a whole number from 1 to 1,000 steps, not {given}")
    return value


class Slices(BaseModel):
    """Both sides of a block are alive at once, and take turns: one is stopped while the other runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    length_s: Annotated[float, BeforeValidator(_SLICE)] | None = Field(None, alias="length")
    """None: as short as the steps allow (trial/slices.py): the shorter, the more alike is what the sides meet."""
    leave_out: Annotated[int, BeforeValidator(_left_out_steps)] = LEAVE_OUT
    """So many steps after each stop are not measured: caches are cold then."""
    quiet: OpenShare | None = None
    """A round (one slice of each side) in which other processes and the hypervisor took a larger share of the CPU time
    that the device has is left out of all sides."""

    def as_plain(self) -> dict[str, Json]:
        plain: dict[str, Json] = {} if self.length_s is None else {"length": written(self.length_s)}
        plain["leave_out"] = self.leave_out
        return plain | ({} if self.quiet is None else {"quiet": self.quiet})


class Design(BaseModel):
    """How the trials of a block share the time: one after the other, or in slices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slices: Slices | None = None
    cpu_time: StrictBool = False
    """Whether the CPU time (and on a GPU the time of its kernels) is judged too, in one family with the headline."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Json) -> Json:
        if value == "slices":
            return {"slices": {}}
        if value == "blocks":
            return {}
        if isinstance(value, dict):
            return {key: {} if key == "slices" and item is None else item for key, item in value.items()}
        raise ValueError(
            "must be 'blocks', 'slices', or a mapping like {slices: {quiet: 10%}, cpu_time: true}, not {given}"
        )

    def as_plain(self) -> dict[str, Json]:
        plain: dict[str, Json] = {} if self.slices is None else {"slices": self.slices.as_plain()}
        return plain | ({"cpu_time": True} if self.cpu_time else {})


class Order(BaseModel):
    """Whether each block is shuffled, and from which seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shuffle: StrictBool = True
    seed: Annotated[int, Field(ge=0, le=MAX_SEED, strict=True)] = 0


class Compare(BaseModel):
    """The family of comparisons: each level of `by` with the level `against`, judged by `margin`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    against: Any = None  # in a study always a dict: {"platform": "bare"}
    by: str | None = None  # in a study always a setting's name
    margin: OpenShare = DEFAULT_MARGIN
    metric: Annotated[str, BeforeValidator(_metric)] | None = None  # None: what the workload marks decides

    @property
    def baseline(self) -> Selector:
        return Selector(tuple(self.against.items()))


def resolved(compare: Compare, factors: Factors) -> tuple[Compare, list[Complaint]]:
    """The comparison with its defaults filled in, and what is wrong with it."""
    against = compare.against
    by = compare.by or (next(iter(against), None) if isinstance(against, dict) else None) or _default_by(factors)
    if unknown := factors.unknown(by):
        return compare, [Complaint(("by",) if compare.by else ("against", by), unknown, of_key=not compare.by)]
    if against is None and by in DEVICE_KEYS:
        reported = (
            f"compare.against must say which {by} the others are compared with: only a run over a fleet knows them."
        )
        return compare, [Complaint(("by",), reported)]
    if against is None:
        against = {by: _first_level(by, factors)}
    elif not isinstance(against, dict):
        against = {by: against}
    if by not in against:
        return compare, [Complaint(("against",), f"compare.against must say which {by} the others are compared with.")]
    complaints = Selector(tuple(against.items())).complaints(factors, ("against",))
    if complaints:
        return compare, complaints
    first = {by: against[by]} | against  # whoever reads only one level of it reads the one that counts
    update = {"by": factors.canonical(by), "against": {factors.canonical(key): value for key, value in first.items()}}
    return compare.model_copy(update=update), []


def _default_by(factors: Factors) -> str:
    """The platforms, unless there is only one and something else is varied."""
    varied = factors.varied()
    return next(iter(varied), "platform") if "platform" not in varied else "platform"


def _first_level(by: str, factors: Factors) -> Json:
    key = factors.canonical(by)
    labels = [label(stack) for stack in factors.platforms]
    if by == "platform" and labels.count(labels[0]) > 1:
        # Two levels of one name: only the whole level tells them apart.
        stack = [choice.plain() for choice in factors.platforms[0]]
        return stack[0] if len(stack) == 1 else [stack]
    return factors.values[key][0]
