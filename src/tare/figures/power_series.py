"""Joules between two moments: from a series of watts, or from a counter of joules. What was not seen is not bridged.

Then: a sensor that changes while the work goes on as before (M29); which channels tell of power; the energy of a sleep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.base.rulings import Ruling
from tare.base.units import METER_J, METER_W
from tare.figures.evidence import THRESHOLDS, Evidence, run_ns, steps_ns
from tare.figures.steps import Steps
from tare.parts.protocols import Mark
from tare.records.intervals import intervals, mark_columns

Times: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[np.float64]
Window: TypeAlias = tuple[int, int]

PARTIAL = "energy.partial"
_NS = 1e9


@dataclass(frozen=True)
class Amount:
    """What was seen of a window: joules over the part of it that was covered, and what there is to doubt."""

    joules: float
    covered_s: float
    window_s: float
    samples: int  # in the window
    period_s: float  # the typical time between two samples
    longest_gap_s: float  # in the window, where it is more than the series' own rhythm explains; else 0
    problems: tuple[Ruling, ...] = ()
    bound_j: float = 0.0  # so far may the joules be off, by what is not known about the two edges of the window

    @property
    def covered_share(self) -> float:
        return self.covered_s / self.window_s

    @property
    def bound_share(self) -> float:
        return self.bound_j / self.joules if self.joules > 0 else float("inf")

    @property
    def power_w(self) -> float | None:
        """Mean power over what was covered."""
        return self.joules / self.covered_s if self.covered_s > 0 else None


def integral(t_ns: Times, watts: Values, window: Window, sensor_s: float = 0.0) -> Amount | None:
    """The sum of p dt by trapezoids over the real intervals; None where there are not two samples.

    A pause of more than three typical intervals is a gap: nothing is known of it and nothing is added for it. At the
    edges of the window the first and the last sample stand for one typical interval around them.
    """
    times, watts = _in_order(t_ns, watts)
    if len(times) < 2:
        return None
    begin, end = (float(edge - times[0]) / _NS for edge in window)
    at_s = (times - times[0]) / _NS
    spans = np.diff(at_s)
    typical = float(np.median(spans))
    whole = spans <= THRESHOLDS.gap_periods * typical
    areas, lengths = _trapezoids(at_s, watts, begin, end)
    edges_j, edges_s = _held_at_the_edges(at_s, watts, begin, end, typical)
    covered_s = float(lengths[whole].sum()) + edges_s
    gaps = [*lengths[~whole], *_before_and_after(at_s, begin, end, typical)]
    return Amount(
        joules=float(areas[whole].sum()) + edges_j,
        covered_s=covered_s,
        window_s=end - begin,
        samples=_count(times, window),
        period_s=typical,
        longest_gap_s=max((float(gap) for gap in gaps), default=0.0),
        problems=_gaps_told(covered_s / (end - begin), gaps),
        bound_j=sum(
            (typical + sensor_s) / 2 * _highest_near(times, watts, edge, typical + sensor_s) for edge in window
        ),
    )


def counted(
    t_ns: Times, joules: Values, window: Window, power: tuple[Times, Values] | None = None, sensor_s: float = 0.0
) -> Amount | None:
    """How much a counter grew in the window, interpolated at both edges; None where there are not two samples.

    The hardware counts on while nobody looks, so a gap inside the window costs nothing unless it is so long that the
    counter may have wrapped. An edge that lies in a gap, or a step backwards, cannot be made good.

    Between the two readings around an edge the joules are spread as `power` has it, or evenly without it. What the
    edges may be off by: half a time between two values of the counter (`sensor_s`) and half a period of power, at the
    highest power near the edge; without power the time to the nearer of the two readings, at the mean power there.
    """
    times, joules = _in_order(t_ns, joules)
    if len(times) < 2:
        return None
    spans = np.diff(times) / _NS
    typical = float(np.median(spans))
    first = max(0, int(np.searchsorted(times, window[0], side="right")) - 1)
    last = min(len(times) - 1, int(np.searchsorted(times, window[1], side="left")))
    seen = _overlap(window, (int(times[first]), int(times[last])))
    inside = np.array(seen, dtype=np.int64) - times[0]
    beside = None if power is None else _in_order(*power)
    if beside is not None and not all(_is_known(beside[0], edge) for edge in seen):
        beside = None
    at_ns, risen_j = (times, joules) if beside is None else _spread(times, joules, *beside)
    low, high = np.interp(inside.astype(np.float64), (at_ns - times[0]).astype(np.float64), risen_j)
    longest_s = float(spans[first:last].max(initial=0.0))
    window_s, covered_s = (window[1] - window[0]) / _NS, (seen[1] - seen[0]) / _NS
    problems = [
        *_edges_told(spans, first, last, typical, window_s - covered_s),
        *_counter_told(joules[first : last + 1], longest_s),
    ]
    return Amount(
        joules=float(high - low),
        covered_s=covered_s,
        window_s=window_s,
        samples=_count(times, window),
        period_s=typical,
        longest_gap_s=longest_s if longest_s > THRESHOLDS.gap_periods * typical else 0.0,
        problems=tuple(problems),
        bound_j=sum(_edge_bound_j(edge, times, joules, beside, sensor_s) for edge in seen),
    )


def _spread(times: Times, joules: Values, t_ns: Times, watts: Values) -> tuple[Times, Values]:
    """A finer row of the same counter: between two readings it rises as the integral of power does."""
    at_ns = np.union1d(times, t_ns[(t_ns > times[0]) & (t_ns < times[-1])])
    at_s = (at_ns - at_ns[0]) / _NS
    power = np.interp(at_s, (t_ns - at_ns[0]) / _NS, watts)
    shape_j = np.concatenate(([0.0], np.cumsum(np.diff(at_s) * (power[1:] + power[:-1]) / 2)))
    reading = np.searchsorted(at_ns, times)  # where each reading of the counter is among them
    before = np.clip(np.searchsorted(times, at_ns, side="right") - 1, 0, len(times) - 2)
    since_j, whole_j = shape_j - shape_j[reading[before]], np.diff(shape_j[reading])[before]
    evenly = (at_ns - times[before]) / np.diff(times)[before]
    share = np.where(whole_j > 0, since_j / np.where(whole_j > 0, whole_j, 1.0), evenly)
    return at_ns, joules[before] + np.diff(joules)[before] * share


def _is_known(t_ns: Times, edge: int) -> bool:
    """Whether there is a sample of power on both sides of this moment, neither further off than gaps may be."""
    place = int(np.searchsorted(t_ns, edge))
    if not 0 < place < len(t_ns):
        return False
    typical = float(np.median(np.diff(t_ns)))
    return float(t_ns[place] - t_ns[place - 1]) <= THRESHOLDS.gap_periods * typical


def _edge_bound_j(
    edge: int, times: Times, joules: Values, power: tuple[Times, Values] | None, sensor_s: float
) -> float:
    """What the joules may be off by, for what is not known about one edge of the window."""
    if power is not None:
        period_s = float(np.median(np.diff(power[0]))) / _NS
        return (sensor_s + period_s) / 2 * _highest_near(*power, edge, sensor_s + period_s)
    after = min(max(int(np.searchsorted(times, edge)), 1), len(times) - 1)
    around_s = [abs(int(times[place]) - edge) / _NS for place in (after - 1, after)]
    mean_w = float(joules[after] - joules[after - 1]) / (int(times[after] - times[after - 1]) / _NS)
    return (sensor_s / 2 + min(around_s)) * max(mean_w, 0.0)


def _highest_near(times: Times, watts: Values, edge: int, around_s: float) -> float:
    """The highest power within so many seconds of a moment; else that of the nearest sample."""
    away_s = np.abs(times - edge) / _NS
    near = away_s <= around_s
    return float(watts[near].max() if near.any() else watts[int(np.argmin(away_s))])


def _in_order(t_ns: Times, values: Values) -> tuple[Times, Values]:
    """By time, one value a moment: a probe may hand over several readings late, or one twice."""
    times, places = np.unique(t_ns, return_index=True)
    return times, np.asarray(values, dtype=np.float64)[places]


def _count(times: Times, window: Window) -> int:
    return int(np.count_nonzero((times >= window[0]) & (times <= window[1])))


def _overlap(window: Window, known: Window) -> Window:
    """The part of the window that is known; empty, at its near edge, where none is."""
    begin, end = max(window[0], known[0]), min(window[1], known[1])
    return (begin, end) if begin <= end else (end, end)


def _trapezoids(at_s: Values, watts: Values, begin: float, end: float) -> tuple[Values, Values]:
    """Joules and seconds of each interval between two samples, cut to the window."""
    left, right = np.clip(at_s[:-1], begin, end), np.clip(at_s[1:], begin, end)
    lengths = right - left
    heights = (np.interp(left, at_s, watts) + np.interp(right, at_s, watts)) / 2
    return heights * lengths, lengths


def _held_at_the_edges(at_s: Values, watts: Values, begin: float, end: float, typical: float) -> tuple[float, float]:
    """Joules and seconds before the first sample and after the last, each for at most one typical interval."""
    before = max(0.0, min(at_s[0], end) - max(at_s[0] - typical, begin))
    after = max(0.0, min(at_s[-1] + typical, end) - max(at_s[-1], begin))
    return float(before * watts[0] + after * watts[-1]), float(before + after)


def _before_and_after(at_s: Values, begin: float, end: float, typical: float) -> list[float]:
    """How much of the window lies before the first sample and after the last, but for what those stand for."""
    before = min(at_s[0] - typical, end) - begin
    after = end - max(at_s[-1] + typical, begin)
    return [float(part) for part in (before, after) if part > 0]


def _gaps_told(covered_share: float, gaps: list[float]) -> tuple[Ruling, ...]:
    """M27."""
    problems = []
    if covered_share < THRESHOLDS.coverage_share:
        problems.append(_partial(f"power is known for {covered_share:.0%} of the time only."))
    if gaps:
        problems.append(_partial(f"there is a gap of {max(gaps):.1f} s, and no energy is made up for it."))
    return tuple(problems)


def _edges_told(spans: Values, first: int, last: int, typical: float, unseen_s: float) -> list[Ruling]:
    limit_s = THRESHOLDS.gap_periods * typical
    if unseen_s > typical:
        return [_partial(f"the counter was not read for {unseen_s:.1f} s at an edge of the time.")]
    edges = [spans[place] for place in (first, last - 1) if 0 <= place < len(spans)]
    if any(span > limit_s for span in edges):
        return [_partial(f"an edge of the time lies in a gap of {max(edges):.1f} s.")]
    return []


def _counter_told(joules: Values, longest_s: float) -> list[Ruling]:
    if (np.diff(joules) < 0).any():
        return [_partial("the counter went backwards (reset?), and what it counted before that is lost.")]
    if longest_s > THRESHOLDS.counter_gap_s:
        return [_partial(f"the counter was not read for {longest_s:.0f} s and may have wrapped.")]
    if len(joules) and joules[-1] <= joules[0]:
        return [_partial("the counter did not move.")]
    return []


def _partial(sentence: str) -> Ruling:
    return Ruling(PARTIAL, "note", "", f"partial: {sentence}")


# Power that changes for good while the work goes on as before: then the sensor has changed, and not the device (M29).
#
# A board of the papers' showed two thirds of its power after 16 hours, with every epoch as long as the ones before.

FEWEST = 15  # samples of power, and steps, on either side: fewer tell no level
CLEAR = 3.0  # the step is so many times the scatter on either side of it, or it is no step
_SIGMA = 1.4826  # of a median absolute deviation
PAUSE = 10.0  # times the usual time from one step's end to the next: an evaluation, an import, a checkpoint
_LAG_NS = 200_000_000  # so long a sensor may still show the pause


def _in_pauses(t_ns: Times, ends_ns: Times) -> npt.NDArray[np.bool_]:
    """The samples that were taken while the work paused: power is low there for a reason, and the sensor is right."""
    found = np.zeros(len(t_ns), dtype=bool)
    apart_ns = np.diff(ends_ns)
    if not len(apart_ns):
        return found
    for place in np.flatnonzero((apart_ns > PAUSE * np.median(apart_ns)) & (apart_ns > _LAG_NS)):
        found |= (t_ns >= ends_ns[place]) & (t_ns <= ends_ns[place + 1] + _LAG_NS)
    return found


def sensor_step(t_ns: Times, watts: Values, window: Window, ends_ns: Times, step_s: Values) -> str | None:
    """A sentence where power made a step and the steps of the work did not; `ends_ns` and `step_s` are of each step."""
    inside = (t_ns >= window[0]) & (t_ns <= window[1]) & ~_in_pauses(t_ns, ends_ns)
    at_ns, power = t_ns[inside], watts[inside]
    place = _likeliest_step(power)
    if place is None:
        return None
    before_w, after_w = float(np.median(power[:place])), float(np.median(power[place:]))
    if before_w <= 0 or abs(after_w / before_w - 1) < THRESHOLDS.power_step_share:
        return None
    if abs(after_w - before_w) < CLEAR * max(_scatter(power[:place]), _scatter(power[place:])):
        return None
    worked = _work_changed(at_ns[place], ends_ns, step_s)
    if worked is None or worked:
        return None
    at_s = (int(at_ns[place]) - window[0]) / 1e9
    return f"power went from {before_w:.1f} W to {after_w:.1f} W after {at_s:.0f} s while the work went on as before."


def _likeliest_step(power: Values) -> int | None:
    """Where to cut so that the two sides differ most, in standard errors; None where there is too little to cut."""
    n = len(power)
    if n < 2 * FEWEST:
        return None
    cuts = np.arange(FEWEST, n - FEWEST + 1)
    sums = np.cumsum(power)
    left, right = sums[cuts - 1] / cuts, (sums[-1] - sums[cuts - 1]) / (n - cuts)
    return int(cuts[np.argmax(np.abs(left - right) * np.sqrt(cuts * (n - cuts)))])


def _scatter(values: Values) -> float:
    return _SIGMA * float(np.median(np.abs(values - np.median(values))))


def _work_changed(at_ns: int, ends_ns: Times, step_s: Values) -> bool | None:
    """Whether steps took another time after that moment; None where there are too few on a side to tell."""
    before, after = step_s[ends_ns <= at_ns], step_s[ends_ns > at_ns]
    if min(len(before), len(after)) < FEWEST:
        return None
    return abs(float(np.median(after)) / float(np.median(before)) - 1) > THRESHOLDS.work_step_share


# Which channels tell of power, what each of them covers, and which of several covers most.
#
# A probe needs no entry here: `meter.power_w` and `meter.energy_j` (or `meter.total_w`, `meter.total_j`) make a source
# called `meter`, and `meter.fan_w` is a part of it. What is listed is how wide the known ones are, and how slow.

_WHOLE = frozenset({"power", "energy", "total", "power_average"})
_CHANNEL = re.compile(r"(?P<source>[a-z0-9_]+)\.(?P<what>[A-Za-z0-9_.-]+)_(?P<unit>[wj])")
_NO_POWER = re.compile(r"limit|cap\b|_cap_|counter")  # what a device may draw is in watts too
_GPU = re.compile(r"gpu\d*")
_AVERAGED = re.compile(r"averaged over (?P<number>\d+(?:\.\d+)?) (?P<unit>ms|s)\b")

SCOPES: Mapping[str, str] = {
    "external": "the whole device, at the wall",
    "power_rails": "the module",
    "power_rapl": "the CPU packages",
}
# The time over which a sensor averages where its channel does not say so.
SENSOR_WINDOW_S: Mapping[str, float] = {"external": 1.0, "power_rails": 0.1, "power_rapl": 0.001, "gpu": 0.1}
_AVERAGE_FIELD_S = 1.0  # NVML's average power field


@dataclass(frozen=True)
class Source:
    """One measurement of power: by a series of watts, by a counter of joules, or by both."""

    name: str  # `gpu`; a part of one is `power_rails_vdd_cpu`
    of: str  # the probe's own name for the device that it watches: `gpu`, `power_rails`
    watts: str | None = None  # channels
    joules: str | None = None
    is_part: bool = False

    @property
    def scope(self) -> str:
        if _GPU.fullmatch(self.of):
            number = self.of.removeprefix("gpu")
            return f"GPU {number}" if number else "the GPU"
        return SCOPES.get(self.of, f"what {self.of} watches")

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(channel for channel in (self.watts, self.joules) if channel is not None)

    def sensor_window_s(self, channel: str | None, abouts: Mapping[str, str]) -> float | None:
        """Over how long the sensor averages: as its channel says (`averaged over 0.1 s`), else as is known of it."""
        if channel is None:
            return None
        if reported := _AVERAGED.search(abouts.get(channel, "")):
            return float(reported["number"]) * (0.001 if reported["unit"] == "ms" else 1.0)
        if channel.endswith("average_w"):
            return _AVERAGE_FIELD_S
        return SENSOR_WINDOW_S.get("gpu" if _GPU.fullmatch(self.of) else self.of)


def sources(channels: Iterable[str]) -> list[Source]:
    """Every source that these channels tell of, in the order of their names; their units are watts or joules."""
    found: dict[str, dict[str, str]] = {}
    for channel in sorted(channels):
        match = _CHANNEL.fullmatch(channel)
        if match is None or _NO_POWER.search(match["what"]):
            continue
        whole = match["what"] in _WHOLE
        what = re.sub(r"[^a-z0-9]+", "_", match["what"].lower()).strip("_")  # `VDD_CPU-0`: figures have plain names
        name = match["source"] if whole else f"{match['source']}_{what}"
        kept = found.setdefault(name, {"of": match["source"], "part": "" if whole else "part"})
        # An instant field goes before an average one: `power_w` is sorted after `power_average_w`.
        kept["watts" if match["unit"] == "w" else "joules"] = channel
    return [
        Source(name, kept["of"], kept.get("watts"), kept.get("joules"), bool(kept["part"]))
        for name, kept in found.items()
    ]


def widest(found: Sequence[Source]) -> tuple[Source, ...]:
    """The sources that together cover most: the wall, else the module, else CPU packages and GPUs, else the first."""
    whole = [source for source in found if not source.is_part]
    gpus = [source for source in whole if _GPU.fullmatch(source.of)]
    for names in (("external",), ("power_rails",)):
        if chosen := tuple(source for source in whole if source.of in names):
            return chosen
    packages = [source for source in whole if source.of == "power_rapl"]
    if packages or gpus:
        return (*packages, *gpus)
    return tuple(whole[:1])


def scope_of(chosen: Sequence[Source]) -> str:
    return " and ".join(source.scope for source in chosen)


STEPS, RUN, SHARED = "the measured steps", "the whole run", "the time in which all tenants worked"


@dataclass(frozen=True)
class Span:
    """From when to when, on the device's monotonic clock, and what lies in it."""

    begin_ns: int
    end_ns: int
    what: str
    steps: int | None = None
    epochs: int | None = None

    @property
    def window(self) -> tuple[int, int]:
        return self.begin_ns, self.end_ns

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


