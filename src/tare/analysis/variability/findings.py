"""How much a figure varies, where that comes from, whether it drifts, and how many repeats are enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import FLOOR, Floats, median_estimate
from tare.analysis.numeric.nested import Nested, nested, possible_variances, variances
from tare.analysis.sections import EFFECT, Answer, Column, Note, Section, Sentence, Shown, Table, share_shown
from tare.analysis.variability.drift import over_epochs, over_time
from tare.analysis.variability.repeats import Plan, cheapest, plans
from tare.analysis.variability.samples import NestedValue
from tare.base.errors import StudyError
from tare.base.text import count_text, metric_name, share_text
from tare.records.model import grouped


@dataclass(frozen=True, slots=True)
class Worst:
    """The farthest from its cell's median."""

    what: str  # "epoch" or "device"
    where: str
    deviation: float  # signed share


def worst(samples: Sequence[NestedValue]) -> list[Worst]:
    """The farthest sample, and the farthest device by its median, each from its cell's median."""
    found: list[Worst] = []
    several = len({sample.device for sample in samples}) > 1
    for cell, members in grouped(samples, lambda sample: sample.cell).items():
        centre = float(np.median([sample.value for sample in members]))
        far = max(members, key=lambda sample: abs(sample.value / centre - 1))
        found.append(Worst("value", _where(far, several), far.value / centre - 1))
        devices = grouped((each for each in members if each.device is not None), lambda each: str(each.device))
        if len(devices) > 1:
            medians = {
                device: float(np.median([each.value for each in its])) / centre - 1 for device, its in devices.items()
            }
            device = max(medians, key=lambda name: abs(medians[name]))
            found.append(Worst("device", ", ".join(part for part in (device, cell) if part), medians[device]))
    kinds = dict.fromkeys(each.what for each in found)
    return [max((each for each in found if each.what == kind), key=lambda each: abs(each.deviation)) for kind in kinds]


def _where(sample: NestedValue, several_devices: bool) -> str:
    device = sample.device if several_devices else None
    epoch = f"epoch {sample.epoch:g}" if sample.epoch is not None else None
    trial = f"trial {sample.trial}" if sample.trial is not None else None
    return ", ".join(part for part in (sample.cell, device, sample.day, trial, epoch) if part) or "a row"


DRAWS = 9_999
TARGET = 0.02  # half-width, as a share
LEVELS: Mapping[str, Callable[[NestedValue], object]] = {  # highest first
    "device": lambda sample: sample.device,
    "day": lambda sample: sample.day,
    "trial": lambda sample: sample.trial,
}
ROUNDING = 1e-9  # a deviation below this is that of the computer's own figures
VALUES = "values of a trial"  # where a trial has several and no column says that they are epochs
METHOD = "nested analysis of variance of logs, method of moments"


@dataclass(frozen=True, slots=True)
class Component:
    """How much one level varies within the one above it."""

    level: str  # "between trials"
    deviation: Estimate  # of one group, as a share; its n is the number of groups
    share: float | None  # of the whole variance; None where there is none at all


@dataclass(frozen=True, slots=True)
class Variability:
    """What varies, from where, whether it drifts, and how many repeats are enough."""

    figure: str
    samples: int
    cells: int
    components: tuple[Component, ...]  # highest level first
    first_epoch: Estimate | None  # share by which the first epoch lies above the others; it is kept apart
    drift_in_trial: Estimate | None  # from a trial's first epoch to its last
    drift_in_study: Estimate | None  # from the first trial to the last
    worst: tuple[Worst, ...]
    target: float
    plans: tuple[Plan, ...]
    cheapest: Plan | None
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def variability(
    samples: Sequence[NestedValue], figure: str, *, target: float = TARGET, keep_first: bool = False
) -> Variability:
    """Components of variance, drift, worst deviation, and what would be enough."""
    later, first = (list(samples), []) if keep_first else _first_apart(samples)
    if len(later) < 3:
        raise StudyError(f"{figure}: {len(later)} values after the first epochs are too few to say how they vary.")
    names, notes = _levels(later)
    components, floor_notes = _components(later, names)
    if not components:
        raise StudyError(
            f"{figure}: each of {len(later)} configurations has one value, so nothing is known of how it varies. Repeat"
            " some, or leave out of --settings what does not make another configuration."
        )
    device, trial = _deviation(components, "between devices"), _deviation(components, "between trials")
    within = _deviation(components, "between epochs", f"between {VALUES}")
    found = plans(trial, within or 0.0, target) if trial is not None else []
    notes += floor_notes + _copy_notes(components)
    return Variability(
        figure,
        len(later),
        len({sample.cell for sample in later}),
        components,
        _first_epoch(first, later),
        over_epochs(_by_trial(later)),
        over_time(_trial_medians(later)),
        tuple(worst(later)),
        target,
        tuple(found),
        cheapest(found),
        (
            *notes,
            *_plan_notes(trial, found, target),
            *_if_wider(components, found, within or 0.0, target),
            *_device_notes(device),
        ),
    )


