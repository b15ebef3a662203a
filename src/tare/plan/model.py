"""One trial, as a value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tare.base.sides import REHEARSAL, side_of
from tare.drivers.cgroups.limits import Limits
from tare.drivers.torch_programs import USUAL_CORES
from tare.parts.protocols import Control, Part, Platform, Probe, Workload
from tare.studies.design import Slices
from tare.studies.model import Study


@dataclass(frozen=True)
class PlannedTenant:
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
    neighbours: tuple[PlannedTenant, ...] = ()  # who runs beside it, in the same trial
    tenants: Any = 1  # the level, as records have it: 4, or `beside torch_infer`
    device: tuple[tuple[str, str], ...] = ()  # in a fleet: what is said of the device it is for, name first

    def everyone(self) -> tuple[PlannedTenant, ...]:
        """The workload that is measured, and those beside it."""
        return PlannedTenant(self.platforms, self.workload), *self.neighbours

    def beside(self) -> list[dict[str, Any]]:
        """Others than itself that run beside it, each as flat, plain data; the level's name says too little of them."""
        own = PlannedTenant(self.platforms, self.workload)
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
    slices: Slices | None = None  # where it takes turns with the other trials of its block
    rehearses: Cell | None = None  # of a rehearsal: the cell that it tries; `cell` is what it runs, in a short form

    @cached_property
    def id(self) -> str:
        if self.rehearses is not None:  # another seed, or block, is no other rehearsal
            told = json.dumps([self.study, side_of(self.rehearses.settings)])
            return REHEARSAL + hashlib.sha256(told.encode()).hexdigest()[: 16 - len(REHEARSAL)]
        # The position is left out: a block that is shuffled again still holds the same trials.
        content = [self.study, self.cell.settings, self.block, self.twin, self.seed]
        if beside := self.cell.beside():
            content.append(beside)
        if self.slices is not None:
            content.append({"slices": self.slices.as_plain()})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def settings(self) -> Mapping[str, Any]:
        return (self.rehearses or self.cell).settings

    @property
    def side(self) -> str:
        """The platform and the workload, with their fields: what can turn out not to run at all."""
        return side_of(self.settings)


def _described(platforms: tuple[Platform, ...], workload: Workload) -> dict[str, Any]:
    """A workload on its platforms, as records have it."""
    flat: dict[str, Any] = {"platform": "+".join(part.part_name() for part in platforms)}
    for depth, platform in enumerate(platforms):
        prefix = "platform" if len(platforms) == 1 else f"platform.{depth}.{platform.part_name()}"
        flat |= _flat(prefix, platform)
    return {**flat, "workload": workload.part_name(), **_flat("workload", workload)}


def _flat(prefix: str, part: Part) -> dict[str, Any]:
    return {f"{prefix}.{key}": value for key, value in part.settings().items()}


GUESSED_TRIAL_S = 15.0
"""What a trial takes where its workload does not know: start, import torch (2 to 5 s), three short epochs, stop."""

TRIAL_S = 1.0
"""A trial beyond its workload: the sampler starts, the software is asked for, the record is sealed."""

_CHANNELS_A_PROBE = 15
_BYTES_A_READING = 4  # sealed and compressed; a counter that grows steadily takes little
_BYTES_A_MARK = 6
_MARKS_A_STEP = 8  # begin and end of fetch, copy, compute and the step itself
_BYTES_A_TRIAL = 48 * 1024  # the record, its facts, the output and what a file system rounds up


def guessed_trial_s(study: Study) -> float:
    """What a trial takes where nothing is known of its cell; no trial outlives its limit."""
    return min(GUESSED_TRIAL_S, study.limit_s)


def guessed_cell_s(study: Study, cell: Cell) -> float:
    """What a trial of this cell takes where nobody has measured one yet: its parts guess, and are added up."""
    everyone = cell.everyone()
    guesses = [tenant.workload.guessed_s(_cores(tenant)) for tenant in everyone]
    if None in guesses:
        return guessed_trial_s(study)
    # Tenants share the cores, so that their work adds up; their platforms are made side by side.
    total = sum(guess for guess in guesses if guess is not None)
    for platform in reversed(cell.platforms):
        total = total * platform.slowness() + platform.extra_s
    total += TRIAL_S + sum(part.extra_s for part in (*cell.controls, *cell.probes))
    return min(total, study.limit_s)


def _cores(tenant: PlannedTenant) -> int:
    """The cores that a tenant asks for; of a machine that is not known yet, a small one's."""
    platform = tenant.platforms[0]
    return (platform.cores if isinstance(platform, Limits) else None) or USUAL_CORES


def disk_bytes(study: Study, trials: Iterable[tuple[Trial, float]]) -> int:
    """What the sealed records of these trials take, each with its seconds."""
    total = 0.0
    for trial, seconds in trials:
        series = seconds / study.period_s * len(study.probes) * _CHANNELS_A_PROBE * _BYTES_A_READING
        steps = trial.cell.workload.units() or 0
        total += _BYTES_A_TRIAL + series + steps * _MARKS_A_STEP * _BYTES_A_MARK
    return round(total)


def planned_s(study: Study, cells: Sequence[Cell], repeats: Sequence[Cell] = ()) -> float:
    """What all blocks of these cells take; `repeats` are those that run twice in each."""
    return study.repeat.max * sum(guessed_cell_s(study, cell) for cell in (*cells, *repeats))
