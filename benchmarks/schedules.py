"""How far apart are two identical processes, by the schedule that runs them? One after the other, in turns, as a duet.

    python -m benchmarks.schedules run OUT.jsonl [--pairs 40] [--steps 400] [--cells ...] [--device cpu]
    python -m benchmarks.schedules table OUT.jsonl

A pair is two processes that train LeNet-5 alike, step by step, as the built-in loop does. The schedules of a cell are
run in random order within each pair, so that what drifts meets all of them. `run` goes on where the file ends.

    serial  the first does all its steps, then the second is started
    turns   both are started, one after the other; they do TURN steps each in random order, the other one being stopped
    duet    both are started; they do TURN steps each at the same time, each on its own core, which they swap half-way

A cell is threads-cores-load: `1-same-quiet` is one thread, both on core 0, nothing else; `busy` is a process that
computes on the last core all the time. A duet always has a core for each.
Variants of `serial` ask where the difference between two processes comes from: `forked` are children of one process
that had imported torch and built the network, `unshuffled` have no randomised addresses.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from tare_inside.turns import FREE, GRANT, REPORT, paths

TURN = 20
SERIAL = ("serial", "forked", "unshuffled")
SCHEDULES = (*SERIAL, "turns", "duet")
CELLS = ("1-same-quiet", "1-free-quiet", "2-free-quiet", "1-same-busy", "1-free-busy")
LIMIT_S = 600.0

TRAIN = """
import os, sys, threading
folder, steps, batch, threads, device, start = sys.argv[1:]
import torch
from tare_inside import marks
from tare_inside.workloads.models import LeNet5
from tare_inside.turns import Turns
torch.set_num_threads(int(threads))

def train(folder):
    torch.manual_seed(1)
    network = LeNet5.build().to(device)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01)
    loss_of = torch.nn.CrossEntropyLoss()
    inputs, labels = torch.rand(64, int(batch), 1, 28, 28).to(device), torch.randint(10, (64, int(batch))).to(device)
    settle = torch.cuda.synchronize if device == "cuda" else None
    def step(k):
        loss = loss_of(network(inputs[k % 64]), labels[k % 64])
        loss.backward(); optimiser.step(); optimiser.zero_grad(set_to_none=True)
    for k in range(20):
        step(k)
    turns, times = Turns(folder, settle=settle), []
    turns.hold(0)
    now, stepped = marks.now_ns, turns.stepped
    for k in range(int(steps)):
        begin = now()
        step(k)
        times.append(now() - begin)
        stepped(k + 1)
    with open(os.path.join(folder, "writing"), "w") as file:
        file.write(" ".join(map(str, times)))
    os.rename(file.name, os.path.join(folder, "steps"))

if start == "plain":
    train(folder)
else:  # a child for each folder whose name comes on standard input
    for line in sys.stdin:
        child = os.fork()
        if not child:
            train(line.strip()); os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
