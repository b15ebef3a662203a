"""Cells named by their levels: `{platform: docker, workload.batch: 64}`, as in `exclude` and `compare.against`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from tare.parts.find import Kind
from tare.parts.protocols import Json, Part
from tare.studies.fields import PartChoice, in_records, levels_of
from tare.studies.reader import ALONE, PartReader, Stack, Tenancy
from tare.studies.yaml import Complaint, Loc, listed, show, suggestion

DEVICE_KEYS = ("device", "device.type")  # factors of a run over a fleet: their levels are in its inventory


@dataclass(frozen=True)
class Factors:
    """The levels of a study, as its cells will show them."""

    platforms: tuple[Stack, ...]
    workloads: tuple[PartChoice, ...]
    controls: tuple[tuple[PartChoice, ...], ...]
    tenancies: tuple[Tenancy, ...] = (ALONE,)

    @cached_property
    def values(self) -> dict[str, list[Json]]:
        """The values that each setting takes, in the order of the file."""
        found: dict[str, dict[str, Json]] = {
            "platform": {name: name for name in map(label, self.platforms)},
            "workload": {choice.name: choice.name for choice in self.workloads},
        }
        for prefix, part in self._parts():
            for key, value in part.settings().items():
                found.setdefault(f"{prefix}.{key}", {}).setdefault(repr(value), value)
        found["tenants"] = {repr(level.label): level.label for level in self.tenancies}
        return {key: list(values.values()) for key, values in found.items()}

    @cached_property
    def holders(self) -> dict[str, list[tuple[Part, str]]]:
        """For each field, one part of every class that has it, and what the field is called there."""
        found: dict[str, dict[type, tuple[Part, str]]] = {}
        for prefix, part in self._parts():
            for key in dict.fromkeys((*type(part).model_fields, *part.settings())):
                found.setdefault(f"{prefix}.{key}", {}).setdefault(type(part), (part, key))
        return {key: list(parts.values()) for key, parts in found.items()}

    @cached_property
    def stacks(self) -> dict[str, list[tuple[Part, ...]]]:
        """For each key that names whole parts, few parts with each of their levels in at least one."""
        found: dict[str, list[tuple[Part, ...]]] = {
            "platform": [parts for stack in self.platforms for parts in _diagonal(stack)],
            "workload": [(part,) for choice in self.workloads for part in choice.samples],
        }
        for levels in self.controls:
            for choice in levels:
                found.setdefault(f"control.{choice.name}", []).extend((part,) for part in choice.samples)
        return found

    def varied(self) -> dict[str, int]:
        """The factors: every setting that takes more than one value, and how many."""
        return {key: len(values) for key, values in self.values.items() if len(values) > 1}

    def canonical(self, key: str) -> str:
        """The key as records have it: `control.page_cache` is `control.page_cache.state` there."""
        if whole_kind(key) == "controls" and key in self.stacks:
            short = type(self.stacks[key][0][0]).short
            return key if short is None else f"{key}.{short}"
        return key

    def unknown(self, key: str) -> str | None:
        """What to say about a key that names nothing in this study; None if it does name something."""
        if key in self.values or key in self.stacks or key in DEVICE_KEYS:
            return None
        known = list(dict.fromkeys([*self.stacks, *self.values]))
        return f"nothing in this study is called {show(key)}.{suggestion(key, known)}\nAvailable: {listed(known)}."

    def _parts(self) -> Iterator[tuple[str, Part]]:
        """Few parts, with each level of each field in at least one, and what its fields are called."""
        prefixed = [
            (platform_prefix([one.name for one in stack], depth), choice)
            for stack in self.platforms
            for depth, choice in enumerate(stack)
        ]
        prefixed += [("workload", choice) for choice in self.workloads]
        prefixed += [(f"control.{choice.name}", choice) for levels in self.controls for choice in levels]
        for prefix, choice in prefixed:
            yield from ((prefix, part) for part in choice.samples)


def whole_kind(key: str) -> Kind | None:
    """The kind of part that a key names as a whole: `platform`, `workload`, `control.page_cache`."""
    kinds: dict[str, Kind] = {"platform": "platforms", "workload": "workloads"}
    if key.startswith("control.") and key.count(".") == 1:
        return "controls"
    return kinds.get(key)


def label(stack: Sequence[PartChoice]) -> str:
    """A stack in one word, as records have it: `docker`, `qemu+docker`."""
    return "+".join(choice.name for choice in stack)


def platform_prefix(names: Sequence[str], depth: int) -> str:
    """What the fields of a platform are called in records."""
    return "platform" if len(names) == 1 else f"platform.{depth}.{names[depth]}"


def _diagonal(stack: Stack) -> Iterator[tuple[Part, ...]]:
    depths = [choice.samples for choice in stack]
    for turn in range(max(len(depth) for depth in depths)):
        yield tuple(depth[min(turn, len(depth) - 1)] for depth in depths)


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
            if name != key and (name in type(part).model_fields or name in part.settings()):
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
        return {**part.fields(), **part.settings()}[name] in self._meant[type(part)]

    def complaints(self, factors: Factors, loc: Loc) -> list[Complaint]:
        meant = [value for part, name in factors.holders[self.key] for value in self._meant_for(part, name)]
        return [] if any(value in factors.values[self.key] for value in meant) else [_no_cell(loc, self.key, factors)]

    def _meant_for(self, part: Part, name: str) -> list[Json]:
        """The value as that part would have it in its records: '2 GiB' is 2147483648 there.

        A label that follows from other fields (that of a power mode) can be that of another part only: it stays as is.
        """
        if name not in type(part).model_fields:  # what a field stands for: `batch` of `vary`
            return meant(self.value)
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
