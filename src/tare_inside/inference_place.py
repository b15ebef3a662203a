"""Where a network computes: how its tensors come to the device, how to wait for it, how to note when it was there."""

from collections import namedtuple

import torch

# `move` takes and gives a tuple of tensors; `wait` waits until the device has done its work; `tick` records an event
# there. On a CPU the last two do nothing.
Place = namedtuple("Place", "move wait tick")


def _nothing():
    """What there is to wait for, and to record, on a CPU."""


def place(tensors_on, device, tick=None, wait=True):
    """`tensors_on` is where the back end wants its tensors, `device` where it computes."""
    move = _as_they_are if tensors_on == "cpu" else _moving(torch.device(tensors_on))
    waiting = _wait_for_stream if device == "cuda" and wait else _nothing
    return Place(move, waiting, tick or _nothing)


def _as_they_are(tensors):
    return tensors


def _moving(device):
    def move(tensors):
        return tuple(tensor.to(device, non_blocking=True) for tensor in tensors)

    return move


def _wait_for_stream():
    """Only what this thread asked for: other requests in flight are none of its business."""
    torch.cuda.current_stream().synchronize()


def without_gradients(work):
    """`work`, to be run in a thread: nothing is kept for a backward pass."""
    mode = getattr(torch, "inference_mode", torch.no_grad)

    def run():
        with mode():
            work()

    return run


def in_own_stream(work):
    """As `without_gradients`, with a CUDA stream of the thread's own, so that requests can overlap on the GPU."""

    def run():
        with torch.cuda.stream(torch.cuda.Stream()):
            work()

    return without_gradients(run)
