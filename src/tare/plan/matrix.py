"""The cells of a study: every combination of its levels, less the excluded ones, and their trials in blocks."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, cast

from tare.base.errors import StudyError
from tare.base.secrets import without_key
from tare.base.sides import REHEARSAL, side_of
from tare.parts.protocols import Control, Part, Platform, Probe, Workload
from tare.studies.fields import PartChoice
from tare.studies.model import Study
from tare.studies.reader import Tenancy
from tare.studies.select import Place, platform_prefix
from tare.studies.yaml import Loc

# One trial, as a value.


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
    alike: int = 0  # how many cells before it differ from it in the values of secrets alone

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
    strict: bool = False  # whether it is invalid where others disturbed it much
    rehearses: Cell | None = None  # of a rehearsal: the cell that it tries; `cell` is what it runs, in a short form

    @cached_property
    def id(self) -> str:
        if self.rehearses is not None:  # another seed, or block, is no other rehearsal
            told = json.dumps([self.study, side_of(self.rehearses.settings)])
            return REHEARSAL + hashlib.sha256(told.encode()).hexdigest()[: 16 - len(REHEARSAL)]
        # The position is left out: a block that is shuffled again still holds the same trials. So is the key of the
        # machine, or a store could not be resumed where the key is another one.
        content = [self.study, without_key(self.cell.settings), self.block, self.twin, self.seed]
        if beside := self.cell.beside():
            content.append(without_key(beside))
        if self.cell.alike:
            content.append({"alike": self.cell.alike})
        if self.strict:
            content.append({"strict": True})
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
    names = [platform.part_name() for platform in platforms]
    flat: dict[str, Any] = {"platform": "+".join(names)}
    for depth, platform in enumerate(platforms):
        flat |= _flat(platform_prefix(names, depth), platform)
    return {**flat, "workload": workload.part_name(), **_flat("workload", workload)}


def _flat(prefix: str, part: Part) -> dict[str, Any]:
    return {f"{prefix}.{key}": value for key, value in part.settings().items()}


GUESSED_TRIAL_S = 15.0
"""What a trial takes where its workload does not know: start, import torch (2 to 5 s), three short epochs, stop."""


def guessed_trial_s(study: Study) -> float:
    """What a trial takes where nothing is known of its cell; no trial outlives its limit."""
    return min(GUESSED_TRIAL_S, study.limit_s)


OnDevice: TypeAlias = tuple[tuple[str, str], ...]  # what is said of a fleet's device: (("device", "orin-1"), ...)
MOST_TRIALS = 10_000
_ONE_HAND = frozenset({"cores", "governor", "fan"})  # what two controls would turn back and forth
_SLACK = 10  # how much larger than the limit a matrix may be before its exclusions are looked at


@dataclass(frozen=True)
class _Level:
    """Parts that stand together in a cell, and where the study names them."""

    parts: tuple[Part, ...]
    loc: Loc


def size(study: Study) -> int:
    """How many cells the levels make, before exclusions; counted without making one of them."""
    platforms = sum(math.prod(choice.count() for choice in stack) for stack in study.platforms)
    workloads = sum(choice.count() for choice in study.workloads)
    controls = math.prod(sum(choice.count() for choice in levels) for levels in study.controls)
    return platforms * workloads * controls * len(study.tenancies)


def cells(study: Study, *, device: OnDevice = (), most_trials: int = MOST_TRIALS) -> list[Cell]:
    """Every cell once; a study that would take more than `most_trials` trials is refused before it is built.

    `device` is the one of a fleet that the cells are for; one that the study excludes has none.
    """
    _refuse_without_fleet(study, device)
    _refuse_huge(study, size(study), most_trials * (_SLACK if study.exclude else 1))
    kept: dict[str, tuple[Cell, Sequence[_Level]]] = {}
    hits = [0] * len(study.exclude)
    for tenancy, levels in itertools.product(study.tenancies, itertools.product(*_factors(study))):
        cell = replace(_shared(_cell(study, levels), tenancy), device=device)
        for index, selector in enumerate(study.exclude):
            hits[index] += selector.anywhere().picks(place(cell))  # whether there is such a device, the fleet says
        if not any(selector.picks(place(cell)) for selector in study.exclude):
            _refuse_two_hands(study, cell)
            _keep(study, kept, cell, levels)
    _refuse_idle_exclusions(study, hits)
    found, alike = [], Counter[str]()
    for key, (cell, _) in kept.items():
        word = without_key(key)
        found.append(replace(cell, alike=alike[word]))
        alike[word] += 1
    if not found and not any(selector.devices for selector in study.exclude):
        raise StudyError(f"{study.source.at('exclude')}the exclusions leave no cell to run.")
    _refuse_huge(study, len(found), most_trials, repeats=len(aa_repeats(study, found)))
    return found


def aa_repeats(study: Study, among: Sequence[Cell]) -> list[Cell]:
    """The cells that each block holds twice: how far two runs of the same thing lie apart, in this very study.

    A cell alone is compared with nothing, unless it is with the same cell on other devices.
    """
    compared = len(among) > 1 or bool(among and study.compare.baseline.devices)
    found = baseline(study, among) if compared else []
    return found if study.aa else []


def baseline(study: Study, among: Sequence[Cell]) -> list[Cell]:
    """The cells that the others are compared with."""
    found = [cell for cell in among if study.compare.baseline.picks(place(cell))]
    if not found and not study.compare.baseline.devices:  # else it runs on another device
        where = study.source.at("compare", "against")
        raise StudyError(
            f"{where}every cell to compare with ({_worded(study.compare.against)}) is excluded.\n"
            f"  Keep one, or name another level with 'compare: {{against: ...}}'."
        )
    return found


def place(cell: Cell) -> Place:
    """The cell as selectors see it."""
    return Place(cell.platforms, cell.workload, cell.controls, cell.tenants, cell.device)


def _factors(study: Study) -> list[list[_Level]]:
    """The levels of the platform, of the workload and of each control, each as parts."""
    several = len(study.platforms) > 1
    platforms = [
        level
        for index, stack in enumerate(study.platforms)
        for level in _levels(study, stack, ("platform", index) if several else ("platform",))
    ]
    factors = [platforms, list(_single(study, study.workloads, ("workload",)))]
    factors += [list(_single(study, levels, ("control", levels[0].name))) for levels in study.controls]
    return factors


def _single(study: Study, choices: Sequence[PartChoice], loc: Loc) -> Iterator[_Level]:
    for index, choice in enumerate(choices):
        yield from _levels(study, (choice,), (*loc, index) if len(choices) > 1 else loc)


def _levels(study: Study, stack: Sequence[PartChoice], loc: Loc) -> Iterator[_Level]:
    """Every combination of the fields; one that a part refuses as a whole is said where the part is named."""
    try:
        for parts in itertools.product(*(choice.parts() for choice in stack)):
            yield _Level(parts, loc)
    except StudyError as error:
        raise StudyError(f"{study.source.at(*loc)}{error}") from None


def _cell(study: Study, levels: Sequence[_Level]) -> Cell:
    platforms, (workload,), *controls = (level.parts for level in levels)
    # The reader has found every class by its kind; only the checker does not know.
    return Cell(
        platforms=cast(tuple[Platform, ...], platforms),
        workload=cast(Workload, workload),
        controls=cast(tuple[Control, ...], tuple(part for parts in controls for part in parts)),
        probes=cast(tuple[Probe, ...], tuple(part for choice in study.probes for part in choice.parts())),
    )


def _shared(cell: Cell, tenancy: Tenancy) -> Cell:
    """The cell with those who run beside it: as many of itself, or others."""
    own = PlannedTenant(cell.platforms, cell.workload)
    neighbours = (own,) * (tenancy.count - 1)
    if tenancy.beside:
        stack = tenancy.stack
        platforms = cell.platforms if stack is None else tuple(cast(Platform, _only(choice)) for choice in stack)
        neighbours = tuple(PlannedTenant(platforms, cast(Workload, _only(choice))) for choice in tenancy.beside)
    return replace(cell, neighbours=neighbours, tenants=tenancy.label)


def _only(choice: PartChoice) -> Part:
    return next(choice.parts())


def _keep(study: Study, kept: dict[str, tuple[Cell, Sequence[_Level]]], cell: Cell, levels: Sequence[_Level]) -> None:
    """Note a new cell; one that is there already would be measured twice under one name."""
    key = json.dumps(cell.settings, sort_keys=True)
    if key not in kept:
        kept[key] = cell, levels
        return
    pairs = zip(kept[key][1], levels, strict=True)
    first, second = next(((a, b) for a, b in pairs if a is not b), (levels[0], levels[0]))
    line, number = study.source.line(*first.loc), first.loc[-1]
    other = f"level {number + 1 if isinstance(number, int) else 1}" if line is None else f"the one on line {line}"
    settings = {name: value for name, value in cell.settings.items() if value is not None and name != "probes"}
    told = ", ".join(f"{name} {value}" for name, value in settings.items())
    raise StudyError(
        f"{study.source.at(*second.loc)}this {second.loc[0]} makes the same cell as {other}: {told}.\n"
        f"  Change one of them, or take it out."
    )


def _refuse_two_hands(study: Study, cell: Cell) -> None:
    """Two controls that turn the same thing: each would undo the other, and neither would hold."""
    for first, second in itertools.combinations(cell.controls, 2):
        if both := first.turns() & second.turns() & _ONE_HAND:
            names, what = (first.part_name(), second.part_name()), ", ".join(sorted(both))
            raise StudyError(
                f"{study.source.at('control', names[1])}`{names[0]}` and `{names[1]}` would both set {what}.\n"
                f"  Take one of them out, or exclude the cells that have both."
            )


def _refuse_without_fleet(study: Study, device: OnDevice) -> None:
    if not device and study.for_fleet is not None:
        raise StudyError(
            f"{study.source.at(*study.for_fleet)}this names a device of a fleet, but no fleet is given.\n"
            "  `tare run STUDY --fleet devices.yaml` runs it; or name no device, to run it on this one alone."
        )


def _refuse_idle_exclusions(study: Study, hits: Sequence[int]) -> None:
    for index, count in enumerate(hits):
        if count == 0:
            wanted = _worded(study.exclude[index].plain())
            raise StudyError(f"{study.source.at('exclude', index)}no cell has all of {wanted}: this excludes nothing.")


def _refuse_huge(study: Study, count: int, most: int, repeats: int = 0) -> None:
    runs = (count + repeats) * study.repeat.max
    if runs <= most:
        return
    days = runs * guessed_trial_s(study) / 86400
    largest = sorted(study.factors.varied().items(), key=lambda item: -item[1])[:5]
    where = study.source.at(largest[0][0].partition(".")[0] if largest else "repeat")
    cells_text = f"{count:,} {'cell' if count == 1 else 'cells'}" + (f" and {repeats:,} A/A repeats" if repeats else "")
    factors = " x ".join(f"{number:,} {key}" for key, number in largest)
    raise StudyError(
        f"{where}{cells_text}{f' ({factors})' if factors else ''} in {study.repeat.max:,} blocks are {runs:,} trials, "
        f"about {days:,.0f} days.\n"
        f"  At most {most:,} trials make a study: take out levels, exclude cells, or split it."
    )


def _worded(wanted: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in wanted.items())


@dataclass(frozen=True)
class Changes:
    """How a plan differs from what a store was begun with."""

    new: tuple[Trial, ...]
    gone: tuple[str, ...]  # ids
    unchanged: tuple[Trial, ...]


def trials(study: Study, cells: Sequence[Cell]) -> list[Trial]:
    """Every block up to the last that the stop rule allows, in the order in which they would run."""
    members = [(cell, 0) for cell in cells] + [(cell, 1) for cell in aa_repeats(study, cells)]
    return [trial for block in range(study.repeat.max) for trial in _block(study, members, block)]


def changes(old_ids: Iterable[str], new_trials: Sequence[Trial]) -> Changes:
    """What a changed study adds and drops; what it keeps has kept its id."""
    old = list(dict.fromkeys(old_ids))
    known, wanted = set(old), {trial.id for trial in new_trials}
    return Changes(
        new=tuple(trial for trial in new_trials if trial.id not in known),
        gone=tuple(each for each in old if each not in wanted),
        unchanged=tuple(trial for trial in new_trials if trial.id in known),
    )


def _block(study: Study, members: Sequence[tuple[Cell, int]], block: int) -> list[Trial]:
    """Every member once, shuffled; the same seed for all of them, another for each block."""
    order = list(members)
    if study.order.shuffle:
        # Every second block has the order of the one before, reversed: what comes first gains nothing over the pair.
        random.Random(f"{study.order.seed}:{block // 2}").shuffle(order)
        if block % 2:
            order.reverse()
    # Consecutive from a random start: never the same in two blocks, which independent draws could be.
    seed = random.Random(f"{study.order.seed}").randrange(2**30) + block
    return [
        Trial(
            study=study.study,
            cell=cell,
            block=block,
            position=position,
            seed=seed,
            limit_s=study.limit_s,
            twin=twin,
            strict=study.design.strict,
        )
        for position, (cell, twin) in enumerate(order)
    ]
