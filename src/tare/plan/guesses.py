"""How long a study takes and what it stores, guessed from its parts where nobody has measured it yet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tare.base.host import Host, OwnDevice
from tare.base.units import cores
from tare.drivers.cgroups.limits import Limits
from tare.parts.protocols import Machine
from tare.plan.matrix import Cell, PlannedTenant, Trial, guessed_trial_s
from tare.studies.model import Study

TRIAL_S = 1.0
"""A trial beyond its workload: the sampler starts, the software is asked for, the record is sealed."""

_CHANNELS_A_PROBE = 15
_BYTES_A_READING = 4  # sealed and compressed; a counter that grows steadily takes little
_BYTES_A_MARK = 6
_MARKS_A_STEP = 8  # begin and end of fetch, copy, compute and the step itself
_BYTES_A_TRIAL = 48 * 1024  # the record, its facts, the output and what a file system rounds up


SMALL = Machine()
SERVER = Machine(cores=16, big_gpu=True)
_SERVERS = ("cuda", "clocks")  # scales for one


def usual_machine(study: Study) -> Machine:
    """What its scale is for, where the machine is not known."""
    return SERVER if study.scale in _SERVERS else SMALL


def machine_of(study: Study, host: Host) -> Machine:
    """What is known of it: this one's cores, and whether its GPU is on a PCI bus, as no board's is."""
    if not isinstance(host, OwnDevice):
        return usual_machine(study)
    return Machine(len(os.sched_getaffinity(0)), big_gpu=Path("/proc/driver/nvidia/gpus").is_dir())


def guessed_cell_s(study: Study, cell: Cell, machine: Machine) -> float:
    """What a trial of this cell takes where nobody has measured one yet: its parts guess, and are added up."""
    longest_s = shared_s = 0.0
    for tenant in cell.everyone():
        share = _share(tenant, machine)
        guess = tenant.workload.guessed_s(share)
        if guess is None:
            return guessed_trial_s(study)
        longest_s = max(longest_s, guess)
        shared_s += guess * min(1.0, tenant.workload.most_cores() / machine.cores, share.cores / machine.cores)
    # Tenants share the cores, so that work that fills them adds up; their platforms are made side by side.
    total = max(longest_s, shared_s)
    for platform in reversed(cell.platforms):
        total = total * platform.slowness() + platform.extra_s
    total += TRIAL_S + sum(part.extra_s for part in (*cell.controls, *cell.probes))
    return min(total, study.limit_s)


def _share(tenant: PlannedTenant, machine: Machine) -> Machine:
    """What a tenant may use of it."""
    platform = tenant.platforms[0]
    if not isinstance(platform, Limits):
        return machine
    pinned = len(cores(platform.cpuset)) if platform.cpuset else max(1, machine.cores - platform.leave_idle)
    return machine._replace(cores=platform.cores or min(platform.quota or pinned, pinned))


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
    machine = usual_machine(study)
    return study.repeat.max * sum(guessed_cell_s(study, cell, machine) for cell in (*cells, *repeats))
