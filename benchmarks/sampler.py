"""What watching costs: our sampler against a psutil loop, a loop that runs `iostat` and `free`, and other trackers.

All watch at 10 Hz, one after another in each round, in an order that is shuffled anew, so that a busy spell of the
machine hits all of them; `docker stats` has one look a second, optimum-benchmark's tracker of memory a hundred. The
figure is the share of one core, from the kernel's own CPU accounting (with ended children, for the loop that starts
commands; of `docker stats` with the engine's). `make bench` puts codecarbon and optimum-benchmark into .venv-peers.

    python -m benchmarks.sampler [SECONDS [ROUNDS]]
"""

from __future__ import annotations

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
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.platforms import _docker
from benchmarks.rounds import Rounds
from tare.base.errors import TareError
from tare.base.host import LocalHost, Scope
from tare.drivers.cgroups import tree
from tare.drivers.containers import engine
from tare.drivers.images.content import gather
from tare.parts.probes.cgroup import Cgroup
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.memory import Disk, Memory
from tare.trial.sampler import Sampler

PERIOD_S = 0.1
PEERS = Path(".venv-peers")
WORKLOAD = "import subprocess, sys; [subprocess.Popen(['sleep', '3600']) for _ in range(2)]; sys.stdin.read()"


def measure(seconds: float = 5.0, rounds: int = 6) -> dict[str, Any]:
    """Shares of a core for each way of watching, and how many times ours the others cost, with an interval."""
    loops: dict[str, Callable[[Scope, float], float]] = {"tare": _tare}
    loops |= {name: partial(_other_loop, name) for name in _ONCE}
    if PEERS.is_dir():
        loops |= {name: partial(_other_loop, name) for name in _TRACKERS}
    order = random.Random(7)
    with _workload() as scope, ExitStack() as stack:
        if (container := _container(stack)) is not None:
            loops["docker stats"] = partial(_docker_stats, *container)
        shares, ticks = Rounds(loops), Rounds(loops)
        for _ in range(rounds):
            for name in order.sample(sorted(loops), len(loops)):
                shares.add(name, share := loops[name](scope, seconds))
                ticks.add(name, share * _PERIODS_S.get(name, PERIOD_S))
        start_s = [_start_s(scope) for _ in range(rounds)]
    ticks.keep("sampler")  # CPU time, each time that it looks
    return {
        "rounds": rounds,
        "seconds_each": seconds,
        "commands": [" ".join(command) for command in _command_lines()],
        "in_own_group": bool(scope.cgroups),
        "share_of_a_core": {name: _median_and_range(values) for name, values in shares.items()},
        "times_ours": {
            name: _median_and_range([theirs / ours for theirs, ours in zip(shares[name], shares["tare"], strict=True)])
            for name in loops
            if name != "tare"
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


def _other_loop(name: str, scope: Scope, seconds: float) -> float:
    """In a process of its own, as ours is."""
    argv = [sys.executable, "-m", "benchmarks.sampler", "--loop", name, str(scope.pid), str(seconds)]
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(PEERS)]))
    said = subprocess.run(argv, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    return float(said.stdout.split()[-1])


def _run_loop(name: str, pid: int, seconds: float) -> float:
    if name in _TRACKERS:
        return _TRACKERS[name](seconds)
    once = _ONCE[name](pid)
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


_ONCE = {"psutil": _psutil_once, "commands": _commands_once}


def _codecarbon(seconds: float) -> float:
    from codecarbon import OfflineEmissionsTracker  # type: ignore[import-not-found, unused-ignore]

    tracker = OfflineEmissionsTracker(
        country_iso_code="DEU", measure_power_secs=PERIOD_S, save_to_file=False, log_level="critical"
    )
    tracker.start()
    begin_s, begin_cpu_s = time.monotonic(), _cpu_s()
    time.sleep(seconds)
    share = (_cpu_s() - begin_cpu_s) / (time.monotonic() - begin_s)
    tracker.stop()
    return share


def _optimum(seconds: float) -> float:
    """Its process that looks at the memory of ours."""
    import psutil
    from optimum_benchmark.trackers.memory import MemoryTracker  # type: ignore[import-not-found, unused-ignore]

    with MemoryTracker(device="cpu", backend="onnxruntime").track():
        time.sleep(1)  # it has begun
        children = psutil.Process().children()
        begin_s, begin_cpu_s = time.monotonic(), _cpu_of(children)
        time.sleep(seconds)
        return (_cpu_of(children) - begin_cpu_s) / (time.monotonic() - begin_s)


_TRACKERS = {"codecarbon": _codecarbon, "optimum-benchmark": _optimum}
_PERIODS_S = {"optimum-benchmark": 0.01, "docker stats": 1.0}  # its own rate; the engine's


def _cpu_of(processes: list[Any]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _container(stack: ExitStack) -> tuple[str, str] | None:
    """The engine's address and the name of a container that sleeps; None without an engine or its command line."""
    if (found := engine.find()) is None or not shutil.which("docker"):
        return None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tare-bench-")))
    name = f"tare-bench-{os.getpid()}"
    image, _ = stack.enter_context(_docker(gather(sys.executable, []), f"tare/bench-{os.getpid()}", folder))
    docker = ["docker", "-H", found.address]
    subprocess.run([*docker, "run", "-d", "--name", name, "--network=none", image, "sleep", "3600"], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    stack.callback(subprocess.run, [*docker, "rm", "-f", name], check=True, stdout=subprocess.DEVNULL)
    return found.address, name


def _docker_stats(address: str, container: str, _scope: Scope, seconds: float) -> float:
    """The command line and the engine, while one container is looked at."""
    import psutil

    engines = [each for each in psutil.process_iter(["name"]) if each.info["name"] == "dockerd"]
    argv = ["docker", "-H", address, "stats", container]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as child:
        watched = [psutil.Process(child.pid), *engines]
        time.sleep(2)  # its first figures take that long
        begin_s, begin_cpu_s = time.monotonic(), _cpu_of(watched)
        time.sleep(seconds)
        share = (_cpu_of(watched) - begin_cpu_s) / (time.monotonic() - begin_s)
        child.terminate()
    return share


def _command_lines() -> list[list[str]]:
    """`iostat` and `free`, as the papers' scripts ran; without sysstat the nearest that procps has."""
    return [["iostat", "-x"] if shutil.which("iostat") else ["vmstat", "-d"], ["free"]]


def text(result: dict[str, Any]) -> str:
    shares, times = result["share_of_a_core"], result["times_ours"]
    lines = [f"watching at 10 Hz, {result['rounds']} rounds of {result['seconds_each']:g} s each, share of one core"]
    labels = {"tare": "tare sampler", "psutil": "psutil loop", "commands": " + ".join(result["commands"])}
    labels |= {name: f"{name}, {1 / period_s:g} Hz" for name, period_s in _PERIODS_S.items()}
    for name, share in shares.items():
        label = labels.get(name, name)
        ours = "" if name == "tare" else "   {median:.1f}x ours [{low:.1f}, {high:.1f}]".format(**times[name])
        lines.append(f"  {label:25} {share['median']:7.2%} [{share['low']:.2%}, {share['high']:.2%}]{ours}")
    start = result["start_s"]
    lines.append(f"  ready after {start['median']:.2f} s [{start['low']:.2f}, {start['high']:.2f}]")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--loop"]:
        print(_run_loop(sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
    else:
        print(text(measure(*(kind(value) for kind, value in zip((float, int), sys.argv[1:], strict=False)))))
