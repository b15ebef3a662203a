"""Trials whose energy is known by construction: idle power, time and work of each cell, and the idle trials beside."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from some_records import draft
from tare.records.model import Record
from tare.records.spool import SpoolWriter
from tare.records.store import Store

DEVICE = {"board": "Orin", "cpu": "Cortex-A78AE"}
ENERGY_FACTS = {"source": "power_rails", "scope": "the module", "claimed": True, "doubts": []}
STEPS = 100


@dataclass(frozen=True)
class Place:
    """A platform in a mode: what the idle device draws, how long a step takes, and what its work takes beyond that."""

    settings: Mapping[str, Any]
    idle_w: float = 10.0
    step_s: float = 0.1
    work_j: float = 2.0
    facts: Mapping[str, Any] = field(default_factory=dict)


BARE = Place({"platform": "bare"})
DOCKER = Place({"platform": "docker", "platform.image": "pt"}, idle_w=11.0, step_s=0.12, work_j=2.1)


def worked(place: Place, block: int, noise: Sequence[float] = (0.0, 0.0), **changes: Any) -> Record:
    """A trial of training there; `noise` is on the time and on the work, as shares."""
    step_s, work_j = place.step_s * (1 + noise[0]), place.work_j * (1 + noise[1])
    window_s = step_s * STEPS
    energy_j = place.idle_w * window_s + work_j * STEPS
    metrics = {
        "step_s": step_s,
        "energy_j": energy_j,
        "energy_window_s": window_s,
        "power_mean_w": energy_j / window_s,
        "energy_step_j": energy_j / STEPS,
        "energy_sample_j": energy_j / STEPS / 16,
    }
    settings = {"workload": "torch_train", "workload.batch": 16, "probes": "power_rails", **place.settings}
    return _record(f"work-{_name(place.settings)}-{block}", settings, metrics, block, place, **changes)


def idled(place: Place, block: int, noise: float = 0.0, *, logging: bool = False, **changes: Any) -> Record:
    """An idle trial there."""
    power_w = place.idle_w * (1 + noise) + (0.5 if logging else 0.0)
    metrics = {"step_s": 60.0, "energy_j": 60 * power_w, "energy_window_s": 60.0, "power_mean_w": power_w}
    settings = {"workload": "idle", "workload.logging": logging, "probes": "power_rails", **place.settings}
    return _record(f"idle-{_name(place.settings)}-{logging:d}-{block}", settings, metrics, block, place, **changes)


def _name(settings: Mapping[str, Any]) -> str:
    """What tells it from others, as an id may be written."""
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "", str(value)) for _, value in sorted(settings.items()))


def _record(
    name: str, settings: Mapping[str, Any], metrics: Mapping[str, float], block: int, place: Place, **changes: Any
) -> Record:
    facts = {"device": DEVICE, "energy": {**ENERGY_FACTS, **place.facts.get("energy", {})}}
    made = draft(name, block=block, settings=dict(settings))
    return replace(made, attempt=1, state="ok", metrics=dict(metrics), facts={**place.facts, **facts}, **changes)


def trials(*places: Place, n: int = 8, noise: float = 0.01, seed: int = 1) -> list[Record]:
    """Every place once a block, with noise of its own on time and work."""
    rng = np.random.default_rng(seed)
    return [worked(place, block, rng.normal(0, noise, 2)) for block in range(n) for place in places]


def idle_trials(*places: Place, n: int = 6, noise: float = 0.005, seed: int = 2) -> list[Record]:
    rng = np.random.default_rng(seed)
    return [idled(place, block, float(rng.normal(0, noise))) for block in range(n) for place in places]


@dataclass(frozen=True)
class Held:
    """As much of a store as analysis reads."""

    held: Sequence[Record]
    study: Mapping[str, Any] = field(default_factory=dict)

    def records(self) -> list[Record]:
        return list(self.held)


def kept(root: Path, records: Sequence[Record], study: Mapping[str, Any] | None = None) -> Path:
    """The records as a real store."""
    with Store.create(root, dict(study or {"study": root.name}), f"study: {root.name}\n") as store:
        for record in records:
            writer = store.begin(replace(record, state="running"))
            with SpoolWriter(writer.spool):
                pass
            writer.seal(record, [], "", "")
    return root
