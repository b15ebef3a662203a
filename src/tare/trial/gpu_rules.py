"""What the verdict asks of a trial's GPUs: were they there, at the clock that was asked for, and ours alone?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from tare.errors import DeviceLost
from tare.trial.seen import Seen
from tare.trial.thresholds import Thresholds

Found: TypeAlias = Iterator[tuple[Literal["invalid", "suspect"], str]]

LOST = "is lost: it no longer answers its driver"  # as `DeviceLost` of a GPU says it
_SLOWED = {  # M19
    "hw_slowdown": "by the hardware",
    "hw_thermal": "by the hardware for heat",
    "hw_power_brake": "by the power supply",
    "sw_thermal": "by the driver for heat",
}
_LABEL = re.compile(r"(gpu(\d*))\.lost")


def lost_gpu(seen: Seen) -> str | None:
    """C10: in a sentence, which GPU fell off its bus, as a control or the probe has seen it."""
    if isinstance(seen.error, DeviceLost):
        return str(seen.error)
    said = seen.sampler.lost if seen.sampler is not None else []
    return next((sentence for sentence in said if LOST in sentence), None)


def is_lost(reasons: Sequence[str]) -> bool:
    """Whether a record's reasons speak of a GPU that is gone: then no further trial can be run on this device."""
    return any(LOST in reason for reason in reasons)


def gpu_trouble(seen: Seen, limits: Thresholds) -> Found:
    """Each rule on each GPU."""
    for label, number in _gpus(seen):
        held = _held(seen.facts.get("controls", {}), number)
        yield from _was_slowed(seen, label, number)
        yield from _met_its_power_limit(seen, label, number, held, limits)
        yield from _kept_its_clock(seen, label, number, held, limits)
        yield from _had_company(seen, label, number)


def _gpus(seen: Seen) -> list[tuple[str, int]]:
    found = (_LABEL.fullmatch(channel) for channel in seen.readings)
    return sorted((match[1], int(match[2] or 0)) for match in found if match is not None)


def _held(controls: Mapping[str, Any], number: int) -> dict[str, str]:
    """What the trial's controls hold of this GPU: `{"graphics_mhz": "990"}`."""
    states = [state for state in controls.values() if isinstance(state, dict)]
    before = f"gpu.{number}."
    return {key.removeprefix(before): text for state in states for key, text in state.items() if key.startswith(before)}


def _was_slowed(seen: Seen, label: str, number: int) -> Found:
    for reason, by in _SLOWED.items():
        if spent_s := _grew(seen, f"{label}.throttle_{reason}_s"):
            yield "invalid", f"GPU {number} was slowed down {by} for {spent_s:.2f} s."


def _met_its_power_limit(seen: Seen, label: str, number: int, held: Mapping[str, str], limits: Thresholds) -> Found:
    """M20. Where the study sets the power limit, meeting it is what is measured."""
    if seen.sampler is None or seen.sampler.seconds <= 0 or "power_mw" in held:
        return
    share = _grew(seen, f"{label}.throttle_sw_power_s") / seen.sampler.seconds
    if share > limits.power_cap_share:
        yield "suspect", f"GPU {number} was held back by its power limit for {share:.0%} of the time."


def _kept_its_clock(seen: Seen, label: str, number: int, held: Mapping[str, str], limits: Thresholds) -> Found:
    """M21, C9: a lock may be lost, or not be met; the clock stands at it also when the GPU is idle."""
    clocks, asked = seen.readings.get(f"{label}.clock_hz", []), held.get("graphics_mhz", "")
    if not clocks or not asked.isdigit() or "power_mw" in held:
        return
    seen_mhz, asked_mhz = float(np.median(clocks)) / 1e6, float(asked)
    if abs(seen_mhz / asked_mhz - 1) > 1 - limits.clock_share:
        yield "invalid", f"GPU {number} was to run at {asked_mhz:.0f} MHz and ran at {seen_mhz:.0f}."


def _had_company(seen: Seen, label: str, number: int) -> Found:
    """M25."""
    if most := max(seen.readings.get(f"{label}.foreign_processes", [0.0]), default=0.0):
        yield (
            "suspect",
            f"{most:.0f} processes that tare did not start computed on GPU {number} (`nvidia-smi` names them).",
        )


def _grew(seen: Seen, channel: str) -> float:
    values = seen.readings.get(channel, [])
    return values[-1] - values[0] if len(values) >= 2 else 0.0
