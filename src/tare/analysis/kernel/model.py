"""What the kernel's view is made of: traced trials with their tables, and sections, each of which is one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

from tare.analysis.cells import Cells, cells
from tare.records.attempts import newest_usable
from tare.records.model import Record
from tare.records.store import Store
from tare.records.tables import TableName

Columns: TypeAlias = Mapping[str, "npt.NDArray[Any]"]
Cell: TypeAlias = str | int | float | None
Kind: TypeAlias = Literal["text", "stack", "count", "number", "share", "ratio", "seconds"]
WORDS: frozenset[Kind] = frozenset({"text", "stack"})  # a stack is `a;b;z`, outermost function first
BARE = "bare"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a section: its key in JSON, its title for people, and what its values are."""

    key: str
    title: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True)
class Section:
    """One table, in the form of a paper's, with what there is to know about it."""

    name: str  # "counters"
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        keys = [column.key for column in self.columns]
        return {
            "name": self.name,
            "title": self.title,
            "rows": [dict(zip(keys, row, strict=True)) for row in self.rows],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Traced:
    """One traced trial; its tables are read when they are asked for."""

    store: Store
    record: Record
    label: str  # its platform, and what else tells it from other cells
    surroundings: str = ""  # the label without the platform: what it may be compared within
    kept: frozenset[TableName] = field(default_factory=frozenset)

    @property
    def is_bare(self) -> bool:
        return self.record.settings.get("platform") == BARE

    @property
    def steps(self) -> float | None:
        """How many mini-batches it did."""
        count = self.record.metrics.get("steps")
        return count if count else None

    def table(self, probe: str, name: str) -> Columns | None:
        """A table of the trial; None where its probes kept no such one."""
        if TableName(probe, name) not in self.kept:
            return None
        return self.store.trace(self.record.trial, self.record.attempt, probe, name)

    @cached_property
    def marks(self) -> Columns:
        return self.store.marks(self.record.trial, self.record.attempt)

    def lost(self, probe: str) -> int:
        """Events that the probe could not keep: then its counts are at least what is shown."""
        table = self.table(probe, "lost")
        return 0 if table is None else int(sum(table["events"].tolist()))


def traced_trials(store: Store) -> list[Traced]:
    """The newest usable attempt of every trial that recorders kept tables of, in the order of the plan."""
    newest = {record.trial: record for record in newest_usable(store.records()) if not record.twin}
    kept = {trial: frozenset(store.traces(trial, record.attempt)) for trial, record in newest.items()}
    chosen = [record for trial, record in newest.items() if kept[trial]]
    label = cells(chosen, "platform")
    return [
        Traced(store, record, label.label(record), label.surroundings(record), kept[record.trial]) for record in chosen
    ]


def by_label(trials: Sequence[Traced]) -> dict[str, list[Traced]]:
    """Trials of one cell together, in the order in which cells come."""
    groups: dict[str, list[Traced]] = {}
    for trial in trials:
        groups.setdefault(trial.label, []).append(trial)
    return groups


def baseline_of(trial: Traced, trials: Sequence[Traced]) -> str | None:
    """The label of bare metal with the same surroundings; None where there is none."""
    return next((one.label for one in trials if one.is_bare and one.surroundings == trial.surroundings), None)


def at_least(trials: Sequence[Traced], probe: str) -> list[str]:
    """A note where events were lost."""
    lost = sum(trial.lost(probe) for trial in trials)
    if not lost:
        return []
    return [f"{lost} events were lost while they were recorded: counts are at least what is shown."]


__all__ = [
    "WORDS", "Cell", "Cells", "Column", "Columns", "Kind", "Section", "Traced", "at_least", "baseline_of", "by_label",
    "traced_trials",
]  # fmt: skip