def _levels(samples: Sequence[NestedValue]) -> tuple[list[str], list[str]]:
    """The levels that can be told apart here, and sentences about those that cannot."""
    known = {name: [label(sample) for sample in samples] for name, label in LEVELS.items()}
    notes: list[str] = []
    kept: list[str] = []
    cells: list[tuple[object, ...]] = [(sample.cell,) for sample in samples]
    groups = len(set(cells))
    for name, labels in known.items():
        if None in labels:
            continue
        finer = [(*above, label) for above, label in zip(cells, labels, strict=True)]
        if len(set(finer)) == groups:
            what = kept[-1] if kept else "configuration"
            if len(set(labels)) > 1 or name == "trial":
                notes.append(f"Each {what} has one {name}: what varies between {name}s cannot be told apart.")
            continue
        cells, groups = finer, len(set(finer))
        kept.append(name)
    if kept and groups == len(samples):
        kept.pop()  # one value each: they are the lowest level themselves
    return kept, notes


def _components(samples: Sequence[NestedValue], names: Sequence[str]) -> tuple[tuple[Component, ...], list[str]]:
    values = np.log(np.array([sample.value for sample in samples]))
    lowest = _lowest(samples, names)
    labels = [[LEVELS[name](sample) for sample in samples] for name in names]
    sums = nested(values, [sample.cell for sample in samples], labels)
    return _described(sums, [*(f"between {name}s" for name in names), f"between {lowest}"])


def _described(sums: Nested, names: Sequence[str]) -> tuple[tuple[Component, ...], list[str]]:
    found = variances(sums)
    enough = sums.units >= FLOOR
    drawn = possible_variances(sums, DRAWS) if enough else np.empty((0, len(names)))
    total = float(np.nansum(found))
    made = []
    for place, name in enumerate(names):
        if not math.isnan(found[place]):
            share = float(found[place]) / total if total > 0 else None
            made.append(
                Component(name, _estimate(float(found[place]), drawn[:, place], int(sums.groups[place])), share)
            )
    few = [f"{sums.units} {names[0].removeprefix('between ')} are too few for intervals; {FLOOR} are enough."]
    return tuple(made), [] if enough else few


def _estimate(variance: float, drawn: Floats, n: int) -> Estimate:
    """The deviation, with the percentiles of what it may be."""
    value = math.sqrt(variance)
    if not len(drawn):
        return Estimate(value, None, None, n, METHOD)
    low, high = np.sqrt(np.quantile(drawn, [0.025, 0.975]))
    return Estimate(value, float(low), float(high), n, f"{METHOD}, generalised pivots ({len(drawn)} draws)")


def _lowest(samples: Sequence[NestedValue], names: Sequence[str]) -> str:
    """What one sample is."""
    if any(sample.epoch is not None for sample in samples) and _several_a_trial(samples):
        return "epochs"
    if "trial" in names:
        return VALUES
    return "trials"


def _several_a_trial(samples: Sequence[NestedValue]) -> bool:
    return len({(sample.cell, sample.device, sample.day, sample.trial) for sample in samples}) < len(samples)


def _deviation(components: Sequence[Component], *levels: str) -> float | None:
    return next((each.deviation.value for each in components if each.level in levels), None)


def _by_trial(samples: Sequence[NestedValue]) -> dict[str, list[NestedValue]]:
    return grouped(samples, lambda each: "|".join(str(part) for part in (each.cell, each.device, each.day, each.trial)))


def _trial_medians(samples: Sequence[NestedValue]) -> list[NestedValue]:
    medians = []
    for of_one in _by_trial(samples).values():
        value = float(np.median([sample.value for sample in of_one]))
        medians.append(NestedValue(value, of_one[0].cell, when_s=of_one[0].when_s))
    return medians


def _first_apart(samples: Sequence[NestedValue]) -> tuple[list[NestedValue], list[NestedValue]]:
    """Epoch 0 is measured and kept apart: the lowest epoch of each trial that has several."""
    later: list[NestedValue] = []
    first: list[NestedValue] = []
    for of_one in _by_trial(samples).values():
        numbers = [sample.epoch for sample in of_one if sample.epoch is not None]
        lowest = min(numbers) if len(set(numbers)) > 1 else None
        for sample in of_one:
            (first if lowest is not None and sample.epoch == lowest else later).append(sample)
    return later, first


