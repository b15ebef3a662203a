"""A study: the file, typed and frozen. Its keys are those of the file; times are seconds, shares from 0 to 1."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    StrictBool,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tare.base.rulings import Ruling, read_rulings
from tare.base.units import Seconds, parse_share
from tare.parts.find import Kind
from tare.parts.protocols import Json, Workload
from tare.studies.fields import PartChoice, as_validation_error
from tare.studies.reader import ALONE, PartReader, Stack, Tenancy, read_tenancies
from tare.studies.select import DEVICE_KEYS, Factors, Selector, label
from tare.studies.yaml import Complaint, Loc, Source

# How the experiment is laid out: how often, in which order, compared with what. Declared before anything runs.

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


def whole_number(most: int, unit: str) -> Callable[[Json], int]:
    """A validator of a count from 1 on."""

    def convert(value: Json) -> int:
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"must be a whole number from 1 to {most:,} {unit}, not {{given}}")
        return value

    return convert


def written(seconds: float | None) -> str | None:
    """A time as a study file has it, to the last digit."""
    return None if seconds is None else f"{seconds!r} s"


def _given(**keys: Json) -> dict[str, Json]:
    """The keys that have a value."""
    return {key: value for key, value in keys.items() if value is not None}


SEVERAL_REPEATS = 8  # of several comparisons: the fewest whose corrected interval ranks can reach
ENOUGH_REPEATS = 6  # the fewest that have a 95 % interval of the median (docs/explanation/verdicts.md)
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


def _metric(value: Json) -> str:
    if not isinstance(value, str) or not _METRIC.fullmatch(value):
        raise ValueError("{given} is not the name of a metric; write it like 'step_s'")
    return value


OpenShare = Annotated[float, BeforeValidator(_share)]
_WITHIN = time_between(1, 30 * 86400, "from 1 s to 30 d", "10 min")
Count = Annotated[int, BeforeValidator(whole_number(MOST_BLOCKS, "blocks"))]


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
    """Begin no block but the first that would end later than this after the start, also where `min` is not reached.

    Devices of a fleet run the blocks up to `min` whatever they take.
    """
    more_within_s: Annotated[float, BeforeValidator(_WITHIN)] | None = Field(None, alias="more_within")
    """The same for the blocks past `min` alone: those up to `min` are run whatever they take."""
    seen: tuple[Count, ...] = ()
    """Written by `tare run STORE --blocks N`: the blocks that had been judged each time that blocks were added."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Json) -> Json:
        if type(value) is int:
            return {"min": value, "max": value}
        if not isinstance(value, dict):
            raise ValueError(
                "must be a number of blocks, or a stop rule like {min: 6, max: 20, until: 2%}, not {given}"
            )
        ruled = any(value.get(rule) is not None for rule in ("until", "within", "more_within"))
        if ruled or ("min" in value and "max" in value):
            least = value.get("min", ENOUGH_REPEATS)
            return {"min": least, "max": max(least, MOST_REPEATS) if type(least) is int else MOST_REPEATS} | value
        fixed = value.get("min", value.get("max", ENOUGH_REPEATS))
        return {"min": fixed, "max": fixed} | value

    @model_validator(mode="after")
    def _sensible(self) -> Repeat:
        if self.max < self.min:
            raise ValueError(f"max ({self.max}) is less than min ({self.min})")
        ruled = any(rule is not None for rule in (self.until, self.within_s, self.more_within_s))
        if not ruled and self.max != self.min:
            raise ValueError(f"min ({self.min}) and max ({self.max}) differ, so say when to stop: add 'until: 2%'")
        if self.until is not None and self.min < ENOUGH_REPEATS:
            raise ValueError(
                f"'until' looks at a 95 % interval, which needs {ENOUGH_REPEATS} blocks, and min is {self.min}"
            )
        return self

    @property
    def past_min_s(self) -> float | None:
        """What limits the blocks past `min`."""
        return min((each for each in (self.within_s, self.more_within_s) if each is not None), default=None)

    def sentence(self) -> str:
        """The stop rule in words, for plans and reports."""
        if self.min == self.max:
            added = f", added after {' and '.join(map(str, self.seen))}" if self.seen else ""
            text = f"exactly {self.min} block{'' if self.min == 1 else 's'}{added}"
        else:
            text = f"at least {self.min} and at most {self.max} blocks"
        text += "" if self.until is None else f", until every interval is within ±{self.until * 100:g} %"
        text += "" if self.within_s is None else f"; no block that would end after {self.within_s:g} s"
        more_s = self.more_within_s
        text += "" if more_s is None else f"; past the first {self.min}, none that would end after {more_s:g} s"
        return f"{text}."

    def as_plain(self) -> dict[str, Json]:
        """The rule as a study file has it."""
        return _given(
            min=self.min, max=self.max, until=self.until, within=written(self.within_s),
            more_within=written(self.more_within_s), seen=list(self.seen) or None,
        )  # fmt: skip


