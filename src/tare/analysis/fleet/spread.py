"""Where the scatter of one configuration over devices and trials comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tare.analysis.fleet.random_effects import DRAWS, FEWEST_GROUPS, METHOD, WITHIN
from tare.analysis.fleet.results import Component, Spread
from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import Floats
from tare.analysis.numeric.nested import nested, possible_variances, variances
from tare.records.model import TrialRow


def spread(used: Sequence[TrialRow], metric: str, where: str) -> Spread | None:
    """One configuration's; None where there is one device, or no device has two trials and none could be told apart."""
    names, labels = _levels(used)
    if not names:
        return None
    values = np.log(np.array([each.metrics[metric] for each in used]))
    sums = nested(values, [""] * len(used), labels)
    found = variances(sums)
    if math.isnan(found[-1]) or math.isnan(found[-2]):
        return None  # one trial a device: what is within and what is between cannot be told apart
    drawn = possible_variances(sums, DRAWS)
    kept = [place for place in range(len(found)) if not math.isnan(found[place])]
    made = [
        _component(name, place, found, drawn, int(sums.groups[place]), int(sums.freedom[place]))
        for place, name in enumerate([*names, WITHIN])
        if place in kept
    ]
    return Spread(where, len(used), tuple(made))


def _levels(used: Sequence[TrialRow]) -> tuple[list[str], list[list[str]]]:
    """Types where there are several, then devices, with a label for each trial."""
    types, devices = [each.device_type for each in used], [str(each.device) for each in used]
    if len(set(devices)) < 2:
        return [], []
    if len(set(types)) > 1 and len(set(devices)) > len(set(types)):
        return ["types", "devices of a type"], [types, devices]
    return ["devices"], [devices]


def _component(name: str, place: int, found: Floats, drawn: Floats, groups: int, freedom: int) -> Component:
    total = float(np.nansum(found))
    share = float(found[place]) / total if total > 0 else 0.0
    ends: tuple[float | None, float | None] = (None, None)
    shares = ends
    if freedom >= FEWEST_GROUPS - 1:
        ends = _quantiles(np.sqrt(drawn[:, place]))
        sums = np.nansum(drawn, axis=1)
        shares = _quantiles(np.divide(drawn[:, place], sums, out=np.zeros_like(sums), where=sums > 0))
    method = METHOD if ends[0] is None else f"{METHOD}, generalised pivots ({DRAWS} draws)"
    return Component(
        f"between {name}",
        Estimate(math.sqrt(float(found[place])), *ends, groups, method),
        Estimate(share, *shares, groups, method),
    )


def _quantiles(values: Floats) -> tuple[float | None, float | None]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
