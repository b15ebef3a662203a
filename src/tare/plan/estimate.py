"""How long a study takes and how much it stores, before any of it has run. Guesses, and called so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tare.parts.guesses import USUAL_CORES
from tare.plan.model import Cell, Tenant, Trial
from tare.study.model import Study

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


def _cores(tenant: Tenant) -> int:
    """The cores that a tenant asks for; of a machine that is not known yet, a small one's."""
    asked: int | None = getattr(tenant.platforms[0], "cores", None)
    return asked or USUAL_CORES


def disk_bytes(study: Study, trials: Iterable[tuple[Trial, float]]) -> int:
    """What the sealed records of these trials take, each with its seconds."""
    total = 0.0
    for trial, seconds in trials:
        series = seconds / study.period_s * len(study.probes) * _CHANNELS_A_PROBE * _BYTES_A_READING
        steps = trial.cell.workload.units() or 0
        total += _BYTES_A_TRIAL + series + steps * _MARKS_A_STEP * _BYTES_A_MARK
    return round(total)


def planned_s(study: Study, cells: Sequence[Cell], twins: Sequence[Cell] = ()) -> float:
    """What all blocks of these cells take; `twins` are those that run twice in each."""
    return study.repeat.max * sum(guessed_cell_s(study, cell) for cell in (*cells, *twins))
