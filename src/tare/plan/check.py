"""Whether this device can run a study, how long it takes and what it stores. Values only: others print."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tare.errors import TareError
from tare.host import Host
from tare.parts.managers import conflicts
from tare.parts.protocols import Part, Platform
from tare.plan.estimate import disk_bytes, guessed_cell_s
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

    def worded(self) -> list[str]:
        """Each sentence with the part that it is about."""
        return [
            f"{self.kind} {text}" if text.startswith(f"{self.part}:") else f"{self.kind} {self.part}: {text}"
            for text in self.sentences
        ]


@dataclass(frozen=True)
class Check:
    """What would happen, and what stands in the way."""

    cells: int
    trials: tuple[Trial, ...] = field(repr=False)  # in the order in which they would run
    least_trials: int  # if the stop rule is met as early as it can be
    trial_s: tuple[float, ...] = field(repr=False)  # what each of them is thought to take
    measured: bool  # from trials that have run, not from our guess
    disk_bytes: int
    obstacles: tuple[Obstacle, ...] = ()
    unasked: tuple[str, ...] = ()  # what could not be looked at before the run, in sentences
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The whole plan, up to its last block."""
        return sum(self.trial_s)

    @property
    def least_seconds(self) -> float:
        return sum(self.trial_s[: self.least_trials])  # blocks come in order

    @property
    def blocked(self) -> list[str]:
        """Every reason not to run, in sentences; empty means that it can."""
        return [sentence for one in self.obstacles for sentence in one.worded()]


def check(
    study: Study, cells: Sequence[Cell], host: Host, *, trial_s: float | None = None, ignore_managers: bool = False,
    brought: bool = False,
) -> Check:  # fmt: skip
    """Ask every part, count and estimate; `trial_s` is what a trial took before, where a store knows.

    `brought`: what a run would bring with it (a private engine) is not missing.
    """
    planned = trials(study, cells)
    seconds = _seconds(study, planned, trial_s)
    return Check(
        cells=len(cells),
        trials=tuple(planned),
        least_trials=sum(trial.block < study.repeat.min for trial in planned),
        trial_s=seconds,
        measured=trial_s is not None,
        disk_bytes=disk_bytes(study, zip(planned, seconds, strict=True)),
        obstacles=(*obstacles_of(cells, host, brought), *(() if ignore_managers else _managed(cells, host))),
        unasked=tuple(_unasked(cells)),
        notes=tuple(_notes(study, cells)),
    )


def _seconds(study: Study, planned: Sequence[Trial], trial_s: float | None) -> tuple[float, ...]:
    """What each trial takes: measured before, or guessed once for each cell."""
    if trial_s is not None:
        return (trial_s,) * len(planned)
    cells = {id(trial.cell): trial.cell for trial in planned}
    guesses = {key: guessed_cell_s(study, cell) for key, cell in cells.items()}
    return tuple(guesses[id(trial.cell)] for trial in planned)


def obstacles_of(cells: Sequence[Cell], host: Host, brought: bool = False) -> Iterator[Obstacle]:
    """Each distinct part once. Of a stack only the outermost platform stands on this host."""
    asking = Asking(host, brought)
    for cell in cells:
        for kind, part in parts_of(cell):
            yield from asking.first_time(kind, part)


def parts_of(cell: Cell) -> list[tuple[str, Part]]:
    """Every part of a cell that this host can be asked about, with its kind."""
    everyone = cell.everyone()
    found: list[tuple[str, Part]] = [("platform", part) for tenant in everyone for part in tenant.platforms[:1]]
    found += [("control", part) for part in cell.controls]
    found += [("probe", part) for part in cell.probes]
    return found + [("workload", tenant.workload) for tenant in everyone]


class PartKey(NamedTuple):
    """What tells one part of a study from every other one."""

    kind: str
    name: str
    fields: str  # as JSON

    @classmethod
    def of(cls, kind: str, part: Part) -> PartKey:
        return cls(kind, part.part_name(), json.dumps(part.fields(), sort_keys=True))


class Asking:
    """Asks parts what keeps them from working on a host, each distinct one once."""

    def __init__(self, host: Host, brought: bool = False) -> None:
        self._host = host
        self._brought = brought  # what a run brings with it is not missing
        self._answers: dict[PartKey, tuple[Obstacle, ...]] = {}

    @property
    def stopped(self) -> dict[PartKey, tuple[str, ...]]:
        """Of what was asked, the parts that cannot work, and why in sentences."""
        answers = self._answers.items()
        found = {key: tuple(text for each in stopped for text in each.sentences) for key, stopped in answers}
        return {key: sentences for key, sentences in found.items() if sentences}

    def ask(self, kind: str, part: Part) -> tuple[Obstacle, ...]:
        key = PartKey.of(kind, part)
        if key not in self._answers:
            self._answers[key] = self.look(kind, part)
        return self._answers[key]

    def look(self, kind: str, part: Part) -> tuple[Obstacle, ...]:
        """What keeps it from working, found out on the host itself."""
        stopped = tuple(_ask(kind, part, self._host))
        comes = self._brought and isinstance(part, Platform) and part.brought_by_run(self._host)
        return () if comes else stopped

    def first_time(self, kind: str, part: Part) -> tuple[Obstacle, ...]:
        """The same, but nothing about a part that was asked before."""
        known = len(self._answers)
        found = self.ask(kind, part)
        return found if len(self._answers) > known else ()


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
        blocks = "1 block is" if study.repeat.max == 1 else f"{study.repeat.max} blocks are"
        yield (
            f"{blocks} too few for a 95 % interval ({ENOUGH_REPEATS} are enough): "
            f"the range is shown, and nothing is called equivalent."
        )
    if len(cells) == 1:
        yield "There is one cell only: it is measured, and compared with nothing."
