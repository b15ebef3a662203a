"""For every claim: cells on which it holds, on which it fails, and on which it cannot be told.

Each case makes cells from one number, usually an effect: with `holds` the claim holds, with `fails` it does not, and at
`between`, with more noise, nothing can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from claimed import Cell

STEP = 0.01
MODELS = ("lenet5", "mobilenet_v3_large", "resnet18")


@dataclass(frozen=True)
class Case:
    make: Callable[[float], Sequence[Cell]]
    holds: float
    fails: float
    between: float
    noise: float = 0.06
    seed: int = 2
    study: Mapping[str, Any] = field(default_factory=dict)


def cell(settings: Mapping[str, Any], metrics: Mapping[str, float], **more: Any) -> Cell:
    return Cell({"platform": "bare", **settings}, metrics, **more)


def two(figure: str, base: float = 1.0, other: str = "docker", **more: float) -> Callable[[float], list[Cell]]:
    """Bare metal, and a container whose figure is larger by x."""
    return lambda x: [cell({}, {figure: base, **more}), cell({"platform": other}, {figure: base * (1 + x), **more})]


def levels(factor: str, figure: Callable[[Any, float], Mapping[str, float]], *levels: Any, **fixed: Any):
    """One factor, and figures that follow from its level and x."""
    return lambda x: [cell({factor: value, **fixed}, figure(value, x)) for value in levels]
