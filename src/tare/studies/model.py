"""A study: the file, typed and frozen. Its keys are those of the file; times are seconds, shares from 0 to 1."""

from __future__ import annotations

import json
import math
import re
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
    ValidationInfo,
    field_validator,
    model_validator,
)

from tare.base.rulings import Ruling, read_rulings
from tare.parts.protocols import Json, Workload
from tare.studies.design import Compare, Design, Order, Repeat, resolved, time_between, written
from tare.studies.fields import PartChoice, as_validation_error
from tare.studies.reader import ALONE, PartReader, Stack, Tenancy, read_tenancies
from tare.studies.select import Factors, Selector
from tare.studies.yaml import Complaint, Loc, Source

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


def _platforms(value: Json) -> tuple[Stack, ...]:
    reader = PartReader("platforms")
    stacks = reader.stacks(value)
    _raise_if(reader.complaints)
    return stacks


def _workloads(value: Json) -> tuple[PartChoice, ...]:
    reader = PartReader("workloads")
    choices = reader.choices(value)
    _raise_if(reader.complaints)
    return choices


def _controls(value: Json) -> tuple[tuple[PartChoice, ...], ...]:
    reader = PartReader("controls")
    controls = reader.named(value)
    _raise_if(reader.complaints)
    return controls


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
    platforms: Annotated[tuple[Stack, ...], PlainValidator(_platforms)] = Field(alias="platform")
    workloads: Annotated[tuple[PartChoice, ...], PlainValidator(_workloads)] = Field(alias="workload")
    controls: Annotated[tuple[tuple[PartChoice, ...], ...], PlainValidator(_controls)] = Field((), alias="control")
    probes: Annotated[tuple[PartChoice, ...], PlainValidator(_probes)] = Field(
        default_factory=lambda: list(DEFAULT_PROBES), validate_default=True
    )
    tenancies: Annotated[tuple[Tenancy, ...], PlainValidator(_tenancies)] = Field((ALONE,), alias="tenants")
    repeat: Repeat = Repeat()
    order: Order = Order()
    design: Design = Design()
    compare: Compare = Field(Compare(), validate_default=True)
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
        return {
            "study": self.study,
            "about": self.about,
            **self._written_if_set("paper", "section", "scale"),
            "platform": [_stack(stack) for stack in self.platforms],
            "workload": [choice.plain() for choice in self.workloads],
            "control": {levels[0].name: [choice.body() for choice in levels] for levels in self.controls},
            "probes": [choice.plain() for choice in self.probes],
            "tenants": [level.plain() for level in self.tenancies],
            "repeat": self.repeat.as_plain(),
            "order": self.order.model_dump(),
            **({"design": plain} if (plain := self.design.as_plain()) else {}),
            "compare": self.compare.model_dump(exclude_none=True),
            "exclude": [selector.plain() for selector in self.exclude],
            **({} if self.missing == "refuse" else {"missing": self.missing}),
            **({"left_out": [ruling.as_json() for ruling in self.left_out]} if self.left_out else {}),
            **self._written_if_set("ends_in"),
            "aa": self.aa,
            **({} if self.rehearse is None else {"rehearse": self.rehearse}),
            **({"limit": written(self.limit_s)} if self.sets_limit or not self.rehearses else {}),
            "period": written(self.period_s),
        }

    def _written_if_set(self, *keys: str) -> dict[str, Json]:
        """Keys that most studies have no use for."""
        found = {key: getattr(self, key) for key in keys}
        return {key: value if isinstance(value, str) else list(value) for key, value in found.items() if value}

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


def _stack(stack: Stack) -> Json:
    return stack[0].plain() if len(stack) == 1 else [choice.plain() for choice in stack]
