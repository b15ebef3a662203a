"""Measurements and stored trials, made to order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tare.analysis.model import Measurement
from tare.records.model import Record, State


def side(level: str, values: Sequence[float], *, blocks: bool = True, twin: int = 0) -> list[Measurement]:
    """One trial a value, in blocks 0, 1, 2 ..."""
    return [Measurement(level, value, str(block) if blocks else None, twin) for block, value in enumerate(values)]


def noisy(n: int, *, effect: float = 0.0, cv: float = 0.01, seed: int = 1, drift: float = 0.05) -> list[Measurement]:
    """`bare` and `docker` in n blocks that drift, docker slower by `effect`."""
    rng = np.random.default_rng(seed)
    speed = 0.002 * np.exp(rng.normal(0, drift, n))
    bare, docker = speed * np.exp(rng.normal(0, cv, n)), speed * np.exp(rng.normal(0, cv, n)) * (1 + effect)
    return side("bare", bare.tolist()) + side("docker", docker.tolist())


def record(
    platform: str = "bare",
    block: int = 0,
    step_s: float | None = 0.002,
    *,
    state: State = "ok",
    twin: int = 0,
    attempt: int = 1,
    settings: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
    **fields: Any,
) -> Record:
    """A trial of LeNet-5 training with batch 16, unless told otherwise."""
    its_settings = {"platform": platform, "workload": "torch_train", "workload.model": "lenet5", "workload.batch": 16}
    its_metrics = {} if step_s is None else {"step_s": step_s, "wall_s": 2.0 + 1000 * step_s, "cpu_s": 1.5}
    its_settings |= settings or {}
    name = f"{'-'.join(str(value) for value in its_settings.values())}-{block}-{twin}"
    return Record(
        trial=name,
        attempt=attempt,
        study="weigh",
        block=block,
        position=0,
        twin=twin,
        settings=its_settings,
        state=state,
        metrics=its_metrics | dict(metrics or {}),
        **fields,
    )


@dataclass
class FakeStore:
    """The two methods and one attribute of a store that a weighing reads."""

    held: list[Record]
    study: dict[str, Any] = field(default_factory=lambda: {"study": "weigh"})
    planned: int = 0  # trials that were planned and never begun

    def records(self) -> list[Record]:
        return list(self.held)

    def rehearsals(self) -> list[Record]:
        return []

    def states(self) -> dict[str, State]:
        states: dict[str, State] = {f"planned-{number}": "planned" for number in range(self.planned)}
        return states | {each.trial: each.state for each in self.held}


def weighed_records(n: int = 8, effect: float = 0.1, seed: int = 0, **fields: Any) -> list[Record]:
    """n blocks of bare, its A/A repeat and docker, with one percent of noise."""
    rng = np.random.default_rng(seed)
    made = []
    for block in range(n):
        speed = 0.002 * float(np.exp(rng.normal(0, 0.05)))
        noise = np.exp(rng.normal(0, 0.01, 3))
        made.append(record("bare", block, speed * noise[0], **fields))
        made.append(record("bare", block, speed * noise[1], twin=1, **fields))
        made.append(record("docker", block, speed * noise[2] * (1 + effect), **fields))
    return made
