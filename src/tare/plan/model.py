"""One trial, as a value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tare.parts.protocols import Control, Part, Platform, Probe, Workload


@dataclass(frozen=True)
class Tenant:
    """A workload on its own platforms, beside others on the same device."""

    platforms: tuple[Platform, ...]
    workload: Workload


@dataclass(frozen=True)
class Cell:
    """One combination of the study's factors: everything about a trial but its repetition."""

    platforms: tuple[Platform, ...]  # outermost first: (qemu, docker) is a container in a guest
    workload: Workload
    controls: tuple[Control, ...] = ()
    probes: tuple[Probe, ...] = ()
    neighbours: tuple[Tenant, ...] = ()  # who runs beside it, in the same trial
    tenants: Any = 1  # the level, as records have it: 4, or `beside torch_infer`
    device: tuple[tuple[str, str], ...] = ()  # in a fleet: what is said of the device it is for, name first

    def everyone(self) -> tuple[Tenant, ...]:
        """The workload that is measured, and those beside it."""
        return Tenant(self.platforms, self.workload), *self.neighbours

    def beside(self) -> list[dict[str, Any]]:
        """Others than itself that run beside it, each as flat, plain data; the level's name says too little of them."""
        own = Tenant(self.platforms, self.workload)
        return [_described(each.platforms, each.workload) for each in self.neighbours if each != own]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Flat, plain data for records: `{"platform": "docker", "platform.image": None, "workload.batch": 16}`."""
        flat = _described(self.platforms, self.workload)
        for control in self.controls:
            flat |= _flat(f"control.{control.part_name()}", control)
        flat["tenants"] = self.tenants
        flat["probes"] = ",".join(p.part_name() for p in self.probes)
        return flat | dict(self.device)


@dataclass(frozen=True)
class Trial:
    """One repetition of one cell. Its id is the hash of its content, so a resumed study finds what it has."""

    study: str
    cell: Cell
    block: int
    position: int
    seed: int
    limit_s: float
    twin: int = 0

    @cached_property
    def id(self) -> str:
        # The position is left out: a block that is shuffled again still holds the same trials.
        content = [self.study, self.cell.settings, self.block, self.twin, self.seed]
        if beside := self.cell.beside():
            content.append(beside)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.cell.settings


def _described(platforms: tuple[Platform, ...], workload: Workload) -> dict[str, Any]:
    """A workload on its platforms, as records have it."""
    flat: dict[str, Any] = {"platform": "+".join(part.part_name() for part in platforms)}
    for depth, platform in enumerate(platforms):
        prefix = "platform" if len(platforms) == 1 else f"platform.{depth}.{platform.part_name()}"
        flat |= _flat(prefix, platform)
    return {**flat, "workload": workload.part_name(), **_flat("workload", workload)}


def _flat(prefix: str, part: Part) -> dict[str, Any]:
    return {f"{prefix}.{key}": value for key, value in part.fields().items()}
