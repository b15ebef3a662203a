"""What marking someone's script costs it: LeNet-5, batch 16, attached to and not, turn and turn about in one process.

    python -m benchmarks.attach [ROUNDS]

The ratio of wall time and of CPU time, each a median over rounds with its 95 % interval, and, since both are noisier
than what is sought, the hooks alone: the watched functions of torch replaced by ones that do nothing, called as a step
calls them, with our hooks around them and without. Called again and again they are in the processor's caches; in a
training step they are not, and what they take there is told by clocks around each hook and around what it calls.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, dataloader

from benchmarks.marks import _estimate, _memory, _training_loop
from tare_inside import attach
from tare_inside.workloads.models import LeNet5

ROUNDS = 41
STEPS = 25  # of the training loop, in a round
CALLS = 4000  # of the hooks alone, in a round

Places = tuple[tuple[Any, str, Any], ...]


def measure(rounds: int = ROUNDS) -> dict[str, Any]:
    """Ratios of a marked step to a plain one, and the time of the hooks alone as a share of the plain step."""
    loop = _lenet_loop()
    loop()
    plain, make = _places(), torch.optim.Optimizer.__init__
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        watch = attach.attach(torch, f"{folder}/marks.bin")
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # the first optimiser begins the marking
        watched = _places()
        pairs = [(_spent(loop, plain), _spent(loop, watched)) for _ in range(rounds)]
        _put(plain)
        watch.end()
    torch.optim.Optimizer.__init__ = make  # type: ignore[method-assign]  # else the first watch takes the steps below
    in_loop_ns = _hooks_in_loop_ns(rounds)
    torch.optim.Optimizer.__init__ = make  # type: ignore[method-assign]
    hooks_ns = _hooks_alone_ns()
    step_ns = _estimate([cpu_ns / STEPS for (_, cpu_ns), _ in pairs])
    return {
        "wall": _estimate([marked[0] / bare[0] for bare, marked in pairs]),
        "cpu": _estimate([marked[1] / bare[1] for bare, marked in pairs]),
        "step_ns": step_ns,
        "hooks_ns": hooks_ns,
        "in_loop_ns": in_loop_ns,
        "hooks_share": hooks_ns["value"] / step_ns["value"],
    }


def _lenet_loop() -> Callable[[], None]:
    data = TensorDataset(torch.randn(STEPS * 16, 1, 28, 28), torch.randint(0, 10, (STEPS * 16,)))
    model = LeNet5.build()
    loader = DataLoader(data, batch_size=16)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def loop() -> None:
        for inputs, wanted in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), wanted).backward()
            optimiser.step()

    return loop


def _hooks_alone_ns() -> dict[str, Any]:
    """A step's worth of hooks around functions that do nothing, less those functions."""
    kept = _places()
    for owner, name, _ in kept:
        setattr(owner, name, _nothing)
    empty = _places()
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        watch = attach.attach(torch, f"{folder}/marks.bin")
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        watched, iterator = _places(), object.__new__(dataloader._BaseDataLoaderIter)
        iterator._tare_pass = watch.steps.iterated(1, 1, True)

        def loop() -> None:
            take, backward, step = (
                dataloader._BaseDataLoaderIter.__next__,
                torch.autograd.backward,
                torch.optim.SGD.step,
            )
            for _ in range(CALLS):
                take(iterator)
                backward(None)
                step(optimiser)

        pairs = [(_spent(loop, empty), _spent(loop, watched)) for _ in range(7)]
        watch.end()
    _put(kept)
    return _estimate([(marked[1] - bare[1]) / CALLS for bare, marked in pairs])


def _hooks_in_loop_ns(rounds: int) -> float:
    """The median of what each hook takes before and after what it watches, less that of no hook; summed."""
    loop, plain = _training_loop(), _places()
    inside_ns, sides = [0, 0], []

    def timed(call: Callable[..., Any], spent: list[tuple[int, int]] | None) -> Callable[..., Any]:
        @functools.wraps(call)
        def around(*arguments: Any, **options: Any) -> Any:
            begin_ns = time.perf_counter_ns()
            result = call(*arguments, **options)
            end_ns = time.perf_counter_ns()
            if spent is None:
                inside_ns[:] = begin_ns, end_ns
            else:
                spent.append((inside_ns[0] - begin_ns, end_ns - inside_ns[1]))
            return result

        return around

    _put(tuple((owner, name, timed(call, None)) for owner, name, call in plain))
    bare = _places()
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        watch = attach.attach(torch, f"{folder}/marks.bin")
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        for places in (bare, _places()):
            spent: list[list[tuple[int, int]]] = [[] for _ in places]
            sides.append(
                (tuple((owner, name, timed(call, spent[at])) for at, (owner, name, call) in enumerate(places)), spent)
            )
        for _ in range(rounds):
            for places, _ in sides:
                _put(places)
                loop()
        _put(plain)
        watch.end()
    without, with_hooks = (
        sum(median(times) for one in spent for times in zip(*one, strict=True)) for _, spent in sides
    )
    return float(with_hooks - without)


def _nothing(*arguments: Any) -> None:
    pass


_nothing.hooked = True  # type: ignore[attr-defined]  # else torch wraps it, as the step of an optimiser, in a profiler


def _places() -> Places:
    """The places of torch that are watched in a training step, as they are now."""
    watched = (
        (dataloader._BaseDataLoaderIter, "__next__"),
        (torch.autograd, "backward"),
        (torch.optim.SGD, "step"),
    )
    return tuple((owner, name, getattr(owner, name)) for owner, name in watched)


def _put(places: Places) -> None:
    for owner, name, value in places:
        setattr(owner, name, value)


def _spent(loop: Callable[[], None], places: Places) -> tuple[int, int]:
    """Nanoseconds of wall time and of CPU time that the loop takes with torch like this."""
    _put(places)
    wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
    loop()
    return time.perf_counter_ns() - wall_ns, time.process_time_ns() - cpu_ns


def text(result: dict[str, Any]) -> str:
    def shown(figure: dict[str, float], form: str) -> str:
        return f"{figure['value']:{form}} [{figure['low']:{form}}, {figure['high']:{form}}]"

    micro = {name: result["hooks_ns"][name] / 1000 for name in ("value", "low", "high")}
    return "\n".join(
        [
            f"  marked over plain, wall time  {shown(result['wall'], '.4f')}",
            f"  marked over plain, CPU time   {shown(result['cpu'], '.4f')}",
            f"  the hooks of a step alone     {shown(micro, '.1f')} us of CPU time, "
            f"{result['hooks_share']:.2%} of a plain step's {result['step_ns']['value'] / 1000:.0f} us",
            f"  and in a loop of 1 ms steps   {result['in_loop_ns'] / 1000:.1f} us",
        ]
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(text(measure(*map(int, sys.argv[1:]))) + "\n")
