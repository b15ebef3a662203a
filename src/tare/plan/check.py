"""Whether this device can run a study, how long it takes and what it stores. Values only: others print."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tare.errors import TareError
from tare.host import Host
from tare.parts.managers import conflicts
from tare.parts.protocols import Part
from tare.plan.estimate import disk_bytes, guessed_trial_s
from tare.plan.model import Cell, Trial
from tare.plan.order import trials
from tare.study.design import ENOUGH_REPEATS
from tare.study.model import Study


@dataclass(frozen=True)
class Obstacle:
    """Why one part cannot work on this device."""

    kind: str  # "platform", "workload", "control", "probe"
    part: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """What would happen, and what stands in the way."""

    cells: int
    trials: tuple[Trial, ...] = field(repr=False)  # in the order in which they would run
    least_trials: int  # if the stop rule is met as early as it can be
    trial_s: float  # what one trial is thought to take
    measured: bool  # from trials that have run, not from our guess
    disk_bytes: int
    obstacles: tuple[Obstacle, ...] = ()
    unasked: tuple[str, ...] = ()  # what could not be looked at before the run, in sentences
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The whole plan, up to its last block."""
        return len(self.trials) * self.trial_s

    @property
    def least_seconds(self) -> float:
        return self.least_trials * self.trial_s

    @property
    def blocked(self) -> list[str]:
        """Every reason not to run, in sentences; empty means that it can."""
        return [
            f"{one.kind} {text}" if text.startswith(f"{one.part}:") else f"{one.kind} {one.part}: {text}"
            for one in self.obstacles
            for text in one.sentences
        ]


def check(
    study: Study, cells: Sequence[Cell], host: Host, *, trial_s: float | None = None, ignore_managers: bool = False
) -> Check:
    """Ask every part, count and estimate; `trial_s` is what a trial took before, where a store knows."""
    planned = trials(study, cells)
    seconds = guessed_trial_s(study) if trial_s is None else trial_s
    return Check(
        cells=len(cells),
        trials=tuple(planned),
        least_trials=sum(trial.block < study.repeat.min for trial in planned),
        trial_s=seconds,
        measured=trial_s is not None,
        disk_bytes=disk_bytes(study, planned, seconds),
        obstacles=(*_obstacles(cells, host), *(() if ignore_managers else _managed(cells, host))),
        unasked=tuple(_unasked(cells)),
        notes=tuple(_notes(study, cells)),
    )


def _obstacles(cells: Sequence[Cell], host: Host) -> Iterator[Obstacle]:
    """Each distinct part once. Of a stack only the outermost platform stands on this host."""
    seen: set[tuple[str, str, str]] = set()
    for cell in cells:
        everyone = cell.everyone()
        asked: list[tuple[str, Part]] = [("platform", part) for tenant in everyone for part in tenant.platforms[:1]]
        asked += [("control", part) for part in cell.controls]
        asked += [("probe", part) for part in cell.probes]
        asked += [("workload", tenant.workload) for tenant in everyone]
        for kind, part in asked:
            key = (kind, part.part_name(), json.dumps(part.fields(), sort_keys=True))
            if key not in seen:
                seen.add(key)
                yield from _ask(kind, part, host)


def _managed(cells: Sequence[Cell], host: Host) -> Iterator[Obstacle]:
    """Controls that something else on this device turns too."""
    turned: dict[str, set[str]] = {}
    for control in (control for cell in cells for control in cell.controls):
        turned.setdefault(control.part_name(), set()).update(control.turns())
    for name, turns in turned.items():
        if sentences := conflicts(host, turns):
            yield Obstacle("control", name, tuple(sentences))


def _ask(kind: str, part: Part, host: Host) -> Iterator[Obstacle]:
    try:
        sentences = part.obstacles(host)  # type: ignore[attr-defined]
    except TareError as error:
        sentences = [str(error)]
    if sentences:
        yield Obstacle(kind, part.part_name(), tuple(sentences))


def _unasked(cells: Sequence[Cell]) -> Iterator[str]:
    everyone = [tenant for cell in cells for tenant in cell.everyone()]
    stacks = dict.fromkeys(tuple(part.part_name() for part in tenant.platforms) for tenant in everyone)
    for outer, *inner in stacks:
        if inner:
            yield f"Whether {' in '.join(reversed(inner))} works inside {outer} shows only once {outer} is open."


def _notes(study: Study, cells: Sequence[Cell]) -> Iterator[str]:
    if study.repeat.max < ENOUGH_REPEATS:
        yield (
            f"{study.repeat.max} blocks are too few for a 95 % interval ({ENOUGH_REPEATS} are enough): "
            f"the range is shown, and nothing is called equivalent."
        )
    if len(cells) == 1:
        yield "There is one cell only: it is measured, and compared with nothing."
