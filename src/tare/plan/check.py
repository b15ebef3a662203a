"""Whether this device can run a study, how long it takes, and what it stores. Values only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tare.base.errors import NothingLeft, TareError, TrialError
from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle, read_rulings
from tare.base.text import size_text
from tare.drivers import nvidia
from tare.drivers.power.everything import conflicts
from tare.parts.protocols import Part, Platform, Recorder
from tare.plan.guesses import disk_bytes, guessed_cell_s, machine_of
from tare.plan.matrix import Cell, OnDevice, Trial, baseline, place, trials
from tare.plan.matrix import cells as cells_of
from tare.studies.fields import PartChoice
from tare.studies.model import ENOUGH_REPEATS, Repeat, Study, blocks_for

_BROUGHT = "needs.engine"  # the one thing that a run can bring with it


@dataclass(frozen=True)
class Check:
    """What would happen, and what stands in the way."""

    cells: int
    trials: tuple[Trial, ...] = field(repr=False)  # in the order in which they would run
    least_trials: int  # if the stop rule is met as early as it can be
    trial_s: tuple[float, ...] = field(repr=False)  # what each of them is thought to take
    disk_bytes: int
    blocked: tuple[Ruling, ...] = ()  # every reason not to run; empty means that it can
    unasked: tuple[Ruling, ...] = ()  # what could not be looked at before the run
    notes: tuple[Ruling, ...] = ()

    @property
    def seconds(self) -> float:
        """The whole plan, up to its last block."""
        return sum(self.trial_s)

    @property
    def least_seconds(self) -> float:
        return sum(self.trial_s[: self.least_trials])  # blocks come in order


def check(
    study: Study, cells: Sequence[Cell], host: Host, *, ignore_managers: bool = False, brought: bool = False
) -> Check:
    """Ask every part, count and estimate. `brought`: what a run would bring with it (an engine) is not missing."""
    planned, machine = trials(study, cells), machine_of(study, host)
    guesses = {id(cell): guessed_cell_s(study, cell, machine) for cell in cells}
    seconds = tuple(guesses[id(trial.cell)] for trial in planned)
    blocked = list(obstacles_of(cells, host, brought))
    blocked += () if ignore_managers else _managed(cells, host)
    return Check(
        cells=len(cells),
        trials=tuple(planned),
        least_trials=sum(trial.block < study.repeat.min for trial in planned),
        trial_s=seconds,
        disk_bytes=disk_bytes(study, zip(planned, seconds, strict=True)),
        blocked=tuple(dict.fromkeys(blocked)),
        unasked=tuple(_unasked(cells)),
        notes=tuple(_notes(study, cells)),
    )


def obstacles_of(cells: Sequence[Cell], host: Host, brought: bool = False) -> Iterator[Ruling]:
    """Each distinct part once. Of a stack only the outermost platform stands on this host."""
    checks = ObstacleCheck(host, brought)
    for cell in cells:
        for kind, part in parts_of(cell):
            yield from checks.first_time(kind, part)
        yield from _hidden_programs(cell, host)
        yield from _unsettable_options(cell)
        yield from _sleeps_badly(cell)


def _sleeps_badly(cell: Cell) -> Iterator[Ruling]:
    """What a cell lacks that suspends the device: every such trial would fail, or show nothing."""
    sleeps = any(tenant.workload.asleep_s() for tenant in cell.everyone())
    alone = len(cell.everyone()) == 1 and [part.part_name() for part in cell.platforms] == ["bare"]
    counted = any(getattr(probe, "energy", None) is not None for probe in cell.probes)
    for is_there, what in (
        (alone, "`platform: bare`, with no tenant beside it"),
        (any(each.part_name() == "wake_on_lan" for each in cell.controls), "the control `wake_on_lan: on`, or `off`"),
        (counted, "a meter at the socket that counts energy, `external: {energy: COLUMN}`"),
    ):
        if sleeps and not is_there:
            yield obstacle("needs.value", f"a device that is suspended takes {what}.").about("workload idle")


def _unsettable_options(cell: Cell) -> Iterator[Ruling]:
    """Options of one side that its command cannot be given: every trial there would fail."""
    for platform in cell.platforms[-1:]:
        if options := platform.options():
            try:
                cell.workload.with_options(options)
            except TrialError as error:
                yield obstacle("needs.option", str(error)).about(f"platform {platform.part_name()}")


def _hidden_programs(cell: Cell, host: Host) -> Iterator[Ruling]:
    """Programs of the user's that a platform does not show: every trial in it would fail."""
    for tenant in cell.everyone():
        program = tenant.workload.users_program(host)
        for platform in tenant.platforms[:1]:
            if program is not None and platform.hides(host, program, tenant.workload.inputs()):
                # The folder that an interpreter needs: that of its environment, where it is in one.
                environment = program.parent.parent if program.parent.name == "bin" else program.parent
                sentence = (
                    f"the program {program} is not there inside {platform.part_name()}, which has a folder "
                    f"{program.parents[-2]} of its own: use an interpreter in another folder, for example in /opt or "
                    f"your home, or show its environment with `--mount {environment}` (in a study: `reads`)."
                )
                yield obstacle("needs.program", sentence).about(f"platform {platform.part_name()}")


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

    def subject_of(self, rulings: Iterable[Ruling]) -> tuple[Ruling, ...]:
        """The same, with this part as what they are about: `platform docker`."""
        return tuple(ruling.about(f"{self.kind} {self.name}") for ruling in rulings)


