"""`make bench`: what tare itself costs, measured side by side in this run; `make bench WHAT=sampler` is one part of it.

Each part runs in a process of its own, so that one part's imports do not weigh on the next; all of them with few rounds
(under a quarter of an hour), one that is named with as many as it usually has. The last lines are one table of all
targets, with the tools that they are compared with. Every round is kept in out/bench/PART.json (rounds.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rounds import FOLDER, read
from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import median_estimate

OUT = Path("out") / "bench"
# Part -> what it measures, and what it is given when all of them run.
PARTS: dict[str, tuple[str, list[str]]] = {
    "sampler": (
        "The sampler, against psutil, iostat and free, codecarbon, optimum-benchmark and docker stats",
        ["3", "6"],
    ),
    "marks": ("A mark, against torch.profiler.record_function", []),
    "observer": ("LeNet-5 with probes, marks and phases on, against off", ["3"]),
    "loaders": ("Loading MNIST and JPEG, against torchvision's data sets and transforms", ["3"]),
    "trial_cost": ("A trial, beyond its workload", ["6"]),
    "tracing": ("LeNet-5 with each family of kernel events traced, against strace, perf trace and trace-cmd", ["1"]),
    "trace_decode": ("Decoding a kernel trace, against trace-cmd report", ["3", "500000"]),
    "platforms": ("Opening and closing each platform, against docker run, podman run, runc run", ["3", "15"]),
    "watch_cost": ("`tare watch` beside a run, with no page open and with one", ["8"]),
    "fleet": ("A run over 10 and over 100 devices that pretend: what the controller needs", ["--trials", "5"]),
    "answers": ("`tare` from its start to its answer: help, show, compare, front, verify, report", ["6"]),
    "growth": ("How stores grow: trials, cells, readings, devices", ["few"]),
    "simulate": ("Simulated page writes a second, against an OrderedDict and against whole-array numpy", ["3"]),
}


@dataclass(frozen=True)
class Target:
    """A line of the table: a side of a part, at most so many seconds, and others that take that many times as long."""

    what: str
    part: str
    side: str
    most_s: float | None
    peers: Sequence[tuple[str, float | None]] = ()
    less: str = ""  # a side that it is a share of: then `most_s` is the share by which it may differ
    minus: str = ""  # a side that is taken off it, round by round


TARGETS = (
    Target("a tick of all default probes, CPU", "sampler", "tare", 50e-6,
           (("psutil", 50), ("commands", 150), ("codecarbon", None), ("optimum-benchmark", None),
            ("docker stats", None))),
    Target("LeNet-5 with probes on, against off", "observer", "the default probes, on", 0.001,
           less="the default probes, off"),
    Target("a mark", "marks", "tare", 300e-9, (("record_function", None), ("record_function, profiling", None))),
    Target("attach's hooks, a step, CPU", "marks", "a step, attached", 8e-6, minus="a step"),
    Target("a trial beyond its workload, bare", "trial_cost", "bare", 0.2),
    Target("a trial beyond its workload, runc", "trial_cost", "runc", 0.25),
    Target("a trial beyond its workload, docker", "trial_cost", "docker", 0.35),
    Target("open, `true`, close: docker", "platforms", "docker, an image, tare", None,
           (("docker, an image, command line", None),)),
    Target("open, `true`, close: podman", "platforms", "podman, an image, tare", None,
           (("podman, an image, command line", None),)),
    Target("open, `true`, close: runc", "platforms", "runc, an image, tare", None,
           (("runc, an image, command line", None),)),
    Target("`tare compare`, 16 rows, wall", "answers", "compare, 16 rows, wall", 0.25),
    Target("`tare list studies`, CPU", "answers", "list studies, CPU", 0.3, (("import numpy, CPU", None),)),
    Target("`tare report`, 18 trials, wall", "answers", "report, recorded store, wall", 1.5),
    Target("`tare choose front`, 100,000 rows, wall", "answers", "front, 100,000 rows, wall", 0.5),
    Target("a million events of a binary trace", "trace_decode", "tare", None, (("trace-cmd report", None),)),
    Target("a million writes simulated", "simulate", "lru", 0.1,
           (("OrderedDict", None), ("numpy stack distances", None))),
    Target("an image: MNIST, no workers", "loaders", "MNIST, 0 workers, tare", None,
           (("MNIST, 0 workers, torchvision", None),)),
    Target("an image: JPEG, 2 workers", "loaders", "JPEG, centre crop, 2 workers, tare", None,
           (("JPEG, centre crop, 2 workers, torchvision", None),)),
    Target("LeNet-5 with system calls counted", "tracing", "syscalls", None, (("strace -c", None),)),
    Target("fleet: CPU of the controller, a trial", "fleet", "controller, 100 devices", 0.003),
)  # fmt: skip
ELSEWHERE = (
    "verify of the kept packs (20 s): python -m benchmarks.answers 3 --only kept",
    "report of 1,000 trials and 100 million readings (10 s, 500 MB, 5 MB): python -m benchmarks.growth readings",
    "a GPU's energy (at window edges only): python -m benchmarks.gpu_timing, on a machine that has one",
    "verdict on one question (60 s), make weigh from an empty clone (2 min): make weigh, by the clock",
    "Zeus: its windows need a GPU or RAPL, as a GPU's energy does",
)


def main(wanted: list[str]) -> int:
    """The parts of these names, or all of them; the worst of their exit codes, and 2 for a name that is none."""
    if strange := [name for name in wanted if name not in PARTS]:
        sys.stderr.write(f"no part is called {strange[0]!r}. Parts: {', '.join(PARTS)}.\n")
        return 2
    worst, folder, begin_s = 0, Path(os.environ.setdefault(FOLDER, str(OUT.absolute()))), time.monotonic()
    for part in wanted or PARTS:
        title, few = PARTS[part]
        for path in _kept(folder, part):
            path.unlink()
        print(f"\n{title}  (python -m benchmarks.{part}{'' if wanted else ' ' + ' '.join(few)})", flush=True)
        words = [] if wanted else few
        worst = max(worst, subprocess.run([sys.executable, "-m", f"benchmarks.{part}", *words], check=False).returncode)
    print(
        f"\n{table(folder, wanted or PARTS)}\n{(time.monotonic() - begin_s) / 60:.1f} minutes; rounds kept in {folder}"
    )
    return worst


def table(folder: Path, parts: Iterable[str]) -> str:
    """The targets of these parts, each with its figure, its interval, and how many times as long others took."""
    kept = {part: {side: times for path in _kept(folder, part) for side, times in read(path).items()} for part in parts}
    rows = [("what", "target", "tare", "", "others, times ours (target)")]
    for target in TARGETS:
        if target.part in kept:
            rows.append((target.what, _limit(target), *_figures(target, kept[target.part])))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join([*(cell.ljust(wide) for cell, wide in zip(row, widths, strict=False)), row[4]]) for row in rows]
    return "\n".join(line.rstrip() for line in (*lines, *(ELSEWHERE if len(kept) == len(PARTS) else ())))


def _kept(folder: Path, part: str) -> list[Path]:
    return [*folder.glob(f"{part}.json"), *folder.glob(f"{part}-*.json")]


def _limit(target: Target) -> str:
    if target.most_s is None:
        return ""
    return f"+-{target.most_s:.1%}" if target.less else f"<= {_seconds(target.most_s)}"


def _figures(target: Target, sides: dict[str, list[float]]) -> tuple[str, str, str]:
    ours = sides.get(target.side)
    if not ours:
        return "not measured here", "", ""
    if target.less:
        found = _ratio(ours, sides[target.less])
        ends = [end for end in (found.low, found.high, found.value) if end is not None]
        met = found.low is not None and max(abs(end - 1) for end in ends) <= (target.most_s or 0)
        word = "too few rounds" if found.low is None else "met" if met else "not met"
        return _told(found, lambda value: f"{value - 1:+.2%}"), word, ""
    found = median_estimate(
        [one - off for one, off in zip(ours, sides.get(target.minus, [0.0] * len(ours)), strict=False)]
    )
    met = "" if target.most_s is None else "met" if found.value <= target.most_s else "not met"
    others = []
    for name, least in target.peers:
        if theirs := sides.get(name):
            asked = "" if least is None else f" (>= {least:g})"
            others.append(f"{name} {_told(_ratio(theirs, ours), lambda value: f'{value:.3g}')}{asked}")
    return _told(found, _seconds), met, "; ".join(others)


def _ratio(one: Sequence[float], other: Sequence[float]) -> Estimate:
    return median_estimate([left / right for left, right in zip(one, other, strict=False)])


def _told(found: Estimate, worded: object) -> str:
    assert callable(worded)
    interval = "" if found.low is None else f" [{worded(found.low)}, {worded(found.high)}]"
    return f"{worded(found.value)}{interval}"


def _seconds(value: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
