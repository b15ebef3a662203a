"""Which device a record is of."""

from __future__ import annotations

from collections.abc import Mapping

from tare.records.model import Record


def device_of(record: Record) -> str | None:
    """What tells this device from others: its name or serial where the facts have one, else the board or processor."""
    facts = record.facts.get("device")
    known = facts if isinstance(facts, Mapping) else {}
    found = next((known[key] for key in ("id", "serial", "name", "board", "cpu") if known.get(key)), None)
    return None if found is None else str(found)