class ObstacleCheck:
    """Asks parts what keeps them from working on a host, each distinct one once."""

    def __init__(self, host: Host, brought: bool = False) -> None:
        self._host = host
        self._brought = brought  # what a run brings with it is not missing
        self._answers: dict[PartKey, tuple[Ruling, ...]] = {}

    @property
    def stopped(self) -> dict[PartKey, tuple[Ruling, ...]]:
        """Of what was asked, the parts that cannot work, and why, in the parts' own words."""
        return {key: found for key, found in self._answers.items() if found}

    def ask(self, kind: str, part: Part) -> tuple[Ruling, ...]:
        """What keeps it from working; the part is the subject."""
        key = PartKey.of(kind, part)
        if key not in self._answers:
            self._answers[key] = self.look(kind, part)
        return key.subject_of(self._answers[key])

    def look(self, kind: str, part: Part) -> tuple[Ruling, ...]:
        """What keeps it from working, found out on the host itself, in its own words."""
        try:
            stopped = part.obstacles(self._host)  # type: ignore[attr-defined]
        except TareError as error:
            stopped = [obstacle("part.error", str(error))]
        comes = self._brought and isinstance(part, Platform) and part.brought_by_run(self._host)
        return tuple(ruling for ruling in stopped if not (comes and ruling.code == _BROUGHT))

    def first_time(self, kind: str, part: Part) -> tuple[Ruling, ...]:
        """The same, but nothing about a part that was asked before."""
        known = len(self._answers)
        found = self.ask(kind, part)
        return found if len(self._answers) > known else ()


def _managed(cells: Sequence[Cell], host: Host) -> Iterator[Ruling]:
    """Controls that something else on this device turns too."""
    turned: dict[str, set[str]] = {}
    for control in (control for cell in cells for control in cell.controls):
        turned.setdefault(control.part_name(), set()).update(control.turns())
    for name, turns in turned.items():
        yield from (conflict.about(f"control {name}") for conflict in conflicts(host, turns))


def _unasked(cells: Sequence[Cell]) -> Iterator[Ruling]:
    everyone = [tenant for cell in cells for tenant in cell.everyone()]
    stacks = dict.fromkeys(tuple(part.part_name() for part in tenant.platforms) for tenant in everyone)
    for outer, *inner in stacks:
        if inner:
            sentence = f"Whether {' in '.join(reversed(inner))} works inside {outer} shows only once {outer} is open."
            yield Ruling("plan.inner-platform", "note", f"platform {'+'.join((outer, *inner))}", sentence)


def _notes(study: Study, cells: Sequence[Cell]) -> Iterator[Ruling]:
    if study.repeat.max < ENOUGH_REPEATS:
        blocks = "1 block is" if study.repeat.max == 1 else f"{study.repeat.max} blocks are"
        sentence = (
            f"{blocks} too few for a 95 % interval ({ENOUGH_REPEATS} are enough): "
            f"the range is shown, and nothing is called equivalent."
        )
        yield Ruling("plan.few-blocks", "note", "repeat", sentence)
    elif (many := comparisons(study, cells)) > 1:
        needed = blocks_for(many, lines(study))
        corrected = f"{many * lines(study)} comparisons are corrected together (Holm)"
        if study.repeat.min < needed:
            sentence = (
                f"{corrected}: {needed} blocks reach their confidence by ranks, {study.repeat.min} do not, so that "
                f"intervals are wider and lean on noise being normal. Write `repeat: {needed}`."
            )
            yield Ruling("plan.few-blocks-for-family", "note", "repeat", sentence)
        elif study.repeat.min == study.repeat.max == needed > ENOUGH_REPEATS:
            sentence = f"{corrected}, which takes {needed} blocks instead of {ENOUGH_REPEATS}."
            yield Ruling("plan.blocks-for-family", "note", "repeat", sentence)
    elif many and study.repeat.min == study.repeat.max == blocks_for(many, lines(study)) > ENOUGH_REPEATS:
        sentence = (
            f"Steady state and start-up are corrected together, which takes {study.repeat.min} blocks instead of "
            f"{ENOUGH_REPEATS}."
        )
        yield Ruling("plan.blocks-for-family", "note", "repeat", sentence)
    if len(cells) == 1:
        sentence = "There is one cell only: it is measured, and compared with nothing."
        yield Ruling("plan.one-cell", "note", "", sentence)


