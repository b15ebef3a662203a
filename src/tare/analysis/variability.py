"""All about how a figure varies, as one answer.

How much a figure varies, and where that comes from: epochs, trials, days, devices.

samples      rows in (a table's, or the epochs of a store's trials), one sample each, with where it belongs
components   the variance of each level, by the analysis of variance of nested groups
drift        whether the figure moves over the epochs of a trial, or over the hours of a study
enough       how many trials and epochs a given half-width takes
study        all of it, as one answer
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tare.analysis.labels import Labels, distinguishing, make_labels
from tare.analysis.model import Estimate
from tare.analysis.observations import NOTHING_USABLE, figure_column, records_of, usable_attempts
from tare.analysis.statistics import (
    FLOOR,
    Floats,
    Nested,
    median_estimate,
    nested,
    normal_quantile,
    possible_variances,
    t_quantile,
    variances,
)
from tare.analysis.table import Table, label_column, read_table
from tare.base.declare import Role, before
from tare.base.errors import StudyError, unknown_name
from tare.records.intervals import Marks, intervals
from tare.records.model import DEVICE, TYPE, Record, device_of, grouped, started_s, varied
from tare.records.store import Store

PER_EPOCH = {before().marks[mark]: mark for mark in ("step", "fetch", "compute", "copy")}


@dataclass(frozen=True, slots=True)
class NestedValue:
    """One value, positive, and the groups that it lies in; None where the source does not say."""

    value: float
    cell: str  # its configuration: samples of different ones are never compared
    device: str | None = None
    day: str | None = None
    trial: str | None = None
    epoch: float | None = None  # its number within the trial
    when_s: float | None = None


def table_samples(
    path: Path,
    value: str,
    *,
    settings: Sequence[str] = (),
    epoch: str | None = None,
    trial: str | None = None,
    device: str | None = None,
    day: str | None = None,
) -> list[NestedValue]:
    """One sample a row that has the figure."""
    table = read_table(path)
    values = figure_column(table, value)
    cells = zip(*(label_column(table, name) for name in settings), strict=True) if settings else [()] * len(table)
    epochs = [None] * len(table) if epoch is None else figure_column(table, epoch)
    devices, days, trials = (_labels(table, name) for name in (device, day, trial))
    made = []
    for place, (figure, cell) in enumerate(zip(values, cells, strict=True)):
        if figure is None:
            continue
        if figure <= 0:
            raise table.error(place + 1, value, f"{figure:g} cannot be compared; values must be more than zero.")
        made.append(NestedValue(figure, ", ".join(cell), devices[place], days[place], trials[place], epochs[place]))
    if not made:
        raise StudyError(f"{path}: column {value!r} has no figure in any row.")
    return made


def store_samples(
    root: Path, metric: str = Role.STEP_MEDIAN.metric, settings: Sequence[str] | None = None
) -> list[NestedValue]:
    """One sample an epoch of each usable trial, where its marks have epochs, else one a trial."""
    with Store.open(root) as store:
        records = [record for record in usable_attempts(records_of(store), [metric]) if metric in record.compared]
        if not records:
            usable = usable_attempts(records_of(store), [])
            if any(metric in record.metrics for record in usable):
                raise StudyError(
                    f"{root}: {metric} of these trials is not compared: they were traced, which costs time."
                )
            known = sorted({name for record in usable for name in record.compared})
            raise StudyError(f"{root}: {unknown_name('figure', metric, known) if known else NOTHING_USABLE}")
        names = list(settings) if settings is not None else _configuration_names(records)
        several = [record.settings for record in records]
        cells = make_labels(several, distinguishing(several, names))
        return [sample for record in records for sample in _of_record(store, record, metric, cells)]


def _configuration_names(records: Sequence[Record]) -> list[str]:
    """What makes a configuration: all that varies, but the device of a fleet, which is a level of its own."""
    types = {str(record.settings.get(TYPE)) for record in records}
    names = [name for name in varied([record.settings for record in records]) if name not in (DEVICE, TYPE)]
    return [*names, *([TYPE] if len(types) > 1 else [])]


def epoch_medians(marks: Marks, mark: str) -> list[tuple[float, float]]:
    """(number of the epoch, median seconds of this interval in it), from a trial's marks."""
    return [(number, float(np.median(inside))) for number, inside in _by_epoch(marks, mark)]


def epoch_means(marks: Marks, mark: str) -> list[tuple[float, float]]:
    """The same with means: what an epoch takes, a stall in every fourth step with it."""
    return [(number, float(np.mean(inside))) for number, inside in _by_epoch(marks, mark)]


def _by_epoch(marks: Marks, mark: str) -> Iterator[tuple[float, Floats]]:
    found, epochs = intervals(marks, mark).of_steps(), intervals(marks, "epoch")
    spans = sorted(zip(epochs.begin_ns.tolist(), epochs.end_ns.tolist(), strict=True))
    for number, (start_ns, end_ns) in enumerate(spans):
        inside = found.seconds[(start_ns <= found.begin_ns) & (found.begin_ns < end_ns)]
        if len(inside):
            yield float(number), inside


