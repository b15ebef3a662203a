"""Idle power by platform and mode: the median over the trials that did nothing but be watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tare.analysis.cells import cells, text
from tare.analysis.devices import device_of
from tare.analysis.model import Estimate
from tare.analysis.stats import median_estimate
from tare.records.attempts import newest_usable
from tare.records.model import Record

IDLE = "idle"  # the workload
LOGGING = "workload.logging"
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
    mode = tuple(
        sorted((name, text(value)) for name, value in record.settings.items() if value is not None and _is_mode(name))
    )
    return device_of(record), str(energy_facts(record).get("source", "")), mode


def energy_facts(record: Record) -> Mapping[str, Any]:
    """What the trial says of its energy; empty where it has seen no power."""
    facts = record.facts.get("energy")
    return facts if isinstance(facts, Mapping) else {}


def idle_powers(records: Iterable[Record]) -> list[IdlePower]:
    """One for each platform and mode of the usable idle trials; A/A twins are the same thing again, and count."""
    usable = [each for each in newest_usable(records) if is_idle(each) and POWER in each.compared]
    if not usable:
        return []
    quiet = [_without_workload(record) for record in usable]
    label = cells(quiet, "platform")
    groups: dict[tuple[Key, bool], list[Record]] = {}
    for record in usable:
        groups.setdefault((key_of(record), bool(record.settings.get(LOGGING))), []).append(record)
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
    return replace(record, settings={name: value for name, value in record.settings.items() if _is_mode(name)})


def _is_mode(name: str) -> bool:
    head, _, rest = name.partition(".")
    if head == "platform":
        return rest.rpartition(".")[2] not in OF_LIMITS
    return head == "control" and rest.partition(".")[0] not in OF_DATA