def span_of(marks: Sequence[Mark], steps: Steps | None, result: Mapping[str, Any]) -> Span | None:
    """The measured steps, so that time and energy are of the same work; a workload that marks none is taken whole."""
    if steps is not None:
        return _of_steps(marks, steps)
    window = run_ns(result)
    return Span(*window, what=RUN) if window is not None and window[0] < window[1] else None


@dataclass(frozen=True)
class Pace:
    """When each measured step ended, and how long it took."""

    ends_ns: Times
    step_s: Values


def pace_of(marks: Sequence[Mark], steps: Steps) -> Pace:
    """The pace of the measured steps, in the order of their numbers."""
    found = intervals(mark_columns(marks), "step")
    ends = dict(zip(found.step.tolist(), found.end_ns.tolist(), strict=True))
    numbers, seconds = steps.numbers[steps.warm_up :], steps.seconds["step"][steps.warm_up :]
    timed = ~np.isnan(seconds)
    return Pace(np.array([ends[number] for number in numbers[timed].tolist()], dtype=np.int64), seconds[timed])


def _of_steps(marks: Sequence[Mark], steps: Steps) -> Span | None:
    found = intervals(mark_columns(marks), "step", "epoch")
    numbers = steps.numbers[steps.warm_up :]
    every = found.named("step")
    measured = every.where(np.isin(every.step, numbers))
    if not len(measured) or measured.begin_ns.min() >= measured.end_ns.max():
        return None
    begin_ns, end_ns = int(measured.begin_ns.min()), int(measured.end_ns.max())
    passes_ns = found.named("epoch").end_ns
    # Steps after the last end of an epoch are of one that was cut off: then there is no energy of a whole one.
    is_whole = len(passes_ns) > 1 and measured.begin_ns.max() < passes_ns.max()
    whole = int((passes_ns > begin_ns).sum()) if is_whole else 0
    return Span(begin_ns, end_ns, STEPS, steps=len(numbers), epochs=whole or None)


