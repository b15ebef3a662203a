"""System calls beside each layer of a container: from traced trials of their own, whose times nobody compares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tare.analysis.why import Stage, new_layer, stage_of, steps_of
from tare.records.model import USABLE, Record

_FIGURES = ("system_calls_step", "system_calls")  # the first that every trial has


@dataclass(frozen=True, slots=True)
class LayerCalls:
    """How many system calls the workload made without a layer and with it, in one traced trial each."""

    layer: str
    without: float
    with_it: float

    @property
    def share(self) -> float | None:
        """By how much they changed; None from nothing."""
        return self.with_it / self.without - 1 if self.without > 0 else None


@dataclass(frozen=True, slots=True)
class Calls:
    """All layers' calls, or why there are none."""

    metric: str = ""
    layers: tuple[LayerCalls, ...] = ()
    missing: str = ""  # a sentence

    def of(self, layer: str) -> LayerCalls | None:
        return next((each for each in self.layers if each.layer == layer), None)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def calls_by_layer(records: Iterable[Record]) -> Calls:
    """From the traced trials of every stage; a stage whose trial could not be used is left out."""
    usable = [record for record in records if record.state in USABLE and not record.twin]
    metric = next((name for name in _FIGURES if usable and all(name in record.metrics for record in usable)), "")
    if not metric:
        return Calls(missing="system calls were not counted: no traced trial could be used.")
    counted: dict[Stage, float] = {stage_of(record.settings): record.metrics[metric] for record in usable}
    found = [
        LayerCalls(new_layer(ours, theirs), counted[theirs], counted[ours])
        for ours, theirs in steps_of(counted)
        if ours in counted and theirs in counted
    ]
    return Calls(metric, tuple(found))
