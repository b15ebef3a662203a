"""The evidence of a trial that was sealed: the same values that its figures were once made of, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.errors import StudyError
from tare.parts.protocols import Mark, Recorder
from tare.records.model import Record
from tare.records.schema import TRIALS_FOLDER
from tare.records.sealed import folder_name
from tare.records.store import Store
from tare.records.tables import TablesIn
from tare.study.load import from_plain
from tare.trial.energy_window import RUN, SHARED
from tare.trial.summary import steps_from

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
    slept_s: float = 0.0
    untraced: str = ""  # why the figures of tracers could not be made again; empty where they were, or where none ran


def evidence_of(store: Store, record: Record) -> SealedEvidence:
    """What was sealed of the trial. One that failed before its desk was read had no evidence, and has no figures."""
    facts = {name: value for name, value in record.facts.items() if name != "energy"}  # that is to be found again
    if "place" not in facts:
        return SealedEvidence(facts=facts)
    key = record.trial, record.attempt
    everyone = _marks(store, key)
    count = _neighbours(record)
    own = [mark for mark in everyone if not mark.name.startswith(_prefixes(count))] if count else everyone
    window = _kept_window(record)
    told = facts.get("counted_beside", ())
    beside = [
        SealedNeighbour(_marks_of(everyone, number), told[number - 1] if number <= len(told) else window)
        for number in range(1, count + 1)
    ]
    series = store.readings(*key)
    traced, untraced = _traced(store, record, own)
    return SealedEvidence(
        marks=own,
        result=facts.get("counted", window),
        outcome=facts.get("outcome", {}),
        neighbours=beside,
        readings={channel: list(values) for channel, (_, values) in series.items()},
        series=series,
        channels=store.channels(*key),
        traced=traced,
        facts=facts,
        slept_s=facts.get("slept_s", 0.0),
        untraced=untraced,
    )


def _marks(store: Store, key: tuple[str, int]) -> list[Mark]:
    columns = store.marks(*key)
    rows = zip(*(columns[name].tolist() for name in ("t_ns", "name", "edge", "step")), strict=True)
    return list(map(Mark._make, rows))


def _neighbours(record: Record) -> int:
    """How many ran beside the measured workload."""
    if (told := record.facts.get("counted_beside")) is not None:
        return len(told)
    tenants = record.settings.get("tenants", 1)
    return tenants - 1 if isinstance(tenants, int) else len(record.facts.get("beside", ()))


def _prefixes(count: int) -> tuple[str, ...]:
    """What the names of neighbours' marks begin with."""
    return tuple(f"tenant{number}." for number in range(1, count + 1))


def _marks_of(marks: Sequence[Mark], number: int) -> list[Mark]:
    """A neighbour's own marks, under the names that it gave them (the reverse of `tenants.renamed`)."""
    before = _prefixes(number)[-1]
    return [mark._replace(name=mark.name.removeprefix(before)) for mark in marks if mark.name.startswith(before)]


def _kept_window(record: Record) -> dict[str, Any]:
    """Begin and end of a run, from a record of before the launcher's words were kept: those of its energy."""
    energy = record.facts.get("energy", {})
    if energy.get("window") not in (RUN, SHARED):
        return {}
    return {"start_ns": energy.get("begin_ns"), "end_ns": energy.get("end_ns")}


def _traced(store: Store, record: Record, marks: Sequence[Mark]) -> tuple[dict[str, float], str]:
    """The figures of its tracers, from their tables."""
    told = record.facts.get("traced")
    if not told:
        return {}, ""
    try:
        study = from_plain(store.study, str(store.path))
    except StudyError:
        return {}, "the study is not one that this tare understands, so that its tracers are not known"
    parts = [part for choice in study.probes for part in choice.parts()]
    folder = store.root / TRIALS_FOLDER / folder_name(record.trial, record.attempt)
    steps = steps_from(marks)
    found: dict[str, float] = {}
    for recorder in (part for part in parts if isinstance(part, Recorder)):
        name = recorder.part_name()
        tables = TablesIn(folder, name)
        undecoded = any(sentence.startswith(f"{name}: ") for sentence in told.get("trouble", ()))
        if name in told["probes"] and tables and not undecoded:
            found |= recorder.figures(tables, None if steps is None else len(steps.numbers))
    return found, ""
