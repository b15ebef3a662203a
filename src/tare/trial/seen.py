"""What a trial has seen so far: filled in while it runs, read once when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.clock import Clock
from tare.errors import TareError
from tare.host import Exit
from tare.parts.protocols import Mark
from tare.trial.facts import clocks
from tare.trial.sampler import SamplerReport
from tare.trial.tenants import Lodger

if TYPE_CHECKING:
    from tare.records.spool import Times, Values


@dataclass
class Seen:
    """The one mutable thing in a trial. Missing means that the trial did not get that far."""

    clock: Clock
    start_ns: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    exit: Exit | None = None
    result: dict[str, Any] = field(default_factory=dict)  # what the launcher counted
    outcome: dict[str, Any] = field(default_factory=dict)  # what a built-in program said of itself
    marks: list[Mark] = field(default_factory=list)
    lost_marks: int = 0
    neighbours: list[Lodger] = field(default_factory=list)  # the tenants beside the workload that is measured
    died: bool = False  # the workload ended while others were to run on, and not by our hand
    sampler: SamplerReport | None = None
    readings: dict[str, list[float]] = field(default_factory=dict)  # channel -> values in order
    series: dict[str, tuple[Times, Values]] = field(default_factory=dict)  # the same, each with its times
    channels: list[dict[str, str]] = field(default_factory=list)  # name, unit, kind and about of each
    traced: dict[str, float] = field(default_factory=dict)  # figures that recorders took
    notes: list[str] = field(default_factory=list)  # worth knowing, whatever the verdict
    error: TareError | None = None
    interrupted: bool = False
    unclosed: int = 0  # platforms that could not be closed
    clocks_before: dict[str, float] = field(default_factory=clocks)

    def __post_init__(self) -> None:
        self.start_ns = self.clock.now_ns()

    @property
    def slept_s(self) -> float:
        """How long the machine has slept since the trial began: a clock that runs on against one that stands still."""
        before, after = self.clocks_before, clocks()
        return (after["boottime_s"] - before["boottime_s"]) - (after["monotonic_s"] - before["monotonic_s"])

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Boot, create, start, stop, remove: what a phase takes is a finding, not a nuisance."""
        begin_ns = self.clock.now_ns()
        try:
            yield
        finally:
            self.add_phases({phase: (self.clock.now_ns() - begin_ns) / 1e9})

    def add_phases(self, spent_s: Mapping[str, float]) -> None:
        """Seconds by phase, and of parts of a phase (`open.boot`); several places add up."""
        for phase, seconds in spent_s.items():
            self.phases[phase] = self.phases.get(phase, 0.0) + seconds
