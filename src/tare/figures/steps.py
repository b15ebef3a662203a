"""A trial's figures, from its marks and from what the launcher counted. Base units; missing is absent.

A whole run taken apart: what passes before the first step, beside the steps, and after the last.

Each is a figure of its own, where there are marks to tell it (docs/reference/metrics.md):

    platform_open_s   the platforms made ready, as tare saw it from outside
    interpreter_s     from the launcher's start until Python runs the first line
    imports_s         from there until the modules are loaded (of a user's script: until torch is)
    data_open_s       the data set opened (of a user's script: data sets of its own or of torchvision made)
    device_s          the GPU's context made
    setup_s           from the end of the imports to the first fetch: data, network and device together
    first_batch_s     the first fetch
    first_step_s      the first step, with that fetch
    startup_s         the platform opened, and from the launcher's start to the begin of the first step
    steady_s          from the begin of the first measured step to the end of the last
    evaluation_s      all evaluations
    checkpoints_s     all checkpoints (of a user's script: calls of torch.save)
    exit_s            from the last mark to the end of the process
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tare.base.declare import before
from tare.parts.protocols import Mark
from tare.records.intervals import Intervals, Ints, MarkColumns, MarkRows, are, intervals, mark_columns
from tare.records.model import LATER_STEPS, LONG_STEPS, LONGEST_STEPS

Durations = npt.NDArray[np.float64]

ENOUGH_FOR_P90 = 100  # steps; a higher percentile needs far more of them
ENOUGH_FOR_P99 = 1000  # as requests to a quick network may have
WARM_UP_SHARE = 0.1  # of the steps, where the workload marks no epochs
MOST_WARM_UP_SHARE = 0.5  # so many steps may be kept apart for a profiler's sake; behind that they are only left out
PROFILED = "gpu_window"  # an interval that belongs to no step: tare_inside/activity.py


@dataclass(frozen=True)
class Steps:
    """Per step of the run, in order: its number, and each named interval's seconds (NaN where not marked)."""

    numbers: npt.NDArray[np.int64]
    seconds: Mapping[str, Durations]  # NaN also in steps that a profiler watched: they are of no use for times
    warm_up: int  # so many steps are kept apart: epoch 0, or the first tenth; more where a profiler watched early steps
    weight: Durations | None = None  # in slices: how much each step counts in a mean
    own_mean_s: float | None = None  # in turns: the side's own time over its steps

    def mean(self, values: Durations) -> float:
        """The mean of figures of the measured steps, one for each, NaN where a step has none."""
        known = ~np.isnan(values)
        if self.weight is None:
            return float(np.mean(values[known]))
        return float(np.average(values[known], weights=self.weight[self.warm_up :][known]))

    def measured(self, name: str) -> Durations:
        values = self.seconds[name][self.warm_up :]
        return values[~np.isnan(values)]

    def apart(self, name: str) -> Durations:
        values = self.seconds[name][: self.warm_up]
        return values[~np.isnan(values)]


def steps_from(marks: Iterable[Mark]) -> Steps | None:
    """The steps that the marks describe, or None if there is none."""
    columns = mark_columns(marks)
    found = intervals(columns)
    epochs, of_steps = found.named("epoch"), found.of_steps().named(*(each for each in found.words if each != "epoch"))
    numbers = np.unique(of_steps.named("step").step)
    if not len(numbers):
        return None
    seconds = {name: _per_step(of_steps.named(name), numbers) for name in of_steps.names}
    if len(epochs) > 1:
        is_begin = are(columns, "name", "step") & are(columns, "edge", "begin")
        begin_ns = dict(zip(columns["step"][is_begin].tolist(), columns["t_ns"][is_begin].tolist(), strict=True))
        warm_up = sum(begin_ns[number] < epochs.end_ns[0] for number in numbers.tolist())
    else:
        warm_up = max(1, round(len(numbers) * WARM_UP_SHARE)) if len(numbers) > 1 else 0
    profiled = _touched(found.named(PROFILED), of_steps.named("step"), numbers)
    if not profiled.any():
        return Steps(numbers, seconds, warm_up)
    after = int(np.flatnonzero(profiled)[-1]) + 1
    warm_up = max(warm_up, after) if after <= len(numbers) * MOST_WARM_UP_SHARE else warm_up
    return Steps(numbers, {name: np.where(profiled, np.nan, values) for name, values in seconds.items()}, warm_up)


