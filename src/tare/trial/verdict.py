"""May this trial's numbers be believed? Each rule is a function of its own: it returns a sentence, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from tare.plan.model import Trial
from tare.records.model import State
from tare.trial.cache_rules import cold_epochs_trouble
from tare.trial.endings import Verdict, grew, how_it_ended, stopped_for_heat, who_died
from tare.trial.facts import clocks
from tare.trial.gpu_rules import gpu_trouble, lost_gpu
from tare.trial.seen import Seen
from tare.trial.sensor_rules import sensor_trouble
from tare.trial.summary import PARTS, Steps, steps_from
from tare.trial.tenant_metrics import overlap_ns, run_ns, within
from tare.trial.thresholds import THRESHOLDS, Thresholds
from tare.trial.tracing import recorders_of

Weight: TypeAlias = Literal["invalid", "suspect", "note"]


@dataclass(frozen=True)
class Ruling:
    """What one rule says."""

    weight: Weight
    sentence: str


def judge(trial: Trial, seen: Seen, steps: Steps | None) -> Verdict:
    """First how it ended, then whether the conditions were such that its numbers mean something."""
    if (gone := lost_gpu(seen)) is not None and not seen.interrupted:
        return Verdict("invalid", (gone,))
    if (hot := stopped_for_heat(seen)) is not None:
        return hot
    if (dead := who_died(seen)) is not None:
        return dead
    if (ended := how_it_ended(trial, seen)) is not None:
        return ended
    rulings = [ruling for rule in RULES for ruling in rule(trial, seen, steps, THRESHOLDS)]
    if recorders_of(trial.cell.probes):  # beside a tracer times are not compared: what disturbs them is worth a note
        rulings += [replace(each, weight="note") for rule in OF_TIMES for each in rule(trial, seen, steps, THRESHOLDS)]
    else:
        rulings += [ruling for rule in OF_TIMES for ruling in rule(trial, seen, steps, THRESHOLDS)]
    notes = tuple(r.sentence for r in rulings if r.weight == "note")
    for weight, state in _STATES.items():
        if reasons := tuple(r.sentence for r in rulings if r.weight == weight):
            also = tuple(r.sentence for r in rulings if r.weight == "suspect") if weight == "invalid" else ()
            return Verdict(state, reasons + also, notes)
    return Verdict("ok", (), notes)


_STATES: dict[Weight, State] = {"invalid": "invalid", "suspect": "suspect"}
Rule: TypeAlias = Callable[[Trial, Seen, Steps | None, Thresholds], Iterable[Ruling]]


def work_is_complete(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """G1: a program that exits 0 after half of the work is not faster."""
    planned = trial.cell.workload.units()
    done = 0 if steps is None else len(steps.numbers)
    if planned is not None and done != planned:
        yield Ruling("invalid", f"{done} of {planned} steps were done.")


def tenants_met(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """Only the time in which all tenants worked counts, and there must be some of it."""
    if not seen.neighbours:
        return
    if seen.died:
        yield Ruling("invalid", "the workload ended before all tenants were ready, so that they never ran together.")
    elif (window_ns := overlap_ns(seen.marks, seen.neighbours, seen.result)) is None:
        yield Ruling("invalid", "the tenants never worked at the same time: give the shorter ones more to do.")
    elif steps is None:
        yield from _was_never_alone(window_ns, run_ns(seen.result), limits)
    else:
        inside = steps_from(within(seen.marks, window_ns))
        count = 0 if inside is None else len(inside.numbers)
        if count < limits.overlap_steps:
            yield Ruling("invalid", f"only {count} steps lie in the time in which all tenants worked.")


def _was_never_alone(
    window_ns: tuple[int, int], whole_ns: tuple[int, int] | None, limits: Thresholds
) -> Iterable[Ruling]:
    """A workload without marked steps is timed whole: then the others must have worked all that time."""
    if whole_ns is None:
        return
    share = (window_ns[1] - window_ns[0]) / (whole_ns[1] - whole_ns[0])
    if share < limits.coverage_share:
        sentence = f"the workload marks no steps, and the others worked for only {share:.0%} of its time"
        yield Ruling("invalid", f"{sentence}: give them more to do.")


def marks_are_complete(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    if seen.lost_marks:
        yield Ruling("suspect", f"the mark buffer was full: {seen.lost_marks} marks are missing.")


def marks_add_up(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """Stall, copy and compute lie in the step and do not overlap: together they are no longer than it is."""
    if steps is None:
        return
    parts_s = sum(float(np.nansum(steps.seconds[name])) for name in PARTS if name in steps.seconds)
    whole_s = float(np.nansum(steps.seconds["step"]))
    if parts_s > whole_s * (1 + limits.marks_share):
        yield Ruling("suspect", f"the marks do not add up: {parts_s:.3f} s of parts in {whole_s:.3f} s of steps.")


def script_was_marked(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """What `tare_inside.attach` says of itself; nothing, where the command imported no torch."""
    said = seen.facts.get("attach", {})
    if said.get("state") == "gave up":
        upto = "no step of the script is marked" if steps is None else "the script is marked only in its first part"
        yield Ruling("note", f"{upto}: a fault of tare's own ({said.get('why')}); the script ran on untouched by it.")
    elif said and steps is None:
        yield Ruling("note", "the script imports torch, but no training or inference loop was seen: it is timed whole.")


def nothing_was_swapped(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M23."""
    pages = grew(seen, "memory.pswpin") + grew(seen, "memory.pswpout")
    if pages:
        yield Ruling("invalid", f"the device swapped {pages:.0f} pages during the trial.")


