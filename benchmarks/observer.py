"""Does watching slow the workload down? LeNet-5 training with the default probes on against off, interleaved.

python -m benchmarks.observer [BLOCKS]
"""

from __future__ import annotations

import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tare.analysis.compare import compare
from tare.analysis.model import Measurement
from tare.host import LocalHost, Site
from tare.parts.find import find
from tare.parts.platforms.bare import Bare
from tare.parts.protocols import Mark
from tare.parts.workloads.torch_train import TorchTrain
from tare.study.model import DEFAULT_PROBES
from tare.trial.desk import make_desk, remove_folders
from tare.trial.sampler import Sampler
from tare.trial.summary import step_metrics, steps_from
from tare_inside.marks import load as load_marks

WORKLOAD = TorchTrain(epochs=3, steps_per_epoch=100, threads=1)
MARGIN = 0.005


def measure(blocks: int = 10) -> dict[str, Any]:
    """Slowdown of a step with the sampler on, paired by block, with its interval."""
    host = LocalHost()
    WORKLOAD.prepare(host)
    order, found = random.Random(7), []
    for block in range(blocks):
        for watched in order.sample(["off", "on"], 2):
            step_s = _step_s(host, block, watched == "on")
            found.append(Measurement(level=watched, value=step_s, block=str(block)))
    (slowdown,) = compare(found, against="off", margin=MARGIN, metric="step_s")
    return slowdown.as_json()


def _step_s(host: LocalHost, block: int, watched: bool) -> float:
    name = f"tare-bench-{block}-{'on' if watched else 'off'}"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scratch = Path(folder) / name
        scratch.mkdir()
        stack.callback(remove_folders, name, Path(folder))
        desk = make_desk(name, scratch)
        place = Bare().open(host, Site(name, scratch, reads=WORKLOAD.inputs(), writes=(desk,)))
        stack.callback(place.close)
        if watched:
            probes: list[Any] = [find("probes", probe)() for probe in DEFAULT_PROBES]
            sampler = stack.enter_context(Sampler(probes, Path(folder) / "spool.db"))
            sampler.begin(place.scope())
        ended = place.spawn(WORKLOAD.job(place, desk, seed=block)).wait(600)
        assert ended.code == 0, ended.err
        rows, _ = load_marks(str(desk / "marks.bin"))
        steps = steps_from(Mark(*row) for row in rows)
        assert steps is not None
        return step_metrics(steps)["step_s"]


def text(result: dict[str, Any]) -> str:
    interval = "no interval" if result["low"] is None else f"[{result['low']:+.2%}, {result['high']:+.2%}]"
    return (
        f"LeNet-5 step with the default probes on against off: {result['effect']:+.2%} {interval}, "
        f"n = {result['n']} blocks: {result['verdict']} (margin {MARGIN:.1%})"
    )


if __name__ == "__main__":
    sys.stdout.write(text(measure(*map(int, sys.argv[1:]))) + "\n")