# Joules of a suspended device, from the counter of a meter at the socket: it goes on, and nothing of ours does.
#
# Such a counter may be coarse (1 Wh) or renewed once a minute, so that it is known exactly only when it moves. It is
# read at its last move before the sleep and at its first one after it, and what the device drew awake between the two
# is taken off: the meter's power then, over the time on the clock that stands still in a sleep.

STALE_S = 5.0  # after waking, a meter's program may first hand over what came in while nobody took it


def asleep(evidence: Evidence) -> tuple[dict[str, float], dict[str, Any]]:
    """The figures of the sleep, if they may be claimed, and what is known of it, as facts."""
    slept_s = evidence.facts.get("slept_s", 0.0)
    found = drawn(evidence.series, steps_ns(evidence.marks), slept_s)
    facts = {"source": "external", "scope": SCOPES["external"], "window": "the time asleep", "window_s": slept_s,
             "claimed": not isinstance(found, str), "doubts": [], "suspicions": []}  # fmt: skip
    if isinstance(found, str):
        return {}, {**facts, "doubts": [Ruling("energy.asleep", "note", "external", found).as_json()]}
    joules, bound_j = found
    metrics = {"energy_j": joules, "energy_bound_share": bound_j / joules, "energy_window_s": slept_s,
               "power_mean_w": joules / slept_s}  # fmt: skip
    return metrics, {**facts, "sources": {"external": {"by": "counter", "counter_j": joules, "bound_j": bound_j}}}


