"""A whole run taken apart: what passes before the first step, beside the steps, and after the last.

Each is a figure of its own, where there are marks to tell it (docs/explanation/definitions.md):

    platform_open_s   the platforms made ready, as tare saw it from outside
    interpreter_s     from the launcher's start until Python runs the first line
    imports_s         from there until the modules are loaded (of a user's script: until torch is)
    data_open_s       the data set opened (of a user's script: data sets of its own or of torchvision made)
    device_s          the GPU's context made
    setup_s           from the end of the imports to the first fetch: data, network and device together
    first_batch_s     the first fetch
    first_step_s      the first step, with that fetch
    startup_s         the platform opened, and from the launcher's start to the begin of the first step
    steady_s          from the begin of the first measured step to the end of the last
    evaluation_s      all evaluations
    checkpoints_s     all checkpoints (of a user's script: calls of torch.save)
    exit_s            from the last mark to the end of the process
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tare.figures.steps import Steps
from tare.parts.protocols import Mark
from tare.records.intervals import Intervals, intervals, mark_columns

START_UP = "startup_s"
SETTLING = "settling"  # a warm-up that lasts until times are steady: how long that is depends on the noise
PHASES = (
    "platform_open_s", "interpreter_s", "imports_s", "data_open_s", "device_s", "setup_s", "first_batch_s",
    "first_step_s", START_UP, "steady_s", "evaluation_s", "checkpoints_s", "exit_s", "epoch_s", "epoch_rest_s",
)  # fmt: skip


def phase_metrics(
    marks: Sequence[Mark], result: Mapping[str, Any], phases: Mapping[str, float], steps: Steps | None
) -> dict[str, float]:
    """Seconds of each phase that is known; one that no mark tells of is absent."""
    open_s, start_ns, end_ns = phases.get("open"), result.get("start_ns"), result.get("end_ns")
    made: dict[str, float | None] = {"platform_open_s": open_s}
    if marks:
        columns = mark_columns(marks)
        found = intervals(columns)
        last_ns = int(columns["t_ns"].max())
        imports, fetches, whole = found.named("imports"), found.named("fetch"), found.named("step")
        first_ns = _first_begin(whole)
        made |= {
            "interpreter_s": _between(start_ns, _first_begin(imports)),
            "imports_s": _total(imports),
            "data_open_s": _total(found.named("data_open")),
            "device_s": _total(found.named("device")),
            "setup_s": _between(_last_end(imports), _first_begin(fetches) or first_ns),
            "first_batch_s": _first(fetches),
            "first_step_s": _first(whole),
            START_UP: _between(start_ns, first_ns, (open_s or 0.0) - (_total(found.named(SETTLING)) or 0.0)),
            "evaluation_s": _total(found.named("evaluate")),
            "checkpoints_s": _total(found.named("checkpoint")),
            "exit_s": _between(last_ns, end_ns),
        }
        if steps is not None:
            made |= _of_steps(found, steps)
    return {name: value for name, value in made.items() if value is not None and value >= 0}


def _of_steps(found: Intervals, steps: Steps) -> dict[str, float | None]:
    """The steady state, and the measured epochs: their mean, and what of it lies in no step."""
    whole = found.named("step")
    measured = whole.where(np.isin(whole.step, steps.numbers[steps.warm_up :]))
    made: dict[str, float | None] = {"steady_s": _between(_first_begin(measured), _last_end(measured))}
    epochs = found.named("epoch")
    if len(epochs) > 1:
        later = epochs.where(epochs.begin_ns > epochs.begin_ns.min())  # epoch 0 is kept apart
        inside = whole.where((whole.begin_ns >= later.begin_ns.min()) & (whole.end_ns <= later.end_ns.max()))
        made["epoch_s"] = float(later.seconds.mean())
        made["epoch_rest_s"] = float((later.seconds.sum() - inside.seconds.sum()) / len(later))
    return made


def _first_begin(found: Intervals) -> int | None:
    return int(found.begin_ns.min()) if len(found) else None


def _last_end(found: Intervals) -> int | None:
    return int(found.end_ns.max()) if len(found) else None


def _first(found: Intervals) -> float | None:
    return float(found.seconds[int(np.argmin(found.begin_ns))]) if len(found) else None


def _total(found: Intervals) -> float | None:
    return float(found.seconds.sum()) if len(found) else None


def _between(begin_ns: object, end_ns: object, before_s: float = 0.0) -> float | None:
    return (end_ns - begin_ns) / 1e9 + before_s if isinstance(begin_ns, int) and isinstance(end_ns, int) else None
