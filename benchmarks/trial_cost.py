"""What a trial costs beyond its workload: making the platform, sampling, sealing. Bare, docker, runc, interleaved.

python -m benchmarks.trial_cost [ROUNDS]
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.rounds import Rounds
from tare.analysis.numeric.medians import median_estimate
from tare.base.host import LocalHost
from tare.parts.find import find
from tare.parts.protocols import Platform
from tare.parts.workloads.idle import Null
from tare.plan.matrix import Cell, Trial
from tare.records.store import Store
from tare.studies.model import DEFAULT_PROBES
from tare.trial.engine import Bench, run_trial
from tare.trial.sampler import Samplers
from tare.trial.undo.journal import Journal

PLATFORMS = ("bare", "docker", "runc")


def measure(rounds: int = 8) -> dict[str, Any]:
    """Seconds beyond the workload for each platform that works here, with the exact interval of the median."""
    host = LocalHost()
    parts: dict[str, Platform] = {name: find("platforms", name)() for name in PLATFORMS}  # type: ignore[misc]
    obstacles = {name: part.obstacles(host) for name, part in parts.items()}
    here = [name for name in PLATFORMS if not obstacles[name]]
    spent = Rounds(here)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with Store.create(root / "store", {"study": "bench"}, "") as store, Samplers() as samplers:
            bench = Bench(host, store, Journal(root / "devices" / "bench"), root / "scratch", sampler=samplers)
            order = random.Random(7)
            for block in range(rounds):
                for name in order.sample(here, len(here)):
                    spent.add(name, _beyond_s(bench, parts[name], block))
    spent.keep("trial_cost")
    figures = {name: median_estimate(values) for name, values in spent.items()}
    return {
        "seconds": {name: {"median": e.value, "low": e.low, "high": e.high, "n": e.n} for name, e in figures.items()},
        "missing": {name: [*map(str, why)] for name, why in obstacles.items() if why},
    }


def _beyond_s(bench: Bench, platform: Platform, block: int) -> float:
    probes: tuple[Any, ...] = tuple(find("probes", name)() for name in DEFAULT_PROBES)
    cell = Cell(platforms=(platform,), workload=Null(), probes=probes)
    begin_ns = bench.host.clock.now_ns()
    record = run_trial(Trial("bench", cell, block, 0, seed=block, limit_s=60), bench)
    assert record.state in ("ok", "suspect", "invalid"), record.reasons
    return (bench.host.clock.now_ns() - begin_ns) / 1e9 - record.metrics["wall_s"]


def text(result: dict[str, Any]) -> str:
    lines = []
    for name, figure in result["seconds"].items():
        low = "" if figure["low"] is None else f"  [{figure['low']:.2f}, {figure['high']:.2f}]"
        lines.append(f"a trial costs beyond its workload, {name}: {figure['median']:.2f} s{low}  (n = {figure['n']})")
    return "\n".join(lines + [f"{name}: not measured: {' '.join(why)}" for name, why in result["missing"].items()])


if __name__ == "__main__":
    sys.stdout.write(text(measure(*map(int, sys.argv[1:]))) + "\n")
