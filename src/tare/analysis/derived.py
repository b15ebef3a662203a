"""Figures that a record does not hold by itself, made from what lies beside it.

Medians of what the sampler saw while the measured steps ran, means of epoch 0, and seconds of a whole epoch; rooms and
other packages offer further ones at the door "figures". Each is made only for a study whose rows ask for it.

What lies beside a record, for whoever needs more than its own figures.

steps     when the measured steps of a trial ran, and what epoch 0 took, from its marks
figures   figures that a record does not hold by itself: medians of series, means of epoch 0, counts
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tare.analysis.cells import WORKERS
from tare.base import rooms
from tare.base.declare import Role
from tare.base.text import FIRST_EPOCH
from tare.base.units import METER_W
from tare.records.intervals import Marks, are, intervals
from tare.records.model import COMPUTES_ON, Record, is_usable
from tare.records.parquet import TableName
from tare.records.store import Store

if TYPE_CHECKING:
    from tare.records.spool import Times, Values


Numbers: TypeAlias = npt.NDArray[np.int64]
T = TypeVar("T")
Seconds: TypeAlias = npt.NDArray[np.float64]

_STEP, _EPOCH = "step", "epoch"
OF_AN_EPOCH: Mapping[str, tuple[str, str]] = {  # seconds of an epoch -> the mark, and the figure of one mini-batch
    Role.EPOCH.metric: (_EPOCH, Role.STEP_MEAN.metric),
    "epoch_stall_s": ("fetch", Role.STALL_MEAN.metric),
    "epoch_compute_s": ("compute", Role.COMPUTE_MEAN.metric),
}


def measured_ns(marks: Marks, warm_up: int) -> tuple[int, int] | None:
    """From the begin of the first measured step to the end of the last; so many before them are kept apart."""
    numbers, _ = _per_step(marks, _STEP)
    of_steps = are(marks, "name", _STEP)
    times_ns = marks["t_ns"][of_steps][np.isin(marks["step"][of_steps], numbers[warm_up:])]
    return (int(times_ns.min()), int(times_ns.max())) if times_ns.size else None


def early_mean_s(marks: Marks, name: str, warm_up: int, without: int = 0) -> float | None:
    """The mean of an interval over the steps that are kept apart, all of epoch 0, or without the first few of them."""
    steps, _ = _per_step(marks, _STEP)
    numbers, seconds = _per_step(marks, name)
    early = seconds[np.isin(numbers, steps[without:warm_up])]
    return float(early.mean()) if early.size else None


def _per_step(marks: Marks, name: str) -> tuple[Numbers, Seconds]:
    """The numbers of the steps that have this interval, in order, and its seconds in each."""
    found = intervals(marks, name).of_steps()
    numbers, place = np.unique(found.step, return_inverse=True)
    taken_ns = np.bincount(place, found.end_ns - found.begin_ns, len(numbers))  # exact: of a hundred days
    return numbers, taken_ns / 1e9


SOURCES = "figure_sources"  # facts: figure -> the channel that it comes from, or what it leaves out, in words
AT_PEAK = 0.95  # the paper's "static": within 95 % of nominal
LEAST_READINGS = 5  # of power in an epoch, for its mean
_WITHOUT_START = "the first mini-batch of epoch 0 left out: it waits for the start of the workers"
_START_AS_OTHERS = (
    "the first mini-batch of epoch 0 counted as the mean of the others: it waits for the start of the workers"
)
_NOTHING_BETWEEN = "on a CPU nothing is copied and next to nothing lies between stall and compute"


@dataclass(frozen=True)
class Found:
    """A figure, and in words where it comes from or what to know of it. None: the channel told nothing of it."""

    value: float | None
    source: str = ""


@dataclass(frozen=True)
class TrialData:
    """A record and what lies beside it; each is read once, and only if a figure is made of it."""

    store: Store
    record: Record

    @cached_property
    def marks(self) -> Marks:
        return self.store.marks(self.record.trial, self.record.attempt)

    @cached_property
    def readings(self) -> Mapping[str, tuple[Times, Values]]:
        return self.store.readings(self.record.trial, self.record.attempt)

    @cached_property
    def warm_up(self) -> int | None:
        """So many steps are kept apart; of several tenants only those count in which all worked, so None."""
        steps = self.record.metrics.get("warm_up_steps")
        alone = self.record.settings.get("tenants") in (None, 1)
        return int(steps) if steps is not None and alone else None

    @cached_property
    def measured_ns(self) -> tuple[int, int] | None:
        return None if self.warm_up is None else measured_ns(self.marks, self.warm_up)

    @cached_property
    def _shared(self) -> dict[Callable[[TrialData], Any], Any]:
        return {}

    def shared(self, make: Callable[[TrialData], T]) -> T:
        """What several figures are made of, made once."""
        if make not in self._shared:
            self._shared[make] = make(self)
        made: T = self._shared[make]
        return made

    def table(self, probe: str, name: str) -> Marks | None:
        key = (self.record.trial, self.record.attempt)
        return self.store.trace(*key, probe, name) if TableName(probe, name) in self.store.traces(*key) else None


Make: TypeAlias = Callable[[TrialData], Found | None]


@dataclass(frozen=True)
class Sensor:
    """A channel that a median may come from."""

    channel: str
    rises: bool = False  # a counter: how fast it rose in a second
    covers: str = ""  # where sensors of one figure do not see the same

    @property
    def words(self) -> str:
        """`from gpu.power_w: the GPU alone`."""
        return f"from {self.channel}: {self.covers}" if self.covers else f"from {self.channel}"

    def values(self, readings: tuple[Times, Values], span_ns: tuple[int, int]) -> Values:
        """What it told in this time; of a counter, from one reading to the next."""
        times_ns, values = readings
        inside = (times_ns >= span_ns[0]) & (times_ns <= span_ns[1]) & np.isfinite(values)
        t_ns, found = times_ns[inside], values[inside]
        if not self.rises:
            return found
        taken_s = np.diff(t_ns) / 1e9
        return np.diff(found)[taken_s > 0] / taken_s[taken_s > 0]


@dataclass(frozen=True)
class Median:
    """The median of a channel over the measured steps of a trial."""

    sensors: tuple[Sensor, ...]  # the first that the trial has
    scaled: Callable[[float, Record], float | None] = lambda value, _: value

    def of(self, beside: TrialData) -> Found | None:
        sensor = next((each for each in self.sensors if each.channel in beside.readings), None)
        if sensor is None or beside.measured_ns is None or "slept_s" in beside.record.facts:
            return None  # asleep, nothing was read
        values = sensor.values(beside.readings[sensor.channel], beside.measured_ns)
        if not values.size:
            return Found(None, f"no reading of {sensor.channel} fell into the measured steps")
        value = self.scaled(float(np.median(values)), beside.record)
        return None if value is None else Found(value, sensor.words)


def _of_all_cores(busy_s: float, record: Record) -> float | None:
    cores = (record.facts.get("device") or {}).get("cores")
    return busy_s / cores if isinstance(cores, int) and cores > 0 else None


def _in_use(available_bytes: float, record: Record) -> float | None:
    whole = (record.facts.get("device") or {}).get("memory_bytes")
    return whole - available_bytes if isinstance(whole, int | float) and whole > available_bytes else None


_POWER = (
    Sensor(METER_W, covers="the whole device, at the wall"),
    Sensor("power_rails.total_w", covers="the module"),
    Sensor("gpu.power_w", covers="the GPU alone"),
    Sensor("power_rapl.total_j", rises=True, covers="the CPU packages alone"),
)
_READ = "cgroup.read_bytes"
_BUSY = Sensor("cpu.busy_s", rises=True, covers="mean of all cores (one busy thread takes one of them)")
MEDIANS: Mapping[str, Median] = {
    "gpu_util_share": Median((Sensor("gpu.util"),)),
    "cpu_busy_share": Median((_BUSY,), _of_all_cores),
    "memory_median_bytes": Median((Sensor("memory.available_bytes"),), _in_use),
    "power_median_w": Median(_POWER),
    "page_cache_share": Median((Sensor("page_cache.share"),)),
}
CHANNELS = frozenset({_READ, *(sensor.channel for median in MEDIANS.values() for sensor in median.sensors)})
CLOCKS = "frequency."  # how channels of clocks begin; there is one a core


def _below_peak(channel: str, nominal: str, beside: TrialData) -> Found | None:
    """How much of the measured time a clock was below its peak: the mode's own, else the highest that was read."""
    mine = [name for name in beside.readings if name.startswith(channel) and name.endswith("_hz")]
    if not mine or beside.measured_ns is None:
        return None
    values = np.concatenate([Sensor(name).values(beside.readings[name], beside.measured_ns) for name in mine])
    asked = beside.record.settings.get(nominal)
    peak = float(asked) * 1e6 if asked else float(np.max(values)) if values.size else 0.0
    if not values.size or peak <= 0:
        return None
    source = "the power mode's" if asked else "the highest that was read"
    return Found(float(np.mean(values < AT_PEAK * peak)), f"from {channel}: below {AT_PEAK:.0%} of {source}")