def drawn(
    series: Mapping[str, tuple[Times, Values]], window: Window | None, slept_s: float
) -> tuple[float, float] | str:
    """Joules, and how far off they may be; a sentence where the series do not tell. `window`: of the whole sleep."""
    if window is None or slept_s <= THRESHOLDS.sleep_s:
        return "the device did not sleep."
    if METER_J not in series:
        return "no meter at the socket counted on while the device slept (`external: {energy: COLUMN}`)."
    (t_ns, joules), (power_ns, watts) = series[METER_J], series[METER_W]
    if (np.diff(joules) < 0).any():
        return "the meter's counter fell back (reset?)."
    awake_ns = window[1] + round(STALE_S * 1e9)
    moves = np.flatnonzero(np.diff(joules)) + 1  # the readings that have a new value
    before, after = moves[t_ns[moves] <= window[0]], moves[t_ns[moves - 1] >= awake_ns]
    if not len(before) or not len(after):
        return (
            f"the meter's counter did not move {'after' if len(before) else 'before'} the sleep: make `settle` longer."
        )
    first, last = before[-1], after[0]
    seen = (power_ns >= t_ns[first]) & ((power_ns <= window[0]) | (power_ns >= awake_ns)) & (power_ns <= t_ns[last])
    highest_w = float(watts[(power_ns >= t_ns[first]) & (power_ns <= t_ns[last])].max())  # also while it woke up
    if joules[-1] - joules[last] > 2 * highest_w * (t_ns[-1] - t_ns[last]) / 1e9 + (joules[last] - joules[last - 1]):
        return "after the sleep the meter first handed over old values of its counter."
    unseen_ns = power_ns[power_ns >= awake_ns].min() - power_ns[power_ns <= window[0]].max()
    drawn_j = float(joules[last] - joules[first]) - float(watts[seen].mean()) * float(t_ns[last] - t_ns[first]) / 1e9
    bound_j = highest_w * float(2 * np.median(np.diff(t_ns)) + unseen_ns) / 1e9
    if drawn_j * THRESHOLDS.energy_bound_share < bound_j:
        return f"too short: the edges leave {bound_j:.0f} J of {drawn_j:.0f} J open; make `duration` longer."
    return drawn_j, bound_j
