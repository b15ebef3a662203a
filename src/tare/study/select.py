"""Cells named by their levels: `{platform: docker, workload.batch: 64}`, as in `exclude` and `compare.against`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from tare.parts.find import Kind
from tare.parts.protocols import Json, Part
from tare.study.annotations import levels_of
from tare.study.factors import DEVICE_KEYS, Factors, platform_prefix, whole_kind
from tare.study.making import in_records
from tare.study.reader import PartReader, Stack
from tare.study.source import Complaint, Loc, listed, show


class Place(NamedTuple):
    """What a cell is made of, as far as a selector can name it."""

    platforms: tuple[Part, ...]
    workload: Part
    controls: tuple[Part, ...] = ()
    tenants: Json = 1
    device: tuple[tuple[str, str], ...] = ()  # in a fleet: its name, and its type where it has one

    def whole(self, key: str) -> tuple[Part, ...]:
        """The parts that a key such as `platform` names."""
        controls = {f"control.{part.part_name()}": (part,) for part in self.controls}
        return ({"platform": self.platforms, "workload": (self.workload,)} | controls).get(key, ())

    def holder(self, key: str) -> tuple[Part, str] | None:
        """The part that has the field that a key names, and the field's own name."""
        names = [part.part_name() for part in self.platforms]
        prefixed = [(platform_prefix(names, depth), part) for depth, part in enumerate(self.platforms)]
        prefixed.append(("workload", self.workload))
        prefixed += [(f"control.{part.part_name()}", part) for part in self.controls]
        for prefix, part in prefixed:
            name = key.removeprefix(f"{prefix}.")
            if name != key and name in type(part).model_fields:
                return part, name
        return None


class Test(Protocol):
    """One condition of a selector."""

    def holds(self, place: Place) -> bool: ...
    def complaints(self, factors: Factors, loc: Loc) -> list[Complaint]: ...


@dataclass(frozen=True)
class Selector:
    """Some cells of a study: those that have all of these levels."""

    wanted: tuple[tuple[str, Json], ...]

    def __hash__(self) -> int:
        return hash(json.dumps(self.wanted))

    @cached_property
    def tests(self) -> tuple[Test, ...]:
        return tuple(_test(key, value) for key, value in self.wanted)

    def plain(self) -> dict[str, Json]:
        return dict(self.wanted)

    @property
    def devices(self) -> dict[str, list[Json]]:
        """The levels of a fleet's devices that are wanted, by `device` or `device.type`."""
        return {key: meant(value) for key, value in self.wanted if key in DEVICE_KEYS}

    def anywhere(self) -> Selector:
        """The same cells, on whatever device."""
        return Selector(tuple((key, value) for key, value in self.wanted if key not in DEVICE_KEYS))

    def picks(self, place: Place) -> bool:
        """Whether the cell is one of those that are meant."""
        return all(test.holds(place) for test in self.tests)

    def complaints(self, factors: Factors, loc: Loc = ()) -> list[Complaint]:
        """Keys that name nothing, and levels that no cell has."""
        found: list[Complaint] = []
        for (key, _), test in zip(self.wanted, self.tests, strict=True):
            unknown = factors.unknown(key)
            at = (*loc, key)
            found += [Complaint(at, unknown, of_key=True)] if unknown else test.complaints(factors, at)
        return found


@dataclass(frozen=True)
class _PartIs:
    """`platform: docker`, `platform: {docker: {cpus: 1}}`, `control.page_cache: cold`."""

    key: str
    kind: Kind
    value: Json

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        return self._read(PartReader(self.kind, pattern=True), ())

    def holds(self, place: Place) -> bool:
        return self._covers(place.whole(self.key))

    def complaints(self, factors: Factors, loc: Loc) -> list[Complaint]:
        reader = PartReader(self.kind, pattern=True)
        self._read(reader, loc)
        if reader.complaints or any(self._covers(parts) for parts in factors.stacks[self.key]):
            return reader.complaints
        return [_no_cell(loc, self.key, factors)]

    def _covers(self, parts: tuple[Part, ...]) -> bool:
        return any(
            len(stack) == len(parts) and all(choice.covers(part) for choice, part in zip(stack, parts, strict=True))
            for stack in self.stacks
        )

    def _read(self, reader: PartReader, loc: Loc) -> tuple[Stack, ...]:
        if self.kind == "platforms":
            return reader.stacks([self.value.split("+")] if "+" in str(self.value) else self.value, loc)
        control = self.key.partition(".")[2]
        choices = reader.bodies(control, self.value, loc) if control else reader.choices(self.value, loc)
        return tuple((choice,) for choice in choices)


@dataclass(frozen=True)
class _FieldIs:
    """`workload.batch: 64`, or one of several: `workload.batch: [64, 128]`."""

    key: str
    value: Json
    _meant: dict[type, list[Json]] = field(default_factory=dict, compare=False)

    def holds(self, place: Place) -> bool:
        found = place.holder(self.key)
        if found is None:
            return False
        part, name = found
        if type(part) not in self._meant:
            self._meant[type(part)] = self._meant_for(part, name)
        return part.fields()[name] in self._meant[type(part)]

    def complaints(self, factors: Factors, loc: Loc) -> list[Complaint]:
        meant = [value for part, name in factors.holders[self.key] for value in self._meant_for(part, name)]
        return [] if any(value in factors.values[self.key] for value in meant) else [_no_cell(loc, self.key, factors)]

    def _meant_for(self, part: Part, name: str) -> list[Json]:
        """The value as that part would have it in its records: '2 GiB' is 2147483648 there.

        A label that follows from other fields (that of a power mode) can be that of another part only: it stays as is.
        """
        levels, _ = levels_of(type(part).model_fields[name], self.value)
        return [value for level in levels for value in in_records(part, name, level) or [level]]


@dataclass(frozen=True)
class _TenantsAre:
    """`tenants: 4`, or one of several: `tenants: [2, 4]`."""

    value: Json

    def holds(self, place: Place) -> bool:
        return place.tenants in meant(self.value)

    def complaints(self, factors: Factors, loc: Loc) -> list[Complaint]:
        there = any(level in factors.values["tenants"] for level in meant(self.value))
        return [] if there else [_no_cell(loc, "tenants", factors)]


@dataclass(frozen=True)
class _DeviceIs:
    """`device: orin-1`, or one of several: `device.type: [orin, xavier]`. Which there are, only the run knows."""

    key: str
    value: Json

    def holds(self, place: Place) -> bool:
        return dict(place.device).get(self.key) in meant(self.value)

    def complaints(self, factors: Factors, loc: Loc) -> list[Complaint]:
        levels = meant(self.value)
        if levels and all(isinstance(level, str) and level for level in levels):
            return []
        return [Complaint(loc, f"{self.key} is a name in the fleet's inventory, or a list of them, not {{given}}.")]


def meant(value: Json) -> list[Json]:
    """One level, or one of several."""
    return value if isinstance(value, list) else [value]


def _test(key: str, value: Json) -> Test:
    if key == "tenants":
        return _TenantsAre(value)
    if key in DEVICE_KEYS:
        return _DeviceIs(key, value)
    kind = whole_kind(key)
    return _FieldIs(key, value) if kind is None else _PartIs(key, kind, value)


def _no_cell(loc: Loc, key: str, factors: Factors) -> Complaint:
    levels = factors.values.get(factors.canonical(key), [])
    return Complaint(loc, f"no cell has {{given}} as its {key}.\nThe levels are: {listed(levels, show)}.")
