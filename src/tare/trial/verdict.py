"""May this trial's numbers be believed? Each rule is a function of its own: it returns rulings, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tare.base.errors import LineLost
from tare.base.host import Exit
from tare.base.rulings import Ruling, Weight
from tare.base.text import failure_line, telling_lines
from tare.figures.evidence import THRESHOLDS, Thresholds, overlap_ns, run_ns, steps_ns, within
from tare.figures.steps import PARTS, Steps, steps_from
from tare.plan.matrix import Trial
from tare.records.intervals import mark_columns
from tare.records.model import State
from tare.trial.facts import clocks
from tare.trial.hints import hints_for
from tare.trial.rules import (
    cold_epochs_trouble,
    gpu_trouble,
    load_cpu_s,
    load_trouble,
    lost_gpu,
    overheated,
    sensor_trouble,
    unanswered,
)
from tare.trial.state import TrialState, recorders_of


@dataclass(frozen=True)
class Verdict:
    """How a trial ended, and why."""

    state: State
    reasons: tuple[Ruling, ...] = ()
    notes: tuple[Ruling, ...] = ()


def stopped_for_heat(state: TrialState) -> Verdict | None:
    """C17: the trial was ended so that the device does not harm itself."""
    reasons = overheated(state.facts)
    return None if reasons is None or state.interrupted else Verdict("failed", reasons)


def who_died(state: TrialState) -> Verdict | None:
    """A tenant that dies takes the pressure off the others: their figures are not those of the full house."""
    dead = [
        Ruling(
            "tenant.died",
            "invalid",
            f"tenant{number}",
            f"tenant {number} ({tenant.workload.title()}) ended early{_last_words(tenant.exit)}; "
            "the others were stopped.",
        )
        for number, tenant in enumerate(state.neighbours, start=1)
        if tenant.died
    ]
    if not dead or state.interrupted or state.error is not None or state.died:
        return None
    return Verdict("invalid", tuple(dead))


def _last_words(found: Exit | None) -> str:
    if found is None:
        return ""
    if found.timed_out:
        return " at the limit"
    last = failure_line(found.err)
    return f" with code {found.code}" + (f": {last}" if last else "")


def how_it_ended(trial: Trial, state: TrialState) -> Verdict | None:
    """None where the workload came to its end, with code 0, and a server answered."""
    if state.interrupted:
        return _ended("interrupted", "run.stopped", "", "the run was stopped during this trial.")
    if state.error is not None:
        ending: State = "interrupted" if isinstance(state.error, LineLost) else "failed"
        return Verdict(ending, (state.error.ruling(),))
    if state.exit is None:
        return _ended("failed", "workload.not-started", "workload", "the workload was never started.")
    if state.exit.timed_out:
        sentence = f"time limit reached; stopped after {state.exit.seconds:.0f} s."
        return Verdict("timeout", (Ruling("workload.timeout", "failed", "workload", sentence), *_waited(state.exit)))
    if state.exit.oom_killed or state.grew("cgroup.oom_kills"):
        limits = [platform.fields().get("memory") for platform in trial.cell.platforms]
        limited = "".join(f" (its limit is {limit / 2**20:.0f} MiB)" for limit in limits if limit)
        sentence = f"the kernel killed the workload: out of memory{limited}."
        return _ended("oom", "workload.oom", "workload", sentence)
    if state.exit.code != 0:
        # An engine that cannot start the program reports that where the program would have printed.
        last = failure_line(f"{state.exit.out}\n{state.exit.err}")
        reported = f": {last}" if last and (state.exit.err.strip() or state.exit.code == 126) else ""
        hints = hints_for(trial.cell, state.exit)
        ended = Ruling(
            "workload.exit", "failed", "workload", f"the workload ended with code {state.exit.code}{reported}"
        )
        return Verdict("failed", (ended, *(Ruling("workload.hint", "failed", "workload", hint) for hint in hints)))
    return None if (nothing := unanswered(state)) is None else Verdict("failed", (nothing,))


def _ended(state: State, code: str, subject: str, sentence: str) -> Verdict:
    return Verdict(state, (Ruling(code, "failed", subject, sentence),))


def _waited(ended: Exit) -> Iterable[Ruling]:
    """What it waited for, and the last that it reported."""
    if ended.waiting:
        last = telling_lines(f"{ended.out}\n{ended.err}")[-1:]
        reported = f" Its last line was: {last[0].strip()[:200]}" if last else " It had printed nothing."
        yield Ruling("workload.waits", "failed", "workload", f"at the limit: {ended.waiting}.{reported}")


def judge(trial: Trial, state: TrialState, steps: Steps | None) -> Verdict:
    """First how it ended, then whether the conditions were such that its numbers mean something."""
    if (gone := lost_gpu(state)) is not None and not state.interrupted:
        return Verdict("invalid", (gone,))
    if (hot := stopped_for_heat(state)) is not None:
        return hot
    if (dead := who_died(state)) is not None:
        return dead
    if state.partner is not None and not state.interrupted:
        return Verdict("invalid", (state.partner,))
    if (ended := how_it_ended(trial, state)) is not None:
        return ended
    rulings = [ruling for rule in RULES for ruling in rule(trial, state, steps, THRESHOLDS)]
    if recorders_of(trial.cell.probes):  # beside a tracer times are not compared: what disturbs them is worth a note
        rulings += [replace(each, weight="note") for rule in OF_TIMES for each in rule(trial, state, steps, THRESHOLDS)]
    else:
        rulings += [ruling for rule in OF_TIMES for ruling in rule(trial, state, steps, THRESHOLDS)]
    notes = tuple(r for r in rulings if r.weight == "note")
    for weight, ending in _STATES.items():
        if reasons := tuple(r for r in rulings if r.weight == weight):
            also = tuple(r for r in rulings if r.weight == "suspect") if weight == "invalid" else ()
            return Verdict(ending, reasons + also, notes)
    return Verdict("ok", (), notes)


OWN_CLOCK_S, INNER_CLOCK_S = 0.01, 1.0  # by so much a time may lie beside the run: of one clock, and of a guest's
_STOOD_STILL_S = 5.0  # a busy machine delays a thread by less
_OFF_S = 10.0  # of a sleep that was asked for: an alarm has whole seconds, and a board takes some to stop
_STATES: dict[Weight, State] = {"invalid": "invalid", "suspect": "suspect"}
Rule: TypeAlias = Callable[[Trial, TrialState, Steps | None, Thresholds], Iterable[Ruling]]


def claims_are_credible(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """A link, a pipe, a flood, a figure that no such program has or a time outside of the run: what is not believed."""
    yield from state.claims
    seen = state.facts.get("outside")
    if seen is None:
        return
    slack_ns = round(1e9 * (OWN_CLOCK_S if "clock" not in state.facts.get("place", {}) else INNER_CLOCK_S))
    first_ns, last_ns = seen["begin_ns"] - slack_ns, seen["end_ns"] + slack_ns
    times_ns = mark_columns(state.marks)["t_ns"]
    if len(times_ns) and not first_ns <= times_ns.min() <= times_ns.max() <= last_ns:
        before_s, after_s = (first_ns - int(times_ns.min())) / 1e9, (int(times_ns.max()) - last_ns) / 1e9
        where = f"{before_s:.3g} s before the run" if before_s > 0 else f"{after_s:.3g} s after it"
        yield Ruling("claim.outside-run", "invalid", "workload", f"a mark says that something happened {where}.")
    counted = [state.result[name] for name in ("start_ns", "end_ns") if name in state.result]
    whole_s = state.result.get("wall_s", 0.0)
    if any(not first_ns <= each <= last_ns for each in counted) or not 0 <= whole_s <= (last_ns - first_ns) / 1e9:
        sentence = "what counts the workload's time left times that do not lie in the run."
        yield Ruling("claim.outside-run", "invalid", "workload", sentence)


def runner_ran(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """A10: who was stopped could neither end the workload at its limit nor see what it did."""
    if state.stood_still_s > _STOOD_STILL_S and not trial.cell.workload.asleep_s():
        sentence = f"the runner itself stood still for {state.stood_still_s:.0f} s during the trial (SIGSTOP?)."
        yield Ruling("run.stood-still", "suspect", "", sentence)


def work_is_complete(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """G1: a program that exits 0 after half of the work is not faster."""
    planned = trial.cell.workload.units()
    done = 0 if steps is None else len(steps.numbers)
    if planned is not None and done != planned:
        yield Ruling("work.incomplete", "invalid", "workload", f"{done} of {planned} steps were done.")


def tenants_met(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """Only the time in which all tenants worked counts, and there must be some of it."""
    if not state.neighbours:
        return
    if state.died:
        sentence = "the workload ended before all tenants were ready, so that they never ran together."
        yield Ruling("tenants.never-ready", "invalid", "workload", sentence)
    elif (window_ns := overlap_ns(state.marks, state.neighbours, state.result)) is None:
        sentence = "the tenants never worked at the same time: give the shorter ones more to do."
        yield Ruling("tenants.never-together", "invalid", "", sentence)
    elif steps is None:
        yield from _was_never_alone(window_ns, run_ns(state.result), "the workload marks no steps", limits)
    else:
        if "load" in state.outcome:  # goodput and the rate are of all requests
            yield from _was_never_alone(window_ns, steps_ns(state.marks), "requests are counted together", limits)
        inside = steps_from(within(state.marks, window_ns))
        count = 0 if inside is None else len(inside.numbers)
        if count < limits.overlap_steps:
            sentence = f"only {count} steps lie in the time in which all tenants worked."
            yield Ruling("tenants.few-steps", "invalid", "workload", sentence)


def _was_never_alone(
    window_ns: tuple[int, int], whole_ns: tuple[int, int] | None, why: str, limits: Thresholds
) -> Iterable[Ruling]:
    """A workload without marked steps is timed whole, a server's load too: then the others must work all that time."""
    if whole_ns is None:
        return
    share = (window_ns[1] - window_ns[0]) / (whole_ns[1] - whole_ns[0])
    if share < limits.coverage_share:
        sentence = f"{why}, and the others worked for only {share:.0%} of its time"
        yield Ruling("tenants.alone", "invalid", "workload", f"{sentence}: give them more to do.")


