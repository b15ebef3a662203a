"""The records of a store, with baseload and incremental energy beside each trial's own.

Idle power is measured by `tare device baseload`, before the study or after it, and sealed trials never change: so the
split is made where records are read, and not where they are written (docs/decisions/0010-baseload.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tare.analysis.cells import cells, placed
from tare.analysis.labels import text
from tare.analysis.model import Estimate
from tare.analysis.statistics import median_estimate
from tare.records.model import Record
from tare.records.schema import PACK_SUFFIX, is_pack
from tare.records.trials import device_of, grouped, usable_trials

IDLE = "idle"  # the workload
LOGGING = "workload.logging"
ASLEEP = ("workload.state", "suspended")  # a device that slept was idle in a mode of its own
POWER = "power_mean_w"
# What an idle device does not feel: controls of the data, and limits of a workload that has nothing to do.
OF_DATA = ("page_cache", "storage", "dirty")
OF_LIMITS = ("quota", "cpuset", "memory", "cores", "pin", "numa", "leave_idle")

Key: TypeAlias = tuple[str | None, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class IdlePower:
    """What the device draws on one platform, in one mode, with nothing to do."""

    label: str  # platform and mode
    logging: bool  # whether a logging script ran on the platform meanwhile
    power_w: Estimate
    scope: str
    values_w: tuple[float, ...]  # of each trial
    trials: tuple[str, ...]
    key: Key


def is_idle(record: Record) -> bool:
    """Whether nothing was done: by the `idle` workload, or by a command that only sleeps."""
    argv = record.settings.get("workload.argv")
    sleeps = isinstance(argv, list) and len(argv) == 2 and str(argv[0]).rpartition("/")[2] == "sleep"
    return record.settings.get("workload") == IDLE or sleeps


def key_of(record: Record) -> Key:
    """The device, what was measured of it, and its platform and mode: only like may be taken from like."""
    mode = tuple(sorted((name, text(value)) for name, value in _mode(record).items() if value is not None))
    return device_of(record), str(energy_facts(record).get("source", "")), mode


def energy_facts(record: Record) -> Mapping[str, Any]:
    """What the trial says of its energy; empty where it has seen no power."""
    facts = record.facts.get("energy")
    return facts if isinstance(facts, Mapping) else {}


def idle_powers(records: Iterable[Record]) -> list[IdlePower]:
    """One for each platform and mode of the usable idle trials; A/A repeats are the same thing again, and count."""
    usable = [each for each in usable_trials(records) if is_idle(each) and POWER in each.compared]
    if not usable:
        return []
    quiet = [_without_workload(record) for record in usable]
    label = cells(quiet, "platform")
    groups = grouped(usable, lambda record: (key_of(record), bool(record.settings.get(LOGGING))))
    found = [
        _idle_power(key, logging, label.label(_without_workload(group[0])), group)
        for (key, logging), group in groups.items()
    ]
    return sorted(found, key=lambda each: (each.label, each.logging))


def by_mode(found: Iterable[IdlePower]) -> dict[Key, IdlePower]:
    """The idle power to hold a trial's energy against: without a logging script beside it."""
    return {each.key: each for each in found if not each.logging}


def _idle_power(key: Key, logging: bool, label: str, group: Sequence[Record]) -> IdlePower:
    values = tuple(record.compared[POWER] for record in group)
    return IdlePower(
        label=label,
        logging=logging,
        power_w=median_estimate(values),
        scope=str(energy_facts(group[0]).get("scope", "")),
        values_w=values,
        trials=tuple(record.trial for record in group),
        key=key,
    )


def _without_workload(record: Record) -> Record:
    """As labels should tell it: by its platform and mode, for how long it was watched and by what is the same."""
    return replace(record, settings=_mode(record))


def _mode(record: Record) -> dict[str, Any]:
    """Its platform and mode; asleep is one too."""
    return {name: value for name, value in record.settings.items() if _is_mode(name) or (name, value) == ASLEEP}


def _is_mode(name: str) -> bool:
    head, _, rest = name.partition(".")
    if head == "platform":
        return rest.rpartition(".")[2] not in OF_LIMITS
    return head == "control" and rest.partition(".")[0] not in OF_DATA


BASELOAD, INCREMENTAL = "energy_baseload_j", "energy_incremental_j"
ENERGY, WINDOW = "energy_j", "energy_window_s"
_BESIDE = "-baseload"


class HasRecords(Protocol):
    """The part of a store that is read here; where it lies is known of real ones only."""

    def records(self) -> list[Record]: ...


def baseload_folder(store: Path) -> Path:
    """Where the idle trials of a store's platforms and modes are kept: beside it; a pack's are in another pack."""
    whole = store.resolve() if store.name in ("", "..") else store
    ending = PACK_SUFFIX if is_pack(whole) and whole.suffix == PACK_SUFFIX else ""
    return whole.with_name(f"{whole.name.removesuffix(ending)}{_BESIDE}{ending}")


def records_of(store: HasRecords) -> list[Record]:
    """Every record of the store as analyses read it: a stack has one placement, and energy is split where the idle
    power of the platform and mode is known."""
    records = store.records()
    return [placed(record) for record in with_baseload(records, by_mode(idle_of(store, records)))]


def idle_of(store: HasRecords, records: Sequence[Record]) -> list[IdlePower]:
    """Idle power from idle trials of the study itself, and from the baseload beside the store."""
    from tare.records.store import Store  # a table has none

    beside = _beside(store.path if isinstance(store, Store) else None)
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
    from tare.records.store import Store

    with Store.open(beside) as store:
        return store.records()
