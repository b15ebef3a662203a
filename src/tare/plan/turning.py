"""Which trials of a block take turns, how long a turn is, and where there can be none. Values only.

Whether the program of a side holds at the end of a step is seen in its rehearsal (fact `holds`); how many steps a turn
has, and how many turns a pair, follows from the rehearsals and is the same for every pair.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol, Self

from tare.base.errors import TareError
from tare.base.host import Host, OwnDevice
from tare.base.text import count_text
from tare.drivers.cgroups.job import GroupPlatform
from tare.drivers.cgroups.limits import Limits
from tare.drivers.cgroups.tree import is_there
from tare.drivers.nvidia import Gpu, gpus, serves_many_processes
from tare.parts.protocols import Platform, Recorder
from tare.plan.matrix import Cell, Trial
from tare.studies.model import Study

HOLDS = "holds"  # of a rehearsal: its program held when a step had ended
OTHER_THREADS = "other_threads"  # of a rehearsal: cores that all its threads but the busiest kept busy in its steps
CHOOSES_CORES = "chooses_cores"  # of a rehearsal: its program, or what starts it, set a CPU affinity
HELD_AT = "held_at"  # of a rehearsal: so many steps had ended when its program held for the last time
LISTENS_ON = "listens_on"  # of a rehearsal: TCP ports that its program listens on, and that it chose itself
WAITS_EACH_STEP = ("torch_train", "finetune")  # with `timing: sync`: a GPU's work is done when a step's marks say so
LEAST_TURN_S, LEAST_STEPS, LEAST_TURNS = 0.1, 20, 4
PERIODS_S = 2.0  # of a turn under a CPU quota or an I/O limit: twenty periods, or what is saved in a wait is spent
TWIN_EVERY = 3  # blocks
WARM_SHARE = 0.1  # of the steps, as where a side runs alone
LEFT_SHARE = 0.05  # of the steps of a program that does not say how many it does
ONE_CORE = 1.1  # CPU time over time: more is a second busy thread
MOST_BESIDE = 0.1  # cores: less beside the busiest thread is no second busy one
MOST_MEMORY = 0.9  # of what is available, for all sides at once
MOST_SIDES = 6  # in turns at once: with more, the turns of two of them lie too far apart to share what drifts
USES_GPU_BYTES = 64 << 20  # of GPU memory: a process that computes there takes several times as much
TRIAL_S = 0.7  # of a trial beside its program
START_SHARE = 0.2  # of a pair's time: what starting both sides at once saves, where it is worth that
FOLLOWING = ("workload.argv", "workload.label")  # of a command: they hold the level that is compared
_CONTROLS = ("page_cache", "dirty", "storage")  # what they set is used up, or shared, by whoever runs first
_ENERGY = ("power_", "external")


class Rehearsed(Protocol):
    """What is read of the record of a rehearsal."""

    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Turning:
    """How the sides of a block take turns."""

    steps: int  # of a turn
    count: int  # turns of each side
    warm: int  # steps between the first hold and the first turn
    one_core: bool = False  # all sides of a pair on the same core, which changes from pair to pair
    together: bool = False  # all sides of a pair start at the same time

    def as_plain(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def of_fact(cls, told: Mapping[str, Any]) -> Self:
        """As a record tells of it."""
        return cls(**{each.name: told[each.name] for each in fields(cls) if each.name in told})


@dataclass(frozen=True)
class Choice:
    """Turns, or whole runs in blocks, and why: in one line, and as a fact of each record."""

    turning: Turning | None
    why: str
    saves_s: float = 0.0  # of each trial, by its rehearsal, where all sides of a pair start at the same time

    def __str__(self) -> str:
        if self.turning is None:
            return f"design  whole runs in blocks: {self.why}"
        where = ", both sides on one core" if self.turning.one_core else ""
        starts = ", started at the same time" if self.turning.together else ""
        return f"design  turns of {count_text(self.turning.steps, 'step')}{where}{starts}: {self.why}"

    def as_plain(self) -> dict[str, Any]:
        turns = {} if self.turning is None else {"turns": self.turning.as_plain()}
        return {"name": "blocks" if self.turning is None else "turns", "why": self.why, **turns}


def groups(study: Study, trials: Sequence[Trial]) -> list[list[Trial]]:
    """The trials of a block that are compared, together."""
    made: dict[str, list[Trial]] = {}
    for trial in trials:
        made.setdefault(f"{trial.block} {_beside_compared(study, trial.cell)}", []).append(trial)
    return list(made.values())


def thinned(trials: Sequence[Trial]) -> list[Trial]:
    """With the A/A repeat in every third block only: pairs in turns scatter less than what it is for."""
    return [trial for trial in trials if not trial.twin or trial.block % TWIN_EVERY == 0]


def _beside_compared(study: Study, cell: Cell) -> str:
    """The settings that both sides of a comparison share."""
    by = study.compare.by or "platform"
    is_field = "." in by and not by.startswith("platform")
    root = by.partition(".")[0]
    kept = {
        name: value
        for name, value in cell.settings.items()
        if (name != by if is_field else name.partition(".")[0] != root)
        and not (is_field and root == "workload" and name in FOLLOWING)
    }
    return json.dumps(kept, sort_keys=True)


def why_no_turns(study: Study, cells: Sequence[Cell], host: Host, *, is_rehearsed: bool = False) -> str | None:
    """Why the sides of this study cannot take turns, as far as that shows before its rehearsal.

    `is_rehearsed`: some of them are, maybe in an earlier study of the same question.
    """
    return next(_obstacles(study, cells, host, is_rehearsed), None)


def _obstacles(study: Study, cells: Sequence[Cell], host: Host, is_rehearsed: bool) -> Iterator[str]:
    if study.design.runs == "blocks":
        yield "the study asks for blocks"
    if study.design.strict:
        yield "the study is strict"
    if not isinstance(host, OwnDevice):
        yield "the device is not this machine"
    if study.rehearse is False and not is_rehearsed:
        yield "without a rehearsal nobody knows whether steps are marked"
    if (study.compare.by or "platform").startswith("control"):
        yield "a setting of the whole device is compared"
    if (study.compare.metric or "").startswith(("energy", "power")):
        yield "energy is compared"
    sizes = Counter(_beside_compared(study, cell) for cell in cells).values()
    if min(sizes, default=0) < 2:
        yield "a side has no other beside it"
    if max(sizes, default=0) > MOST_SIDES:
        yield f"more than {MOST_SIDES} sides are compared at once"
    for cell in cells:
        yield from _of_cell(cell)


def _of_cell(cell: Cell) -> Iterator[str]:
    if cell.tenants != 1:
        yield "several tenants run at once in a trial"
    if len(cell.platforms) > 1:
        yield "a platform within another cannot be stopped from outside"
    outer, workload = cell.platforms[0], cell.workload.part_name()
    if outer.why_no_turns is not None:
        yield f"{outer.part_name()} {outer.why_no_turns}"
    if workload not in (*WAITS_EACH_STEP, "command"):
        yield f"{workload} times itself"
    elif folders := cell.workload.outputs():
        yield f"all sides write to {folders[0]}"
    for control in cell.controls:
        if control.part_name() in _CONTROLS:
            yield f"{control.part_name()} is the state of the whole device"
    for probe in cell.probes:
        name = probe.part_name()
        if isinstance(probe, Recorder):
            yield f"{name} records the whole device"
        elif name.startswith(_ENERGY):
            yield f"{name} measures the energy of the whole device"


def chosen(study: Study, sides: Mapping[str, Trial], host: Host, rehearsals: Mapping[str, Rehearsed]) -> Choice:
    """What these sides do, by the rehearsals of some of them."""
    cells = [trial.cell for trial in sides.values()]
    if (why := why_no_turns(study, cells, host, is_rehearsed=bool(rehearsals))) is not None:
        return Choice(None, why)
    if not rehearsals:
        return Choice(None, "no side was rehearsed")
    records = list(rehearsals.values())
    if not all(HOLDS in each.facts for each in records):
        return Choice(None, "its rehearsals are of an older tare, which did not ask")
    if not all(each.facts[HOLDS] for each in records):
        return Choice(None, "no steps are marked that a side could stop after")
    groups_of = Counter(_beside_compared(study, cell) for cell in cells)
    at_once = max(groups_of.values()) + study.aa
    for why in (
        _not_side_by_side(records),
        _cannot_stop(cells, host, records),
        _too_large(host, records, at_once),
        _keeps_gpu_to_itself(host, records, at_once),
    ):
        if why is not None:
            return Choice(None, why)
    steps = [_steps_of(trial, rehearsals[side]) for side, trial in sides.items() if side in rehearsals]
    step_s = min(each.metrics.get("step_mean_s", math.inf) for each in records)
    platforms = [part for cell in cells for part in cell.platforms]
    limited = any(map(_is_limited, platforms))
    turning = turning_of(min(steps), step_s, PERIODS_S if limited else LEAST_TURN_S)
    if turning is None:
        return Choice(None, f"{min(steps)} steps are too few for {LEAST_TURNS} turns")
    free = not limited and not any(map(_is_placed, platforms))
    one_core = free and sides.keys() <= rehearsals.keys() and all(map(_fits_one_core, records))
    why = "steps are marked, both sides can be stopped after one"
    if not (free and _has_no_room(study, records, min(steps) * step_s)):
        return Choice(replace(turning, one_core=one_core), why)
    starts = [each.metrics.get("startup_s", 0.0) for each in records]
    why += ", and starts made alone leave no time for all pairs"
    return Choice(replace(turning, one_core=one_core, together=True), why, (sum(starts) - max(starts)) / len(starts))


def _has_no_room(study: Study, rehearsals: Sequence[Rehearsed], steps_s: float) -> bool:
    """Whether all pairs would take longer than is allowed if their sides started one after the other.

    Starts at once save time where the starts are a good part of a pair, and each has a core.
    """
    repeat = study.repeat
    within_s = repeat.past_min_s if repeat.within_s is None else repeat.within_s
    starts = [each.metrics.get("startup_s", 0.0) for each in rehearsals]
    if within_s is None or len(os.sched_getaffinity(0)) < 2 or study.compare.metric == "startup_s":
        return False
    pair_s = sum(starts) + len(starts) * (steps_s + TRIAL_S)
    left_s = within_s - sum(each.metrics.get("wall_s", 0.0) + TRIAL_S for each in rehearsals)
    return repeat.max * pair_s > left_s and min(starts) > START_SHARE * pair_s


def _fits_one_core(rehearsal: Rehearsed) -> bool:
    """Whether one thread is busy, on whatever core is free: another affinity may be what the sides differ in."""
    others = rehearsal.facts.get(OTHER_THREADS)
    return others is not None and others <= MOST_BESIDE and rehearsal.facts.get(CHOOSES_CORES) is False


def turning_of(steps: int, step_s: float, least_s: float = LEAST_TURN_S) -> Turning | None:
    """Turns for so many steps; None where there are too few."""
    if not math.isfinite(step_s) or step_s <= 0:
        return None
    warm = max(1, round(steps * WARM_SHARE))
    left = steps - 2 - warm  # the first hold is after the first step or the second
    least = max(1, math.ceil(least_s / step_s))
    each = max(least, LEAST_STEPS)
    if left // each < LEAST_TURNS and least <= left // LEAST_TURNS:
        each = left // LEAST_TURNS  # few and long steps: shorter turns, as long as they are long enough
    count = left // each
    return Turning(each, count, warm) if count >= LEAST_TURNS and each else None


def _steps_of(trial: Trial, rehearsal: Rehearsed) -> int:
    """How many steps a whole trial surely does."""
    known = trial.cell.workload.about_units()
    if known is not None:
        return known
    steps, step_s = rehearsal.metrics.get("steps", 0.0), rehearsal.metrics.get("step_mean_s", math.inf)
    if (bound_s := trial.cell.workload.bound_s()) is not None:
        steps = bound_s / step_s / 2  # on the slowest side it may be half as quick
    return int(steps * (1 - LEFT_SHARE))


def _cannot_stop(cells: Sequence[Cell], host: Host, rehearsals: Sequence[Rehearsed]) -> str | None:
    """Without a freezer a signal stops the processes: not those that another user's container has."""
    root = os.geteuid() == 0
    if root and any(is_there(host, path) for path in ("/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/freezer")):
        return None
    if not root and not all(isinstance(cell.platforms[0], GroupPlatform) for cell in cells):
        return "without root a container's group cannot be stopped"
    if any(each.metrics.get("cpu_s", 0.0) > ONE_CORE * each.metrics.get("wall_s", 0.0) for each in rehearsals):
        return "without a freezer of groups other busy threads would run on"
    return None