def _first_epoch(first: Sequence[NestedValue], later: Sequence[NestedValue]) -> Estimate | None:
    rest = {key: float(np.median([s.value for s in of_one])) for key, of_one in _by_trial(later).items()}
    shares = [of_one[0].value / rest[key] - 1 for key, of_one in _by_trial(first).items() if key in rest]
    return median_estimate(shares) if shares else None


def _copy_notes(components: Sequence[Component]) -> list[str]:
    if max(each.deviation.value for each in components) > ROUNDING:
        return []
    return ["The values of each configuration are the same to the last digit. Were rows copied? A copy is no repeat."]


def _plan_notes(trial: float | None, found: Sequence[Plan], target: float) -> list[str]:
    if trial is None:
        return ["How much trials differ is not known here, so neither is how many would be enough: run more trials."]
    if not found:
        return [f"No number of trials up to 1,000 holds the half-width below {target * 100:g} %."]
    if min(plan.trials for plan in found) < FLOOR:
        return [f"An interval of the median takes {FLOOR} trials, however little they differ."]
    return []


def _if_wider(components: Sequence[Component], found: Sequence[Plan], within: float, target: float) -> list[str]:
    """What the plan takes if the trials differ by as much as they may: their spread is an estimate as well."""
    trials = next((each.deviation for each in components if each.level == "between trials"), None)
    if not found or trials is None or trials.high is None:
        return []
    wider, now = cheapest(plans(trials.high, within, target)), cheapest(found)
    if now is None or (wider is not None and wider.trials <= now.trials):
        return []
    takes = f"{wider.trials} trials" if wider is not None else "more than 1,000 trials"
    spread = (
        f"Trials differ by {trials.value * 100:.2g} %, by this estimate, and may differ by {trials.high * 100:.2g} %"
    )
    return [f"{spread} (95 %): then it takes {takes} instead of {now.trials}."]


def _device_notes(device: float | None) -> list[str]:
    if not device:
        return []
    return [f"That is for one device; others differ from it by about {device * 100:.1f} %, whatever is repeated on it."]


def variability_answer(found: Variability) -> Answer[Variability]:
    """Where the variation comes from, whether it drifts, and how many repeats are enough."""
    over = "" if found.cells == 1 else f" of {found.cells} configurations, each against its own mean"
    enough = f"enough for a mean known to ±{share_text(found.target)}, with 95 % confidence:"
    notes = tuple((note,) for note in found.notes)
    return Answer(
        (f"{metric_name(found.figure)}: {count_text(found.samples, 'value')}{over}.",),
        found,
        (
            Section("variability-components", "", partial(_components_table, found)),
            Section("variability-enough", enough, partial(_plans_table, found)),
            Section("variability-notes", "", partial(Note, notes)),
        ),
    )


def _components_table(found: Variability) -> Table:
    rows = tuple(
        (
            each.level,
            f"{each.deviation.n:,}",
            Shown("deviation_share", each.deviation, each.level),
            "none" if each.share is None else Shown("variance_share", each.share, each.level),
        )
        for each in found.components
    )
    drifts = {
        "first epoch against the others, kept apart": found.first_epoch,
        "drift from a trial's first epoch to its last": found.drift_in_trial,
        "drift from the first trial to the last": found.drift_in_study,
    }
    notes: list[Sentence] = [
        (f"{name}: ", share_shown(drift, name)) for name, drift in drifts.items() if drift is not None
    ]
    for each in found.worst:
        far = Shown(EFFECT, each.deviation, each.where, signed=True)
        notes.append((f"farthest {each.what}: ", far, f" ({each.where})"))
    columns = (Column("varies"), Column("groups"), Column("deviation", "95 % interval"), Column("of the variance"))
    return Table(columns, rows, tuple(notes))


def _plans_table(found: Variability) -> Table:
    """The fewest trials for each number of epochs; a trial has parts where the lowest level is not the trial."""
    finest = found.components[-1].level
    part = "epoch" if finest == "between epochs" else "value"
    rows = []
    for plan in found.plans if found.cheapest is not None else ():
        of = f" of {count_text(plan.epochs, part)}" if finest != "between trials" else ""
        repeats = f"{count_text(plan.trials, 'trial')}{of}"
        fewest = f"fewest {part}s in all" if plan == found.cheapest and len(found.plans) > 1 else None
        rows.append((repeats, Shown("half_width_share", plan.half_width, repeats), fewest))
    return Table((Column("repeats"), Column("half-width"), Column("")), tuple(rows))
