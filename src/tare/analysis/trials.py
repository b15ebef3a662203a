"""Which trials of a store a weighing uses, which it leaves out and why, and their figures as measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.cells import Cells
from tare.analysis.compare import unknown_name
from tare.analysis.model import Estimate, Left, Measurement
from tare.analysis.sentences import stands_out
from tare.analysis.stats import median_estimate, outliers
from tare.errors import StudyError
from tare.records.attempts import newest_attempts
from tare.records.model import USABLE, Record

HEADLINES = ("step_s", "wall_s")  # in this order, where the study declares none
# Compared next to the headline, without a claim.
BESIDE = ("compute_s", "stall_s", "cpu_step_s", "cpu_s", "wall_s", "energy_step_j", "power_mean_w")
APART = "epoch0_"  # epoch 0 is measured and kept apart, and is never the headline (docs/explanation/validity.md)


@dataclass(frozen=True)
class Trials:
    """The records of a store, sorted into those that count for a metric and those that do not."""

    used: tuple[Record, ...]
    left_out: tuple[Left, ...]
    repeated: int = 0  # attempts that a later one of the same trial has made up for


def pick_metric(records: Sequence[Record], asked: str | None, declared: str | None = None) -> str:
    """The metric that was asked for, else the step time if any usable trial has one, else the whole run's time.

    Where no trial is usable, the one that the study declares is taken at its word, and another must be known.
    """
    usable = [record for record in records if record.state in USABLE]
    if asked is None:
        # One trial without marks must not change what all the others are compared by: it is left out, and said.
        anywhere = [name for name in HEADLINES if any(name in record.compared for record in usable)]
        return anywhere[0] if anywhere else HEADLINES[-1]
    if asked.startswith(APART):
        raise StudyError(f"{asked!r} is of epoch 0, which is kept apart: it is shown, but never compared as a claim.")
    told = {name for record in usable or records for name in record.metrics if not name.startswith(APART)}
    known = sorted(told if usable else {*told, *HEADLINES, *BESIDE})
    if asked not in known and (usable or asked != declared):
        raise StudyError(f"{unknown_name('metric', asked, known)} `tare show STORE --json` has all of them.")
    return asked


def sort_out(records: Sequence[Record], label: Cells, metric: str) -> Trials:
    """One attempt of each trial, the newest that is usable and has the figure; the others are left out, with why."""
    reasons = [
        (record, why_not(record, metric))
        for record in newest_attempts(records, lambda record: why_not(record, metric) is None)
    ]
    left = [
        Left(record.trial, label.label(record), record.block, record.state, why)
        for record, why in reasons
        if why is not None
    ]
    used = tuple(record for record, why in reasons if why is None)
    return Trials(used, tuple(left), repeated=len(records) - len(reasons))


def why_not(record: Record, metric: str) -> tuple[str, ...] | None:
    """Why this record's figure cannot be used, in sentences; None if it can."""
    if record.state not in USABLE:
        return record.reasons or (f"it ended as {record.state}.",)
    value = record.compared.get(metric)
    if value is None and metric in record.metrics:
        return (f"a tracer ran beside it, so its {metric} is not compared.",)
    if value is None:
        return (f"it has no {metric}.",)
    if not (math.isfinite(value) and value > 0):
        return (f"its {metric} is {value}, and a ratio needs more than zero.",)
    return None


def measurements(records: Iterable[Record], label: Cells, metric: str) -> list[Measurement]:
    return [
        Measurement(label.label(record), record.metrics[metric], str(record.block), record.twin, record.trial)
        for record in records
    ]


def marked_outliers(records: Sequence[Record], label: Cells, metric: str) -> list[Left]:
    """Trials more than ten robust standard deviations from the median of their level; they are used all the same."""
    levels: dict[str, list[Record]] = {}
    for record in records:
        levels.setdefault(label.label(record), []).append(record)
    found = []
    for level, trials in levels.items():
        for place in outliers([record.metrics[metric] for record in trials]):
            record = trials[place]
            reasons = (stands_out(metric), *record.reasons, *record.notes)
            found.append(Left(record.trial, level, record.block, record.state, reasons))
    return found


def level_medians(records: Iterable[Record], label: Cells) -> dict[str, Mapping[str, Estimate]]:
    """Level -> metric -> median over its trials; the A/A twins are not pooled in."""
    values = _collected((label.label(record), record.metrics) for record in records if not record.twin)
    return {
        level: {name: median_estimate(figures) for name, figures in metrics.items()}
        for level, metrics in values.items()
    }


def level_phases(records: Iterable[Record], label: Cells) -> dict[str, Mapping[str, float]]:
    """Level -> phase of the trial -> median seconds."""
    values = _collected((label.label(record), _whole(record.phases)) for record in records)
    return {
        level: {name: median_estimate(figures).value for name, figures in phases.items()}
        for level, phases in values.items()
    }


def _whole(phases: Mapping[str, float]) -> dict[str, float]:
    """Without the parts of a phase (`open.boot`), which are in it already."""
    return {name: seconds for name, seconds in phases.items() if "." not in name}


def _collected(pairs: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, dict[str, list[float]]]:
    collected: dict[str, dict[str, list[float]]] = {}
    for level, figures in pairs:
        for name, figure in figures.items():
            if math.isfinite(figure):
                collected.setdefault(level, {}).setdefault(name, []).append(figure)
    return collected