def _too_large(host: Host, rehearsals: Sequence[Rehearsed], sides: int) -> str | None:
    """All sides of a block are in memory at once."""
    for line in host.read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            least = max(each.metrics.get("max_rss_bytes", 0.0) for each in rehearsals)
            if sides * least > MOST_MEMORY * 1024 * int(line.split()[1]):
                return f"{sides} sides at once would not fit into memory"
    return None


def _not_side_by_side(rehearsals: Sequence[Rehearsed]) -> str | None:
    """Why a second process of the program cannot run beside the first, or its turns cannot be counted."""
    for each in rehearsals:
        if ports := each.facts.get(LISTENS_ON):
            return f"the program listens on port {ports[0]}, which only one side at a time can do"
        if each.facts.get(HELD_AT, 0) > each.metrics.get("steps", math.inf):
            return "the numbers of its steps begin again with each epoch, so that they cannot be told by turn"
    return None


def _keeps_gpu_to_itself(host: Host, rehearsals: Sequence[Rehearsed], sides: int) -> str | None:
    """Why the sides cannot all have the GPU at once, where one of them used it."""
    peak = max(each.metrics.get("gpu_memory_bytes", 0.0) for each in rehearsals)
    present: list[Gpu] = []
    with suppress(TareError, OSError):
        present = gpus(host) if peak else []
    memory = [found for each in present if (found := each.memory_bytes()) is not None]
    used, total = (sum(column) for column in zip(*memory, strict=True)) if memory else (0.0, 0.0)
    least = peak - used  # of one side: what is used now is not of a side
    if least < USES_GPU_BYTES:
        return None
    if any(each.is_exclusive() for each in present):
        return "the GPU is set to serve one process at a time (its compute mode)"
    if serves_many_processes(host):
        return "NVIDIA's MPS computes for all processes in one, which would stop with a side"
    if used + sides * least > MOST_MEMORY * total:
        return f"{sides} sides at once would not fit into the GPU's memory"
    return None


def _is_placed(platform: Platform) -> bool:
    """Whether the study says which cores it has."""
    if not isinstance(platform, Limits):
        return "cpuset" in platform.limits(platform.fields())
    return platform.pin or platform.cpuset is not None or platform.numa is not None or platform.leave_idle > 0


def _is_limited(platform: Platform) -> bool:
    """Whether what it saves while it waits could be spent in its turn."""
    if not isinstance(platform, Limits):
        return bool({"quota", "io_rate"} & platform.limits(platform.fields()).keys())
    by_cores = platform.cores is not None and not platform.pin
    return platform.quota is not None or platform.io_rate is not None or by_cores
