"""A GPU of numbers: kernels take time on its own queue, the host runs ahead of it, and their clocks differ a little."""

from __future__ import annotations

import struct
from typing import Any

US = 1_000
MS = 1_000_000
RECORDING, LAUNCHING, WAKING = 1 * US, 5 * US, 8 * US  # what a call costs the host


class PretendGpu:
    """Stands in for `torch.cuda`, and for the host's clock (`now_ns`)."""

    def __init__(self, rate: float = 1.0) -> None:
        self.host_ns = 10**15
        self.free_ns = self.host_ns
        self.rate = rate  # the GPU counts so many nanoseconds where the host counts one
        self.waits = 0

    def now_ns(self) -> int:
        return self.host_ns

    def Event(self, enable_timing: bool) -> _Event:  # noqa: N802 - as torch calls it
        return _Event(self)

    def synchronize(self) -> None:
        self.waits += 1
        self.host_ns = max(self.host_ns, self.free_ns) + WAKING

    def launch(self, kernel_ns: int) -> None:
        self.host_ns += LAUNCHING
        self.free_ns = max(self.free_ns, self.host_ns) + kernel_ns

    def spend(self, host_ns: int) -> None:
        self.host_ns += host_ns


class _Event:
    def __init__(self, gpu: PretendGpu) -> None:
        self._gpu = gpu
        self.at_ns = 0

    def record(self) -> None:
        self._gpu.host_ns += RECORDING
        self.at_ns = max(self._gpu.free_ns, self._gpu.host_ns)
        self._gpu.free_ns = self.at_ns

    def synchronize(self) -> None:
        self._gpu.synchronize()

    def elapsed_time(self, later: _Event) -> float:
        """Milliseconds as a float32, which is all that the driver gives."""
        exact = (later.at_ns - self.at_ns) * self._gpu.rate / 1e6
        return float(struct.unpack("<f", struct.pack("<f", exact))[0])


class Batch:
    """A mini-batch whose copy to the GPU takes a while, and the loss of it."""

    def __init__(self, gpu: PretendGpu, copy_ns: int) -> None:
        self._gpu, self._copy_ns = gpu, copy_ns

    def to(self, device: Any, non_blocking: bool) -> Batch:
        self._gpu.launch(self._copy_ns)
        if not non_blocking:
            self._gpu.synchronize()
        return self

    def detach(self) -> Batch:
        return self


class Loader:
    """Mini-batches, for each of which the host has to wait."""

    def __init__(self, gpu: PretendGpu, fetch_ns: int, copy_ns: int) -> None:
        self._gpu, self._fetch_ns, self._copy_ns = gpu, fetch_ns, copy_ns

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> tuple[Batch, Batch]:
        self._gpu.spend(self._fetch_ns)
        return Batch(self._gpu, self._copy_ns), Batch(self._gpu, 0)
