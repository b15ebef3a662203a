"""When a number may be believed: every threshold of the verdict, in one place, with a version.

The version is stored with each record, so that a later change of a threshold is visible in old results.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Defaults from the rules M19-M32 in docs/explanation/validity.md."""

    version: int = 2  # 2: energy by a counter has a bound, and edges are split as power has it
    steal_suspect_share: float = 0.005  # M25: time that the hypervisor took, of the device's capacity
    steal_invalid_share: float = 0.05
    foreign_suspect_share: float = 0.02  # M25: CPU time of neither the workload nor tare
    foreign_invalid_share: float = 0.25
    coverage_share: float = 0.95  # M27: samples taken of those planned
    gap_periods: float = 3  # M27: the longest pause between two samples
    observer_share: float = 0.02  # M32: of one core
    power_cap_share: float = 0.05  # M20: of the time in which a GPU's clock was lowered for its power limit
    clock_share: float = 0.95  # M21: of the clock that was asked for
    gate_c: float = 3  # M17: a trial starts as warm as the study's first one, within so much
    heat_margin_c: float = 3  # C17: a trial is ended so far below where the device switches itself off
    stuck_s: float = 120  # E4: a power sensor that says the same for so long
    wall_step_s: float = 0.1  # M26: the wall clock was set during the trial
    sleep_s: float = 0.5  # M26: BOOTTIME - MONOTONIC grew, so the machine slept
    steady_share: float = 0.10  # M13: the halves of the measured steps differ by more than this
    overlap_steps: int = 10  # of the measured workload, in the time in which all tenants worked
    marks_share: float = 0.01  # stall + copy + compute may exceed the step by so much
    energy_samples: int = 60  # M14: fewer samples of power make no energy; a counter needs only the next
    energy_windows: float = 10  # M14, M34: so many averaging windows of the sensor fit into what is integrated
    energy_bound_share: float = 0.20  # M14: energy by a counter is claimed if it cannot be further off than this
    energy_disagreement_share: float = 0.05  # M28: two ways to the same energy may differ by so much
    power_step_share: float = 0.2  # M29: power that changes by so much for good ...
    work_step_share: float = 0.05  # ... while steps change by less than this
    counter_gap_s: float = 60  # M36: unread for longer, an energy counter may have wrapped unseen
    rerun_limit: int = 2  # of an invalid trial
    breaker: int = 3  # the same failure so many times in a row stops the study

    def as_json(self) -> dict[str, float]:
        return asdict(self)


THRESHOLDS = Thresholds()