class Design(BaseModel):
    """How the trials of a block share the time: in turns, or one after the other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: Literal["blocks"] | None = None
    """`blocks`: each runs whole. Left open, the sides of a block take turns where they can (plan/turning.py)."""
    cpu_time: StrictBool = False
    """Whether the CPU time (and on a GPU the time of its kernels) is judged too, in one family with the headline."""
    strict: StrictBool = False
    """Whether a trial that others disturbed much (steal, foreign CPU time, throttling) is invalid. By default it is
    suspect: the sides of a block share what others do, and a busy machine gets an answer too."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Json) -> Json:
        if value == "blocks":
            return {"runs": "blocks"}
        if value == "slices" or (isinstance(value, dict) and "slices" in value):
            raise ValueError("has no 'slices' any more: leave it out, and the sides take turns at the ends of steps")
        if isinstance(value, dict):
            return value
        raise ValueError("must be 'blocks', or a mapping like {runs: blocks, cpu_time: true}, not {given}")

    def as_plain(self) -> dict[str, Json]:
        return _given(runs=self.runs, cpu_time=self.cpu_time or None, strict=self.strict or None)


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


class Question(BaseModel):
    """What the study asks, from which its headline is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Literal["cost", "best", "enough", "growth", "front", "prediction"]
    metrics: tuple[Annotated[str, BeforeValidator(_metric)], ...] = ()
    """The first decides; of a front each counts. Empty: the metric of the comparison."""
    per: Literal["sample"] | None = None
    """The unit of work: levels that differ in the batch are compared per sample."""
    published: dict[str, OpenShare] | None = None
    """Of a prediction: the mean error that the paper has, by figure."""

    def as_plain(self) -> dict[str, Json]:
        return _given(form=self.form, metrics=list(self.metrics) or None, per=self.per, published=self.published)


def resolved(compare: Compare, factors: Factors) -> tuple[Compare, list[Complaint]]:
    """The comparison with its defaults filled in, and what is wrong with it."""
    against = compare.against
    by = compare.by or (next(iter(against), None) if isinstance(against, dict) else None)
    if by is None:  # the platforms, unless there is only one and something else is varied
        varied = factors.varied()
        by = "platform" if "platform" in varied else next(iter(varied), "platform")
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


def _first_level(by: str, factors: Factors) -> Json:
    key = factors.canonical(by)
    labels = [label(stack) for stack in factors.platforms]
    if by == "platform" and labels.count(labels[0]) > 1:
        # Two levels of one name: only the whole level tells them apart.
        stack = [choice.plain() for choice in factors.platforms[0]]
        return stack[0] if len(stack) == 1 else [stack]
    return factors.values[key][0]


DEFAULT_PROBES = ("cpu", "memory", "disk", "cgroup")
MAX_ABOUT = 2_000
MAX_EXCLUSIONS = 200
MAX_LINE = 200

ID_FORM = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
ENDING_FORM = r"[a-z]+( [A-Za-z0-9_.,=/:%-]+)*"


def _id(value: Json) -> str:
    """A name that is safe as a folder, a container and an argument."""
    if isinstance(value, str) and re.fullmatch(ID_FORM, value):
        return value
    rule = "A name has 1 to 64 of the characters A-Z a-z 0-9 . _ - and starts with neither . nor -"
    if not isinstance(value, str):
        raise ValueError("must be text, not {given}; put a name that looks like a number in quotes")
    raise ValueError(f"{{given}} is no name for a study.\n{rule}. Free text goes into 'about'")


def _about(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text, not {given}; put it in quotes")
    if len(value) > MAX_ABOUT:
        raise ValueError(f"must be at most {MAX_ABOUT:,} characters long, not {len(value):,}")
    return value


def _line(value: Json) -> str:
    if not isinstance(value, str) or "\n" in value or len(value) > MAX_LINE:
        raise ValueError(f"must be a line of text of at most {MAX_LINE} characters, not {{given}}")
    return value


def _endings(value: Json) -> tuple[str, ...]:
    """Verbs of tare that read a store, each with its options: `papers claims --paper s0`."""
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, str) or not re.fullmatch(ENDING_FORM, item):
            raise ValueError(
                "must be a list of verbs that read a store, like [compare, papers claims --paper s0], not {given}"
            )
    return tuple(items)


def _left_out(value: Json) -> tuple[Ruling, ...]:
    """Written by tare; in a store from before there were codes these are sentences."""
    try:
        return read_rulings(value if isinstance(value, list | tuple) else [value], "obstacle")
    except ValueError:
        raise ValueError("must be a list of obstacles as tare writes them, not {given}") from None


def _parts(kind: Kind, read: Callable[[PartReader, Json], Any]) -> PlainValidator:
    """Reads the parts of one kind; what is wrong with any of them is raised together."""

    def convert(value: Json) -> Any:
        reader = PartReader(kind)
        found = read(reader, value)
        _raise_if(reader.complaints)
        return found

    return PlainValidator(convert)


def _tenancies(value: Json) -> tuple[Tenancy, ...]:
    found, complaints = read_tenancies(value)
    _raise_if(complaints)
    return found


def _probes(value: Json) -> tuple[PartChoice, ...]:
    """Probes watch every trial: they are no factor, and each is named once."""
    items = value if isinstance(value, list) else [value]
    found: dict[str, PartChoice] = {}
    complaints: list[Complaint] = []
    for index, item in enumerate(items):
        reader = PartReader("probes")
        loc = (index,) if isinstance(value, list) else ()
        choices = reader.level(item, loc)
        complaints += reader.complaints
        if sum(choice.count() for choice in choices) > 1:
            complaints.append(Complaint(loc, "a probe is no factor: give each of its fields one value."))
        for choice in choices[:1]:
            if choice.name in found:
                complaints.append(Complaint(loc, f"the probe {choice.name!r} is named twice; keep one."))
            found.setdefault(choice.name, choice)
    _raise_if(complaints)
    return tuple(found.values())


def _exclusions(value: Json, info: ValidationInfo) -> tuple[Selector, ...]:
    """One selector, or a list of them; each names levels that the study has."""
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_EXCLUSIONS:
        raise ValueError(f"must be at most {MAX_EXCLUSIONS} entries long, not {len(items):,}")
    how = "an exclusion is a mapping of levels, like {platform: docker, workload.batch: 64}, not {given}."
    factors = _factors(info.data)
    found: list[Selector] = []
    complaints: list[Complaint] = []
    for index, item in enumerate(items):
        loc = (index,) if isinstance(value, list) else ()
        if not isinstance(item, dict) or not item:
            complaints.append(Complaint(loc, how))
            continue
        found.append(Selector(tuple(item.items())))
        complaints += found[-1].complaints(factors, loc) if factors else []
    _raise_if(complaints)
    return tuple(found)


def _raise_if(complaints: list[Complaint]) -> None:
    if complaints:
        raise as_validation_error("study", complaints)


class Study(BaseModel):
    """What the user wrote. Made from a file by `study.load`, or from the same keys by `model_validate`."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    study: Annotated[str, BeforeValidator(_id)]
    about: Annotated[str, BeforeValidator(_about)] = ""
    paper: Annotated[str, BeforeValidator(_line)] = ""
    section: Annotated[str, BeforeValidator(_line)] = ""
    scale: Annotated[str, BeforeValidator(_line)] = ""
    platforms: Annotated[tuple[Stack, ...], _parts("platforms", PartReader.stacks)] = Field(alias="platform")
    workloads: Annotated[tuple[PartChoice, ...], _parts("workloads", PartReader.choices)] = Field(alias="workload")
    controls: Annotated[tuple[tuple[PartChoice, ...], ...], _parts("controls", PartReader.named)] = Field(
        (), alias="control"
    )
    probes: Annotated[tuple[PartChoice, ...], PlainValidator(_probes)] = Field(
        default_factory=lambda: list(DEFAULT_PROBES), validate_default=True
    )
    tenancies: Annotated[tuple[Tenancy, ...], PlainValidator(_tenancies)] = Field((ALONE,), alias="tenants")
    repeat: Repeat = Repeat()
    order: Order = Order()
    design: Design = Design()
    compare: Compare = Field(Compare(), validate_default=True)
    question: Question | None = None  # None: what the levels cost
    exclude: Annotated[tuple[Selector, ...], PlainValidator(_exclusions)] = ()
    missing: Literal["refuse", "leave_out"] = "refuse"
    left_out: Annotated[tuple[Ruling, ...], PlainValidator(_left_out)] = ()
    ends_in: Annotated[tuple[str, ...], BeforeValidator(_endings)] = ()
    aa: StrictBool = True
    rehearse: StrictBool | None = None
    limit_s: Annotated[float, BeforeValidator(time_between(0.1, 30 * 86400, "from 100 ms to 30 d", "10 min"))] = Field(
        600.0, alias="limit"
    )
    period_s: Annotated[float, BeforeValidator(time_between(0.001, 60, "from 1 ms to 1 min", "100 ms"))] = Field(
        0.1, alias="period"
    )

    _source: Source = PrivateAttr(default_factory=Source)

    @model_validator(mode="before")
    @classmethod
    def _detached(cls, data: Any) -> Any:
        """Plain data of our own, which nobody else can change under a frozen study."""
        try:
            return json.loads(json.dumps(data)) if isinstance(data, dict) else data
        except (TypeError, ValueError) as error:
            raise ValueError(f"a study is plain data: {error}") from None

    @field_validator("compare", mode="after")
    @classmethod
    def _compare_is_possible(cls, compare: Compare, info: ValidationInfo) -> Compare:
        factors = _factors(info.data)
        if factors is None:
            return compare
        filled, complaints = resolved(compare, factors)
        _raise_if(complaints)
        return filled

    def __hash__(self) -> int:
        return hash(json.dumps(self.as_plain(), sort_keys=True))

    @property
    def source(self) -> Source:
        """The file and its lines, for messages; of no weight in comparisons."""
        return self._source

    @cached_property
    def factors(self) -> Factors:
        """What the study varies and fixes, by the names that records use."""
        return Factors(self.platforms, self.workloads, self.controls, self.tenancies)

    @property
    def for_fleet(self) -> Loc | None:
        """Where the study names devices of a fleet, for which alone it can be planned; None if it names none."""
        places: list[tuple[Loc, Selector]] = [(("compare", "against"), self.compare.baseline)]
        places += [(("exclude", index), selector) for index, selector in enumerate(self.exclude)]
        return next((loc for loc, selector in places if selector.devices), None)

    @property
    def rehearses(self) -> bool:
        """Whether each side runs once before the blocks: as the study says, else where a program is the user's own.

        A study of a single side has no other to interleave it with: its first trial says as much.
        """
        if self.rehearse is not None:
            return self.rehearse
        stacks = sum(math.prod(choice.count() for choice in stack) for stack in self.platforms)
        sides = stacks * sum(choice.count() for choice in self.workloads)
        parts = (choice.part for choice in self.workloads)
        return sides > 1 and any(issubclass(part, Workload) and part.rehearsed for part in parts)

    @property
    def sets_limit(self) -> bool:
        """Whether the file names a limit; one that it does not name follows from the rehearsal, if there is one."""
        return "limit_s" in self.model_fields_set

    def as_plain(self) -> dict[str, Json]:
        """Strict JSON with the keys of the file; `model_validate` makes an equal study of it."""
        return _given(
            study=self.study,
            about=self.about,
            paper=self.paper or None,
            section=self.section or None,
            scale=self.scale or None,
            platform=[
                stack[0].plain() if len(stack) == 1 else [one.plain() for one in stack] for stack in self.platforms
            ],
            workload=[choice.plain() for choice in self.workloads],
            control={levels[0].name: [choice.body() for choice in levels] for levels in self.controls},
            probes=[choice.plain() for choice in self.probes],
            tenants=[level.plain() for level in self.tenancies],
            repeat=self.repeat.as_plain(),
            order=self.order.model_dump(),
            design=self.design.as_plain() or None,
            compare=self.compare.model_dump(exclude_none=True),
            question=self.question.as_plain() if self.question is not None else None,
            exclude=[selector.plain() for selector in self.exclude],
            missing=None if self.missing == "refuse" else self.missing,
            left_out=[ruling.as_json() for ruling in self.left_out] or None,
            ends_in=list(self.ends_in) or None,
            aa=self.aa,
            rehearse=self.rehearse,
            limit=written(self.limit_s) if self.sets_limit or not self.rehearses else None,
            period=written(self.period_s),
        )

    def from_source(self, source: Source) -> Study:
        """The same study, which knows where it was written."""
        copy = self.model_copy()
        copy._source = source
        return copy


def _factors(data: dict[str, Any]) -> Factors | None:
    """The levels that were read; None if one of them was wrong, which is complained about elsewhere."""
    if not all(data.get(name) for name in ("platforms", "workloads")) or not {"controls", "tenancies"} <= set(data):
        return None
    return Factors(data["platforms"], data["workloads"], data["controls"], data["tenancies"])
