"""All that a store says about energy: each cell, what differences are made of, the idle device, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tare.analysis.cells import Cells, baseline_level, cells, join
from tare.analysis.compare import pick_baseline
from tare.analysis.energy.baseload import HasRecords, idle_of, with_baseload
from tare.analysis.energy.cells import CellEnergy, cell_energies, power_left_out
from tare.analysis.energy.differences import EnergyDifference, difference
from tare.analysis.energy.idle import IdlePower, by_mode, is_idle
from tare.analysis.request import request
from tare.errors import StudyError
from tare.records.attempts import newest_usable
from tare.records.model import Record


class Studied(HasRecords, Protocol):
    """The part of a store that is read here."""

    @property
    def study(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class EnergyFindings:
    """What the energy of one store is made of."""

    cells: tuple[CellEnergy, ...]
    differences: tuple[EnergyDifference, ...]
    idle: tuple[IdlePower, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        differences = [{**asdict(each), "share": each.share} for each in self.differences]
        idle = [{name: value for name, value in asdict(each).items() if name != "key"} for each in self.idle]
        return {"cells": [asdict(each) for each in self.cells], "differences": differences, "idle": idle,
                "notes": list(self.notes)}  # fmt: skip


def _no_idle_power(records: Sequence[Record]) -> str:
    doubts = [str(doubt) for record in records for doubt in (record.facts.get("energy") or {}).get("doubts", ())]
    why = doubts[0] if doubts else "no probe of theirs tells power."
    return f"every trial of this store is of the idle device, and none has a power that may be claimed: {why}"


def energy_findings(store: Studied, *, by: str | None = None, against: str | None = None) -> EnergyFindings:
    """From the usable trials of a store; the factor and the baseline are the study's unless the caller says."""
    everything = store.records()
    idle = idle_of(store, everything)
    known = by_mode(idle)
    records = [each for each in with_baseload(newest_usable(everything), known) if not each.twin]
    if not records:
        raise StudyError("There is no usable trial: `tare show` says how each one ended.")
    work = [record for record in records if not is_idle(record)]
    if not work:
        return EnergyFindings((), (), tuple(idle), () if idle else (_no_idle_power(records), *_left_out_notes(store)))
    asked = request(store.study, work, by=by, against=against)
    held = [record for record in work if asked.by in record.settings]
    if not held:
        raise StudyError(f"no trial of this store has the factor {asked.by!r}.")
    label = cells(held, asked.by)
    base = _baseline(held, label, asked.against)
    found = [] if base is None else list(_differences(held, label, base, known))
    told = tuple(cell_energies(held, label, list(power_left_out(store.study))))
    why = () if any(each.n for each in told) else _left_out_notes(store)
    return EnergyFindings(told, tuple(found), tuple(idle), (*_notes(told, known), *why))


def _left_out_notes(store: Studied) -> Iterator[str]:
    """Why each probe that tells power was left out when the study was run."""
    for sentences in power_left_out(store.study).values():
        yield from (f"left out: {sentence}" for sentence in sentences)


def _baseline(records: Sequence[Record], label: Cells, against: Any) -> str | None:
    levels = list(dict.fromkeys(label.level(record) for record in records))
    if len(levels) < 2:
        return None
    return pick_baseline(levels, None if against is None else baseline_level(records, label, against))


def _differences(
    records: Sequence[Record], label: Cells, base: str, idle: dict[Any, IdlePower]
) -> Iterator[EnergyDifference]:
    """Each other level against the baseline, within the same surroundings; only energy of the same scope."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((label.surroundings(record), label.level(record)), []).append(record)
    for (where, level), ours in groups.items():
        theirs = groups.get((where, base), [])
        if level == base or not theirs:
            continue
        found = difference(join(level, where), join(base, where), ours, theirs, idle)
        if found is not None:
            yield found


def _notes(found: Sequence[CellEnergy], idle: dict[Any, IdlePower]) -> Iterator[str]:
    scopes = {each.scope for each in found if each.n}
    if len(scopes) > 1:
        yield f"energy is not of the same thing everywhere ({'; '.join(sorted(scopes))}): compare within one of them."
    bare = [each.label for each in found if each.n and "energy_baseload_j" not in each.figures]
    if bare:
        of = f" of {'; '.join(bare)}" if idle else ""
        yield f"no baseload is known{of}: `tare baseload` measures what the idle device draws."
