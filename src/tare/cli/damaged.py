"""Damaged trials in what is counted: they were run, and are not to be taken for those that were not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.analysis.model import Weighing
    from tare.records.store import Store


def counted_apart(weighing: Weighing, store: Store) -> Weighing:
    """The same weighing, with the store's damaged trials counted as such."""
    states = store.states()
    damaged = sum(states.get(trial, "planned") == "planned" for trial in store.damaged())
    if not damaged:
        return weighing
    return replace(weighing, counts={**weighing.counts, "damaged": damaged})
