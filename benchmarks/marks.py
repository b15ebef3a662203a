"""What a mark costs: ours against torch.profiler.record_function, interleaved in one process, as a ratio.

    python -m benchmarks.marks [--against OTHER/src [TURNS]]

Also what it costs someone's training loop to be marked from outside (`attach`), at about 1 ms a step. With another
tree, both are measured in processes that take turns, and each figure is given as a ratio.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import profile, record_function
from torch.utils.data import DataLoader, TensorDataset, dataloader

from benchmarks.rounds import Rounds
from tare.analysis.numeric.medians import median_estimate
from tare_inside import attach, marks

SIDES = ("tare", "record_function", "record_function, profiling", "tare, in a group")
ROUNDS = 31
INTERVALS = 500  # of two marks each, in a round
STEPS = 50  # of the training loop, in a round


def measure() -> dict[str, Any]:
    """Nanoseconds a mark, and ratios of the others to ours, each a median over rounds with its 95 % interval."""
    kept = Rounds()
    with _marks_open():
        for _ in range(ROUNDS):
            for name, taken_ns in zip(SIDES, _round(), strict=True):
                kept.add(name, taken_ns / 1e9)
    ours, theirs, profiled, grouped = (tuple(value * 1e9 for value in kept[name]) for name in SIDES)
    loops = _attached_and_plain()
    for plain_s, watched_s in loops:
        kept.add("a step", plain_s / STEPS)
        kept.add("a step, attached", watched_s / STEPS)
    kept.keep("marks")
    return {
        "ours_ns": _estimate(ours),
        "ours_grouped_ns": _estimate(grouped),
        "record_function_ns": _estimate(theirs),
        "record_function_profiling_ns": _estimate(profiled),
        "record_function_over_ours": _estimate(_ratios(theirs, ours)),
        "record_function_profiling_over_ours": _estimate(_ratios(profiled, ours)),
        "attached_over_plain_loop": _estimate([watched_s / plain_s for plain_s, watched_s in loops]),
        "hooks_ns": _estimate([(watched_s - plain_s) / STEPS * 1e9 for plain_s, watched_s in loops]),
    }


def _round() -> tuple[float, float, float, float]:
    ours = _ns_a_mark(_mark)
    theirs = _ns_a_mark(_record)
    with _quiet(), profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True):
        profiled = _ns_a_mark(_record)
    return ours, theirs, profiled, _ns_a_mark(_mark_grouped, intervals=4)


def _mark(count: int) -> None:
    begin, end = marks.begin, marks.end
    for step in range(count):
        begin("fetch", step)
        end("fetch", step)


def _mark_grouped(count: int) -> None:
    write, now = marks.group(("fetch", "copy", "compute", "step"), count), marks.now_ns
    for step in range(count):
        t0, t1, t2, t3 = now(), now(), now(), now()
        write(step, t0, t1, t1, t2, t2, t3, t0, t3)


def _record(count: int) -> None:
    for _ in range(count):
        with record_function("fetch"):
            pass


def _ns_a_mark(marking: Callable[[int], None], intervals: int = 1) -> float:
    begin_ns = time.thread_time_ns()
    marking(INTERVALS)
    return (time.thread_time_ns() - begin_ns) / (2 * INTERVALS * intervals)


def _attached_and_plain() -> list[tuple[float, float]]:
    """CPU time of a training loop with torch as it is, and watched: turn and turn about."""
    loop = _training_loop()  # torch itself wraps the step of an optimiser when the first one is made
    plain = _torch_now()
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        watch = attach.attach(torch, f"{folder}/marks.bin")
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # the first optimiser begins the marking
        watched = _torch_now()
        pairs = []
        for place in range(ROUNDS + 1):
            taken = {side: _cpu_s(loop, side) for side in ((plain, watched), (watched, plain))[place % 2]}
            pairs.append((taken[plain], taken[watched]))
        _put(plain)
        watch.end()
    return pairs[1:]


Torch = tuple[tuple[Any, str, Any], ...]


def _torch_now() -> Torch:
    places = (
        (dataloader.DataLoader, "__iter__"),
        (dataloader._BaseDataLoaderIter, "__next__"),
        (torch.autograd, "backward"),
        (torch.optim.SGD, "step"),
    )
    return tuple((owner, name, getattr(owner, name)) for owner, name in places)


def _put(side: Torch) -> None:
    for owner, name, value in side:
        setattr(owner, name, value)


def _cpu_s(loop: Callable[[], None], side: Torch) -> float:
    _put(side)
    begin_ns = time.process_time_ns()
    loop()
    return (time.process_time_ns() - begin_ns) / 1e9


def _training_loop() -> Callable[[], None]:
    """A pass of STEPS mini-batches, each about a millisecond of work."""
    data = TensorDataset(torch.randn(STEPS * 8, 128), torch.randint(0, 10, (STEPS * 8,)))
    loader = DataLoader(data, batch_size=8)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def loop() -> None:
        for inputs, wanted in loader:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), wanted).backward()
            optimiser.step()

    return loop


@contextmanager
def _marks_open() -> Iterator[None]:
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        marks.open_marks(f"{folder}/marks.bin", (ROUNDS + 1) * INTERVALS * 10)
        try:
            yield
        finally:
            marks.close_marks()


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's profiler talks on stderr, past Python."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _memory() -> str | None:
    """Where workdirs lie: in memory, if there is a place for that."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _ratios(ours: tuple[float, ...], theirs: tuple[float, ...]) -> list[float]:
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def _estimate(values: tuple[float, ...] | list[float]) -> dict[str, float | None]:
    found = median_estimate(values)
    return {"value": found.value, "low": found.low, "high": found.high, "n": found.n}


