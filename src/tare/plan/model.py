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

    def everyone(self) -> tuple[Tenant, ...]:
        """The workload that is measured, and those beside it."""
        return Tenant(self.platforms, self.workload), *self.neighbours

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Flat, plain data for records: `{"platform": "docker", "platform.image": None, "workload.batch": 16}`."""
        flat: dict[str, Any] = {"platform": "+".join(p.part_name() for p in self.platforms)}
        for depth, platform in enumerate(self.platforms):
            prefix = "platform" if len(self.platforms) == 1 else f"platform.{depth}.{platform.part_name()}"
            flat |= _flat(prefix, platform)
        flat["workload"] = self.workload.part_name()
        flat |= _flat("workload", self.workload)
        for control in self.controls:
            flat |= _flat(f"control.{control.part_name()}", control)
        flat["tenants"] = self.tenants
        flat["probes"] = ",".join(p.part_name() for p in self.probes)
        return flat


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
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.cell.settings


def _flat(prefix: str, part: Part) -> dict[str, Any]:
    return {f"{prefix}.{key}": value for key, value in part.fields().items()}
