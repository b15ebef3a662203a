"""Does watching slow the workload down? LeNet-5 training with each kind of watching on against off, interleaved.

    python -m benchmarks.observer [BLOCKS]
    python -m benchmarks.observer --turns [PAIRS]   the sampler comes and goes every two seconds in one long training

Two runs differ by a percent for reasons of their own (where memory lies, what else runs); turns within one do not.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rounds import Rounds
from tare.analysis.compare import compare
from tare.analysis.model import Measurement
from tare.base.host import LocalHost, Site
from tare.figures.steps import job_metrics
from tare.parts.find import find
from tare.parts.platforms.bare import Bare
from tare.parts.workloads.torch_train import TorchTrain
from tare.studies.model import DEFAULT_PROBES
from tare.trial.sampler import Sampler, Samplers
from tare.trial.tenants import prepare_workdir, remove_folders
from tare_inside import marks

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


TURN_S, SETTLE_S = 2.0, 0.3  # a turn, and how much of its begin does not count
STEPS_A_S = 1500  # at most, so that the training outlasts the turns


def turns(pairs: int = 100) -> Iterator[str]:
    """The slowdown of a step by the default probes, each pair of turns in an order of its own."""
    host, order, places = LocalHost(), random.Random(7), []
    epochs = round(2 * pairs * (TURN_S + SETTLE_S) * STEPS_A_S / TRAINING.steps_per_epoch) + 60
    workload = TRAINING.model_copy(update={"epochs": epochs})
    workload.prepare(host)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scratch = Path(folder) / "tare-bench"
        scratch.mkdir()
        stack.callback(remove_folders, "tare-bench", Path(folder))
        workdir = prepare_workdir("tare-bench", scratch)
        place = Bare().open(host, Site("tare-bench", scratch, reads=workload.inputs(), writes=(workdir,)))
        stack.callback(place.close)
        samplers = stack.enter_context(Samplers())
        running = place.spawn(workload.job(place, workdir, seed=1))
        time.sleep(15)  # imports, and the first epochs
        for pair in range(pairs):
            for level in order.sample(["off", "on"], 2):
                probes: list[Any] = [find("probes", probe)() for probe in DEFAULT_PROBES]
                with ExitStack() as turn:
                    if level == "on":
                        sampler = turn.enter_context(samplers(probes, Path(folder) / f"{pair}.db", 0.1))
                        sampler.begin(place.scope())
                    time.sleep(SETTLE_S)
                    begin_ns = host.clock.now_ns()
                    time.sleep(TURN_S)
                    places.append((pair, level, begin_ns, host.clock.now_ns()))
                    if level == "on":
                        sampler.end()
        running.kill()
        running.wait(60)
        rows, lost = marks.load(str(workdir / "marks.bin"))
    assert not lost, f"{lost} marks lost: the training was longer than its room"
    starts = np.array([t_ns for t_ns, name, edge, _ in rows if (name, edge) == ("step", "begin")])
    ends = np.array([t_ns for t_ns, name, edge, _ in rows if (name, edge) == ("step", "end")])
    steps_s = (ends[: len(starts)] - starts[: len(ends)]) / 1e9
    for name, of in (("mean", np.mean), ("median", np.median)):
        kept, found = Rounds(), []
        for pair, level, begin_ns, end_ns in places:
            first, last = np.searchsorted(starts, [begin_ns, end_ns])
            kept.add(f"the default probes, {level}", float(of(steps_s[first : last - 1])))
            found.append(Measurement(level=level, value=kept[f"the default probes, {level}"][-1], block=str(pair)))
        kept.keep(f"observer-turns-{name}")
        (slowdown,) = compare(found, against="off", margin=0.001, metric=METRIC)
        result = slowdown.as_json()
        yield (
            f"{name} step with the default probes, in turns of {TURN_S:g} s: {result['effect']:+.3%} "
            f"[{result['low']:+.3%}, {result['high']:+.3%}], n = {result['n']} pairs: {result['verdict']} (margin 0.1%)"
        )


def text(question: str, result: dict[str, Any], said_s: float | None) -> str:
    interval = "no interval" if result["low"] is None else f"[{result['low']:+.2%}, {result['high']:+.2%}]"
    own = "" if said_s is None else f"; marking timed by itself: {said_s * 1e6:.1f} us a step"
    return (
        f"LeNet-5 step with {question} on against off: {result['effect']:+.2%} {interval}, "
        f"n = {result['n']} blocks: {result['verdict']} (margin {MARGIN:.1%}){own}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--turns"]:
        for line in turns(*map(int, sys.argv[2:])):
            print(line)
        raise SystemExit
    for found in measure(*map(int, sys.argv[1:])):
        sys.stdout.write(text(*found) + "\n")
        sys.stdout.flush()
