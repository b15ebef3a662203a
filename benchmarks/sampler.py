"""What watching costs: our sampler against a psutil loop, and against a loop that runs `iostat` and `free`.

All three watch the same workload at 10 Hz, one after another in each round, in an order that is shuffled anew, so
that a busy spell of the machine hits all of them. The figure is the share of one core, from the kernel's own CPU
accounting (with ended children, for the loop that starts commands).

    python -m benchmarks.sampler [SECONDS [ROUNDS]]
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.rounds import Rounds
from tare.base.errors import TareError
from tare.base.host import LocalHost, Scope
from tare.drivers.cgroups import tree
from tare.parts.probes.cgroup import Cgroup
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.disk import Disk
from tare.parts.probes.memory import Memory
from tare.trial.sampler import Sampler

PERIOD_S = 0.1
WORKLOAD = "import subprocess, sys; [subprocess.Popen(['sleep', '3600']) for _ in range(2)]; sys.stdin.read()"


def measure(seconds: float = 5.0, rounds: int = 6) -> dict[str, Any]:
    """Shares of a core for each way of watching, and how many times ours the others cost, with an interval."""
    loops: dict[str, Callable[[Scope, float], float]] = {"tare": _tare, "psutil": _psutil, "commands": _commands}
    shares = Rounds(loops)
    order = random.Random(7)
    with _workload() as scope:
        for _ in range(rounds):
            for name in order.sample(sorted(loops), len(loops)):
                shares.add(name, loops[name](scope, seconds))
        start_s = [_start_s(scope) for _ in range(rounds)]
    shares.keep("sampler", scale=PERIOD_S)  # of CPU time, a tick
    return {
        "rounds": rounds,
        "seconds_each": seconds,
        "commands": [" ".join(command) for command in _command_lines()],
        "in_own_group": bool(scope.cgroups),
        "share_of_a_core": {name: _median_and_range(values) for name, values in shares.items()},
        "times_ours": {
            name: _median_and_range([theirs / ours for theirs, ours in zip(shares[name], shares["tare"], strict=True)])
            for name in ("psutil", "commands")
        },
        "start_s": _median_and_range(start_s),
    }


def _median_and_range(values: list[float]) -> dict[str, float]:
    """With six rounds the range is a 96.9 % interval of the median; with more it is wider than need be."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


@contextmanager
def _workload() -> Iterator[Scope]:
    """A process with two children that sleep: what is measured is the watching, not the watched."""
    host = LocalHost()
    groups: dict[str, str] = {}
    with suppress(TareError):  # without root there is no group of its own, and one probe less
        groups = tree.make(host, f"tare-bench-{os.getpid()}")
    with subprocess.Popen([sys.executable, "-c", WORKLOAD], stdin=subprocess.PIPE, start_new_session=True) as child:
        try:
            for folder in dict.fromkeys(groups.values()):
                Path(folder, "cgroup.procs").write_text(str(child.pid))
            yield Scope(pid=child.pid, cgroups=groups)
        finally:
            os.killpg(child.pid, 9)
    if groups:
        tree.remove(host, groups)


def _tare(scope: Scope, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder, _sampler(folder) as sampler:
        sampler.begin(scope)
        time.sleep(seconds)
        report = sampler.end()
    return report.cpu_s / report.seconds


def _sampler(folder: str) -> Sampler:
    return Sampler((Cpu(), Memory(), Disk(), Cgroup()), Path(folder) / "spool.db", PERIOD_S)


def _start_s(scope: Scope) -> float:
    """From launch to the first tick, with nothing else to do meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        with _sampler(folder) as sampler:
            sampler.begin(scope)
            return time.perf_counter() - begin


def _psutil(scope: Scope, seconds: float) -> float:
    return _other_loop("psutil", scope, seconds)


def _commands(scope: Scope, seconds: float) -> float:
    return _other_loop("commands", scope, seconds)


def _other_loop(name: str, scope: Scope, seconds: float) -> float:
    """In a process of its own, as ours is."""
    argv = [sys.executable, "-m", "benchmarks.sampler", "--loop", name, str(scope.pid), str(seconds)]
    return float(json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout))


def _run_loop(name: str, pid: int, seconds: float) -> float:
    once = {"psutil": _psutil_once, "commands": _commands_once}[name](pid)
    with tempfile.TemporaryFile("w") as file:
        once(file)
        begin_s, begin_cpu_s = time.monotonic(), _cpu_s()
        due_s = begin_s
        while due_s < begin_s + seconds:
            time.sleep(max(0.0, due_s - time.monotonic()))
            once(file)
            due_s += PERIOD_S
        return (_cpu_s() - begin_cpu_s) / (time.monotonic() - begin_s)


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _psutil_once(pid: int) -> Callable[[Any], None]:
    import psutil

    workload = psutil.Process(pid)

    def once(file: Any) -> None:
        row = [time.monotonic(), *psutil.cpu_times(), *psutil.virtual_memory()]
        for counters in psutil.disk_io_counters(perdisk=True).values():
            row += counters
        for process in [workload, *workload.children(recursive=True)]:
            row += [*process.cpu_times(), *process.memory_info(), *process.num_ctx_switches()]
        print(*row, sep=",", file=file)

    return once


def _commands_once(_pid: int) -> Callable[[Any], None]:
    def once(file: Any) -> None:
        for command in _command_lines():
            subprocess.run(command, stdout=file, check=True)

    return once


def _command_lines() -> list[list[str]]:
    """`iostat` and `free`, as the papers' scripts ran; without sysstat the nearest that procps has."""
    return [["iostat", "-x"] if shutil.which("iostat") else ["vmstat", "-d"], ["free"]]


def text(result: dict[str, Any]) -> str:
    shares, times = result["share_of_a_core"], result["times_ours"]
    lines = [f"watching at 10 Hz, {result['rounds']} rounds of {result['seconds_each']:g} s each, share of one core"]
    for name, label in (
        ("tare", "tare sampler"),
        ("psutil", "psutil loop"),
        ("commands", " + ".join(result["commands"])),
    ):
        share = shares[name]
        ours = "" if name == "tare" else "   {median:.1f}x ours [{low:.1f}, {high:.1f}]".format(**times[name])
        lines.append(f"  {label:18} {share['median']:7.2%} [{share['low']:.2%}, {share['high']:.2%}]{ours}")
    start = result["start_s"]
    lines.append(f"  ready after {start['median']:.2f} s [{start['low']:.2f}, {start['high']:.2f}]")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--loop"]:
        print(_run_loop(sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
    else:
        print(text(measure(*(kind(value) for kind, value in zip((float, int), sys.argv[1:], strict=False)))))
