"""What of a study this device can run, where the study says that the rest may be left out (`missing: leave_out`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tare.errors import NothingLeft
from tare.host import Host
from tare.parts.protocols import Part, Recorder
from tare.plan.check import Asking, Obstacle, PartKey, parts_of
from tare.plan.matrix import OnDevice, place
from tare.plan.matrix import cells as cells_of
from tare.plan.model import Cell
from tare.study.choice import PartChoice
from tare.study.model import Study


class Possible(NamedTuple):
    """The study as it is run here, which says what it leaves out, and its cells."""

    study: Study
    cells: tuple[Cell, ...]


class Asked(Protocol):
    """Whoever says what keeps a part from working: a device, or what is known of several."""

    def ask(self, kind: str, part: Part) -> Sequence[Obstacle]: ...


@dataclass(frozen=True)
class Lacking:
    """The parts that are left out, and why in sentences; it answers as a device would that has none of them."""

    parts: Mapping[PartKey, tuple[str, ...]] = field(default_factory=dict)

    def ask(self, kind: str, part: Part) -> tuple[Obstacle, ...]:
        sentences = self.parts.get(PartKey.of(kind, part))
        return () if sentences is None else (Obstacle(kind, part.part_name(), sentences),)

    def kept(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that take none of these parts."""
        if not self.parts:
            return list(cells)
        return [cell for cell in cells if not any(self.ask(kind, part) for kind, part in parts_of(cell))]

    def as_json(self) -> list[Any]:
        return [[*key, list(sentences)] for key, sentences in self.parts.items()]

    @classmethod
    def from_json(cls, found: Any) -> Lacking:
        """What `as_json` made; raises `ValueError` or `TypeError` for anything else."""
        rows = [(PartKey(str(kind), str(name), str(fields)), said) for kind, name, fields, said in found]
        return cls({key: tuple(str(sentence) for sentence in said) for key, said in rows})


NOTHING = Lacking()


def possible(study: Study, host: Host, brought: bool = False) -> Possible:
    """All of the study, unless it says that what cannot be run may be left out; `brought` as in `check`."""
    if study.missing == "refuse":
        return Possible(study, tuple(cells_of(study)))
    return left_of(study, Asking(host, brought))


def left_of(study: Study, asked: Asked, devices: Sequence[OnDevice] = ((),)) -> Possible:
    """The study without what whoever is asked lacks; refused where what is left asks no question.

    `devices` are those of a fleet that the cells are for, where the study names any.
    """
    fewer, gaps = _without_beside(study, asked)
    every = [cell for device in devices for cell in cells_of(fewer, device=device)]
    kept, stopping = [], []
    for cell in every:
        stopped = [obstacle for kind, part in parts_of(cell) for obstacle in asked.ask(kind, part)]
        stopping += [sentence for obstacle in stopped for sentence in obstacle.worded()]
        kept += [] if stopped else [cell]
    for what, why in _why_nothing(fewer, every, kept):
        only_gaps = [sentence for sentence in dict.fromkeys(gaps) if sentence not in stopping]
        raise NothingLeft(what, why, list(dict.fromkeys(stopping)), only_gaps)
    return Possible(fewer.model_copy(update={"left_out": tuple(dict.fromkeys(gaps + stopping))}), tuple(kept))


def _without_beside(study: Study, asked: Asked) -> tuple[Study, list[str]]:
    """The study without probes that do not work here, and without conditions (controls of one level) that it lacks.

    A recorder stays: what it records is what the study is about, and without it nothing would be measured.
    """
    said: list[str] = []
    probes = [choice for choice in study.probes if _works("probe", choice, asked, said)]
    fixed = [levels for levels in study.controls if len(levels) == 1 and levels[0].count() == 1]
    gone = [levels for levels in fixed if not _works("control", levels[0], asked, said)]
    controls = tuple(levels for levels in study.controls if levels not in gone)
    return study.model_copy(update={"probes": tuple(probes), "controls": controls}), said


def _works(kind: str, choice: PartChoice, asked: Asked, said: list[str]) -> bool:
    (part,) = choice.parts()
    stopped: Sequence[Obstacle] = () if isinstance(part, Recorder) else asked.ask(kind, part)
    said += [sentence for obstacle in stopped for sentence in obstacle.worded()]
    return not stopped


def _why_nothing(study: Study, every: Sequence[Cell], kept: Sequence[Cell]) -> Iterator[tuple[str, str]]:
    """What is said, and why, of a study that has nothing left to measure, or nothing left to compare."""
    if not kept:
        yield f"nothing of {study.study} can be measured here", ""
    for why in _why_incomparable(study, every, kept) if kept else ():
        yield f"{study.study} is not measured here", f" {why}."


def _why_incomparable(study: Study, every: Sequence[Cell], kept: Sequence[Cell]) -> Iterator[str]:
    by = study.compare.by or "platform"
    before, after = _levels(by, every), _levels(by, kept)
    if len(before) > 1 and len(after) < 2:
        yield f"of {by} only {after[0]} is left, and there is nothing to compare it with"
    if len(every) > 1 and not any(study.compare.baseline.picks(place(cell)) for cell in kept):
        wanted = ", ".join(f"{key} {value}" for key, value in study.compare.against.items())
        yield f"what the others are compared with ({wanted}) cannot be run"


def _levels(by: str, cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(str(cell.settings.get(by)) for cell in cells))
