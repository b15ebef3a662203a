"""Which device each trial ran on: the fleet's name for it, else what its own facts tell, else the store it lies in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tare.analysis.devices import DEVICE, TYPE, device_of, is_named, kind_of_device
from tare.records.model import Record

UNTYPED = "untyped"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A trial and its device. The record's settings are without the device: it is said beside them."""

    record: Record
    device: str
    type: str
    block: str  # unique to the store, since blocks of two stores have nothing in common
    home: int = 0  # which of the stores it lies in


def sightings(stores: Sequence[tuple[str, Sequence[Record]]]) -> list[Sighting]:
    """Every trial of the stores once: a copy of a store is no further device."""
    names = _names(stores)
    seen: set[tuple[object, ...]] = set()
    made = []
    for number, (_, records) in enumerate(stores):
        for record in records:
            key = (record.trial, record.attempt, record.started_utc, record.start_ns, _boot(record))
            if record.started_utc and key in seen:
                continue
            seen.add(key)
            device = str(device_of(record)) if is_named(record) else names[number]
            block = f"{number}:{record.block}" if len(stores) > 1 else str(record.block)
            made.append(Sighting(_without_device(record), device, _type(record), block, number))
    return made


def _without_device(record: Record) -> Record:
    rest = {name: value for name, value in record.settings.items() if name not in (DEVICE, TYPE)}
    return replace(record, settings=rest)


def _type(record: Record) -> str:
    named = record.settings.get(TYPE)
    if named is not None:
        return str(named)
    return " ".join(kind_of_device(record) or ()) or UNTYPED


def _boot(record: Record) -> str:
    return str((record.facts.get("device") or {}).get("boot_id") or "")


def _names(stores: Sequence[tuple[str, Sequence[Record]]]) -> list[str]:
    """What the device of each store is called where its records do not name it.

    Two boards of one kind look alike in their facts, so stores tell them apart; stores that were made within one
    boot of a kernel are of one device, and have its first store's name.
    """
    boots: dict[str, str] = {}
    names: list[str] = []
    for place, (name, records) in enumerate(stores):
        its = {boot for record in records if (boot := _boot(record))}
        free = name if name not in names else f"{name} ({place + 1})"
        called = next((boots[boot] for boot in sorted(its) if boot in boots), free)
        boots |= dict.fromkeys(its, called)
        names.append(called)
    return names