def _early_mean(mark: str, beside: TrialData) -> Found | None:
    """The mean of epoch 0; where it has workers, without the first fetch, which holds their start."""
    if beside.warm_up is None:
        return None
    has_workers = (beside.record.settings.get(WORKERS) or 0) > 0
    value = early_mean_s(beside.marks, mark, beside.warm_up, without=1 if has_workers else 0)
    return None if value is None else Found(value, _WITHOUT_START if has_workers else "")


def _epoch_mean(mark: str, beside: TrialData) -> Found | None:
    """Seconds of a whole epoch, or of a part of it: the mean of the epochs after the first, which is kept apart."""
    seconds = () if beside.warm_up is None else epoch_seconds(beside.marks, mark)[1:]
    return Found(float(np.mean(seconds))) if len(seconds) else None


def _first_epoch(mark: str, beside: TrialData) -> Found | None:
    """The same of epoch 0: with workers, their start (the first mini-batch) counts as the mean of the others."""
    seconds = () if beside.warm_up is None else epoch_seconds(beside.marks, mark)
    if not seconds or beside.warm_up is None:
        return None
    if not (beside.record.settings.get(WORKERS) or 0):
        return Found(seconds[0])
    mean_s = early_mean_s(beside.marks, _STEP if mark == _EPOCH else mark, beside.warm_up, without=1)
    return None if mean_s is None else Found(mean_s * beside.warm_up, _START_AS_OTHERS)


