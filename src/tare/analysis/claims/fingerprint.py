"""What a record says of its device and its software: who may be pooled with whom, and who differs from whom in what."""

from __future__ import annotations

from functools import cache

from tare.analysis.cells import text
from tare.analysis.devices import device_of
from tare.analysis.parity import flat, rule_for
from tare.analysis.population import DEVICE_KEYS
from tare.records.model import Record


def device_facts(record: Record) -> dict[str, str]:
    """What must be the same of the device, for trials to be pooled."""
    facts = flat(record.facts.get("device") or {})
    found = {key: text(facts[key]) for key in DEVICE_KEYS if key in facts}
    return found | {"device": str(device_of(record))}


def software(record: Record) -> dict[str, str]:
    """What the work was done with: libraries and versions, but not what a study sets (threads, cores, malloc)."""
    facts = flat(record.facts.get("inside") or {})
    return {key: text(value) for key, value in facts.items() if _tells(key)}


@cache
def _tells(key: str) -> bool:
    rule = rule_for(key)
    return rule.matters and not rule.factors
