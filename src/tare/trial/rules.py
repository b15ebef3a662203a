"""What the verdict asks of the device's sensors: was it as warm, as quick and as undisturbed as it should be?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tare.base.errors import DeviceLost
from tare.base.rulings import LEGACY, Ruling, Weight, read_rulings
from tare.figures.energy import energy_trouble, power_trouble
from tare.figures.evidence import Thresholds
from tare.figures.power_series import PARTIAL
from tare.records.model import Record
from tare.trial.state import TrialState
from tare_inside.programs.cold_epochs import COLD_SHARE

_SENSORS = frozenset({"W", "J", "C", "Hz"})
_HELD = re.compile(
    r"(?:cpufreq\.cpu(?P<core>\d+)\.|jetson\.CPU\w*\.|jetson\.(?P<gpu>GPU)\.)(?:(?P<low>min_khz|MIN_FREQ)|max_khz|MAX_FREQ)"
)
_CLOCK = re.compile(r"frequency\.(?:cpu(?P<core>\d+)|gpu)_hz")
_GPU = "gpu"


def sensor_trouble(state: TrialState, limits: Thresholds, *, strict: bool = False) -> Iterator[Ruling]:
    """Each rule once; those about power are in a file of their own."""
    yield from _was_throttled(state, "invalid" if strict else "suspect")
    yield from _kept_its_clocks(state, limits)
    yield from _started_as_warm(state.facts.get("warmth", {}), limits)
    yield from _was_covered(state, limits)
    yield from energy_trouble(state, limits)
    yield from power_trouble(state, limits)


def overheated(facts: Mapping[str, Any]) -> tuple[Ruling, ...] | None:
    """C17: why the trial was stopped for heat; the first ruling is the same each time, so that three stop a study."""
    zone = facts.get("warmth", {}).get("stopped_by")
    if zone is None:
        return None
    limit = f"{zone['name']} was at {zone['degrees_c']:.1f} °C; its limit is {zone['limit_c']:g} °C."
    return (
        Ruling("heat.stopped", "failed", "", "the device was too hot, and the trial was stopped."),
        Ruling("heat.limit", "failed", str(zone["name"]), limit),
    )


def _was_throttled(state: TrialState, weight: Weight) -> Iterator[Ruling]:
    """M19: a device that slowed itself down has measured its cooling.

    It met one side alone, or all sides of a block: that shows only when the block is compared (analysis/selection.py).
    """
    for channel, values in state.readings.items():
        if not channel.startswith("thermal.") or not values:
            continue
        name = channel.removeprefix("thermal.")
        if name.endswith(("_throttled", "_events")) and values[-1] > values[0]:
            sentence = f"the device was throttled: {name} rose by {values[-1] - values[0]:.0f} during the trial."
            yield Ruling("heat.throttled", weight, name, sentence)
        elif name.startswith("cooling_") and max(values) > 0:
            share = np.count_nonzero(values) / len(values)
            sentence = f"the device was throttled: {name} was at work for {share:.0%} of the time."
            yield Ruling("heat.throttled", weight, name, sentence)
        elif name.endswith("_alarm") and max(values) > 0:
            yield Ruling("heat.alarm", weight, name, f"an alarm was on during the trial: {name}.")


def _kept_its_clocks(state: TrialState, limits: Thresholds) -> Iterator[Ruling]:
    """M21, of cores and a board's GPU: never slower than the lower limit that a control holds, nor over the upper."""
    low_hz, high_hz = _held_hz(state.facts.get("controls", {}))
    for channel, values in state.readings.items():
        found = _CLOCK.fullmatch(channel)
        awake = [value for value in values if value > 0] if found else []  # a GPU that is switched off says 0
        if found is None or not awake:
            continue
        core = found["core"] or _GPU
        what, board = ("the GPU", _GPU) if core == _GPU else (f"core {core}", "")
        least, most = low_hz.get(core, low_hz.get(board, 0.0)), high_hz.get(core, high_hz.get(board, float("inf")))
        seen_hz = float(np.median(awake))
        if seen_hz < limits.clock_share * least:
            sentence = f"{what} was set to {least / 1e6:.0f} MHz but ran at {seen_hz / 1e6:.0f}."
            yield Ruling("clock.below", "invalid", channel, sentence)
        elif seen_hz > most / limits.clock_share:
            sentence = f"{what} was limited to {most / 1e6:.0f} MHz and ran at {seen_hz / 1e6:.0f}."
            yield Ruling("clock.above", "invalid", channel, sentence)


