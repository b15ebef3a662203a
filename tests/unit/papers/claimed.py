"""Trials to try claims on: cells with their figures, in blocks, with noise; and what a claim says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from analysis_figures import record
from tare.papers.claims.deciding import answers, every_claim
from tare.papers.claims.model import Answer
from tare.records.model import Record, StoreTrials

DEVICE = {"cpu": "Neoverse", "machine": "aarch64", "kernel": "6.1", "memory_bytes": 32_000_000_000}


@dataclass(frozen=True)
class Cell:
    """Settings and figures; `facts` beyond the usual device."""

    settings: Mapping[str, Any]
    metrics: Mapping[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict)
    epochs: Sequence[float] = ()
    store: int = 0  # trials of different devices, or made with different software, lie in stores of their own


def trials(cells: Sequence[Cell], *, n: int = 8, noise: float = 0.003, seed: int = 1, **fields: Any) -> list[Record]:
    """Every cell once a block; the block moves all of them alike, and noise each figure by itself."""
    rng = np.random.default_rng(seed)
    made = []
    for block in range(n):
        speed = float(np.exp(rng.normal(0, 0.05)))
        for each in cells:
            figures = {name: _noisy(name, value, speed, rng, noise) for name, value in each.metrics.items()}
            facts = {"device": DEVICE, **each.facts}
            platform = str(each.settings["platform"])
            one = record(platform, block, None, settings=each.settings, metrics=figures, facts=facts, **fields)
            made.append(replace(one, trial=f"{dict(each.settings)}, block {block}"))
    return made


def _noisy(name: str, value: float, speed: float, rng: np.random.Generator, noise: float) -> float:
    moves = speed if name.endswith(("_s", "_j")) else 1.0
    return value * moves * float(np.exp(rng.normal(0, noise)))


def stores(cells: Sequence[Cell], study: Mapping[str, Any] | None = None, **how: Any) -> list[StoreTrials]:
    """The stores that trials of these cells would be in."""
    made = []
    for number in sorted({each.store for each in cells}):
        mine = [each for each in cells if each.store == number]
        made.append(StoreTrials(f"store {number}", trials(mine, **how), study or {}, _epochs(mine, how.get("n", 8))))
    return made


def _epochs(cells: Sequence[Cell], n: int) -> dict[str, list[float]]:
    """Epochs deviate by a third less in one block, and by a third more in the next."""
    return {
        f"{dict(each.settings)}, block {block}": [
            1 + (value - 1) * (2 / 3 + block % 2 * 2 / 3) for value in each.epochs
        ]
        for each in cells
        if each.epochs
        for block in range(n)
    }


def answer(claim: str, *sources: StoreTrials) -> Answer:
    """What the claim comes to on one population."""
    (found,) = answers([each for each in every_claim() if each.id == claim], sources)
    return found
