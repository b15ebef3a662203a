"""The device that is an outlier among identical devices: each against what the others predict of the next.

The device that lies farthest out is held against the others' prediction: their mean, how they scatter, and its own
error. Then it is set aside and the rest are looked at again, so that two odd devices cannot hide behind each other; a
device is unlike if it, or one set aside after it, is too far out for as many devices as were left then (Rosner's
many-outlier procedure). One device in four may be set aside, at least one, and two others stay to compare it with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from tare.analysis.fleet.random_effects import (
    FEWEST,
    Centre,
    centre_of,
    error_variances,
    own_variances,
    pooled,
    pooled_unit,
    reach,
    scatter,
    shrunk,
)
from tare.analysis.fleet.results import Standing
from tare.analysis.numeric.distributions import t_cdf, t_quantile
from tare.analysis.numeric.medians import ALPHA, Floats, holm_levels

ONE_IN = 4  # devices may be set aside


@dataclass(frozen=True, slots=True)
class Aside:
    """One device against the others that were left when it was looked at."""

    place: int
    others: float  # their mean
    p: float  # two-sided, corrected for the devices that were left
    scale: float  # what its distance is counted in, and
    freedom: int  # the t distribution that it is held against


def set_aside(values: Floats, variances: Floats, own: Floats | None = None) -> list[Aside]:
    """The devices that were set aside, in that order; none with fewer than three.

    `variances` are of the errors, from the noise of all devices; `own` from each device's own, where that is larger.
    """
    left = list(range(len(values)))
    errors = variances if own is None else np.maximum(variances, own)
    made: list[Aside] = []
    for _ in range(max(1, len(left) // ONE_IN) if len(left) >= FEWEST else 0):
        made.append(_test(_farthest(left, values, variances), left, values, variances, errors))
        left.remove(made[-1].place)
    return made


def outlying(found: Sequence[Aside], alpha: float = ALPHA) -> list[Aside]:
    """Those that were set aside up to the last that is too far out."""
    last = max((number for number, test in enumerate(found) if test.p <= alpha), default=-1)
    return list(found[: last + 1])


def levels(questions: Sequence[Sequence[Aside]], alpha: float = ALPHA) -> list[float]:
    """The level of each question (a quantity, of the devices of one type), by Holm over all that were asked."""
    return holm_levels([min((test.p for test in found), default=1.0) for found in questions], alpha)


def could_see(found: Sequence[Aside], devices: int, alpha: float = ALPHA) -> float | None:
    """The distance from the others at which a device would just have stood out; None where none was looked at."""
    if not found:
        return None
    last = found[-1]
    return last.scale * -t_quantile(last.freedom, alpha / 2 / devices)


def _farthest(left: Sequence[int], values: Floats, variances: Floats) -> int:
    """By its distance from the mean of all, in what it would scatter by."""
    mean, tau2, _ = scatter(values[left], variances[left])
    scales = np.sqrt(tau2 + np.maximum(variances[left], np.finfo(float).tiny))
    return left[int(np.argmax(np.abs(values[left] - mean) / scales))]


def _test(place: int, among: Sequence[int], values: Floats, variances: Floats, errors: Floats) -> Aside:
    others = [each for each in among if each != place]
    mean, tau2, error = scatter(values[others], variances[others])
    freedom = len(others) - 1
    scale = math.sqrt(tau2 + error**2 + float(errors[place]))
    p = 2 * t_cdf(freedom, -abs(float(values[place]) - mean) / scale)
    return Aside(place, mean, min(1.0, p * len(among)), scale, freedom)


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
        """Of how far a device lies from identical devices: its own error, and that of their mean."""
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
