"""Devices as a random effect: each is one draw from those there are, and one more device is one more of the sample.

Every device has a value of its own, true but for its error, and the true values scatter with a variance tau2:

    value(i) = mean + device(i) + error(i),    device ~ (0, tau2),    error(i) ~ (0, variance(i))

tau2 is Paule and Mandel's: the one at which the weighted squares sum to their degrees of freedom. The mean's interval
is Hartung and Knapp's, never narrower than the errors alone make it: Student's t with one degree of freedom less than
there are devices. The interval of tau is the Q-profile's (Viechtbauer). Why: docs/decisions/0016.

Blocks of several stores: the stores are the sample, and each has an effect of its own.

A block is a replicate within its store only. Blocks of one store share what was run there: its cells, the state of the
machine that day. Pooled as if they were replicates of each other, stores that differ by 10 % with blocks that differ by
1 % would have an interval of 1 %. So each store has its estimate, and they are joined as devices are:

- three stores or more: their mean as a random effect (Paule and Mandel, Hartung and Knapp; docs/decisions/0016);
- two: how stores scatter cannot be known, so that nothing is claimed that is not true of each of them: the interval
  reaches from the lower end of one to the upper end of the other.

A store with fewer than six blocks has no interval of its own and is left out where there are others. Where no store has
six, each counts once, by its own estimate: six stores and more have an interval, fewer have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from tare.analysis.estimators import Shift, Sides, StudentShift, paired_shift, signed_rank
from tare.analysis.model import Estimate, Word
from tare.analysis.numeric.distributions import normal_quantile, t_quantile
from tare.analysis.numeric.medians import FLOOR, Floats
from tare.analysis.numeric.nested import nested, possible_variances, variances
from tare.base.errors import ObstacleError
from tare.base.installed import pip_install
from tare.records.model import TrialRow, collected

# What is said about the devices of a fleet. Effects and deviations are shares; a missing figure is None.


@dataclass(frozen=True, slots=True)
class DeviceEffect:
    """What a level costs on one device."""

    device: str
    type: str
    effect: Estimate  # its n is the number of blocks


@dataclass(frozen=True, slots=True)
class Population:
    """The same over devices: each of them is one of the sample."""

    of: str  # the type, or "" for all devices
    mean: Estimate  # its n is the number of devices
    tau: Estimate  # between-device standard deviation of the effect
    next_low: float  # where the effect on one more device lies, with 95 % confidence
    next_high: float
    verdict: Word


@dataclass(frozen=True, slots=True)
class Effect:
    """One level against another, on each device and over them."""

    level: str
    against: str
    where: str  # what else is the same; "" where nothing else varies
    devices: tuple[DeviceEffect, ...]
    populations: tuple[Population, ...]  # none with fewer than three devices


@dataclass(frozen=True, slots=True)
class Component:
    """How much one kind of thing varies within the kind above it."""

    level: str  # "between devices of a type"
    deviation: Estimate  # coefficient of variation; its n is the number of groups
    share: Estimate  # of the whole variance


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the scatter of one configuration comes from, highest level first."""

    where: str
    trials: int
    components: tuple[Component, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that a device does not share with its twins."""

    what: str  # "kernel"
    here: str
    twins: str

    def text(self) -> str:
        return f"{self.what} {self.here} (the others: {self.twins})"


@dataclass(frozen=True, slots=True)
class Standing:
    """One device among identical devices, those of its type."""

    device: str
    type: str
    trials: int
    deviation: float | None  # from the mean of its twins; None where it has none
    low: float | None
    high: float | None
    random_effect: float | None  # what of that is the device's own and not noise: drawn to the mean of its type
    p: float | None = None  # for those that lie farthest out: corrected for their twins
    unlike: bool = False


@dataclass(frozen=True, slots=True)
class Odd:
    """A device that is an outlier among identical devices, in what, and what might be why."""

    device: str
    type: str
    twins: int
    what: str  # "" for the figure itself, else the effect: "docker against bare"
    deviation: float  # from identical devices, as a share; of an effect, the difference
    p: float
    candidates: tuple[Candidate, ...]
    sentence: str
    effect: tuple[str, str] | None = None  # level and against, where it is an effect


@dataclass(frozen=True, slots=True)
class Quantity:
    """Everything about one figure."""

    metric: str
    effects: tuple[Effect, ...]
    spreads: tuple[Spread, ...]
    standings: tuple[Standing, ...]
    odd: tuple[Odd, ...] = ()
    could_see: dict[str, float] = field(default_factory=dict)  # type -> the distance at which a device stands out
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a store says about its devices."""

    study: str
    types: dict[str, tuple[str, ...]]  # type -> its devices
    margin: float
    by: str | None  # the factor whose effect is told
    quantities: tuple[Quantity, ...]
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(device for devices in self.types.values() for device in devices)

    def as_json(self) -> dict[str, Any]:
        return {"devices": list(self.devices), **asdict(self)}


FEWEST = 3  # devices: two have a difference, and no spread that one could know
LEVEL = 0.95
# A variance of logs that no device's clock comes below (a deviation of a millionth). Beside one that weighs far more
# than the others, the mean is so near to its value that rounding would decide where Newton's first step ends.
_TINY = 1e-12
_STEPS = 200
_ALLOWED = 49  # values of tau that stand for all that the data allow


@dataclass(frozen=True, slots=True)
class Pooled:
    """What holds for devices such as these, on the scale of the values."""

    devices: int
    mean: float
    error: float  # standard error of the mean
    tau: float  # deviation of the devices' true values
    tau_low: float
    tau_high: float
    next_low: float  # where the true value of one more device lies
    next_high: float

    def reach(self, level: float = LEVEL) -> float:
        """Half the mean's interval."""
        return _t(self.devices - 1, level) * self.error


def _scipy() -> tuple[Any, Any]:
    """scipy's special functions and root finding, which nothing but fleets needs."""
    try:
        from scipy import optimize, special
    except ImportError:
        raise ObstacleError(f"how devices vary is computed with scipy: `{pip_install('devices')}` brings it.") from None
    return special, optimize


def pooled(values: Floats, variances: Floats) -> Pooled:
    """The mean over devices, and how they scatter about it; `variances` are of the values' errors."""
    if len(values) < FEWEST:
        raise ValueError(f"{len(values)} devices are too few to estimate how devices vary; {FEWEST} are enough")
    special, _ = _scipy()
    known = np.maximum(variances, _TINY)
    freedom = len(values) - 1
    mean, tau2, error = scatter(values, variances)
    low, high = _next(values, known)
    tail = (1 - LEVEL) / 2
    ends = _betweens(values, known, special.chdtri(freedom, np.array([tail, 1 - tail])))
    return Pooled(
        devices=len(values),
        mean=mean,
        error=error,
        tau=math.sqrt(tau2),
        tau_low=math.sqrt(ends[0]),
        tau_high=math.sqrt(ends[1]),
        next_low=low,
        next_high=high,
    )


def _next(values: Floats, known: Floats) -> tuple[float, float]:
    """The prediction interval: over every tau that the data allow, each as often as they allow it (Nagashima).

    With the best tau alone it would be too narrow: of few devices that is often zero where it should not be.
    """
    special, _ = _scipy()
    freedom = len(values) - 1
    squares = special.chdtri(freedom, (np.arange(_ALLOWED) + 0.5) / _ALLOWED)
    found = [_at(values, known, float(tau2)) for tau2 in _betweens(values, known, squares)]
    means, taus2, errors = (np.array(column) for column in zip(*found, strict=True))
    tail = (1 - LEVEL) / 2
    stretch = _t(freedom, LEVEL) / -normal_quantile(tail)
    scales = np.sqrt(taus2 + (stretch * errors) ** 2)
    return _mixture(means, scales, tail), _mixture(means, scales, 1 - tail)


def _mixture(means: Floats, scales: Floats, at: float) -> float:
    """The quantile of normal distributions that are mixed in equal parts."""
    special, optimize = _scipy()
    ends = means + scales * normal_quantile(at)
    margin = 1e-6 * float(scales.max())  # at the ends themselves rounding could decide on the sign

    def beyond(x: float) -> float:
        return float(special.ndtr((x - means) / scales).mean()) - at

    return float(optimize.brentq(beyond, ends.min() - margin, ends.max() + margin, xtol=1e-9 * margin))


def scatter(values: Floats, variances: Floats) -> tuple[float, float, float]:
    """The mean of two devices or more, their variance between devices, and the mean's standard error.

    With this variance the weighted squares are what they should be, or fewer: then Hartung and Knapp's error, which
    is never taken below that of the errors alone, is one over the root of the weights' sum.
    """
    known = np.maximum(variances, _TINY)
    return _at(values, known, between(values, known, len(values) - 1))


def _at(values: Floats, known: Floats, tau2: float) -> tuple[float, float, float]:
    weights = 1 / (known + tau2)
    total = float(weights.sum())
    return float((weights * values).sum()) / total, tau2, math.sqrt(1 / total)


def between(values: Floats, variances: Floats, squares: float) -> float:
    """The variance between devices at which the weighted squares sum to this; 0 where they are fewer at none."""
    return float(_betweens(values, variances, np.array([squares]))[0])


def _betweens(values: Floats, variances: Floats, squares: Floats) -> Floats:
    """The same for several sums.

    A sum falls with the variance and is convex, so Newton's steps from below never pass the place. They begin where
    it would be if every error were as large as the largest, which is below it. All at once: one search of
    `scipy.optimize` for each takes three times as long.
    """
    tau2 = np.maximum(0.0, ((values - values.mean()) ** 2).sum() / squares - variances.max())
    for _ in range(_STEPS):
        weights = 1 / (variances + tau2[:, None])
        means = (weights * values).sum(axis=1) / weights.sum(axis=1)
        distances = (values - means[:, None]) ** 2
        excess = (weights * distances).sum(axis=1) - squares
        slopes = (weights**2 * distances).sum(axis=1)
        going = (excess > squares * 1e-12) & (slopes > 0)
        if not going.any():
            break
        tau2[going] += excess[going] / slopes[going]
    return np.asarray(tau2)


def shrunk(values: Floats, variances: Floats, found: Pooled) -> Floats:
    """Each device's own effect, as far as it can be told from its error: drawn to the mean (best linear prediction)."""
    known = np.maximum(variances, _TINY)
    trust = found.tau**2 / (found.tau**2 + known)
    return np.asarray(found.mean + trust * (values - found.mean))


def _t(freedom: float, level: float) -> float:
    return -t_quantile(freedom, (1 - level) / 2)


@dataclass(frozen=True, slots=True)
class Centre:
    """A centre on the log scale; `n` is what it is made of, and `unit_variance` of one of these (None: not known)."""

    value: float
    n: int
    unit_variance: float | None
    low: float | None = None
    high: float | None = None
    method: str = ""


def centre_of(logs: Floats) -> Centre:
    """The centre of one sample."""
    if len(logs) == 1:
        return Centre(float(logs[0]), 1, None, method="one trial")
    return from_shift(paired_shift(logs, LEVEL), len(logs))


def from_shift(shift: Shift, n: int) -> Centre:
    """A centre with the interval of its own test; no interval with fewer than six, though its variance is used."""
    unit = shift.standard_error(LEVEL) ** 2 * n if n > 1 else None
    if n < FLOOR:
        return Centre(shift.centre, n, unit, method=f"{n} are too few for an interval")
    low, high = shift.interval(LEVEL)
    return Centre(shift.centre, n, unit, low, high, shift.method)


def error_variances(centres: Sequence[Centre]) -> Floats:
    """The variance of each centre's error. The noise of one trial is pooled over the devices: of six it is a guess."""
    unit, _ = pooled_unit(centres)
    return np.array([unit / each.n for each in centres])


def own_variances(centres: Sequence[Centre]) -> Floats:
    """The same from each device's own noise; 0 where that is not known."""
    return np.array([(each.unit_variance or 0.0) / each.n for each in centres])


def pooled_unit(centres: Sequence[Centre]) -> tuple[float, int]:
    """The variance of one trial within a device, and its degrees of freedom; nothing known is no variance at all."""
    known = [(each.unit_variance, each.n - 1) for each in centres if each.unit_variance is not None]
    freedom = sum(weight for _, weight in known)
    if not freedom:
        return 0.0, 0
    return sum(variance * weight for variance, weight in known) / freedom, freedom


def reach(variance: float, freedom: int) -> float | None:
    """Half a centre's interval, from the pooled noise; None where nothing is known of it."""
    if freedom < 1:
        return None
    return -t_quantile(freedom, (1 - LEVEL) / 2) * math.sqrt(variance)


DRAWS = 4_999
FEWEST_GROUPS = 3  # of the level: with two, an interval would reach over a factor of seventy
WITHIN = "trials of a device"
METHOD = "nested analysis of variance of logs, method of moments"


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


@dataclass(frozen=True)
class EachStoreShift(Shift):
    """Two stores: what both of their tests reject."""

    ranks: ClassVar[bool] = False
    centre: float
    freedom: float
    stores: tuple[Shift, ...]
    method: str = "Hodges-Lehmann in each of two stores, from the lower end of one to the upper end of the other"

    def interval(self, confidence: float) -> tuple[float, float]:
        ends = [each.interval(confidence) for each in self.stores]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def attained(self, confidence: float) -> float:
        return confidence

    def p_above(self, bound: float) -> float:
        return max(each.p_above(bound) for each in self.stores)

    def p_below(self, bound: float) -> float:
        return max(each.p_below(bound) for each in self.stores)


@dataclass(frozen=True)
class StoreSides(Sides):
    """Blocks of two stores or more, each with enough of them."""

    stores: tuple[Floats, ...] = ()  # log differences of the blocks of each

    def shift(self, confidence: float) -> Shift:
        found = [paired_shift(each, confidence) for each in self.stores]
        if len(found) < FEWEST:
            centre = float(np.mean([each.centre for each in found]))
            return EachStoreShift(centre, min(each.freedom for each in found), tuple(found))
        centres = [from_shift(paired_shift(each, LEVEL), len(each)) for each in self.stores]
        mean, _, error = scatter(np.array([each.value for each in centres]), error_variances(centres))
        return StudentShift(mean, error, len(centres) - 1, f"Hodges-Lehmann in each of {len(centres)} stores, "
                            "then their mean as a random effect, Hartung-Knapp interval")  # fmt: skip


def sides_of_stores(blocks: Sequence[tuple[str, float]]) -> Sides | None:
    """The log ratios of `(store, log ratio)`; None where all are of one store, whose blocks are its replicates."""
    found = {store: np.array(values) for store, values in collected(blocks).items()}
    if len(found) < 2:
        return None
    enough = tuple(values for values in found.values() if len(values) >= FLOOR)
    logs = np.concatenate(enough) if enough else np.array([signed_rank(values).centre for values in found.values()])
    ours, ones = np.exp(logs), np.ones(len(logs))
    if len(enough) < 2:  # one store with enough blocks stands for itself
        return Sides(ours, ones, paired=True, n=len(logs))
    return StoreSides(ours, ones, paired=True, n=len(logs), stores=enough)
