"""Does watching slow the workload down? LeNet-5 training with each kind of watching on against off, interleaved.

python -m benchmarks.observer [BLOCKS]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rounds import Rounds
from tare.analysis.compare import compare
from tare.analysis.model import Measurement
from tare.base.host import LocalHost, Site
from tare.figures.steps import job_metrics
from tare.parts.find import find
from tare.parts.platforms.bare import Bare
from tare.parts.workloads.torch_train import TorchTrain
from tare.studies.model import DEFAULT_PROBES
from tare.trial.sampler import Sampler
from tare.trial.workdir import prepare_workdir, remove_folders

TRAINING = TorchTrain(epochs=3, steps_per_epoch=100, workers=0, threads=1)
METRIC = "mean_step_s"  # by the clock of the whole training: a run without marks has no other
MARGIN = 0.005


@dataclass(frozen=True)
class Side:
    """One way to run the training."""

    workload: TorchTrain = TRAINING
    probes: bool = False


QUESTIONS = {
    "the default probes": {"off": Side(), "on": Side(probes=True)},
    "marks": {"off": Side(TRAINING.model_copy(update={"marks": False})), "on": Side()},
    "phases": {"off": Side(), "on": Side(TRAINING.model_copy(update={"phases": True}))},
}


def measure(blocks: int = 10) -> Iterator[tuple[str, dict[str, Any], float | None]]:
    """For each kind of watching: the slowdown of a step, paired by block, and what the marks said that they cost."""
    host = LocalHost()
    TRAINING.prepare(host)
    kept = Rounds()
    for question, sides in QUESTIONS.items():
        order, found, said_s = random.Random(7), [], None
        for block in range(blocks):
            for level in order.sample(list(sides), 2):
                metrics = _metrics(host, block, sides[level])
                found.append(Measurement(level=level, value=metrics[METRIC], block=str(block)))
                kept.add(f"{question}, {level}", metrics[METRIC])
                said_s = metrics.get("observer_s") if level == "on" else said_s
        kept.keep("observer")
        (slowdown,) = compare(found, against="off", margin=MARGIN, metric=METRIC)
        yield question, slowdown.as_json(), said_s


def _metrics(host: LocalHost, block: int, side: Side) -> dict[str, float]:
    name = f"tare-bench-{block}"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scratch = Path(folder) / name
        scratch.mkdir()
        stack.callback(remove_folders, name, Path(folder))
        workdir = prepare_workdir(name, scratch)
        place = Bare().open(host, Site(name, scratch, reads=side.workload.inputs(), writes=(workdir,)))
        stack.callback(place.close)
        if side.probes:
            probes: list[Any] = [find("probes", probe)() for probe in DEFAULT_PROBES]
            sampler = stack.enter_context(Sampler(probes, Path(folder) / "spool.db"))
            sampler.begin(place.scope())
        ended = place.spawn(side.workload.job(place, workdir, seed=block)).wait(600)
        assert ended.code == 0, ended.err
        return job_metrics({}, json.loads((workdir / "outcome.json").read_text()))


def text(question: str, result: dict[str, Any], said_s: float | None) -> str:
    interval = "no interval" if result["low"] is None else f"[{result['low']:+.2%}, {result['high']:+.2%}]"
    own = "" if said_s is None else f"; marking timed by itself: {said_s * 1e6:.1f} us a step"
    return (
        f"LeNet-5 step with {question} on against off: {result['effect']:+.2%} {interval}, "
        f"n = {result['n']} blocks: {result['verdict']} (margin {MARGIN:.1%}){own}"
    )


if __name__ == "__main__":
    for found in measure(*map(int, sys.argv[1:])):
        sys.stdout.write(text(*found) + "\n")
        sys.stdout.flush()
