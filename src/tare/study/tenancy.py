"""Who shares the device with the workload: `tenants: 4`, or others: `tenants: {beside: {torch_infer: {}}}`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tare.parts.protocols import Json
from tare.study.choice import PartChoice
from tare.study.reader import PartReader, Stack
from tare.study.source import Complaint, Loc

MOST_TENANTS = 64
_KEYS = ("beside", "platform")
_HOW = "a level of tenants is a number, or {beside: WORKLOAD} with a `platform` of its own if it has one, not {given}."


@dataclass(frozen=True)
class Tenancy:
    """One level: so many of the same, or the workload with these beside it (on their own platform, if one is named)."""

    count: int = 1
    beside: tuple[PartChoice, ...] = ()
    stack: Stack | None = None
    in_full: bool = False  # another level has the same short name

    @property
    def label(self) -> Json:
        """The level as records have it: 4, or `beside torch_infer`."""
        if not self.beside:
            return self.count
        worded = _worded if self.in_full else _named
        where = "" if self.stack is None else f" in {'+'.join(map(worded, self.stack))}"
        return f"beside {', '.join(map(worded, self.beside))}{where}"

    def plain(self) -> Json:
        """As a study file has it."""
        if not self.beside:
            return self.count
        body: dict[str, Json] = {"beside": [choice.plain() for choice in self.beside]}
        if self.stack is not None:
            body["platform"] = [choice.plain() for choice in self.stack]
        return body


ALONE = Tenancy()


def read_tenancies(value: Json) -> tuple[tuple[Tenancy, ...], list[Complaint]]:
    """Every level, and what is wrong with them."""
    items = value if isinstance(value, list) else [value]
    found: list[Tenancy] = []
    complaints: list[Complaint] = []
    if not items:
        complaints.append(Complaint((), "the list of tenants is empty; leave it away for one."))
    for index, item in enumerate(items):
        loc: Loc = (index,) if isinstance(value, list) else ()
        level, wrong = _level(item, loc)
        complaints += wrong
        if level is not None and level in found:
            complaints.append(Complaint(loc, "{given} is given twice as a level of tenants."))
        found += [] if level is None else [level]
    short = [level.label for level in found]
    return tuple(replace(level, in_full=short.count(level.label) > 1) for level in found), complaints


def _level(value: Json, loc: Loc) -> tuple[Tenancy | None, list[Complaint]]:
    if type(value) is int:
        if 1 <= value <= MOST_TENANTS:
            return Tenancy(count=value), []
        return None, [Complaint(loc, f"tenants must be a whole number from 1 to {MOST_TENANTS}, not {{given}}.")]
    if not isinstance(value, dict) or "beside" not in value or set(value) - set(_KEYS):
        return None, [Complaint(loc, _HOW)]
    complaints: list[Complaint] = []
    workloads = PartReader("workloads")
    beside = workloads.choices(value["beside"], (*loc, "beside"))
    complaints += workloads.complaints
    stack, wrong = _stack(value.get("platform"), (*loc, "platform"))
    complaints += wrong + [Complaint(loc, text) for text in _several([*beside, *(stack or ())])]
    if len(beside) >= MOST_TENANTS:
        complaints.append(Complaint(loc, f"at most {MOST_TENANTS - 1} workloads fit beside another."))
    return (None if complaints else Tenancy(len(beside) + 1, beside, stack)), complaints


def _stack(value: Json, loc: Loc) -> tuple[Stack | None, list[Complaint]]:
    if value is None:
        return None, []
    reader = PartReader("platforms")
    # Here a list is one stack: the platforms of a neighbour are no factor.
    stacks = reader.stacks([value] if isinstance(value, list) else value, loc)
    return (stacks[0] if len(stacks) == 1 else None), reader.complaints


def _several(choices: list[PartChoice]) -> Iterator[str]:
    for choice in choices:
        if choice.count() > 1:
            yield f"{choice.name} beside the workload is no factor: give each of its fields one value."


def _named(choice: PartChoice) -> str:
    return choice.name


def _worded(choice: PartChoice) -> str:
    fields = ", ".join(f"{key}={value}" for key, value in itertools.islice(choice.body().items(), 6))
    return f"{choice.name}({fields})" if fields else choice.name
