"""What a study fixes and what it varies, under the names that records use (`platform`, `workload.batch`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tare.parts.find import Kind
from tare.parts.protocols import Json, Part
from tare.study.choice import PartChoice
from tare.study.reader import Stack
from tare.study.source import listed, show, suggestion
from tare.study.tenancy import ALONE, Tenancy

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
            for field, value in part.fields().items():
                found.setdefault(f"{prefix}.{field}", {}).setdefault(repr(value), value)
        found["tenants"] = {repr(level.label): level.label for level in self.tenancies}
        return {key: list(values.values()) for key, values in found.items()}

    @cached_property
    def holders(self) -> dict[str, list[tuple[Part, str]]]:
        """For each field, one part of every class that has it, and what the field is called there."""
        found: dict[str, dict[type, tuple[Part, str]]] = {}
        for prefix, part in self._parts():
            for field in type(part).model_fields:
                found.setdefault(f"{prefix}.{field}", {}).setdefault(type(part), (part, field))
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
        return f"nothing in this study is called {show(key)}.\nThere is: {listed(known)}.{suggestion(key, known)}"

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
    storeys = [choice.samples for choice in stack]
    for turn in range(max(len(storey) for storey in storeys)):
        yield tuple(storey[min(turn, len(storey) - 1)] for storey in storeys)
