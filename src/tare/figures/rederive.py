"""A sealed trial's figures made again from its marks, readings and trace tables, by the functions that made them.

What is not a figure, or has nothing beneath it, is taken as it was recorded: docs/how-to/recover.md lists it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tare.base.errors import StudyError
from tare.base.rulings import read_rulings
from tare.figures.energy import CLOCKS, Energy, energy_of_trial
from tare.figures.evidence import THRESHOLDS, Evidence, shared_metrics
from tare.figures.outside import FIGURES as OUTSIDE
from tare.figures.outside import outside_metrics
from tare.figures.power_series import RUN, SHARED
from tare.figures.series import channel_metrics
from tare.figures.steps import (
    COUNTED,
    PHASES,
    Steps,
    activity_metrics,
    counter_metrics,
    job_metrics,
    phase_metrics,
    step_metrics,
    steps_from,
    steps_in,
    token_metrics,
    windows_of,
    without_stops,
)
from tare.parts.protocols import Mark, Recorder
from tare.records.intervals import MarkColumns, MarkRows, begin_with
from tare.records.model import Record
from tare.records.store import Store
from tare.studies.load import from_plain

if TYPE_CHECKING:
    from tare.records.spool import Times, Values


@dataclass(frozen=True)
class SealedNeighbour:
    """A tenant beside the workload that was measured."""

    marks: Sequence[Mark]
    result: Mapping[str, Any]


@dataclass(frozen=True)
class SealedEvidence:
    """As `Evidence` has it; `untraced` says why tracers are silent."""

    marks: Sequence[Mark] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] = field(default_factory=dict)
    neighbours: Sequence[SealedNeighbour] = ()
    readings: Mapping[str, Sequence[float]] = field(default_factory=dict)
    series: Mapping[str, tuple[Times, Values]] = field(default_factory=dict)
    channels: Sequence[Mapping[str, Any]] = ()
    traced: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    slept_s: float = 0.0
    untraced: str = ""  # why the figures of tracers could not be made again; empty where they were, or where none ran


def evidence_of(store: Store, record: Record) -> SealedEvidence:
    """What was sealed of the trial. One that failed before its workdir was read had no evidence, and has no figures."""
    facts = {name: value for name, value in record.facts.items() if name != "energy"}  # that is to be found again
    if "place" not in facts:
        return SealedEvidence(facts=facts)
    key = record.trial, record.attempt
    everyone, count = MarkColumns(store.marks(*key)), _neighbours(record)
    own = MarkRows(everyone.where(~begin_with(everyone, _prefixes(count))) if count else everyone, Mark._make)
    window = _kept_window(record)
    reported = facts.get("counted_beside", ())
    beside = [
        SealedNeighbour(_marks_of(everyone, number), reported[number - 1] if number <= len(reported) else window)
        for number in range(1, count + 1)
    ]
    series = store.readings(*key)
    traced, untraced = _traced(store, record, own)
    return SealedEvidence(
        marks=own,
        result=facts.get("counted", window),
        outcome=facts.get("outcome", {}),
        neighbours=beside,
        readings={channel: values.tolist() for channel, (_, values) in series.items()},
        series=series,
        channels=store.channels(*key, quantiles=False),
        traced=traced,
        facts=facts,
        phases=record.phases,
        slept_s=facts.get("slept_s", 0.0),
        untraced=untraced,
    )


def _neighbours(record: Record) -> int:
    """How many ran beside the measured workload."""
    if (reported := record.facts.get("counted_beside")) is not None:
        return len(reported)
    tenants = record.settings.get("tenants", 1)
    return tenants - 1 if isinstance(tenants, int) else len(record.facts.get("beside", ()))


def _prefixes(count: int) -> tuple[str, ...]:
    """What the names of neighbours' marks begin with."""
    return tuple(f"tenant{number}." for number in range(1, count + 1))


def _marks_of(marks: MarkColumns, number: int) -> Sequence[Mark]:
    """A neighbour's own marks, under the names that it gave them (the reverse of `tenants.renamed`)."""
    before = _prefixes(number)[-1]
    return MarkRows(marks.where(begin_with(marks, (before,)), lambda name: name.removeprefix(before)), Mark._make)


def _kept_window(record: Record) -> dict[str, Any]:
    """Begin and end of a run, from a record of before the launcher's words were kept: those of its energy."""
    energy = record.facts.get("energy", {})
    if energy.get("window") not in (RUN, SHARED):
        return {}
    return {"start_ns": energy.get("begin_ns"), "end_ns": energy.get("end_ns")}


