"""What does tracing cost? LeNet-5 training with each family of events on against off, beside the usual tools.

python -m benchmarks.tracing [BLOCKS]
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.rounds import Rounds
from tare.analysis.compare import compare
from tare.analysis.model import Measurement
from tare.base.errors import TareError
from tare.base.host import LocalHost, Site
from tare.figures.steps import job_metrics
from tare.parts.find import find
from tare.parts.platforms.bare import Bare
from tare.parts.workloads.torch_train import TorchTrain
from tare.trial.sampler import Sampler
from tare.trial.tenants import prepare_workdir, remove_folders

TRAINING = TorchTrain(epochs=3, steps_per_epoch=100, workers=0, threads=1)
METRIC = "mean_step_s"
MARGIN = 0.05
OFF = "off"


@dataclass(frozen=True)
class Side:
    """One way to watch the training: a recorder of ours, or a program that the job is started with."""

    probe: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()  # {out} is a file in a folder of its own


SIDES = {
    OFF: Side(),
    "ftrace writeback": Side("ftrace", {"families": ["writeback"]}),
    "ftrace block": Side("ftrace", {"families": ["block"]}),
    "ftrace faults": Side("ftrace", {"families": ["faults"]}),
    "ftrace sched": Side("ftrace", {"families": ["sched"]}),
    "syscalls": Side("syscalls"),
    "perf counters": Side("perf", {"faults": False, "callgraphs": None}),
    "perf, with faults and call graphs": Side("perf"),
    "strace -c": Side(command=("strace", "-f", "-c", "-o", "{out}")),
    "perf trace -s": Side(command=("perf", "trace", "-s", "-o", "{out}", "--")),
    "trace-cmd record -e raw_syscalls": Side(
        command=("trace-cmd", "record", "-q", "-e", "raw_syscalls", "-o", "{out}")
    ),
}


def measure(blocks: int = 6) -> Iterator[str]:
    """Each side against off, paired by block; then those that could not run, with the reason."""
    host = LocalHost()
    TRAINING.prepare(host)
    failed = {name: why for name, side in SIDES.items() if (why := _obstacle(host, side))}
    order, found, kept = random.Random(7), [], Rounds()
    for block in range(blocks):
        for name in order.sample(list(SIDES), len(SIDES)):
            if name in failed:
                continue
            try:
                step_s = _step_s(host, block, SIDES[name])
            except TareError as error:
                failed[name] = str(error)
            else:
                found.append(Measurement(level=name, value=step_s, block=str(block)))
                kept.add(name, step_s)
    kept.keep("tracing")
    whole = [one for one in found if one.level not in failed]
    for result in compare(whole, against=OFF, margin=MARGIN, metric=METRIC):
        yield _text(result.as_json())
    yield from (f"{name}: not run here: {why}" for name, why in failed.items())


def _obstacle(host: LocalHost, side: Side) -> str:
    if side.command:
        return "" if shutil.which(side.command[0]) else f"there is no {side.command[0]} here"
    if not side.probe:
        return ""
    probe: Any = find("probes", side.probe).model_validate(dict(side.fields))
    return " ".join(map(str, probe.obstacles(host)))


def _step_s(host: LocalHost, block: int, side: Side) -> float:
    name = f"tare-bench-{block}"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scratch = Path(folder) / name
        scratch.mkdir()
        stack.callback(remove_folders, name, Path(folder))
        workdir = prepare_workdir(name, scratch)
        place = Bare().open(host, Site(name, scratch, reads=TRAINING.inputs(), writes=(workdir,)))
        stack.callback(place.close)
        if side.probe:
            probes: list[Any] = [find("probes", side.probe).model_validate(dict(side.fields))]
            sampler = stack.enter_context(Sampler(probes, Path(folder) / "spool" / "spool.db"))
            (Path(folder) / "spool").mkdir()
            sampler.begin(place.scope())
        job = TRAINING.job(place, workdir, seed=block)
        around = tuple(word.format(out=Path(folder) / "out") for word in side.command)
        ended = place.spawn(replace(job, argv=(*around, *job.argv))).wait(900)
        if ended.code != 0:
            raise TareError(ended.err.strip()[-200:] or f"it ended with code {ended.code}")
        return job_metrics({}, json.loads((workdir / "outcome.json").read_text()))[METRIC]


def _text(result: Mapping[str, Any]) -> str:
    interval = "no interval" if result["low"] is None else f"[{1 + result['low']:.3f}, {1 + result['high']:.3f}]"
    ratio = 1 + result["effect"]
    return f"LeNet-5 step with {result['level']} against off: x{ratio:.3f} {interval}, n = {result['n']} blocks"


if __name__ == "__main__":
    for line in measure(*map(int, sys.argv[1:])):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
