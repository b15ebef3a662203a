"""Clocks as the kernel tells them: of each core, of a Jetson's GPU and of its memory."""

from __future__ import annotations

from collections.abc import Iterator

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel, PositiveSeconds, cores
from tare.drivers.gpus import nvidia
from tare.drivers.kernel_files import FileFeed, KernelFile, number, text_of, within
from tare.parts.protocols import Feed, Probe

_CPUS = "/sys/devices/system/cpu"
_MEMORY = (  # root only; Xavier and Orin, Nano and TX2, a mainline kernel
    "/sys/kernel/debug/bpmp/debug/clk/emc/rate",
    "/sys/kernel/debug/clk/emc/clk_rate",
    "/sys/kernel/debug/tegra_bwmgr/emc_rate",
    "/sys/kernel/debug/clk/override.emc/clk_rate",
)
_ANSWER_S = 3.0


class Frequency(Probe):
    """The clock of each core, and on a Jetson those of GPU and memory (NVIDIA cards: the probe `gpu`)."""

    period: PositiveSeconds = 0.5
    """How often they are read; asking may wake an idle core."""

    def obstacles(self, host: Host) -> list[Ruling]:
        try:
            found = within(_ANSWER_S, lambda: any(text_of(host, file.path) is not None for file in files_of(host)))
        except TimeoutError:
            return [obstacle("device.silent", f"{host.name} gave no answer within {_ANSWER_S:g} s.")]
        return (
            []
            if found
            else [
                obstacle(
                    "needs.hardware",
                    f"{host.name} reports no clock frequencies (no cpufreq, no devfreq of a Jetson's GPU).",
                )
            ]
        )

    def open(self, host: Host, scope: Scope) -> Feed:
        return FileFeed("frequency", host, files_of(host), round(self.period * 1e9))


def files_of(host: Host) -> Iterator[KernelFile]:
    """In order of trust: of files with the same channel the first that is there is read."""
    for core in _cores(host):
        channel = Channel(f"frequency.cpu{core}_hz", "Hz", "gauge", "scaling_cur_freq of the core")
        yield KernelFile(f"{_CPUS}/cpu{core}/cpufreq/scaling_cur_freq", number(channel, 1000), slow=True)
    yield from nvidia.clock_files(Channel("frequency.gpu_hz", "Hz", "gauge", "devfreq of the GPU"))
    for path in _MEMORY:
        channel = Channel("frequency.memory_hz", "Hz", "gauge", "clock of the memory controller")
        yield KernelFile(path, number(channel), slow=True)


def _cores(host: Host) -> list[int]:
    try:
        return list(cores(host.read(f"{_CPUS}/present").strip()))
    except (OSError, ValueError):
        return []
