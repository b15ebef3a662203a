"""The effect of a level on each device, and over them: never the trials of several devices in one pool."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tare.analysis.cells import Cells
from tare.analysis.compare import word
from tare.analysis.directions import rises_when_faster
from tare.analysis.estimators import Sides, line_up
from tare.analysis.fleet.random_effects import FEWEST, Centre, error_variances, from_shift, pooled
from tare.analysis.fleet.results import DeviceEffect, Effect, Population
from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import FLOOR
from tare.analysis.selection import measurements
from tare.records.model import TrialRow, grouped

MEAN = "random effects: Paule-Mandel, Hartung-Knapp interval over devices"
TAU = "Paule-Mandel, Q-profile interval"
LEVEL = 0.95


def centres_by_device(
    used: Sequence[TrialRow], label: Cells, metric: str, level: str, against: str, where: str
) -> dict[str, Centre]:
    """The log-ratio of two levels on each device that ran both."""
    here = [each for each in used if label.surroundings(each) == where and not each.twin]
    found = {}
    for device, its in grouped(here, lambda each: str(each.device)).items():
        levels = grouped(its, label.level)
        sides = [measurements(levels.get(one, []), label, metric) for one in (level, against)]
        if all(sides) and (centre := _centre(line_up(*sides))) is not None:
            found[device] = centre
    return found


def effect(
    centres: Mapping[str, Centre], types: Mapping[str, str], metric: str, margin: float, names: tuple[str, str, str]
) -> Effect:
    """Device by device, then over all of them, then over each type of several."""
    level, against, where = names
    devices = tuple(DeviceEffect(name, types[name], _estimate(centre)) for name, centre in centres.items())
    groups = {"": list(centres)}
    kinds = dict.fromkeys(types[name] for name in centres)
    if len(kinds) > 1:
        groups |= {kind: [name for name in centres if types[name] == kind] for kind in kinds}
    populations = tuple(
        _population(of, [centres[name] for name in members], metric, margin)
        for of, members in groups.items()
        if len(members) >= FEWEST
    )
    return Effect(level, against, where, devices, populations)


def _centre(sides: Sides) -> Centre | None:
    """Paired where blocks hold both sides; with one trial a side there is a centre, and nothing known of its noise."""
    if sides.empty:
        return None
    count = sides.effective_n if sides.paired else min(len(sides.ours), len(sides.theirs))
    if count < 2:
        return Centre(sides.by_ranks.centre, 1, None, method="one block")
    return from_shift(sides.shift(LEVEL), count)


def _estimate(centre: Centre) -> Estimate:
    low, high = (None if end is None else math.expm1(end) for end in (centre.low, centre.high))
    return Estimate(math.expm1(centre.value), low, high, centre.n, centre.method)


def _population(of: str, centres: Sequence[Centre], metric: str, margin: float) -> Population:
    found = pooled(np.array([each.value for each in centres]), error_variances(centres))
    low, high = (math.expm1(found.mean + side * found.reach()) for side in (-1, 1))
    return Population(
        of,
        Estimate(math.expm1(found.mean), low, high, found.devices, MEAN),
        Estimate(found.tau, found.tau_low, found.tau_high, found.devices, TAU),
        math.expm1(found.next_low),
        math.expm1(found.next_high),
        word(low, high, margin, rises_when_faster(metric)),
    )


def too_few(devices: int) -> str:
    """Why there is no word about devices in general."""
    return (
        f"{devices} devices: what holds for devices in general cannot be estimated from fewer than {FEWEST}, so "
        "each is reported by itself."
    )


def few_blocks(made: Sequence[Effect]) -> str | None:
    """A note where devices have too few blocks for intervals of their own."""
    short = sum(each.effect.n < FLOOR for one in made for each in one.devices)
    if not short:
        return None
    return f"With fewer than {FLOOR} blocks a device has no interval of its own; its mean is still included."