def _held_hz(controls: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """The limits that the trial's controls hold, by core and of the GPU; under "" those of all cores of a board."""
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    for control in controls.values():
        for key, text in control.items() if isinstance(control, dict) else ():
            found = _HELD.fullmatch(key)
            if found is None or not str(text).isdecimal():
                continue
            core = _GPU if found["gpu"] else found["core"] or ""
            hertz = float(text) * (1 if found["gpu"] else 1000)  # the files of cores are in kHz
            if found["low"]:
                low[core] = min(low.get(core, hertz), hertz) if not core else hertz
            else:
                high[core] = max(high.get(core, hertz), hertz)
    return low, high


def _started_as_warm(warmth: Mapping[str, Any], limits: Thresholds) -> Iterator[Ruling]:
    """M17: every zone within 3 °C of what it was when the study began."""
    began, now = warmth.get("reference_c", {}), warmth.get("start_c", {})
    apart = {zone: now[zone] - began[zone] for zone in began.keys() & now.keys()}
    hottest = max(apart, key=lambda zone: apart[zone], default=None)
    if hottest is not None and apart[hottest] > limits.gate_c:
        waited = f" after {warmth.get('waited_s', 0):.0f} s of waiting"
        sentence = f"hot start: {hottest} was {apart[hottest]:.1f} °C warmer than at the study's start{waited}."
        yield Ruling("heat.hot-start", "suspect", hottest, sentence)
    coldest = min(apart, key=lambda zone: apart[zone], default=None)
    if coldest is not None and apart[coldest] < -limits.gate_c:
        sentence = f"cold start: {coldest} was {-apart[coldest]:.1f} °C colder than at the study's start."
        yield Ruling("heat.cold-start", "note", coldest, sentence)


def _was_covered(state: TrialState, limits: Thresholds) -> Iterator[Ruling]:
    """M27, of each sensor by its own rhythm: one that was lost on the way, or had a pause, is partial."""
    grid, _ = state.series.get("sampler.late_s", (None, None))
    if grid is None or len(grid) < 2:
        return
    doubts = read_rulings(state.facts.get("energy", {}).get("doubts", []), "note")
    reported = {doubt.subject for doubt in doubts if doubt.code == PARTIAL}
    units = {channel["name"]: channel["unit"] for channel in state.channels}
    for channel, (t_ns, _) in state.series.items():
        probe = channel.partition(".")[0]
        if units.get(channel) not in _SENSORS or probe in reported or len(t_ns) < 2:
            continue
        times = np.unique(t_ns)
        edges = np.clip(np.concatenate(([grid[0]], times, [grid[-1]])), grid[0], grid[-1])
        typical = float(np.median(np.diff(times))) or 1.0
        gap, planned = float(np.diff(edges).max(initial=0)), (grid[-1] - grid[0]) / typical
        if planned >= 1 and len(times) / planned < limits.coverage_share:
            reported.add(probe)
            sentence = f"{channel} is partial: {len(times)} of {planned:.0f} samples were taken."
            yield Ruling("sensor.partial", "note", channel, sentence)
        elif gap > limits.gap_periods * typical:
            reported.add(probe)
            yield Ruling("sensor.gap", "note", channel, f"{channel} is partial: it has a gap of {gap / 1e9:.1f} s.")


LOST = DeviceLost.code
_SLOWED = {  # M19
    "hw_slowdown": "by the hardware",
    "hw_thermal": "by the hardware for heat",
    "hw_power_brake": "by the power supply",
    "sw_thermal": "by the driver for heat",
}
_LABEL = re.compile(r"(gpu(\d*))\.lost")


def lost_gpu(state: TrialState) -> Ruling | None:
    """C10: which GPU fell off its bus, as a control or the probe has seen it."""
    if isinstance(state.error, DeviceLost):
        return replace(state.error.ruling(), weight="invalid")
    lost = state.sampler.lost if state.sampler is not None else []
    return next((replace(ruling, weight="invalid") for ruling in lost if ruling.code == LOST), None)


# What may have passed at the next attempt. What others do is none of it: the next attempt meets it too, takes as long,
# and would be chosen for the quiet that it happened to meet.
CURABLE = frozenset({
    "work.incomplete", "workdir.no-result", "tenant.died", "tenants.never-ready", "tenants.few-steps", "turns.partner",
    "turns.incomplete", "clock.slept", "clock.woke", "clock.below", "clock.above", "gpu.clock", "cache.warm",
    "cache.unknown",
})  # fmt: skip
_OF_OTHERS = "Stop what else runs, or leave `strict` out of `design`: sides that are compared share what others do."
_OF_CLOCKS = (
    "Ask for a clock that the device holds under this load, or let it cool down (`temperature` waits for that)."
)
WHAT_HELPS = {
    "cpu.foreign": _OF_OTHERS, "cpu.steal": _OF_OTHERS, "heat.throttled": _OF_OTHERS, "gpu.slowed": _OF_OTHERS,
    "clock.below": _OF_CLOCKS, "clock.above": _OF_CLOCKS, "gpu.clock": _OF_CLOCKS,
    "memory.swapped": "Give the workload less to hold in memory: a smaller batch, or fewer workers.",
    "load.bottleneck": "Send fewer requests per second, or give the load generator a core of its own (`load_cores`).",
    "work.incomplete": "Does the command end by itself before its last step? `tare show STORE TRIAL` has its output.",
    "clock.slept": "Keep the machine awake while it measures (`systemd-inhibit tare ...`).",
}  # fmt: skip


def may_be_cured(record: Record) -> bool:
    """Whether another attempt at an invalid trial may come to something; a sentence without a code may be anything."""
    reasons = [reason.code for reason in record.reasons if reason.weight == "invalid"]
    return record.state == "invalid" and all(code in CURABLE or code == LEGACY for code in reasons)


def what_helps(reason: Ruling | None) -> str:
    """What to do where every trial is lost for this reason."""
    usual = "`tare show STORE` lists every trial with its reason."
    return usual if reason is None else WHAT_HELPS.get(reason.code, usual)


def is_lost(reasons: Sequence[Ruling]) -> bool:
    """Whether a record's reasons speak of a GPU that is gone: then no further trial can be run on this device."""
    return any(ruling.code == LOST for ruling in reasons)


def gpu_trouble(state: TrialState, limits: Thresholds, *, strict: bool = False) -> Iterator[Ruling]:
    """Each rule on each GPU."""
    found = [match for channel in state.readings if (match := _LABEL.fullmatch(channel)) is not None]
    for label, number in sorted((match[1], int(match[2] or 0)) for match in found):
        held = _held(state.facts.get("controls", {}), number)
        yield from _was_slowed(state, label, number, "invalid" if strict else "suspect")
        yield from _met_its_power_limit(state, label, number, held, limits)
        yield from _kept_its_clock(state, label, number, held, limits)
        yield from _had_company(state, label, number)


def _held(controls: Mapping[str, Any], number: int) -> dict[str, str]:
    """What the trial's controls hold of this GPU: `{"graphics_mhz": "990"}`."""
    states = [state for state in controls.values() if isinstance(state, dict)]
    before = f"gpu.{number}."
    return {key.removeprefix(before): text for state in states for key, text in state.items() if key.startswith(before)}


def _was_slowed(state: TrialState, label: str, number: int, weight: Weight) -> Iterator[Ruling]:
    for reason, by in _SLOWED.items():
        if spent_s := state.grew(f"{label}.throttle_{reason}_s"):
            sentence = f"GPU {number} was slowed down {by} for {spent_s:.2f} s."
            yield Ruling("gpu.slowed", weight, label, sentence)


def _met_its_power_limit(
    state: TrialState, label: str, number: int, held: Mapping[str, str], limits: Thresholds
) -> Iterator[Ruling]:
    """M20. Where the study sets the power limit, meeting it is what is measured.

    A note: a card at its limit on both sides biases nothing. Where one side alone meets it, the comparison says so
    (analysis/hidden.py).
    """
    if state.sampler is None or state.sampler.seconds <= 0 or "power_mw" in held:
        return
    share = state.grew(f"{label}.throttle_sw_power_s") / state.sampler.seconds
    if share > limits.power_cap_share:
        sentence = f"GPU {number} was held back by its power limit for {share:.0%} of the time."
        yield Ruling("gpu.power-limit", "note", label, sentence)


def _kept_its_clock(
    state: TrialState, label: str, number: int, held: Mapping[str, str], limits: Thresholds
) -> Iterator[Ruling]:
    """M21, C9: a lock may be lost, or not be met; the clock stands at it also when the GPU is idle."""
    clocks, requested = state.readings.get(f"{label}.clock_hz", []), held.get("graphics_mhz", "")
    if not clocks or not requested.isdigit() or "power_mw" in held:
        return
    seen_mhz, asked_mhz = float(np.median(clocks)) / 1e6, float(requested)
    if abs(seen_mhz / asked_mhz - 1) > 1 - limits.clock_share:
        sentence = f"GPU {number} was set to {asked_mhz:.0f} MHz but ran at {seen_mhz:.0f}."
        yield Ruling("gpu.clock", "invalid", label, sentence)


def _had_company(state: TrialState, label: str, number: int) -> Iterator[Ruling]:
    """M25."""
    if most := max(state.readings.get(f"{label}.foreign_processes", [0.0]), default=0.0):
        sentence = f"{most:.0f} processes that tare did not start computed on GPU {number} (`nvidia-smi` names them)."
        yield Ruling("gpu.foreign", "suspect", label, sentence)


def cold_epochs_trouble(facts: Mapping[str, Any]) -> Iterable[Ruling]:
    """Why the data set was not cold at the begin of every epoch; nothing where it was not asked to be."""
    requested = facts.get("controls", {}).get("page_cache") or {}
    if requested.get("state") != "cold_every_epoch":
        return
    shares = (facts.get("cold_epochs") or {}).get("shares") or []
    if not shares:
        sentence = (
            "page_cache: cold_every_epoch is requested, but no pass over the data was detected: only `torch_train` "
            "and PyTorch scripts with a DataLoader have them."
        )
        yield Ruling("cache.no-epoch", "invalid", "page_cache", sentence)
    elif any(share is None for share in shares):
        sentence = "page_cache: the kernel did not report to the workload how much of the data set was left in memory."
        yield Ruling("cache.unknown", "invalid", "page_cache", sentence)
    elif (most := max(shares)) > COLD_SHARE:
        epoch = shares.index(most)
        sentence = f"page_cache: {most:.1%} of the data set was still in memory when epoch {epoch} began."
        yield Ruling("cache.warm", "invalid", "page_cache", sentence)


LOAD_CPU_SHARE = 0.9  # of a core: whoever makes the load cannot do more
LOAD_LATE_S, LOAD_LATE_SHARE = 0.002, 0.1  # later than both this and this share of the median latency
FAILED_REQUESTS_SHARE = 0.01


def load_trouble(state: TrialState, late: Weight = "invalid") -> Iterator[Ruling]:
    """Who made the load must not have been what limited it, and what failed is not left out.

    `late`: how much it weighs that requests were sent late; where others took the cores they did that to all sides.
    """
    load = state.outcome.get("load")
    if not isinstance(load, Mapping):
        return
    seconds, late_s, median_s = (_number(load, name) for name in ("seconds", "late_p99_s", "latency_p50_s"))
    sent, answered = _number(load, "sent"), _number(load, "ok")
    if (share := _number(load, "cpu_s") / max(seconds, 1e-9)) > LOAD_CPU_SHARE:
        sentence = f"the load generator used {share:.0%} of a core: it was the bottleneck, not the server{_cure(load)}"
        yield Ruling("load.bottleneck", "invalid", "load", sentence)
    elif late_s > max(LOAD_LATE_S, LOAD_LATE_SHARE * median_s):
        core = "stop what else uses its core" if load.get("cores") else "give it a core (`load_cores`)"
        sentence = (
            f"the load generator was up to {late_s * 1e3:.1f} ms late (99th percentile) where a request takes "
            f"{median_s * 1e3:.1f} ms: the latencies are its own{_cure(load, core)}"
        )
        yield Ruling("load.bottleneck", late, "load", sentence)
    if sent - answered > FAILED_REQUESTS_SHARE * sent:
        sentence = f"{sent - answered:.0f} of {sent:.0f} requests failed ({_failures(load)})."
        yield Ruling("load.failed", "suspect", "load", sentence)
    if (whole := _number(load, "unstreamed")) > FAILED_REQUESTS_SHARE * answered:
        sentence = (
            f"{whole:.0f} of {answered:.0f} answers were not streamed: they came whole or without a token, and have no "
            "time to the first one. Does the server heed `stream`? The workload's `api: http` asks for no stream."
        )
        yield Ruling("load.not-streamed", "suspect", "load", sentence)
    if "stop_s" in (served := state.facts.get("served", {})) and served["stop_s"] is None:
        yield Ruling(
            "server.killed", "note", "workload", "the server did not stop when it was asked to, and was killed."
        )


def _cure(load: Mapping[str, Any], *first: str) -> str:
    """What helps, by what the load was."""
    in_flight = _number(load, "in_flight")  # of a closed loop
    least = ["lower `concurrency`"] if in_flight > 1 else [] if in_flight else ["send fewer requests per second"]
    return f": {' or '.join((*first, *least))}." if first or least else "."


def unanswered(state: TrialState) -> Ruling | None:
    """Where no request was answered there is nothing to measure, and another attempt would be like it."""
    load = state.outcome.get("load")
    if not isinstance(load, Mapping) or _number(load, "ok"):
        return None
    failed = f"all {_number(load, 'sent'):.0f} requests failed ({_failures(load)})"
    sentence = f"{failed}: check the workload's `requests` and `api`."
    return Ruling("load.unanswered", "failed", "load", sentence)


def _failures(load: Mapping[str, Any]) -> str:
    """`404 x 20; the first: 404 to GET /x`, from a folder that is not to be trusted."""
    counted = load.get("failures")
    told = [f"{str(why)[:80]} x {times}" for why, times in counted.items()] if isinstance(counted, Mapping) else []
    return f"{', '.join(told[:4])}; the first: {str(load.get('problem'))[:200]}"


def load_cpu_s(state: TrialState) -> float:
    """What making the load cost the device, its start and warm-up included: ours, and not another's."""
    load = state.outcome.get("load")
    return max(_number(load, "cpu_s"), _number(load, "cpu_whole_s")) if isinstance(load, Mapping) else 0.0


def _number(values: Mapping[str, Any], name: str) -> float:
    """What the work folder has under this name, where it is a number."""
    value = values.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
