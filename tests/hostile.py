"""A report whose every label is an attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import some_weighings as some
from tare.analysis.directions import Direction
from tare.analysis.model import Comparison, Difference, Estimate, FlaggedTrial, Measurement, Weighing
from tare.base.rulings import Ruling
from tare.records.model import Record

PAYLOADS = (
    "<script>alert(1)</script>",
    "</script></style></title><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' autofocus onfocus='alert(1)",
    "</svg><iframe src=javascript:alert(1)>",
    "]]><!--<a href='https://evil.example/'>",
    "{{ 7 * 7 }}{% raw %}${7*7}",
    "\x1b[31m\x00\x07\u202e\u2028\ud800",
    "&lt;b&gt;&#x3C;i&#x3E;",
)

# Words that are keys to tare itself: the rest of a weighing is free text.
_OURS = {
    Comparison: {"metric", "verdict"},
    Weighing: {"metric", "counts"},
    FlaggedTrial: {"state"},
    Record: {"state", "metrics"},
    Measurement: set(),
    Ruling: {"code", "weight"},
    Difference: set(),
    Estimate: set(),
    Direction: {"source"},
}


def hostile_sample(payload: str) -> some.Sample:
    """The sample with the most in it, with `payload` before each text: levels, facts, reasons, ids, blocks, all."""
    sample = some.tainted()
    weighing = poisoned(sample.weighing, payload)
    medians = {f"{payload}{level}": held for level, held in sample.weighing.medians.items()}  # their metrics are ours
    return some.Sample(replace(weighing, medians=medians), [poisoned(record, payload) for record in sample.records])


def poisoned(value: Any, payload: str) -> Any:
    """`value` with every text in it poisoned, keys too, and nothing else changed."""
    if isinstance(value, str):
        return f"{payload}{value}"
    if is_dataclass(value) and not isinstance(value, type):
        free = [each.name for each in fields(value) if each.name not in _OURS[type(value)]]
        return replace(value, **{name: poisoned(getattr(value, name), payload) for name in free})
    if isinstance(value, Mapping):
        kept = {"device", "inside", "cpu", "cores", "machine"}  # where the facts are looked for
        return {
            (key if key in kept else poisoned(key, payload)): poisoned(held, payload) for key, held in value.items()
        }
    if isinstance(value, tuple | list):
        return type(value)(poisoned(item, payload) for item in value)
    return value