def _traced(store: Store, record: Record, marks: Sequence[Mark]) -> tuple[dict[str, float], str]:
    """The figures of its tracers, from their tables."""
    reported = record.facts.get("traced")
    if not reported:
        return {}, ""
    recorders = _recorders(store)
    if recorders is None:
        return {}, "the study is not one that this tare understands, so that its tracers are not known"
    steps = steps_from(marks)
    found: dict[str, float] = {}
    undecoded = {trouble.subject for trouble in read_rulings(reported.get("trouble", ()), "note")}
    for recorder in recorders:
        name = recorder.part_name()
        tables = store.tables(record.trial, record.attempt, name)
        if name in reported["probes"] and tables and name not in undecoded:
            found |= recorder.figures(tables, None if steps is None else len(steps.numbers))
    return found, ""


_of_stores: WeakKeyDictionary[Store, tuple[Recorder, ...] | None] = WeakKeyDictionary()


def _recorders(store: Store) -> tuple[Recorder, ...] | None:
    """The tracers of its study, which is read once; None where it is not understood."""
    if store not in _of_stores:
        try:
            parts = [part for each in from_plain(store.study, str(store.path)).probes for part in each.parts()]
            _of_stores[store] = tuple(part for part in parts if isinstance(part, Recorder))
        except StudyError:
            _of_stores[store] = None
    return _of_stores[store]


def reported_figures(evidence: Evidence) -> dict[str, float]:
    """What the launcher counted, and what a built-in program says of itself; its clock does not know of stops."""
    sliced = windows_of(evidence.facts) is not None
    outcome = {name: evidence.outcome[name] for name in evidence.outcome if not sliced or name not in _BY_ITS_CLOCK}
    return job_metrics(without_stops((), evidence.result, evidence.facts)[1], outcome)


_BY_ITS_CLOCK = ("train_s", "epoch0_s", "metrics")


def figures(evidence: Evidence, steps: Steps | None, energy: Energy | None) -> dict[str, float]:
    """Base units; a figure that nothing tells of is absent."""
    metrics = reported_figures(evidence) | counter_metrics(evidence.readings)
    if evidence.neighbours:
        metrics |= shared_metrics(evidence.marks, evidence.neighbours, evidence.result)
    else:
        metrics |= {} if steps is None else step_metrics(steps)
        marks, result = without_stops(evidence.marks, evidence.result, evidence.facts)
        metrics |= phase_metrics(marks, result, evidence.phases, steps)
        metrics |= outside_metrics(evidence.marks, evidence.facts)
    metrics |= activity_metrics(evidence.facts, metrics.get("step_s")) | token_metrics(evidence.outcome, metrics)
    made = channel_metrics(evidence, steps) | metrics
    return made | {**evidence.traced, **(energy.metrics if energy is not None else {})}


_SPEAKS_OF_LOAD = re.compile(r"cpu\.busy_s|gpu\d*\.(util|memory_used_bytes)|.*\.dropped_s")


def needs_all_readings(channel: Mapping[str, Any]) -> bool:
    """Whether a figure is made of every reading of this channel; of counters of the platform the ends are enough."""
    name = channel["name"]
    return (
        channel["unit"] in ("W", "J")
        or "takes" in channel
        or any(p.fullmatch(name) for p in (*CLOCKS.values(), _SPEAKS_OF_LOAD))
    )


RELATIVE = 1e-9  # another processor adds up in another order
SIX_DIGITS = 1.01e-5  # of a quantile (`records.parquet.distributions`): a unit of the last of them, at most
ABSOLUTE = 1e-12  # of what is left over when nearly equal times are subtracted; clocks tell nanoseconds
THINNED = 1e-6  # of a figure of a thinned trial that is no time: power over times that were rounded
_INTERVALS = 2  # of a thinned trial: what rounding its times can move a figure by, in units of the rounding

_OF_ENERGY = ("energy_", "power_mean_w")
_NOT_KEPT = "an older tare did not keep the launcher's words"
_LIMITS = THRESHOLDS.as_json()
_OTHER_LIMITS = "whether energy may be claimed was decided with the limits of another tare"


@dataclass(frozen=True)
class Difference:
    """One figure that is not what the raw data give; None: it is not there."""

    figure: str
    stored: float | None
    derived: float | None

    def __str__(self) -> str:
        if self.derived is None:
            return f"{self.figure}: stored {self.stored!r}, and nothing that was sealed gives it"
        if self.stored is None:
            return f"{self.figure}: not stored, derived {self.derived!r}"
        return f"{self.figure}: stored {self.stored!r}, derived {self.derived!r}"