def _of_record(store: Store, record: Record, metric: str, cells: Labels) -> list[NestedValue]:
    cell = str(cells.words(record.settings))
    when = started_s(record)
    day = None if when is None else datetime.fromtimestamp(when, UTC).date().isoformat()
    epochs = epoch_medians(store.marks(record.trial, record.attempt), PER_EPOCH[metric]) if metric in PER_EPOCH else []
    found: list[tuple[float | None, float]] = [(number, value) for number, value in epochs if value > 0]
    if len(found) < 2:
        found = [(None, record.metrics[metric])]
    return [
        NestedValue(value, cell, device_of(record), day, record.trial, number, when)
        for number, value in found
        if value > 0
    ]


def _labels(table: Table, name: str | None) -> Sequence[str | None]:
    return [None] * len(table) if name is None else label_column(table, name)


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


EPOCHS = (1, 2, 3, 5, 10, 20)
MOST_TRIALS = 1_000
FEWEST_TRIALS = 2  # one trial says nothing about the next


@dataclass(frozen=True, slots=True)
class Plan:
    """So many trials, each with so many epochs after its first, and the half-width that they give."""

    trials: int
    epochs: int
    half_width: float


def half_width(trial_deviation: float, epoch_deviation: float, trials: int, epochs: int) -> float:
    """Of the 95 % interval of the mean over trials (Student's t)."""
    error = math.sqrt((trial_deviation**2 + epoch_deviation**2 / epochs) / trials)
    return t_quantile(trials - 1, 0.975) * error


def plans(trial_deviation: float, epoch_deviation: float, target: float) -> list[Plan]:
    """The fewest trials for each number of epochs; more epochs are listed only where they save trials."""
    epochs = EPOCHS if epoch_deviation > 0 else (1,)
    found: list[Plan] = []
    for each in epochs:
        trials = _fewest(trial_deviation, epoch_deviation, each, target)
        if trials is not None and (not found or trials < found[-1].trials):
            found.append(Plan(trials, each, half_width(trial_deviation, epoch_deviation, trials, each)))
    return found


def cheapest(found: Sequence[Plan]) -> Plan | None:
    """The fewest epochs in all; each trial also pays for its first epoch, which is kept apart."""
    return min(found, key=lambda plan: (plan.trials * (plan.epochs + 1), plan.trials), default=None)


def _fewest(trial_deviation: float, epoch_deviation: float, epochs: int, target: float) -> int | None:
    def enough(trials: int) -> bool:  # the half-width falls with every trial
        return half_width(trial_deviation, epoch_deviation, trials, epochs) <= target

    found = FEWEST_TRIALS + bisect_left(range(FEWEST_TRIALS, MOST_TRIALS + 1), True, key=enough)
    return found if found <= MOST_TRIALS else None


MOST_POINTS = 1_000  # of one series: pairs grow with the square
FEWEST_POINTS = 3


def over_epochs(trials: Mapping[str, Sequence[NestedValue]]) -> Estimate | None:
    """The share by which a trial's last epoch lies above its first, by its slope; the median over trials."""
    changes = [
        change
        for samples in trials.values()
        if (change := _change([(s.epoch, s.value) for s in samples if s.epoch is not None])) is not None
    ]
    return median_estimate(changes) if changes else None


def over_time(samples: Sequence[NestedValue]) -> Estimate | None:
    """The share by which the figure grows from the study's start to its end, each cell against its own median.

    Its interval is Sen's, from the ranks of the slopes.
    """
    timed = [sample for sample in samples if sample.when_s is not None]
    cells = grouped(timed, lambda sample: sample.cell)
    centres = {cell: float(np.median([each.value for each in members])) for cell, members in cells.items()}
    points = _thinned([(s.when_s or 0.0, float(np.log(s.value / centres[s.cell]))) for s in timed])
    slopes = _slopes(points)
    if slopes is None:
        return None
    times = [when for when, _ in points]
    span, n = max(times) - min(times), len(points)
    spread = -normal_quantile(0.025) * np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low, high = ((len(slopes) - spread) / 2, (len(slopes) + spread) / 2 + 1)
    value = float(np.expm1(np.median(slopes) * span))
    method = "median of slopes (Theil, Sen)"
    if low < 1 or high > len(slopes):
        return Estimate(value, None, None, n, f"{method}; {n} trials are too few for an interval")
    ordered = np.sort(slopes)
    ends = [float(np.expm1(ordered[int(place) - 1] * span)) for place in (low, high)]
    return Estimate(value, ends[0], ends[1], n, method)


def _change(points: Sequence[tuple[float, float]]) -> float | None:
    """From the first to the last, by the slope of the logs."""
    thin = _thinned([(when, float(np.log(value))) for when, value in points])
    slopes = _slopes(thin)
    if slopes is None:
        return None
    times = [when for when, _ in thin]
    return float(np.expm1(np.median(slopes) * (max(times) - min(times))))


def _slopes(points: Sequence[tuple[float, float]]) -> Floats | None:
    if len(points) < FEWEST_POINTS:
        return None
    times, values = np.array(points, dtype=np.float64).T
    later, earlier = np.triu_indices(len(points), 1)[::-1]
    apart = times[later] - times[earlier]
    known = apart != 0
    return (values[later] - values[earlier])[known] / apart[known] if known.any() else None


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Evenly thinned, so that a long series costs no more than a thousand points."""
    return list(points[:: max(1, -(-len(points) // MOST_POINTS))])


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
    """Epoch 0 is measured and kept apart (validity.md): the lowest epoch of each trial that has several."""
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


__all__ = ["NestedValue", "Plan", "Variability", "store_samples", "table_samples", "variability"]
