"""Trials of made-up fleets: devices of known speed, with a known effect of a container on each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from metered import kept
from some_records import draft
from tare.base.rulings import Ruling
from tare.records.model import Record

STUDY = {"study": "fleet", "compare": {"by": "platform", "against": {"platform": "bare"}, "margin": 0.05}}
FACTS = {"kernel": "5.10.120-tegra", "machine": "aarch64", "board": "Orin", "cores": 8, "cpu.governor": "schedutil"}
INSIDE = {"torch": {"version": "2.1.0"}, "python": {"version": "3.8.10"}}
STEP_S = 0.1


@dataclass(frozen=True)
class Board:
    """One device: how much slower than its type it is, what a container costs on it, and what it says of itself."""

    name: str
    type: str = "orin"
    slower: float = 0.0
    effect: float = 0.02
    facts: Mapping[str, Any] = field(default_factory=dict)
    inside: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[Ruling, ...] = ()
    base_s: float = STEP_S


def boards(count: int, tau: float = 0.0, between: float = 0.01, seed: int = 1, **fields: Any) -> list[Board]:
    """Devices of one type that differ a little, as twins do."""
    rng = np.random.default_rng(seed)
    return [
        Board(f"orin-{number + 1}", slower=rng.normal(0, between), effect=0.02 + rng.normal(0, tau), **fields)
        for number in range(count)
    ]


def trials(
    devices: Sequence[Board],
    blocks: int = 6,
    noise: float = 0.005,
    seed: int = 2,
    platforms: Sequence[str] = ("bare", "docker"),
) -> list[Record]:
    """Every platform once a block, on every device."""
    rng = np.random.default_rng(seed)
    return [
        trial(board, platform, block, rng.normal(0, noise))
        for block in range(blocks)
        for board in devices
        for platform in platforms
    ]


def trial(board: Board, platform: str, block: int, noise: float = 0.0, **changes: Any) -> Record:
    more = board.effect if platform != "bare" else 0.0
    step_s = board.base_s * math.exp(noise) * (1 + board.slower) * (1 + more)
    settings = {"platform": platform, "workload": "torch_train", "workload.batch": 16, "device": board.name}
    made = draft(
        f"{board.name}-{platform}-{block}",
        block=block,
        settings={**settings, "device.type": board.type},
        started_utc=f"2026-11-15T12:{block:02d}:00+00:00",
    )
    facts = {"device": {**FACTS, **board.facts}, "inside": {**INSIDE, **board.inside}}
    return replace(
        made, attempt=1, state="ok", metrics={"step_s": step_s, "wall_s": 100 * step_s}, facts=facts,
        reasons=board.reasons, tare_version="0.2.0", **changes,
    )  # fmt: skip


def fleet_store(root: Path, devices: Sequence[Board], study: Mapping[str, Any] = STUDY, **fields: Any) -> Path:
    return kept(root, trials(devices, **fields), dict(study))
