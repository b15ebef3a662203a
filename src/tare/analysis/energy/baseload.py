"""The records of a store, with baseload and incremental energy beside each trial's own.

Idle power is measured by `tare baseload`, before the study or after it, and sealed trials never change: so the split
is made where records are read, and not where they are written (docs/decisions/0010-baseload.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tare.analysis.energy.idle import IdlePower, Key, by_mode, idle_powers, is_idle, key_of
from tare.records.model import Record
from tare.records.packing import SUFFIX
from tare.records.store import Store
from tare.records.unpacking import is_pack

BASELOAD, INCREMENTAL = "energy_baseload_j", "energy_incremental_j"
ENERGY, WINDOW = "energy_j", "energy_window_s"
_BESIDE = "-baseload"


class HasRecords(Protocol):
    """The part of a store that is read here; where it lies is known of real ones only."""

    def records(self) -> list[Record]: ...


def baseload_folder(store: Path) -> Path:
    """Where the idle trials of a store's platforms and modes are kept: beside it; a pack's are in another pack."""
    whole = store.resolve() if store.name in ("", "..") else store
    ending = SUFFIX if is_pack(whole) and whole.suffix == SUFFIX else ""
    return whole.with_name(f"{whole.name.removesuffix(ending)}{_BESIDE}{ending}")


def records_of(store: HasRecords) -> list[Record]:
    """Every record of the store, those with energy split where the idle power of their platform and mode is known."""
    records = store.records()
    return with_baseload(records, by_mode(idle_of(store, records)))


def idle_of(store: HasRecords, records: Sequence[Record]) -> list[IdlePower]:
    """Idle power from idle trials of the study itself, and from the baseload beside the store."""
    beside = _beside(getattr(store, "path", None))
    return idle_powers([*records, *beside])


def with_baseload(records: Iterable[Record], idle: Mapping[Key, IdlePower]) -> list[Record]:
    """The same records; baseload is idle power times the time that the energy was taken over, and the rest is work."""
    return [_split(record, idle) for record in records]


def _split(record: Record, idle: Mapping[Key, IdlePower]) -> Record:
    energy_j, window_s = record.metrics.get(ENERGY), record.metrics.get(WINDOW)
    if energy_j is None or window_s is None or is_idle(record) or (found := idle.get(key_of(record))) is None:
        return record
    baseload_j = found.power_w.value * window_s
    more = {BASELOAD: baseload_j, INCREMENTAL: energy_j - baseload_j}
    return replace(record, metrics={**record.metrics, **more})


def _beside(path: Path | None) -> list[Record]:
    if path is None:
        return []
    beside = baseload_folder(path)
    if not is_pack(beside) and not (beside / "store.json").exists():
        return []
    with Store.open(beside) as store:
        return store.records()
