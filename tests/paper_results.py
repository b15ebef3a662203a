"""Trials of the papers' own studies, made up: every cell of the plan in every block, with figures that follow.

A study is read and planned once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from some_records import draft
from tare.analysis.cells import placed
from tare.api.running import built_in
from tare.base.units import Channel
from tare.papers.tables.model import ByClaim, names, paper
from tare.papers.tables.picking import Machine
from tare.papers.tables.rows import Ours, answered
from tare.plan.matrix import cells
from tare.records.model import Record, StoreTrials
from tare.records.spool import SpoolWriter
from tare.records.store import Store
from tare.studies.load import at_every_scale

DEVICE = {"cpu": "Neoverse-N1", "machine": "aarch64", "kernel": "6.18.0", "cores": 2, "memory_bytes": 8 << 30}
INSIDE = {"python": {"version": "3.11.7"}, "torch": {"version": "2.13.0"}}
IN_CONTAINERS = 1.02  # of the same on bare metal
# A step of epoch 0, and a measured one.
MARKS = [(1, "step", "begin", 0), (10, "step", "end", 0), (20, "step", "begin", 1), (30, "step", "end", 1)]


@cache
def every_metric() -> tuple[str, ...]:
    """Every figure that a row of any paper asks for."""
    found: dict[str, None] = {}
    for question in (one for name in names() for row in paper(name).rows for one in row.ours):
        if isinstance(question, ByClaim):
            continue
        found |= dict.fromkeys(question.figures)
    return tuple(found)


@cache
def at_scales(study: str) -> dict[str, list[dict[str, Any]]]:
    """The settings of each cell of a study that comes with tare, at each of its scales."""
    found = at_every_scale(built_in()[study], trust=True)
    return {scale: [dict(cell.settings) for cell in cells(each)] for scale, each in found.items()}


def trials(study: str, scale: str, *, blocks: int = 6, metrics: Sequence[str] | None = None) -> list[Record]:
    """Every cell in every block; the same call makes the same figures."""
    return list(_trials(study, scale, blocks, tuple(metrics or every_metric())))


@lru_cache(32)
def _trials(study: str, scale: str, blocks: int, metrics: tuple[str, ...]) -> tuple[Record, ...]:
    made = []
    for place, settings in enumerate(at_scales(study)[scale]):
        said = str(sorted(map(str, settings.items())))
        for block in range(blocks):
            figures = {name: _figure(name, settings, said, block) for name in metrics}
            one = draft(f"{study}-{place}-{block}", block=block, position=place, study=study, settings=settings)
            made.append(replace(one, state="ok", metrics=figures, facts={"device": DEVICE, "inside": INSIDE}))
    return tuple(made)


def _figure(name: str, settings: Mapping[str, Any], said: str, block: int) -> float:
    """About 10 (a share: about 0.1); a little more in containers, a little else in each block."""
    base = 0.1 if name.endswith("_share") else 1e9 if name.endswith("_bytes") else 0.01 if name.endswith("_s") else 10.0
    inside = IN_CONTAINERS if settings.get("platform") != "bare" else 1.0
    workers = 1 / (1 + (settings.get("workload.workers") or 0)) if "stall" in name else 1.0
    data = f"{name} {said} {block}".encode()
    noise = int.from_bytes(hashlib.blake2b(data, digest_size=4).digest()) / 2**32 - 0.5
    return base * inside * workers * (1 + block / 50) * (1 + noise / 400)


@cache
def bare_held(study: str, scale: str) -> StoreTrials:
    """One block of it, for whoever only asks what is there."""
    return held(study, scale, blocks=1)


def held(study: str, scale: str, **how: Any) -> StoreTrials:
    """A store of these trials, as it is read."""
    records = [placed(record) for record in trials(study, scale, **how)]
    return StoreTrials(f"here/{study}", records, described(study, scale))


def described(study: str, scale: str, **more: Any) -> dict[str, Any]:
    return {"study": study, "scale": scale, "compare": {"margin": "5%"}, **more}


def machine(*stores: StoreTrials, name: str = "here") -> Machine:
    return Machine(name, stores)


def write_store(root: Path, study: str, scale: str, only: Mapping[str, Any], **how: Any) -> Path:
    """Those of the trials that have these settings, in a store on disk; memory is freed after epoch 0."""
    chosen = [each for each in trials(study, scale, **how) if only.items() <= each.settings.items()]
    with Store.create(root, described(study, scale), f"study: {study}\n") as store:
        for record in chosen:
            writer = store.begin(record)
            with SpoolWriter(writer.spool) as spool:
                spool.channels([Channel("memory.available_bytes", "bytes", "gauge")])
                for t_ns, available_bytes in ((5, 1 << 30), (25, 4 << 30)):
                    spool.tick(t_ns, [(t_ns, "memory.available_bytes", float(available_bytes))])
            figures = {**record.metrics, "warm_up_steps": 1.0}
            writer.seal(replace(record, attempt=1, metrics=figures), MARKS, "", "")
    return root


def changed(store: StoreTrials, **study: object) -> StoreTrials:
    """The same store, with another word in its study."""
    return replace(store, study={**store.study, **study})


def with_records(store: StoreTrials, records: Sequence[Record]) -> StoreTrials:
    return replace(store, records=records)


def with_zeros(store: StoreTrials, metric: str, at: Mapping[str, Any], blocks: int) -> StoreTrials:
    """The same store, with nothing of this figure in the first blocks of the trials with these settings."""
    made = [
        replace(each, metrics={**each.metrics, metric: 0.0})
        if at.items() <= each.settings.items() and each.block < blocks
        else each
        for each in store.records
    ]
    return with_records(store, made)


def ours(row: str, *stores: StoreTrials) -> Ours:
    """What a row comes to on a machine with these stores."""
    return answered(paper(f"s{row[0]}"), [machine(*stores)]).rows[row]["here"]
