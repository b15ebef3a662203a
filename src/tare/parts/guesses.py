"""What a built-in workload takes, before anyone has run it: for plans, within a factor of two or three.

The figures are of small machines: two Neoverse-N1 cores that others use too, and the GPU of a Jetson AGX Orin as S0
has it (ResNet-18, batch 16: 50 ms a step).
"""

from __future__ import annotations

from typing import NamedTuple

from tare_inside import named

START_S = 5.0
"""Start Python, import torch, build the network."""

USUAL_CORES = 2  # where the platform does not say
_MOST_CORES = 16  # more hardly help one mini-batch
_MACS_A_CORE = 4e9  # each second
_MACS_A_GPU = 2e12
_A_STEP_S = {"cpu": 1e-3, "cuda": 4e-3}  # whatever the size of its work
_TRAINED = 3  # forward, and twice as much backward
_LARGE_PIXELS = 64
_LARGE_ITEM_S = 4e-3  # read a picture, decode it, resize it
_SMALL_ITEM_S = 1e-4
_BESIDE = 3  # at most so many loader workers help


class Size(NamedTuple):
    """How large a mini-batch is, and of which network."""

    model: str
    device: str
    batch: int
    pixels: int | None
    scale: float
    cores: int = USUAL_CORES

    def forward_s(self) -> float:
        """One mini-batch: the work grows with the area of an image, and with the square of the network's width."""
        network = named.find("models", self.model)
        area = 1.0 if self.pixels is None else (self.pixels / network.INPUT[-1]) ** 2
        speed = _MACS_A_GPU if self.device == "cuda" else _MACS_A_CORE * min(self.cores, _MOST_CORES)
        return float(network.FLOPS) * area * self.scale**2 * self.batch / speed

    def load_s(self) -> float:
        side = self.pixels or int(named.find("models", self.model).INPUT[-1])
        return (_LARGE_ITEM_S if side >= _LARGE_PIXELS else _SMALL_ITEM_S) * self.batch


def training_s(size: Size, steps: int, workers: int) -> float:
    """`steps` mini-batches, their loading beside them as far as there are workers."""
    compute_s = _TRAINED * size.forward_s() + _A_STEP_S[size.device]
    step_s = max(compute_s, size.load_s() / min(workers, _BESIDE)) if workers else compute_s + size.load_s()
    return START_S + steps * step_s


def inference_s(size: Size, requests: int, *, from_files: bool) -> float:
    """`requests` requests; those of an application begin with a file."""
    load_s = size.load_s() if from_files else 0.0
    return START_S + requests * (size.forward_s() + load_s + _A_STEP_S[size.device])
