"""Each device among its twins: how far it lies from them in a figure, whatever was run on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from tare.analysis.fleet.centres import Centre, centre_of, error_variances, own_variances, pooled_unit, reach
from tare.analysis.fleet.model import Standing
from tare.analysis.fleet.random_effects import FEWEST, pooled, scatter, shrunk
from tare.analysis.fleet.unlike import Aside, set_aside
from tare.analysis.ranks import Floats


@dataclass(frozen=True)
class Twins:
    """Devices of one type: where each lies on the log scale, and how sure that is."""

    type: str
    names: tuple[str, ...]
    trials: tuple[int, ...]
    values: Floats
    variances: Floats  # of the errors, from the noise of all of them
    own: Floats  # the same, from each one's own noise
    freedom: int  # of the noise

    def tested(self) -> list[Aside]:
        return set_aside(self.values, self.variances, self.own)

    def others(self, place: int, without: Sequence[int] = ()) -> float:
        """The mean of a device's twins, without those that are unlike themselves."""
        return float(np.mean(self.values[self._rest(place, without)]))

    def _rest(self, place: int, without: Sequence[int]) -> list[int]:
        return [each for each in range(len(self.names)) if each != place and each not in without]

    def standings(self, tested: Sequence[Aside], odd: Sequence[int]) -> list[Standing]:
        """One line a device; `odd` are unlike the others, and are left out of what those are held against."""
        aside, mine = {test.place: test for test in tested}, self._own_effects(odd)
        return [self._standing(place, mine.get(place), aside.get(place), odd) for place in range(len(self.names))]

    def _standing(self, place: int, own: float | None, test: Aside | None, odd: Sequence[int]) -> Standing:
        away = half = None
        if self._rest(place, odd):
            away = float(self.values[place]) - self.others(place, odd)
            half = reach(self._away_variance(place, odd), self.freedom)
        ends = (None, None) if away is None or half is None else (math.expm1(away - half), math.expm1(away + half))
        return Standing(
            device=self.names[place],
            type=self.type,
            trials=self.trials[place],
            deviation=None if away is None else math.expm1(away),
            low=ends[0],
            high=ends[1],
            random_effect=None if own is None else math.expm1(own),
            p=None if test is None else test.p,
            unlike=place in odd,
        )

    def _away_variance(self, place: int, odd: Sequence[int]) -> float:
        """Of how far a device lies from its twins: its own error, and that of their mean."""
        rest = self._rest(place, odd)
        return float(max(self.variances[place], self.own[place]) + self.variances[rest].sum() / len(rest) ** 2)

    def _own_effects(self, odd: Sequence[int]) -> dict[int, float]:
        """What is each device's own, from the scatter of its twins; an odd one's from that of all."""
        like = [place for place in range(len(self.names)) if place not in odd]
        if len(like) < FEWEST:
            return {}
        found = pooled(self.values[like], self.variances[like])
        own = shrunk(self.values, self.variances, found) - found.mean
        if odd:
            tau2 = scatter(self.values, self.variances)[1]
            own[list(odd)] = (self.values - found.mean)[list(odd)] * (tau2 / (tau2 + self.variances[list(odd)]))
        return dict(enumerate(own.tolist()))


def twins_in_level(type_: str, cells: Mapping[str, Mapping[str, Sequence[float]]]) -> Twins:
    """From configuration -> device -> values: each device against the middle one, over the configurations it ran."""
    centres = {
        cell: {name: centre_of(np.log(np.array(values))) for name, values in devices.items()}
        for cell, devices in cells.items()
    }
    middles = {cell: median(each.value for each in found.values()) for cell, found in centres.items()}
    names = tuple(dict.fromkeys(name for found in centres.values() for name in found))
    pooled_by_cell = {cell: _by_name(found, error_variances(list(found.values()))) for cell, found in centres.items()}
    own_by_cell = {cell: _by_name(found, own_variances(list(found.values()))) for cell, found in centres.items()}
    held = {name: [cell for cell in centres if name in centres[cell]] for name in names}
    return Twins(
        type_,
        names,
        tuple(sum(centres[cell][name].n for cell in held[name]) for name in names),
        np.array([np.mean([centres[cell][name].value - middles[cell] for cell in held[name]]) for name in names]),
        _mean_variance(names, held, pooled_by_cell),
        _mean_variance(names, held, own_by_cell),
        sum(pooled_unit(list(found.values()))[1] for found in centres.values()),
    )


def twins_in_effect(type_: str, centres: Mapping[str, Centre]) -> Twins:
    """The same of an effect."""
    found = list(centres.values())
    return Twins(
        type_,
        tuple(centres),
        tuple(each.n for each in found),
        np.array([each.value for each in found]),
        error_variances(found),
        own_variances(found),
        pooled_unit(found)[1],
    )


def _by_name(found: Mapping[str, Centre], variances: Floats) -> dict[str, float]:
    return dict(zip(found, variances.tolist(), strict=True))


def _mean_variance(
    names: Sequence[str], held: Mapping[str, Sequence[str]], by_cell: Mapping[str, Mapping[str, float]]
) -> Floats:
    """Of the mean over the configurations that a device ran."""
    return np.array([sum(by_cell[cell][name] for cell in held[name]) / len(held[name]) ** 2 for name in names])