def comparisons(study: Study, cells: Sequence[Cell]) -> int:
    """How many are judged together: every cell that is not one of the baseline's."""
    return len(cells) - len(baseline(study, cells)) if len(cells) > 1 else 0


def lines(study: Study) -> int:
    """How many figures of a level are tested together: steady state and start-up, and CPU time; one that is named."""
    return 1 if study.compare.metric is not None else 2 + study.design.cpu_time


def _with_enough_blocks(study: Study, cells: Sequence[Cell]) -> Study:
    """A study that does not say how many blocks takes as many as its corrected intervals need."""
    many = comparisons(study, cells)
    needed = blocks_for(many, lines(study) if many else 1)
    if "repeat" in study.model_fields_set or needed == study.repeat.min:
        return study
    return study.model_copy(update={"repeat": Repeat(min=needed, max=needed)})


class Possible(NamedTuple):
    """The study as it is run here, which says what it leaves out, and its cells."""

    study: Study
    cells: tuple[Cell, ...]


class ObstacleSource(Protocol):
    """Whoever says what keeps a part from working: a device, or what is known of several."""

    def ask(self, kind: str, part: Part) -> Sequence[Ruling]: ...


@dataclass(frozen=True)
class MissingParts:
    """The parts that are left out, and why; it answers as a device would that has none of them."""

    parts: Mapping[PartKey, tuple[Ruling, ...]] = field(default_factory=dict)

    def ask(self, kind: str, part: Part) -> tuple[Ruling, ...]:
        key = PartKey.of(kind, part)
        return key.subject_of(self.parts.get(key, ()))

    def kept(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that take none of these parts."""
        if not self.parts:
            return list(cells)
        return [cell for cell in cells if not any(self.ask(kind, part) for kind, part in parts_of(cell))]

    def as_json(self) -> list[Any]:
        return [[*key, [ruling.as_json() for ruling in rulings]] for key, rulings in self.parts.items()]

    @classmethod
    def from_json(cls, found: Any) -> MissingParts:
        """What `as_json` made; raises `ValueError` or `TypeError` for anything else."""
        rows = [(PartKey(str(kind), str(name), str(fields)), said) for kind, name, fields, said in found]
        return cls({key: read_rulings(said, "obstacle") for key, said in rows})


NOTHING = MissingParts()


def possible(study: Study, host: Host, brought: bool = False) -> Possible:
    """All of the study, unless it says that what cannot be run may be left out; `brought` as in `check`.

    Where the device has an NVIDIA GPU, a study that names no probes watches it too.
    """
    study = _watching_gpus(study, host)
    if study.missing == "refuse":
        every = cells_of(study)
        return Possible(_with_enough_blocks(study, every), tuple(every))
    return left_of(study, ObstacleCheck(host, brought))


def _watching_gpus(study: Study, host: Host) -> Study:
    """The study with the probe `gpu`, if it names no probes and there is a driver; else with why that cannot be."""
    if "probes" in study.model_fields_set:
        return study
    try:
        host.read(nvidia.DRIVER)
    except OSError:
        return study
    choice = PartChoice("probes", "gpu")
    stopped = [ruling for part in choice.parts() for ruling in ObstacleCheck(host).ask("probe", part)]
    if stopped:
        return study.model_copy(update={"left_out": (*study.left_out, *stopped)})
    return study.model_copy(update={"probes": (*study.probes, choice)})


def left_of(study: Study, source: ObstacleSource, devices: Sequence[OnDevice] = ((),)) -> Possible:
    """The study without what whoever is asked lacks; refused where what is left asks no question.

    `devices` are those of a fleet that the cells are for, where the study names any.
    """
    fewer, gaps = _without_beside(study, source)
    every = [cell for device in devices for cell in cells_of(fewer, device=device)]
    kept: list[Cell] = []
    stopping: list[Ruling] = []
    for cell in every:
        stopped = [ruling for kind, part in parts_of(cell) for ruling in source.ask(kind, part)]
        stopping += stopped
        kept += [] if stopped else [cell]
    why = _why_incomparable(fewer, every, kept) if kept else None
    if why is not None or not kept:
        what = f"{fewer.study} is not measured here" if kept else f"nothing of {fewer.study} can be measured here"
        only_gaps = [gap for gap in dict.fromkeys(gaps) if gap not in stopping]
        raise NothingLeft(what, f" {why}." if why else "", list(dict.fromkeys(stopping)), only_gaps)
    fewer = fewer.model_copy(update={"left_out": tuple(dict.fromkeys(gaps + stopping))})
    return Possible(_with_enough_blocks(fewer, kept), tuple(kept))


def _without_beside(study: Study, source: ObstacleSource) -> tuple[Study, list[Ruling]]:
    """The study without probes that do not work here, and without conditions (controls of one level) that it lacks.

    A recorder stays: what it records is what the study is about, and without it nothing would be measured.
    """
    said: list[Ruling] = []
    probes = [choice for choice in study.probes if _works("probe", choice, source, said)]
    fixed = [levels for levels in study.controls if len(levels) == 1 and levels[0].count() == 1]
    gone = [levels for levels in fixed if not _works("control", levels[0], source, said)]
    controls = tuple(levels for levels in study.controls if levels not in gone)
    return study.model_copy(update={"probes": tuple(probes), "controls": controls}), said


def _works(kind: str, choice: PartChoice, source: ObstacleSource, said: list[Ruling]) -> bool:
    (part,) = choice.parts()
    stopped: Sequence[Ruling] = () if isinstance(part, Recorder) else source.ask(kind, part)
    said += stopped
    return not stopped


def _why_incomparable(study: Study, every: Sequence[Cell], kept: Sequence[Cell]) -> str | None:
    """Why what is left has nothing to compare; None where it has."""
    by = study.compare.by or "platform"
    before, after = ({str(cell.settings.get(by)) for cell in cells} for cells in (every, kept))
    if len(before) > 1 and len(after) < 2:
        return f"of {by} only {after.pop()} is left, and there is nothing to compare it with"
    if len(every) > 1 and not any(study.compare.baseline.picks(place(cell)) for cell in kept):
        wanted = ", ".join(f"{key} {value}" for key, value in study.compare.against.items())
        return f"what the others are compared with ({wanted}) cannot be run"
    return None


LEAST_LAYER_BYTES = 64 << 20  # on the disk where the layers of a command's files lie; checkpoints take far more
LEAST_FREE_BYTES = 4 << 20  # on the store's disk, beyond what its trials are thought to take
LEAST_MEMORY_BYTES = 128 << 20
LEAST_SHARED_BYTES = 8 << 20  # a trial's workdir lies in /dev/shm: our own files, and its marks


def room_obstacles(host: Host, folder: Path, need_bytes: int, layers: Path | None = None) -> Iterator[Ruling]:
    """What would run full in the middle of a run: the store's disk, that of a command's layers, memory, /dev/shm."""
    there = _nearest(folder)
    free = shutil.disk_usage(there).free
    if free < need_bytes + LEAST_FREE_BYTES:
        wanted = size_text(need_bytes + LEAST_FREE_BYTES)
        sentence = f"the disk of {there} has {size_text(free)} free, and the store may take {wanted}; free some of it."
        yield obstacle("needs.space", sentence)
    if layers is not None and (free := shutil.disk_usage(_nearest(layers)).free) < LEAST_LAYER_BYTES:
        sentence = (
            f"the disk of {_nearest(layers)} has {size_text(free)} free, and what the command writes goes there until "
            f"its trial ends (at least {size_text(LEAST_LAYER_BYTES)}): free some of it, or set TARE_STATE to a folder "
            f"on another disk."
        )
        yield obstacle("needs.space", sentence)
    shared = Path("/dev/shm")
    if shared.is_dir() and (free := shutil.disk_usage(shared).free) < LEAST_SHARED_BYTES:
        sentence = f"/dev/shm has {size_text(free)} free, and a trial needs {size_text(LEAST_SHARED_BYTES)}: remove "
        yield obstacle("needs.space", sentence + "what dead programs left there, or remount it larger.")
    available = _available_bytes(host)
    if available is not None and available < LEAST_MEMORY_BYTES:
        sentence = (
            f"{size_text(available)} of memory are available: a trial would swap, or be killed. End other programs."
        )
        yield obstacle("needs.space", sentence)


def _nearest(folder: Path) -> Path:
    """The folder itself, or the nearest above it that is there."""
    return next((each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir()), Path("/"))


def _available_bytes(host: Host) -> int | None:
    try:
        lines = host.read("/proc/meminfo").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found and found[0].isdecimal() else None