def nothing_was_stolen(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M25: a hypervisor that took the cores away."""
    share = grew(seen, "cpu.steal_s") / _capacity_s(seen)
    if share > limits.steal_suspect_share:
        weight: Weight = "invalid" if share > limits.steal_invalid_share else "suspect"
        yield Ruling(weight, f"the hypervisor took {share:.1%} of the CPU time away (steal).")


def nobody_else_worked(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M25: CPU time of neither the workload's cgroup nor the sampler."""
    if "cgroup.cpu_s" not in seen.readings or seen.sampler is None:
        return
    tenants = ["cgroup.cpu_s", *(f"tenant{number}.cgroup.cpu_s" for number in range(1, len(seen.neighbours) + 1))]
    ours_s = sum(grew(seen, channel) for channel in tenants) + seen.sampler.cpu_s
    foreign_s = grew(seen, "cpu.busy_s") - ours_s
    share = foreign_s / _capacity_s(seen)
    if share > limits.foreign_suspect_share:
        weight: Weight = "invalid" if share > limits.foreign_invalid_share else "suspect"
        yield Ruling(weight, f"other processes used {share:.1%} of the device's CPU time.")


def sampling_was_complete(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M27, M32."""
    if (report := seen.sampler) is None:
        return
    planned = report.ticks + report.missed
    if planned and report.ticks / planned < limits.coverage_share:
        yield Ruling("note", f"the series are partial: {report.ticks} of {planned} samples were taken.")
    if planned and report.longest_gap_s > limits.gap_periods * report.seconds / planned:
        yield Ruling("note", f"the series have a gap of {report.longest_gap_s:.1f} s.")
    if report.seconds >= 1 and report.cpu_s / report.seconds > limits.observer_share:
        yield Ruling("suspect", f"the sampler itself used {report.cpu_s / report.seconds:.1%} of a core.")
    yield from (Ruling("note", sentence) for sentence in report.lost)


def clocks_kept_step(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M26."""
    before, after = seen.clocks_before, clocks()
    moved = {name: after[name] - before[name] for name in before}
    slept_s = moved["boottime_s"] - moved["monotonic_s"]
    slept_s += seen.facts.get("place", {}).get("clock", {}).get("slept_s", 0.0)  # of a device with clocks of its own
    if slept_s > limits.sleep_s:
        yield Ruling("invalid", f"the machine slept {slept_s:.0f} s.")
    stepped_s = moved["realtime_s"] - moved["boottime_s"]
    if abs(stepped_s) > limits.wall_step_s:
        yield Ruling("note", f"the wall clock was set by {stepped_s:+.1f} s; durations are not touched by it.")


def steps_are_steady(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M13: steady state is tested, not assumed."""
    if steps is None or (values := steps.measured("step")).size < 20:
        return
    first, second = (float(np.median(half)) for half in np.array_split(values, 2))
    change = second / first - 1 if first > 0 else 0.0
    if abs(change) > limits.steady_share:
        yield Ruling("note", f"no steady state: the second half of the steps took {change:+.0%} against the first.")


def throttling_is_seen(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """CFS throttling next to every time: with a quota it is the finding, without one it would be a surprise."""
    times = grew(seen, "cgroup.nr_throttled")
    if times:
        spent_s = grew(seen, "cgroup.throttled_s")
        yield Ruling("note", f"throttled by the CPU quota {times:.0f} times, {spent_s:.2f} s in all.")


def gpus_were_as_asked(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M19-M21 and M25, of GPUs."""
    yield from (Ruling(weight, sentence) for weight, sentence in gpu_trouble(seen, limits))


def sensors_were_sound(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M17, M19, M21, M27-M29, E4: heat, clocks and power."""
    yield from (Ruling(weight, sentence) for weight, sentence in sensor_trouble(seen, limits))


def every_epoch_was_cold(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """What was asked of the page cache holds in every epoch, or the epochs are not what the study says."""
    yield from (Ruling("invalid", sentence) for sentence in cold_epochs_trouble(seen.facts))


def emulation_is_told(trial: Trial, seen: Seen, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """Nobody is to mistake emulation for virtualisation."""
    if note := seen.facts.get("place", {}).get("accel_note"):
        yield Ruling("note", str(note))


RULES: tuple[Rule, ...] = (
    work_is_complete,
    tenants_met,
    marks_are_complete,
    script_was_marked,
    marks_add_up,
    nothing_was_swapped,
    clocks_kept_step,
    throttling_is_seen,
    emulation_is_told,
    every_epoch_was_cold,
    gpus_were_as_asked,
    sensors_were_sound,
)
OF_TIMES: tuple[Rule, ...] = (nothing_was_stolen, nobody_else_worked, sampling_was_complete, steps_are_steady)


def _capacity_s(seen: Seen) -> float:
    kinds = ("busy", "idle", "iowait", "steal")
    return sum(grew(seen, f"cpu.{kind}_s") for kind in kinds) or float("inf")
