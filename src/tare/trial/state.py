"""What a trial has seen so far: filled in while it runs, read once when it ends."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.base.errors import TareError
from tare.base.host import Clock, Exit
from tare.base.rulings import Ruling
from tare.base.secrets import Scrubber
from tare.parts.protocols import Mark, Probe, Recorder
from tare.records.parquet import TableFiles, TableName, tables_in
from tare.trial.facts import clocks
from tare.trial.sampler_report import SamplerReport
from tare.trial.tenants import Tenant
from tare.trial.upkeep import NO_UPKEEP, Upkeep

if TYPE_CHECKING:
    from tare.records.spool import Times, Values

_BEAT_S = 0.5


@dataclass
class TrialState:
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
    neighbours: list[Tenant] = field(default_factory=list)  # the tenants beside the workload that is measured
    died: bool = False  # the workload ended while others were to run on, and not by our hand
    sampler: SamplerReport | None = None
    readings: dict[str, list[float]] = field(default_factory=dict)  # channel -> values in order
    series: dict[str, tuple[Times, Values]] = field(default_factory=dict)  # the same, each with its times
    channels: list[dict[str, Any]] = field(default_factory=list)  # name, unit, kind, about, how it is shown
    traced: dict[str, float] = field(default_factory=dict)  # figures that recorders took
    notes: list[Ruling] = field(default_factory=list)  # worth knowing, whatever the verdict
    claims: list[Ruling] = field(default_factory=list)  # what the workload left that may not be read, or not believed
    scrubber: Scrubber = field(default_factory=Scrubber)  # masks the secrets of this trial in what is kept of it
    error: TareError | None = None
    interrupted: bool = False
    partner: Ruling | None = None  # in turns: another side of the block failed, and took this one with it
    partners_cpu_s: float = 0.0  # in turns: the CPU time of the other sides
    upkeep: Upkeep = NO_UPKEEP  # what tare and the engines used while the sampler watched
    stood_still_s: float = 0.0  # the longest time in which this process did not run while the workload did
    unclosed: int = 0  # platforms that could not be closed
    clocks_before: dict[str, float] = field(default_factory=clocks)

    def __post_init__(self) -> None:
        self.start_ns = self.clock.now_ns()

    def grew(self, channel: str) -> float:
        """How much a counter grew from its first reading to its last; 0 where there are not two."""
        values = self.readings.get(channel, [])
        return values[-1] - values[0] if len(values) >= 2 else 0.0

    def of_groups(self, name: str) -> list[str]:
        """The channels of this name that were read of the groups of the workload and of its neighbours."""
        groups = ("cgroup", *(f"tenant{number}.cgroup" for number in range(1, len(self.neighbours) + 1)))
        return [channel for group in groups if (channel := f"{group}.{name}") in self.readings]

    @property
    def slept_s(self) -> float:
        """How long the machine has slept since the trial began: a clock that runs on against one that stands still."""
        before, after = self.clocks_before, clocks()
        return (after["boottime_s"] - before["boottime_s"]) - (after["monotonic_s"] - before["monotonic_s"])

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Meanwhile a thread looks at the clock twice a second: a gap is a runner that was stopped."""
        over = threading.Event()

        def beat() -> None:
            before_ns = time.monotonic_ns()
            while not over.wait(_BEAT_S):
                now_ns = time.monotonic_ns()
                self.stood_still_s = max(self.stood_still_s, (now_ns - before_ns) / 1e9 - _BEAT_S)
                before_ns = now_ns
            self.stood_still_s = max(self.stood_still_s, (time.monotonic_ns() - before_ns) / 1e9 - _BEAT_S)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

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


NOT_COMPARED = Ruling(
    "trace.not-compared",
    "note",
    "",
    "a tracer was running, so its times are not compared with those of other trials.",
)


@dataclass
class Traced:
    """What recorders left of one trial."""

    probes: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)  # "ftrace.writeback_start" -> rows
    figures: dict[str, float] = field(default_factory=dict)
    trouble: list[Ruling] = field(default_factory=list)  # what could not be made of the raw files


def recorders_of(probes: Iterable[Probe]) -> list[Recorder]:
    return [probe for probe in probes if isinstance(probe, Recorder)]


def make_tables(recorders: Iterable[Recorder], raw: Path, tables: Path, steps: int | None) -> Traced:
    """Decode each recorder's raw files, write its tables, and take its figures; one that fails costs only its own."""
    traced = Traced()
    for recorder in recorders:
        name = recorder.part_name()
        traced.probes.append(name)
        folder = raw / name
        if not folder.is_dir():
            continue  # it could not start; the sampler has said why
        try:
            with TableFiles(tables) as files:
                for table in recorder.tables(folder):
                    files.add(TableName(name, table.name), table.columns)
                traced.rows |= {f"{name}.{written.table}": rows for written, rows in files.write().items()}
            traced.figures |= recorder.figures(tables_in(tables, name), steps)
        except (TareError, OSError, ValueError, KeyError) as error:
            reported = str(error).rstrip(".")
            undecoded = Ruling("trace.undecoded", "note", "", f"what it recorded could not be decoded: {reported}.")
            traced.trouble.append(undecoded.about(name))
        shutil.rmtree(folder, ignore_errors=True)  # the spool's own removal takes what is left
    return traced