def text(result: dict[str, Any]) -> str:
    def shown(name: str, form: str) -> str:
        figure = result[name]
        return f"{figure['value']:{form}} [{figure['low']:{form}}, {figure['high']:{form}}]"

    return "\n".join(
        [
            f"  begin or end       {shown('ours_ns', '.0f')} ns a mark",
            f"  grouped, as in our train loop  {shown('ours_grouped_ns', '.0f')} ns a mark",
            f"  record_function    {shown('record_function_ns', '.0f')} ns; "
            f"{shown('record_function_over_ours', '.1f')} x ours",
            f"  while profiling    {shown('record_function_profiling_ns', '.0f')} ns; "
            f"{shown('record_function_profiling_over_ours', '.1f')} x ours",
            f"  a script with attach, against without: {shown('attached_over_plain_loop', '.3f')} x (CPU time), "
            f"{shown('hooks_ns', '.0f')} ns per step",
        ]
    )


def against(other: str, turns: int) -> str:
    """This tree and another in turns: (median of the other, of this one, their ratio with its interval)."""
    here = str(Path(attach.__file__).parents[1])
    found: dict[str, list[dict[str, Any]]] = {other: [], here: []}
    for _ in range(turns):
        for tree, results in found.items():
            words, env = [sys.executable, "-m", "benchmarks.marks", "--json"], {**os.environ, "PYTHONPATH": tree}
            results.append(json.loads(subprocess.run(words, env=env, check=True, stdout=subprocess.PIPE).stdout))
    lines = []
    for name in ("ours_ns", "ours_grouped_ns", "hooks_ns"):
        before, now = (tuple(result[name]["value"] for result in results) for results in found.values())
        ratio = _estimate(_ratios(before, now))
        lines.append(f"  {name:16} {statistics.median(before):.0f} -> {statistics.median(now):.0f} ns: "
                     f"{ratio['value']:.2f} x [{ratio['low']:.2f}, {ratio['high']:.2f}], n = {turns}")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    if "--against" in sys.argv:
        other, *turns = sys.argv[sys.argv.index("--against") + 1 :]
        print(against(other, *(map(int, turns or ["7"]))))
        return
    result = measure()
    print(json.dumps(result, indent=1) if "--json" in sys.argv else text(result))


if __name__ == "__main__":
    main()