def turns_were_whole(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """Sides in turns are compared by turns that all of them did: as many as every pair of the study."""
    told = state.facts.get("turns")
    if told is not None and told["done"] < told["count"]:
        sentence = f"it ended after {told['done']} of {told['count']} turns: all pairs must do as many."
        yield Ruling("turns.incomplete", "invalid", "workload", sentence)


def marks_are_complete(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    if state.lost_marks:
        sentence = f"the mark buffer was full: {state.lost_marks} marks are missing."
        yield Ruling("marks.lost", "suspect", "workload", sentence)


def marks_add_up(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """Stall, copy and compute lie in the step and do not overlap: together they are no longer than it is."""
    if steps is None:
        return
    parts_s = sum(float(np.nansum(steps.seconds[name])) for name in PARTS if name in steps.seconds)
    whole_s = float(np.nansum(steps.seconds["step"]))
    if parts_s > whole_s * (1 + limits.marks_share):
        sentence = f"the marks do not add up: {parts_s:.3f} s of parts in {whole_s:.3f} s of steps."
        yield Ruling("marks.sum", "suspect", "workload", sentence)


def script_was_marked(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """What `tare_inside.attach` reports of itself, and why a command has no steps."""
    reported = state.facts.get("attach", {})
    if reported.get("state") == "gave up":
        upto = "no step of the script is marked" if steps is None else "the script is marked only in its first part"
        sentence = f"{upto}: a fault of tare's own ({reported.get('why')}); the script ran on untouched by it."
        yield Ruling("script.marking-failed", "note", "workload", sentence)
    elif steps is None and (reported or getattr(trial.cell.workload, "attach", "none") == "torch"):
        code = _UNMARKED.get(reported.get("reason") or reported.get("state"), "script.no-loop")
        sentence = f"no steps were found, so the whole run is timed: {_WHY_UNMARKED[code]}. {HOW_TO_MARK}"
        yield Ruling(code, "note", "workload", sentence)
    elif reported.get("by") == "backward":
        sentence = "no optimiser of torch stepped: a step is one batch or backward pass, with the update by hand in it."
        yield Ruling("script.by-backward", "note", "workload", sentence)
    elif reported.get("by") in _FRAMEWORKS:
        sentence = f"a step is {_FRAMEWORKS[reported['by']]}."
        yield Ruling("script.by-framework", "note", "workload", sentence)


HOW_TO_MARK = (
    "To mark steps: `from tare_inside import marks`, then `with marks.during('step', number):` around each one."
)
_FRAMEWORKS = {
    "jax": "a call of the jitted function of JAX that took most of the time, until the next such call",
    "keras": "a batch of Keras' `fit`",
    "onnxruntime": "a `run` of a session of ONNX Runtime",
    "sklearn": "a `fit` or `partial_fit` of scikit-learn",
    "tensorflow": "a call of the `tf.function` that took most of the time, until the next such call",
}
_UNMARKED = {  # by the reason that attach.py gives, or else by its state
    None: "script.no-python",
    "started": "script.no-torch",
    "no-backward": "script.no-backward",
    "grad-only": "script.grad-only",
    "other-thread": "script.other-thread",
    "few-calls": "script.few-calls",
    "runs-ahead": "script.runs-ahead",
}
_WHY_UNMARKED = {
    "script.no-python": "no Python program ran that reads PYTHONPATH (another kind of program, `python -I`, `env -i`)",
    "script.no-torch": "the script never imported torch, nor JAX, Keras, TensorFlow, ONNX Runtime or scikit-learn",
    "script.runs-ahead": "a loop of JAX (or of TensorFlow on a GPU, where this cannot be seen) went on before its "
    "results were there, so that the times of its calls are those of handing work over; `jax.block_until_ready` in a "
    "loop of JAX makes them steps",
    "script.few-calls": "fewer than two calls were seen that are steps (a `fit` of scikit-learn or Keras, a "
    "`run` of ONNX Runtime, a jitted function of JAX, a `tf.function`)",
    "script.no-backward": "torch was imported, but there was no backward pass, and no model was called on batches of a "
    "DataLoader; the work may be done by another process, such as a server",
    "script.grad-only": "gradients came from torch.autograd.grad, and an update by hand cannot be seen",
    "script.other-thread": "the training ran in another thread than the one that was watched",
    "script.no-loop": "torch was imported, but no training or inference loop was seen until the process was ended",
}


def nothing_was_swapped(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M23: of the trial's own groups. What others swap is their business, and met by all sides.

    Kernels before 6.12 do not count a group's pages; they know how much of it lies in swap.
    """
    grown = [sum(map(state.grew, state.of_groups(name))) for name in ("pswpin", "pswpout")]
    if any(grown):
        sentence = f"the kernel swapped {sum(grown):.0f} pages of the workload in or out during the trial."
        yield Ruling("memory.swapped", "invalid", "memory", sentence)
        return
    moved = sum(max(seen) - min(seen) for name in state.of_groups("swap_bytes") if (seen := state.readings[name]))
    if moved:
        sentence = f"the kernel swapped {moved / 2**20:.1f} MiB of the workload in or out during the trial."
        yield Ruling("memory.swapped", "invalid", "memory", sentence)


def nothing_was_stolen(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M25: a hypervisor that took the cores away."""
    share = state.grew("cpu.steal_s") / _capacity_s(state)
    if share > limits.steal_suspect_share:
        weight = _of_others(trial, state, share > limits.steal_invalid_share)
        yield Ruling("cpu.steal", weight, "cpu", f"the hypervisor took {share:.1%} of the CPU time away (steal).")


def nobody_else_worked(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M25: CPU time of neither the workload's cgroup nor what measures and serves it (trial/upkeep.py)."""
    if "cgroup.cpu_s" not in state.readings or state.sampler is None:
        return
    groups_s = sum(map(state.grew, state.of_groups("cpu_s"))) + state.partners_cpu_s
    helpers_s = max(load_cpu_s(state), state.upkeep.reaped_s - groups_s)  # reaped: with jobs that ended, and the load
    ours_s = groups_s + state.sampler.cpu_s + state.upkeep.spent_s + helpers_s
    foreign_s = state.grew("cpu.busy_s") - ours_s
    share = foreign_s / _capacity_s(state)
    if share > limits.foreign_suspect_share:
        weight = _of_others(trial, state, share > limits.foreign_invalid_share)
        yield Ruling("cpu.foreign", weight, "cpu", f"other processes used {share:.1%} of the device's CPU time.")


def _of_others(trial: Trial, state: TrialState, much: bool) -> Weight:
    """How much it weighs what others did: all sides in turns, and of a block as a rule, had their share of it."""
    if "turns" in state.facts:
        return "note"
    return "invalid" if much and trial.strict else "suspect"


def sampling_was_complete(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M27, M32."""
    if (report := state.sampler) is None:
        return
    planned = report.ticks + report.missed
    if planned and report.ticks / planned < limits.coverage_share:
        sentence = f"the series are partial: {report.ticks} of {planned} samples were taken."
        yield Ruling("sampler.partial", "note", "sampler", sentence)
    if planned and report.longest_gap_s > limits.gap_periods * report.seconds / planned:
        yield Ruling("sampler.gap", "note", "sampler", f"the series have a gap of {report.longest_gap_s:.1f} s.")
    if report.seconds >= 1 and report.cpu_s / report.seconds > limits.observer_share:
        sentence = f"the sampler itself used {report.cpu_s / report.seconds:.1%} of a core."
        yield Ruling("sampler.cost", "suspect", "sampler", sentence)
    yield from report.lost


def clocks_kept_step(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M26."""
    before, after = state.clocks_before, clocks()
    moved = {name: after[name] - before[name] for name in before}
    slept_s = moved["boottime_s"] - moved["monotonic_s"]
    slept_s += state.facts.get("place", {}).get("clock", {}).get("slept_s", 0.0)  # of a device with clocks of its own
    if (asked_s := trial.cell.workload.asleep_s()) and abs(slept_s - asked_s) > _OFF_S:
        sentence = (
            f"the device was to sleep for {asked_s:.0f} s and slept {abs(slept_s):.0f} s: not woken by its alarm."
        )
        yield Ruling("clock.woke", "invalid", "clock", sentence)
    elif slept_s > limits.sleep_s and not asked_s:
        yield Ruling("clock.slept", "invalid", "clock", f"the machine slept {slept_s:.0f} s.")
    stepped_s = moved["realtime_s"] - moved["boottime_s"]
    if abs(stepped_s) > limits.wall_step_s:
        sentence = f"the wall clock was set by {stepped_s:+.1f} s; durations are not touched by it."
        yield Ruling("clock.set", "note", "clock", sentence)


def steps_are_steady(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M13: steady state is tested, not assumed."""
    if steps is None or (values := steps.measured("step")).size < 20:
        return
    first, second = (float(np.median(half)) for half in np.array_split(values, 2))
    change = second / first - 1 if first > 0 else 0.0
    if abs(change) > limits.steady_share:
        sentence = f"no steady state: the second half of the steps took {change:+.0%} against the first."
        yield Ruling("steps.unsteady", "note", "workload", sentence)


def throttling_is_seen(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """CFS throttling next to every time: with a quota it is the finding, without one it would be a surprise."""
    times = state.grew("cgroup.nr_throttled")
    if times:
        spent_s = state.grew("cgroup.throttled_s")
        sentence = f"throttled by the CPU quota {times:.0f} times, {spent_s:.2f} s summed over cores."
        yield Ruling("cpu.quota", "note", "workload", sentence)


def gpus_were_as_asked(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M19-M21 and M25, of GPUs."""
    yield from gpu_trouble(state, limits, strict=trial.strict)


def sensors_were_sound(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """M17, M19, M21, M27-M29, E4: heat, clocks and power."""
    yield from sensor_trouble(state, limits, strict=trial.strict)


def every_epoch_was_cold(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """What was asked of the page cache holds in every epoch, or the epochs are not what the study says."""
    yield from cold_epochs_trouble(state.facts)


def load_was_as_asked(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """Of a server: its figures are its own, and not those of whoever asked."""
    disturbed = any(list(rule(trial, state, steps, limits)) for rule in (nothing_was_stolen, nobody_else_worked))
    yield from load_trouble(state, "suspect" if disturbed and not trial.strict else "invalid")


def emulation_is_told(trial: Trial, state: TrialState, steps: Steps | None, limits: Thresholds) -> Iterable[Ruling]:
    """Nobody is to mistake emulation for virtualisation."""
    if note := state.facts.get("place", {}).get("accel_note"):
        yield Ruling("platform.emulated", "note", "platform", str(note))


RULES: tuple[Rule, ...] = (
    claims_are_credible,
    runner_ran,
    work_is_complete,
    tenants_met,
    turns_were_whole,
    marks_are_complete,
    script_was_marked,
    marks_add_up,
    nothing_was_swapped,
    clocks_kept_step,
    throttling_is_seen,
    emulation_is_told,
    every_epoch_was_cold,
    load_was_as_asked,
    gpus_were_as_asked,
    sensors_were_sound,
)
OF_TIMES: tuple[Rule, ...] = (nothing_was_stolen, nobody_else_worked, sampling_was_complete, steps_are_steady)


def _capacity_s(state: TrialState) -> float:
    kinds = ("busy", "idle", "iowait", "steal")
    return sum(state.grew(f"cpu.{kind}_s") for kind in kinds) or float("inf")
