"""Which trials of a block take turns (`design: slices`), and what cannot be stopped and resumed without harm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from tare.base.rulings import UNSLICED_PROBES, UNSLICED_WORKLOADS, WAITS_FOR_GPU, Ruling, obstacle
from tare.drivers.cgroups.job import GroupPlatform
from tare.drivers.containers.place import Container
from tare.parts.protocols import Recorder
from tare.plan.matrix import Cell, Trial, aa_repeats
from tare.studies.model import MOST_AT_ONCE, Slices, Study

_CONTROLS = ("page_cache", "dirty", "storage")  # what they set is used up, or shared, by whoever runs first
_OWN_KERNEL = ("gvisor",)  # a container whose programs run on a kernel of its own, with its own timers
GPU_LEAVES_OUT = 3  # steps of a slice: in these, what is left of the other side's last step runs to its end


def groups(study: Study, trials: Sequence[Trial]) -> list[list[Trial]]:
    """The trials in the order in which they run: each alone, or in slices those that are compared, together."""
    made: dict[str, list[Trial]] = {}
    for trial in trials:
        key = trial.id if trial.slices is None else f"{trial.block} {_beside_compared(study, trial.cell)}"
        made.setdefault(key, []).append(trial)
    return list(made.values())


def _beside_compared(study: Study, cell: Cell) -> str:
    """The settings that both sides of a comparison share."""
    by = study.compare.by or "platform"
    gone = (by,) if "." in by and not by.startswith("platform") else (by.partition(".")[0],)
    kept = {
        name: value
        for name, value in cell.settings.items()
        if name not in gone and not ("." not in gone[0] and name.partition(".")[0] in gone)
    }
    return json.dumps(kept, sort_keys=True)


def slicing_obstacles(study: Study, cells: Sequence[Cell]) -> list[Ruling]:
    """Why the study cannot be run in slices, before the first trial; nothing where it can, or does not ask to."""
    if study.design.slices is None:
        return []
    found = [*_of_study(study, cells), *(ruling for cell in cells for ruling in _of_cell(cell, study.design.slices))]
    return list(dict.fromkeys(found))


def may_help(study: Study, cells: Sequence[Cell]) -> bool:
    """Whether slices are worth a word: they are not in use, and no workload of the study forbids them."""
    return study.design.slices is None and not any(each.workload.part_name() in UNSLICED_WORKLOADS for each in cells)


def _of_study(study: Study, cells: Sequence[Cell]) -> Iterator[Ruling]:
    if (study.compare.by or "platform").startswith("control"):
        yield _refused("what is compared is a setting of the whole device, which both sides would share.")
    members = [*cells, *aa_repeats(study, cells)]
    counts: dict[str, int] = {}
    for cell in members:
        key = _beside_compared(study, cell)
        counts[key] = counts.get(key, 0) + 1
    if (most := max(counts.values(), default=0)) > MOST_AT_ONCE:
        yield _refused(f"{most} trials would be alive at once, and {MOST_AT_ONCE} are the most: name fewer levels.")
    elif cells and min(counts.values()) < 2:
        yield _refused("a cell has no other to take turns with: name two levels to compare, or leave `design` away.")


def _of_cell(cell: Cell, slices: Slices) -> Iterable[Ruling]:
    if cell.tenants != 1:
        yield _refused("several tenants run at once in a trial, and would all be stopped.")
    if len(cell.platforms) > 1:
        yield _refused("a platform within another cannot be stopped from outside.")
    for platform in cell.platforms[:1]:
        name = platform.part_name()
        if not isinstance(platform, GroupPlatform | Container) or name in _OWN_KERNEL:
            yield _refused(f"{name} has a kernel and clocks of its own, which a stop would upset.")
    if cell.workload.part_name() in UNSLICED_WORKLOADS:
        yield _refused(f"{cell.workload.part_name()} times itself, and the stops would be in its figures.")
    if _has_gpu(cell) and not _waits_for_gpu(cell):
        yield _refused(GPU)
    elif _has_gpu(cell) and slices.leave_out < GPU_LEAVES_OUT:
        yield _refused(
            f"on a GPU the first steps of a slice share it with the side before: `leave_out: {GPU_LEAVES_OUT}`."
        )
    for control in cell.controls:
        if control.part_name() in _CONTROLS:
            yield _refused(f"{control.part_name()} is the state of the whole device, and both sides would share it.")
    for probe in cell.probes:
        name = probe.part_name()
        if isinstance(probe, Recorder):
            yield _refused(f"{name} records the whole device: the events of each side could not be told apart.")
        elif name.startswith(UNSLICED_PROBES):
            yield _refused(f"{name} measures the whole device: the energy of each side could not be told apart.")


GPU = (
    "work that is queued on a GPU goes on while its process is stopped, and its time would be missing; only `generate` "
    "and built-in training with `timing: sync` wait for it after each step."
)


def _waits_for_gpu(cell: Cell) -> bool:
    """Whether a stopped side has at most one step queued on it."""
    name = cell.workload.part_name()
    return name in WAITS_FOR_GPU or (
        name in ("torch_train", "finetune") and getattr(cell.workload, "timing", "") == "sync"
    )


def _has_gpu(cell: Cell) -> bool:
    on_device = str(getattr(cell.workload, "device", "cpu") or "cpu").startswith("cuda")
    return on_device or any(getattr(platform, "gpu", None) for platform in cell.platforms)


def _refused(sentence: str) -> Ruling:
    return obstacle("slices.refused", f"`design: slices` cannot be used here: {sentence}")
