"""What a trial's figures are made of, and when a number may be believed.

The evidence is the same of a trial that has just run and of one that was sealed (rederive.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tare.figures.steps import step_metrics, steps_from
from tare.parts.protocols import Mark
from tare.records.intervals import MarkColumns, MarkRows, are, mark_columns

if TYPE_CHECKING:
    from tare.records.spool import Times, Values


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Every threshold of the verdict: docs/explanation/verdicts.md lists what they decide.

    The version is stored with each record, so that a later change of a threshold is visible in old results.
    """

    version: int = 3  # 2: energy by a counter has a bound, and edges are split as power has it; 3: see `strict` there
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
    rerun_limit: int = 2  # of an invalid trial whose fault may pass
    fruitless_blocks: int = 3  # so many in a row without a usable pair stop the study
    breaker: int = 3  # the same failure so many times in a row stops the study

    def as_json(self) -> dict[str, float]:
        return asdict(self)


THRESHOLDS = Thresholds()


class Neighbour(Protocol):
    """What is known of a tenant beside the workload that is measured."""

    @property
    def marks(self) -> Sequence[Mark]: ...

    @property
    def result(self) -> Mapping[str, Any]: ...


class Evidence(Protocol):
    """Values only; `Seen` says what each is."""

    @property
    def marks(self) -> Sequence[Mark]: ...

    @property
    def result(self) -> Mapping[str, Any]: ...

    @property
    def outcome(self) -> Mapping[str, Any]: ...

    @property
    def neighbours(self) -> Sequence[Neighbour]: ...

    @property
    def readings(self) -> Mapping[str, Sequence[float]]: ...

    @property
    def series(self) -> Mapping[str, tuple[Times, Values]]: ...

    @property
    def channels(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def traced(self) -> Mapping[str, float]: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def phases(self) -> Mapping[str, float]: ...

    @property
    def slept_s(self) -> float: ...


def shared_metrics(
    marks: Sequence[Mark], neighbours: Sequence[Neighbour], result: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """The measured workload's figures in the overlap, and the step time of each tenant (tenant 0 is the measured one).

    Nothing where the tenants never worked at the same time: figures of a workload alone would carry the wrong name.
    """
    window_ns = overlap_ns(marks, neighbours, result)
    if window_ns is None:
        return {}
    metrics: dict[str, float] = {"overlap_s": (window_ns[1] - window_ns[0]) / 1e9}
    for number, own in enumerate([marks, *(tenant.marks for tenant in neighbours)]):
        steps = steps_from(within(own, window_ns))
        if steps is None:
            continue
        found = step_metrics(steps)
        metrics |= found if number == 0 else {}
        if "step_s" in found:
            metrics[f"tenant{number}_step_s"] = found["step_s"]
    return metrics


def overlap_ns(
    marks: Sequence[Mark], neighbours: Sequence[Neighbour], result: Mapping[str, Any] | None = None
) -> tuple[int, int] | None:
    """From when all had begun to when the first was done; None where they never met, or one says nothing of itself."""
    own = steps_ns(marks) or run_ns(result or {})
    spans = [own, *(steps_ns(tenant.marks) or run_ns(tenant.result) for tenant in neighbours)]
    known = [span for span in spans if span is not None]
    if len(known) < len(spans):
        return None
    begin_ns, end_ns = max(first for first, _ in known), min(last for _, last in known)
    return (begin_ns, end_ns) if begin_ns < end_ns else None


def steps_ns(marks: Sequence[Mark]) -> tuple[int, int] | None:
    """From the begin of the first step to the end of the last."""
    columns = mark_columns(marks)
    times_ns = columns["t_ns"][are(columns, "name", "step")]
    return (int(times_ns.min()), int(times_ns.max())) if len(times_ns) else None


def run_ns(result: Mapping[str, Any]) -> tuple[int, int] | None:
    """Who marks nothing worked as long as it ran: from the launcher's own words."""
    begin_ns, end_ns = result.get("start_ns"), result.get("end_ns")
    return (begin_ns, end_ns) if isinstance(begin_ns, int) and isinstance(end_ns, int) else None


def within(marks: Iterable[Mark], window_ns: tuple[int, int]) -> Sequence[Mark]:
    """The marks without the steps that are not wholly in the window; what belongs to no step stays."""
    columns = MarkColumns(mark_columns(marks))
    t_ns, step = columns["t_ns"], columns["step"]
    outside = step[are(columns, "name", "step") & ((t_ns < window_ns[0]) | (t_ns > window_ns[1]))]
    kept = are(columns, "name", "epoch") | (step < 0) | ~np.isin(step, outside)
    return MarkRows(columns.where(kept), Mark._make)