@dataclass(frozen=True)
class Rederived:
    """What came of one trial."""

    trial: str
    attempt: int
    derived: int = 0  # figures that the raw data give as they were stored
    said: int = 0  # figures that are what the launcher or the program said, kept beside them in the record
    taken: Mapping[str, str] = field(default_factory=dict)  # figures that nothing sealed gives: name -> why
    differences: tuple[Difference, ...] = ()


def rederive(store: Store, record: Record) -> Rederived:
    """Every figure of the trial again: its metrics, its energy's numbers, and the distributions of its channels."""
    evidence = evidence_of(store, record)
    steps = steps_in(evidence.marks, evidence.facts)
    version = record.facts.get("thresholds", {}).get("version", 1)
    energy = energy_of_trial(record.settings, evidence, steps, version)
    # As a record keeps them: what is no number is absent.
    found = {name: value for name, value in figures(evidence, steps, energy).items() if math.isfinite(value)}
    said = reported_figures(evidence).keys() & record.metrics.keys()
    taken = _taken(record, found, evidence)
    kept = {name: value for name, value in record.metrics.items() if name not in taken}
    # A phase that the record lacks came later: an older tare did not take a run apart.
    came_later = {name for name in (*PHASES, *OUTSIDE) if name not in record.metrics}
    found = {name: value for name, value in found.items() if name not in taken and name not in came_later}
    pairs: list[tuple[str, Any, Any]] = [(name, kept.get(name), found.get(name)) for name in {**kept, **found}]
    if energy is not None:
        # Sentences and names are not figures, and an older tare may have called them otherwise.
        stored, again = (dict(_numbers(facts, "energy")) for facts in (record.facts.get("energy", {}), energy.facts))
        pairs += [(name, stored[name], again[name]) for name in stored if name in again]
    pairs += _of_channels(store, record)
    thinned = store.thinned(record.trial, record.attempt)
    same = (
        _same
        if thinned is None
        else partial(_same, relative=THINNED, absolute=_INTERVALS * thinned.resolution_ns / 1e9)
    )
    differences = tuple(Difference(*pair) for pair in pairs if not same(pair[1], pair[2]))
    unequal = {each.figure for each in differences}
    return Rederived(
        record.trial,
        record.attempt,
        derived=len(pairs) - len(differences) - len(said - taken.keys() - unequal),
        said=len(said - taken.keys() - unequal),
        taken=taken,
        differences=differences,
    )


def _taken(record: Record, found: Mapping[str, float], evidence: SealedEvidence) -> dict[str, str]:
    """Figures that cannot be made again, each with the reason; what is left must be equal."""
    one_sided = sorted(record.metrics.keys() ^ found.keys())
    taken: dict[str, str] = {}
    if "place" in record.facts and "counted" not in record.facts:
        names = record.metrics.keys() if evidence.neighbours else (*COUNTED, "cpu_s")
        taken |= {name: _NOT_KEPT for name in names if name in one_sided and name in record.metrics}
    if record.facts.get("thresholds", {}) != _LIMITS:
        taken |= {name: _OTHER_LIMITS for name in one_sided if name.startswith(_OF_ENERGY)}
    if evidence.untraced:
        taken |= {name: evidence.untraced for name in one_sided if name in record.metrics and name not in taken}
    return taken


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Every number in plain data, under its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{path}.{key}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def _of_channels(store: Store, record: Record) -> Iterator[tuple[str, Any, Any]]:
    """How many readings each channel has, and their quantiles; where these were not kept, nothing."""
    if store.thinned(record.trial, record.attempt) is not None:
        return
    channels = store.channels(record.trial, record.attempt)
    if not any("count" in channel for channel in channels):
        return
    again = store.distributions(record.trial, record.attempt, channels)
    for number, channel in enumerate(channels):
        count, quantiles = again.get(number, (None, []))
        yield f"{channel['name']}.count", channel.get("count"), count
        yield _quantiles(channel["name"], channel.get("quantiles", []), quantiles)


def _quantiles(name: str, stored: Sequence[float], derived: Sequence[float]) -> tuple[str, Any, Any]:
    """They are one figure: the first of them that differs stands for all."""
    for place, pair in enumerate(zip_longest(stored, derived)):
        if not _same(*pair, relative=SIX_DIGITS):
            return (f"{name}.quantile[{place}]", *pair)
    return f"{name}.quantiles", len(stored), len(derived)


def _same(stored: Any, derived: Any, relative: float = RELATIVE, absolute: float = ABSOLUTE) -> bool:
    if stored is None or derived is None:
        return stored is derived
    return math.isclose(stored, derived, rel_tol=relative, abs_tol=absolute)