def epoch_seconds(marks: Marks, mark: str) -> list[float]:
    """Each epoch's own seconds (`epoch`), or what an interval of its steps takes in it, added up."""
    spans = _epoch_spans_ns(marks)
    if mark == _EPOCH:
        return [(end_ns - begin_ns) / 1e9 for begin_ns, end_ns in spans]
    found = intervals(marks, mark).of_steps()
    inside = [(found.begin_ns >= begin_ns) & (found.begin_ns < end_ns) for begin_ns, end_ns in spans]
    return [float(found.seconds[each].sum()) for each in inside] if len(found) else []


def _neither_stall_nor_compute(beside: TrialData) -> Found | None:
    """Copy and overhead of a step: the mean of the step without the means of the two."""
    roles = (Role.STEP_MEAN, Role.STALL_MEAN, Role.COMPUTE_MEAN)
    means = [beside.record.metrics.get(role.metric) for role in roles]
    step_s, stall_s, compute_s = means
    if step_s is None or stall_s is None or compute_s is None:
        return None
    on_cpu = beside.record.settings.get(COMPUTES_ON) == "cpu"
    return Found(step_s - stall_s - compute_s, _NOTHING_BETWEEN if on_cpu else "")


def _around_inference(beside: TrialData) -> Found | None:
    """Pre- and post-processing of a request together: the sum of their means."""
    means = [beside.record.metrics.get(f"{phase}_mean_s") for phase in ("pre_process", "post_process")]
    known = [mean for mean in means if mean is not None]
    return Found(sum(known)) if known and Role.INFERENCE.metric in beside.record.metrics else None


