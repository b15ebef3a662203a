"""When a number may be believed: every threshold of the verdict, in one place, with a version.

The version is stored with each record, so that a later change of a threshold is visible in old results.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Defaults from the rules M19-M32 in docs/explanation/validity.md."""

    version: int = 1
    steal_suspect_share: float = 0.005  # M25: time that the hypervisor took, of the device's capacity
    steal_invalid_share: float = 0.05
    foreign_suspect_share: float = 0.02  # M25: CPU time of neither the workload nor tare
    foreign_invalid_share: float = 0.25
    coverage_share: float = 0.95  # M27: samples taken of those planned
    gap_periods: float = 3  # M27: the longest pause between two samples
    observer_share: float = 0.02  # M32: of one core
    wall_step_s: float = 0.1  # M26: the wall clock was set during the trial
    sleep_s: float = 0.5  # M26: BOOTTIME - MONOTONIC grew, so the machine slept
    steady_share: float = 0.10  # M13: the halves of the measured steps differ by more than this
    overlap_steps: int = 10  # of the measured workload, in the time in which all tenants worked
    marks_share: float = 0.01  # stall + copy + compute may exceed the step by so much
    rerun_limit: int = 2  # of an invalid trial
    breaker: int = 3  # the same failure so many times in a row stops the study

    def as_json(self) -> dict[str, float]:
        return asdict(self)


THRESHOLDS = Thresholds()