"""


class Side:
    """One process that trains, and our end of its turns."""

    def __init__(self, stack: ExitStack, start: Callable[[str], int]) -> None:
        self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tare-schedules-", dir="/dev/shm"))
        for path in paths(self.folder):
            os.mkfifo(path)
        self._grants, self._reports = (os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in paths(self.folder))
        stack.callback(os.close, self._grants)
        stack.callback(os.close, self._reports)
        self.spans_ns: list[tuple[int, int]] = []
        self.done = 0
        self.pid = start(self.folder)

    def grant(self, steps: int) -> None:
        os.write(self._grants, GRANT.pack(steps))

    def report(self) -> None:
        """Wait until it holds."""
        if not select.select([self._reports], [], [], LIMIT_S)[0]:
            raise TimeoutError(f"the process {self.pid} did not hold within {LIMIT_S:g} s")
        self.done, begin_ns, end_ns, _ = REPORT.unpack(os.read(self._reports, REPORT.size))
        self.spans_ns.append((begin_ns, end_ns))

    def turn(self, steps: int) -> None:
        self.signal(signal.SIGCONT)
        self.grant(steps)
        self.report()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def on(self, cores: set[int]) -> None:
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)

    def told(self) -> dict[str, float]:
        """Its mean and median step, in seconds, and the time of its turns by its steps."""
        steps = np.loadtxt(f"{self.folder}/steps") / 1e9
        own_s = sum(end - begin for begin, end in self.spans_ns[1:]) / 1e9
        return {"mean": float(steps.mean()), "median": float(np.median(steps)), "own": own_s / len(steps)}


class Starter:
    """Starts sides in one of the ways."""

    def __init__(self, stack: ExitStack, options: argparse.Namespace, threads: int, way: str) -> None:
        self._stack, self._way = stack, way
        self._words = [str(each) for each in (options.steps, options.batch, threads, options.device)]
        self._parent: subprocess.Popen[str] | None = None
        if way == "forked":
            self._parent = subprocess.Popen(
                self._argv("-", "fork"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
            )
            stack.callback(self._parent.wait)
            assert self._parent.stdin is not None
            stack.callback(self._parent.stdin.close)

    def _argv(self, folder: str, start: str) -> list[str]:
        before = ["setarch", platform.machine(), "-R"] if self._way == "unshuffled" else []
        return [*before, sys.executable, "-c", TRAIN, folder, *self._words, start]

    def __call__(self, folder: str) -> int:
        if self._parent is None:
            child = subprocess.Popen(self._argv(folder, "plain"), env=_environment())
            self._stack.callback(child.wait)
            return child.pid
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(folder + "\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}


def pair(options: argparse.Namespace, cell: str, schedule: str) -> dict[str, Any]:
    """Run one pair; what each side told, and how long it took."""
    threads, where, _ = cell.split("-")
    cores = sorted(os.sched_getaffinity(0))
    allowed = set(cores[:1]) if where == "same" else set(cores)
    begin_s = time.monotonic()
    with ExitStack() as stack:
        start = Starter(stack, options, int(threads), schedule)
        sides: list[Side] = []
        for _ in range(2):
            side = Side(stack, start)
            stack.callback(_end, side.pid)
            side.report()  # it has started, and warmed up
            side.on(allowed)
            sides.append(side)
            if schedule in SERIAL:
                side.turn(options.steps)
                side.grant(FREE)
            else:
                side.signal(signal.SIGSTOP)
        if schedule == "turns":
            _turns(sides, options)
        elif schedule == "duet":
            _duet(sides, options, cores)
        for side in sides:
            if schedule not in SERIAL:
                side.signal(signal.SIGCONT)
                side.grant(FREE)
            _until(Path(side.folder, "steps").exists)
        told = [side.told() for side in sides]
    return {"cell": cell, "schedule": schedule, "seconds": time.monotonic() - begin_s, "sides": told}


def _turns(sides: Sequence[Side], options: argparse.Namespace) -> None:
    for _ in range(options.steps // TURN):
        for side in random.sample(sides, 2):
            side.turn(TURN)
            side.signal(signal.SIGSTOP)


def _duet(sides: Sequence[Side], options: argparse.Namespace, cores: Sequence[int]) -> None:
    for side in sides:
        side.signal(signal.SIGCONT)
    rounds = options.steps // TURN
    for number in range(rounds):
        if number in (0, rounds // 2):
            for side, core in zip(sides, cores if number else cores[::-1], strict=False):
                side.on({core})
        for side in sides:
            side.grant(TURN)
        for side in sides:
            side.report()


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGKILL)


def _until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError("a side did not end")
        time.sleep(0.005)


@contextmanager
def loaded(cell: str) -> Iterator[None]:
    """A process that computes on the last core, where the cell says `busy`."""
    if not cell.endswith("-busy"):
        yield
        return
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(busy.pid, {max(os.sched_getaffinity(0))})
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def run(options: argparse.Namespace) -> None:
    had: dict[tuple[str, str], int] = defaultdict(int)
    if options.out.exists():
        for line in options.out.read_text().splitlines():
            row = json.loads(line)
            had[row["cell"], row["schedule"]] += 1
    with options.out.open("a") as file:
        for number in range(options.pairs):
            for cell in options.cells:
                order = [each for each in options.schedules if had[cell, each] <= number]
                random.shuffle(order)
                for schedule in order:
                    with loaded(cell):
                        row = pair(options, cell, schedule)
                    file.write(json.dumps({**row, "pair": number, "steps": options.steps}) + "\n")
                    file.flush()
            print(f"{number + 1} of {options.pairs} pairs", file=sys.stderr, flush=True)


def table(options: argparse.Namespace) -> None:
    """The scatter of the log ratio of a pair, with its 90 % interval, and the seconds of a pair."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in options.out.read_text().splitlines():
        row = json.loads(line)
        rows[row["cell"], row["schedule"]].append(row)
    print("| cell | schedule | pairs | means | medians | own time | seconds a pair | variance of means x seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for (cell, schedule), held in sorted(rows.items()):
        seconds = float(np.mean([row["seconds"] for row in held]))
        scatter = {
            of: np.array([np.log(row["sides"][1][of] / row["sides"][0][of]) for row in held])
            for of in ("mean", "median", "own")
        }
        cells = " | ".join(_scatter(each) for each in scatter.values())
        cost = float(np.mean(scatter["mean"] ** 2)) * 1e4 * seconds
        print(f"| {cell} | {schedule} | {len(held)} | {cells} | {seconds:.1f} | {cost:.0f} |")


def _scatter(logs: np.ndarray[Any, Any]) -> str:
    chance = np.random.default_rng(0)
    drawn = chance.choice(logs, (2000, len(logs)))
    low, high = np.quantile(np.sqrt(np.mean(drawn**2, axis=1)), (0.05, 0.95))
    return f"{100 * float(np.sqrt(np.mean(logs**2))):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("run", "table"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cells", nargs="+", default=CELLS)
    parser.add_argument("--schedules", nargs="+", default=SCHEDULES, choices=SCHEDULES)
    options = parser.parse_args()
    (run if options.do == "run" else table)(options)


if __name__ == "__main__":
    main()