def _read_per_step(beside: TrialData) -> Found | None:
    """What the workload read from disks while the measured steps ran, for each of them."""
    if beside.measured_ns is None or _READ not in beside.readings:
        return None
    times_ns, values = beside.readings[_READ]
    inside = values[(times_ns >= beside.measured_ns[0]) & (times_ns <= beside.measured_ns[1]) & np.isfinite(values)]
    steps = beside.record.metrics.get("steps", 0.0) - (beside.warm_up or 0)
    return Found(float(inside[-1] - inside[0]) / steps, f"from {_READ}") if inside.size > 1 and steps > 0 else None


def _energy_of_epochs(beside: TrialData) -> Found | None:
    """The epoch whose energy is farthest from the mean of the others after epoch 0, as a share of it.

    Energy is mean power times time; an epoch with fewer readings than a mean takes leaves all of them untold.
    """
    sensor = next((each for each in _POWER if each.channel in beside.readings), None)
    if sensor is None or beside.warm_up is None:
        return None
    joules = []
    for begin_ns, end_ns in _epoch_spans_ns(beside.marks)[1:]:
        powers_w = sensor.values(beside.readings[sensor.channel], (begin_ns, end_ns))
        if powers_w.size < LEAST_READINGS:
            return Found(None, f"{sensor.channel} was read less than {LEAST_READINGS} times in an epoch")
        joules.append(float(powers_w.mean()) * (end_ns - begin_ns) / 1e9)
    if len(joules) < 2 or min(joules) <= 0:
        return None
    middle = float(np.mean(joules))
    return Found(max(abs(each / middle - 1) for each in joules), sensor.words)


def _epoch_spans_ns(marks: Marks) -> list[tuple[int, int]]:
    epochs = intervals(marks, _EPOCH)
    return sorted(zip(epochs.begin_ns.tolist(), epochs.end_ns.tolist(), strict=True))


FIGURES: Mapping[str, Make] = {
    **{name: median.of for name, median in MEDIANS.items()},
    **{name: partial(_epoch_mean, mark) for name, (mark, _) in OF_AN_EPOCH.items()},
    **{f"{FIRST_EPOCH}{name}": partial(_first_epoch, mark) for name, (mark, _) in OF_AN_EPOCH.items()},
    "epoch0_stall_mean_s": partial(_early_mean, "fetch"),
    "epoch0_step_mean_s": partial(_early_mean, "step"),
    "copy_and_overhead_mean_s": _neither_stall_nor_compute,
    "pre_and_post_mean_s": _around_inference,
    "read_step_bytes": _read_per_step,
    "energy_epoch_farthest_share": _energy_of_epochs,
    "cpu_below_peak_share": partial(_below_peak, f"{CLOCKS}cpu", "control.power_mode.cpu_mhz"),
    "memory_below_peak_share": partial(_below_peak, f"{CLOCKS}memory", "control.power_mode.mem_mhz"),
}


@cache
def late_figures() -> Mapping[str, Make]:
    """All that can be made: these, and those that rooms and other packages offer."""
    offered = [rooms.load(target) for target in rooms.offers("figures").values()]
    return {**FIGURES, **{name: make for figures in offered for name, make in figures.items()}}


def of_a_mini_batch(metric: str) -> str | None:
    """The figure of one mini-batch that belongs to one of a whole epoch: `stall_mean_s` to `epoch_stall_s`."""
    first = FIRST_EPOCH if metric.startswith(FIRST_EPOCH) else ""
    found = OF_AN_EPOCH.get(metric.removeprefix(first))
    return None if found is None else f"{first}{found[1]}"


def with_figures(store: Store, record: Record, wanted: Collection[str] | None = None) -> Record:
    """The record, with those of these figures beside its own that are wanted, or all, and where they come from."""
    if not is_usable(record) or (wanted is not None and not wanted):
        return record
    known = FIGURES if wanted is not None and FIGURES.keys() >= set(wanted) else late_figures()
    asked = [name for name in known if wanted is None or name in wanted]
    if not asked:
        return record
    beside = TrialData(store, record)
    made = {name: found for name in asked if (found := known[name](beside)) is not None}
    values = {name: found.value for name, found in made.items() if found.value is not None}
    known = record.facts.get(SOURCES) or {}  # of figures that were made for a claim before
    sources = {**known, **{name: found.source for name, found in made.items() if found.source}}
    return replace(record, metrics={**record.metrics, **values}, facts={**record.facts, SOURCES: sources})