def _touched(windows: Intervals, steps: Intervals, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Of these steps, those that share time with a window."""
    found = np.zeros(len(numbers), bool)
    for begin_ns, end_ns in zip(windows.begin_ns.tolist(), windows.end_ns.tolist(), strict=True):
        found |= np.isin(numbers, steps.step[(steps.begin_ns < end_ns) & (steps.end_ns > begin_ns)])
    return found


def _per_step(found: Intervals, numbers: npt.NDArray[np.int64]) -> Durations:
    """The seconds of an interval in each of these steps, added up where it came several times; NaN where it did not."""
    place = np.minimum(np.searchsorted(numbers, found.step), len(numbers) - 1)
    known = numbers[place] == found.step
    total = np.bincount(place[known], found.seconds[known], len(numbers))
    return np.where(np.bincount(place[known], minlength=len(numbers)) > 0, total, np.nan)


PARTS = ("fetch", "copy", "compute")  # of a step; what is left of it is overhead, so that the four add up to it
AROUND_INFERENCE = ("pre_process", "post_process")  # parts as well, where a request is answered from end to end


def metric_of(mark_name: str) -> str:
    """What an interval's figure is called: ours by the definitions, a user's own by its mark (`own_tokenise_s`)."""
    return before().marks.get(mark_name) or re.sub(r"[^a-z0-9]+", "_", f"own_{mark_name.lower()}").strip("_") + "_s"


def step_metrics(steps: Steps) -> dict[str, float]:
    """Medians over the measured steps, and their mean; epoch 0 (or the warm-up) under a name of its own."""
    metrics = {"steps": float(len(steps.numbers)), "warm_up_steps": float(steps.warm_up)}
    for mark_name in steps.seconds:
        metric = metric_of(mark_name)
        if (values := steps.measured(mark_name)).size:
            metrics[metric] = float(np.median(values))
        if (early := steps.apart(mark_name)).size:
            metrics[f"epoch0_{metric}"] = float(np.median(early))
    whole = steps.measured("step")
    if steps.own_mean_s is not None:
        metrics["step_mean_s"] = steps.own_mean_s
    elif whole.size:
        metrics["step_mean_s"] = steps.mean(steps.seconds["step"][steps.warm_up :])
    if (first := steps.seconds.get("first_token")) is not None and steps.measured("first_token").size:
        metrics["first_token_mean_s"] = steps.mean(first[steps.warm_up :])
    if whole.size >= ENOUGH_FOR_P90:
        metrics["step_p90_s"] = float(np.quantile(whole, 0.9))
    if whole.size >= ENOUGH_FOR_P99:
        metrics["step_p99_s"] = float(np.quantile(whole, 0.99))
    return metrics | _what_a_step_is_made_of(steps)


def _what_a_step_is_made_of(steps: Steps) -> dict[str, float]:
    """The overhead, and the means of all parts: medians do not add up, and a stall every fourth step has none."""
    if not {"fetch", "compute"} <= steps.seconds.keys():
        return {}
    parts = (*PARTS, *AROUND_INFERENCE) if "inference" in steps.seconds else PARTS
    marked = {name: steps.seconds[name][steps.warm_up :] for name in ("step", *parts) if name in steps.seconds}
    rest = marked["step"] - sum(values for name, values in marked.items() if name != "step")
    whole = ~np.isnan(rest)
    if not whole.any():
        return {}
    means = {
        f"{metric_of(name).removesuffix('_s')}_mean_s": steps.mean(np.where(whole, values, np.nan))
        for name, values in marked.items()
    }
    return {"overhead_s": float(np.median(rest[whole])), "overhead_mean_s": steps.mean(rest), **means}


COUNTED = {  # from launch.py's result, counted by the kernel for the whole job
    "wall_s": "wall_s",
    "minor_faults": "minor_faults",
    "major_faults": "major_faults",
    "voluntary_switches": "voluntary_switches",
    "involuntary_switches": "involuntary_switches",
    "max_rss_bytes": "max_rss_bytes",
}


def job_metrics(result: Mapping[str, Any], outcome: Mapping[str, Any]) -> dict[str, float]:
    """What the launcher counted for the whole job, and the built-in program for its training alone."""
    # What a built-in program already calls by its names: figures of inference, and LoadGen's. What is counted or timed
    # here and later is never overwritten by one of these.
    reported, metrics = outcome.get("metrics"), dict[str, float]()
    for name, value in reported.items() if isinstance(reported, dict) else ():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            metrics[name] = float(value)
    metrics |= {name: float(result[key]) for key, name in COUNTED.items() if isinstance(result.get(key), int | float)}
    if {"cpu_user_s", "cpu_system_s"} <= result.keys():
        metrics["cpu_s"] = float(result["cpu_user_s"]) + float(result["cpu_system_s"])
    for key in ("minor_faults_training", "major_faults_training", "migrations_training", "observer_s"):
        if isinstance(outcome.get(key), int | float):
            metrics[key] = float(outcome[key])
    steps, cpu_s = outcome.get("steps"), outcome.get("cpu_train_s")
    if isinstance(steps, int) and steps > 0 and isinstance(cpu_s, int | float):
        metrics["cpu_step_s"] = float(cpu_s) / steps
    return metrics | _mean_step(outcome)


def _mean_step(outcome: Mapping[str, Any]) -> dict[str, float]:
    """A step without its marks: the training's own clock, over the steps; epoch 0 is left out where there are more."""
    steps, early = outcome.get("steps"), outcome.get("steps_per_epoch")
    train_s, epoch0_s = outcome.get("train_s"), outcome.get("epoch0_s")
    if not (isinstance(steps, int) and isinstance(early, int)):
        return {}
    if not (isinstance(train_s, int | float) and isinstance(epoch0_s, int | float)):
        return {}
    if steps > early:
        return {"mean_step_s": (train_s - epoch0_s) / (steps - early)}
    return {"mean_step_s": train_s / steps} if steps > 0 else {}


def token_metrics(outcome: Mapping[str, Any], metrics: Mapping[str, float]) -> dict[str, float]:
    """Of training whose steps have so many tokens each: what the mean step makes of them."""
    tokens, step_s = outcome.get("tokens_a_step"), metrics.get("step_mean_s", metrics.get("mean_step_s"))
    if not isinstance(tokens, int) or tokens <= 0 or not step_s:
        return {}
    return {"tokens_per_s": tokens / step_s, "time_token_s": step_s / tokens}


def counter_metrics(readings: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """How much the platform's own counters grew during the job: throttling next to every time."""
    metrics = {}
    for channel in ("cgroup.cpu_s", "cgroup.nr_throttled", "cgroup.throttled_s"):
        values = readings.get(channel, ())
        if len(values) >= 2:
            metrics[channel.replace("cgroup.", "cgroup_")] = float(values[-1]) - float(values[0])
    return metrics


START_UP = "startup_s"
SETTLING = "settling"  # a warm-up that lasts until times are steady: how long that is depends on the noise
PHASES = (
    "platform_open_s", "interpreter_s", "imports_s", "data_open_s", "device_s", "setup_s", "first_batch_s",
    "first_step_s", START_UP, "steady_s", "evaluation_s", "checkpoints_s", "exit_s", "epoch_s", "epoch_rest_s",
)  # fmt: skip


def phase_metrics(
    marks: Sequence[Mark], result: Mapping[str, Any], phases: Mapping[str, float], steps: Steps | None
) -> dict[str, float]:
    """Seconds of each phase that is known; one that no mark tells of is absent."""
    open_s, start_ns, end_ns = phases.get("open"), result.get("start_ns"), result.get("end_ns")
    made: dict[str, float | None] = {"platform_open_s": open_s}
    if marks:
        columns = mark_columns(marks)
        found = intervals(columns)
        last_ns = int(columns["t_ns"].max())
        imports, fetches, whole = found.named("imports"), found.named("fetch"), found.named("step")
        first_ns = _first_begin(whole)
        made |= {
            "interpreter_s": _between(start_ns, _first_begin(imports)),
            "imports_s": _total(imports),
            "data_open_s": _total(found.named("data_open")),
            "device_s": _total(found.named("device")),
            "setup_s": _between(_last_end(imports), _first_begin(fetches) or first_ns),
            "first_batch_s": _first(fetches),
            "first_step_s": _first(whole),
            START_UP: _between(start_ns, first_ns, (open_s or 0.0) - (_total(found.named(SETTLING)) or 0.0)),
            "evaluation_s": _total(found.named("evaluate")),
            "checkpoints_s": _total(found.named("checkpoint")),
            "exit_s": _between(last_ns, end_ns),
        }
        if steps is not None:
            made |= _of_steps(found, steps)
    return {name: value for name, value in made.items() if value is not None and value >= 0}


def _of_steps(found: Intervals, steps: Steps) -> dict[str, float | None]:
    """The steady state, and the measured epochs: their mean, and what of it lies in no step."""
    whole = found.named("step")
    measured = whole.where(np.isin(whole.step, steps.numbers[steps.warm_up :]))
    made: dict[str, float | None] = {"steady_s": _between(_first_begin(measured), _last_end(measured))}
    epochs = found.named("epoch")
    if len(epochs) > 1:
        later = epochs.where(epochs.begin_ns > epochs.begin_ns.min())  # epoch 0 is kept apart
        inside = whole.where((whole.begin_ns >= later.begin_ns.min()) & (whole.end_ns <= later.end_ns.max()))
        made["epoch_s"] = float(later.seconds.mean())
        made["epoch_rest_s"] = float((later.seconds.sum() - inside.seconds.sum()) / len(later))
    return made


def _first_begin(found: Intervals) -> int | None:
    return int(found.begin_ns.min()) if len(found) else None


def _last_end(found: Intervals) -> int | None:
    return int(found.end_ns.max()) if len(found) else None


def _first(found: Intervals) -> float | None:
    return float(found.seconds[int(np.argmin(found.begin_ns))]) if len(found) else None


def _total(found: Intervals) -> float | None:
    return float(found.seconds.sum()) if len(found) else None


def _between(begin_ns: object, end_ns: object, before_s: float = 0.0) -> float | None:
    return (end_ns - begin_ns) / 1e9 + before_s if isinstance(begin_ns, int) and isinstance(end_ns, int) else None


# What a trial's GPUs did in the declared window, by CUPTI's activity

ACTIVITY_FACT = "gpu_activity"  # what tare_inside/activity.py left beside the marks
_SHARES = {"busy_share": "gpu_busy_share", "between_share": "gpu_between_share", "idle_share": "gpu_idle_share"}
_COUNTS = {"kernels": "gpu_kernels", "pageable_copies": "gpu_pageable_copies"}
_WAITED_FOR_THE_HOST = ("gpu_launch_share", "gpu_sync_share")
_MOST_PER_CALL_S = 15e-6  # that the profiler adds; 11 were seen of LeNet-5, 2 to 6 of BERT-large


def activity_metrics(facts: Mapping[str, Any], step_s: float | None = None) -> dict[str, float]:
    """The shares of a step, and how many kernels, waiting calls and pageable copies it has.

    In turns the window would hold stops, in which others have the GPU: nothing is said of it.
    """
    found = None if windows_of(facts) is not None else facts.get(ACTIVITY_FACT)
    if not isinstance(found, Mapping) or "busy_share" not in found:
        return {}
    metrics = {metric: float(found[name]) for name, metric in _SHARES.items() if name in found}
    metrics |= {f"gpu_{why}_share": float(share) for why, share in found.get("idle_for", {}).items()}
    if found.get("window_s", 0) > 0:
        metrics["gpu_copying_share"] = float(found.get("copy_s", 0.0)) * found["steps"] / found["window_s"]
    if step_s is not None and "step_s" in found:  # an older tare kept none, and told the shares of its window
        metrics = _without_the_profiler(metrics, found, step_s)
    metrics |= {metric: float(found[name]) for name, metric in _COUNTS.items() if name in found}
    metrics["gpu_syncs"] = float(sum(found.get("synchronising", {}).values()))
    return metrics


def _without_the_profiler(shares: Mapping[str, float], found: Mapping[str, Any], step_s: float) -> dict[str, float]:
    """The shares of a step outside the window, where they are shorter: the profiler slows the host's calls only.

    A kernel takes as long as before. What the GPU waited for the host is shorter by the difference: at most all of it,
    and no more than the profiler can have added. The rest is of other causes: the loader's start, the next request.
    """
    window_step_s, per_step = float(found["step_s"]), (found.get("copies", {}), found.get("synchronising", {}))
    calls = float(found.get("launches", 0.0)) + sum(sum(each.values()) for each in per_step)
    waited = sum(shares.get(name, 0.0) for name in _WAITED_FOR_THE_HOST)
    taken = min(max(1 - step_s / window_step_s, 0.0), waited, calls * _MOST_PER_CALL_S / window_step_s)
    if not 0 < taken < 1:
        return dict(shares)
    kept = dict.fromkeys(_WAITED_FOR_THE_HOST, 1 - taken / waited)
    kept["gpu_idle_share"] = 1 - taken / shares["gpu_idle_share"]
    return {name: share * kept.get(name, 1.0) / (1 - taken) for name, share in shares.items()}


# A trial in turns: when its processes ran, which of its steps count, and times without the stops.
#
# Its record has this, as the fact `turns`:
#
#     steps, count, warm   of a turn; how many turns; those done between the first hold and the first turn
#     before               all steps that were done before the first turn
#     done                 how many turns both sides did to their end
#     by                   what stopped it: `cgroup v2`, `cgroup v1` or `SIGSTOP`
#     order                its place in each round: 0 where it came first
#     windows_ns           begin and end of its start-up, of its warm-up, of each turn, and of what was left of its work
#     synchronous          whether a step is over when its marks say so: not where it leaves work to a GPU
#
# Trials of an older tare have the fact `slices`: they were stopped at any moment, and not at the end of a step.
#
#     windows_ns   begin and end of each of its slices: taken after it was resumed, and before it was stopped
#     paired_ns    from when all sides had begun to step until the first had ended: only slices in it are used
#     left_out_ns  rounds that were not quiet, where the study asked for quiet ones
#     leave_out    so many steps at the begin of a slice are not used

TURNS, SLICES = "turns", "slices"
BEFORE_TURNS = 2  # windows: of the start-up and of the warm-up
APART = ("evaluate", "checkpoint")  # that may lie in a turn, and in no step
_NO_SPAN = (0, 0)


@dataclass(frozen=True)
class Windows:
    """The slices of one trial, in order, as columns."""

    begin_ns: Ints
    end_ns: Ints
    paired_ns: tuple[int, int] = _NO_SPAN
    left_out_ns: Sequence[tuple[int, int]] = ()
    leave_out: int = 1

    def running_ns(self, t_ns: npt.ArrayLike) -> Ints:
        """For how long the trial had run, stops not counted, at each of these times."""
        times = np.asarray(t_ns, np.int64)
        past = np.concatenate(([0], np.cumsum(self.end_ns - self.begin_ns)))
        place = np.searchsorted(self.begin_ns, times, side="right")  # slices that have begun
        last = np.maximum(place - 1, 0)
        inside = np.minimum(times, self.end_ns[last]) - self.begin_ns[last]
        return np.where(place > 0, past[last] + np.maximum(inside, 0), 0)

    def slice_of(self, begin_ns: Ints, end_ns: Ints) -> Ints:
        """The number of the slice that holds all of each interval; -1 where none does, or where it is not used."""
        place = np.searchsorted(self.begin_ns, begin_ns, side="right") - 1
        known = np.maximum(place, 0)
        inside = (place >= 0) & (end_ns <= self.end_ns[known]) & (begin_ns >= self.begin_ns[known])
        return np.where(inside & self._used[known], place, -1)

    @property
    def _used(self) -> npt.NDArray[np.bool_]:
        used = (self.begin_ns >= self.paired_ns[0]) & (self.end_ns <= self.paired_ns[1])
        for begin_ns, end_ns in self.left_out_ns:
            used &= ~((self.begin_ns >= begin_ns) & (self.end_ns <= end_ns))
        return used


def windows_of(facts: Mapping[str, Any]) -> Windows | None:
    """The turns (or slices) that a record tells of; None where the trial ran through."""
    kept = facts.get(TURNS) or facts.get(SLICES)
    if not kept or not kept.get("windows_ns"):
        return None
    pairs = np.asarray(kept["windows_ns"], np.int64)
    return Windows(
        pairs[:, 0],
        pairs[:, 1],
        tuple(kept.get("paired_ns") or _NO_SPAN),
        tuple((begin, end) for begin, end in kept.get("left_out_ns", ())),
        kept.get("leave_out", 1),
    )


def steps_in(marks: Sequence[Mark], facts: Mapping[str, Any]) -> Steps | None:
    """The steps of a trial; in turns (and in slices), those that do not count have no seconds."""
    if (told := facts.get(TURNS)) is not None:
        return _in_turns(marks, facts, told)
    steps, windows = steps_from(marks), windows_of(facts)
    if steps is None or windows is None:
        return steps
    return _sliced(steps, marks, windows)


def _in_turns(marks: Sequence[Mark], facts: Mapping[str, Any], told: Mapping[str, Any]) -> Steps | None:
    """The steps of the turns that all sides did, in the side's own time: no step holds a wait.

    Their mean is the time of these turns over their steps, and no mean of means. It has what a GPU was still doing at
    the end of a turn, and what lies between steps; evaluations and checkpoints have figures of their own.
    """
    own, _ = without_stops(marks, {}, facts)
    steps = steps_from(own)
    if steps is None:
        return None
    first, count = told["before"], told["done"] * told["steps"]
    spans = np.asarray(told["windows_ns"], np.int64)
    turns = np.cumsum(spans[:, 1] - spans[:, 0])[BEFORE_TURNS - 1 : BEFORE_TURNS + told["done"]]
    place = np.arange(len(steps.numbers))
    counts = (place >= first) & (place < first + count)
    hidden = () if told["synchronous"] else [name for name in steps.seconds if not name.startswith("gpu_")]
    seconds = {name: np.where(counts & (name not in hidden), values, np.nan) for name, values in steps.seconds.items()}
    if not count or len(turns) <= told["done"]:
        return replace(steps, seconds=seconds, warm_up=min(first, len(place)))
    spent_ns = turns[-1] - turns[0] - _inside(intervals(mark_columns(own)).named(*APART), int(turns[0]), int(turns[-1]))
    return replace(steps, seconds=seconds, warm_up=min(first, len(place)), own_mean_s=float(spent_ns) / 1e9 / count)


EARLY_STEPS = 3


def facts_of_steps(steps: Steps | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The longest steps; in turns, also the mean of those after the first of each turn, which a partner slows most."""
    if steps is None or "step" not in steps.seconds or not (whole := steps.measured("step")).size:
        return {}
    found: dict[str, Any] = {LONGEST_STEPS: np.sort(whole)[-LONG_STEPS:].tolist()}
    if (told := facts.get(TURNS)) is not None and told["steps"] > EARLY_STEPS:
        values = steps.seconds["step"]
        later = values[(np.arange(len(values)) - told["before"]) % told["steps"] >= EARLY_STEPS]
        if (known := later[~np.isnan(later)]).size:
            found[LATER_STEPS] = float(known.mean())
    return found


def _inside(found: Intervals, begin_ns: int, end_ns: int) -> int:
    """How much of these intervals lies in this span."""
    return int(np.maximum(np.minimum(found.end_ns, end_ns) - np.maximum(found.begin_ns, begin_ns), 0).sum())


def _sliced(steps: Steps, marks: Sequence[Mark], windows: Windows) -> Steps:
    """A step counts where it lies in one slice from its begin to its end, after the first `leave_out` of that slice.
    What is marked before a step with its number (a request's first token) is whole then: a step is before it.

    The step that a stop cuts is rather a long one than a short one, so that the mean of the others is too short. Of a
    cut step it is known that it took longer than until the stop: it hands its weight to the longer ones (product-limit
    estimator; of gap times that recur until a fixed end, see Pena, Strawderman and Hollander 2001).
    """
    whole = intervals(mark_columns(marks), "step")
    first = {number: place for place, number in reversed(list(enumerate(whole.step.tolist())))}
    rows = np.array([first[number] for number in steps.numbers.tolist()], np.int64)
    begin_ns, end_ns = whole.begin_ns[rows], whole.end_ns[rows]
    begun = windows.slice_of(begin_ns, begin_ns)
    ended = windows.slice_of(begin_ns, end_ns)
    counts = (begun >= 0) & (_order_in_slice(begun) >= windows.leave_out)
    used = counts & (ended >= 0)
    counts[: steps.warm_up] = False
    seen_ns = np.minimum(end_ns, windows.end_ns[np.maximum(begun, 0)]) - begin_ns
    weight = np.full(len(rows), np.nan)
    weight[counts] = product_limit(seen_ns[counts], used[counts])
    seconds = {name: np.where(used, values, np.nan) for name, values in steps.seconds.items()}
    return replace(steps, seconds=seconds, weight=weight)


def product_limit(seen: npt.NDArray[Any], whole: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The share of each of these lengths, of which some were seen whole and others only begun; they add up to one.

    What was only begun has none. Where the longest is one of those, its share goes to the longest that is whole.
    """
    order = np.lexsort((~whole, seen))  # of equal ones the whole come first
    left = np.arange(len(seen), 0, -1)
    survives = np.cumprod(np.where(whole[order], 1 - 1 / left, 1.0))
    before = np.concatenate(([1.0], survives[:-1]))
    share = np.zeros(len(seen))
    share[order] = np.where(whole[order], before / left, 0.0)
    if len(seen) and whole.any():
        last = order[np.flatnonzero(whole[order])[-1]]
        share[last] += 1 - share.sum()
    return share


def _order_in_slice(place: Ints) -> Ints:
    """How many steps of the same slice came before each."""
    order = np.zeros(len(place), np.int64)
    for number in np.unique(place).tolist():
        of_slice = np.flatnonzero(place == number)
        order[of_slice] = np.arange(len(of_slice))
    return order


def without_stops(
    marks: Sequence[Mark], result: Mapping[str, Any], facts: Mapping[str, Any]
) -> tuple[Sequence[Mark], Mapping[str, Any]]:
    """Marks and the launcher's figures in the time that the trial itself ran; as they are where it was not sliced."""
    windows = windows_of(facts)
    if windows is None:
        return marks, result
    columns, running_ns = mark_columns(marks), windows.running_ns
    moved, found = MarkColumns(columns), intervals(columns)
    moved["t_ns"] = running_ns(moved["t_ns"])
    moved.intervals = replace(found, begin_ns=running_ns(found.begin_ns), end_ns=running_ns(found.end_ns))
    moments = {key: int(running_ns(result[key])) for key in ("start_ns", "end_ns") if key in result}
    wall = {"wall_s": (moments["end_ns"] - moments["start_ns"]) / 1e9} if len(moments) == 2 else {}
    return MarkRows(moved, Mark._make), {**result, **moments, **wall}
