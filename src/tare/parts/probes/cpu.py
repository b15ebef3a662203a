"""The CPU: its time, as counters (shares are taken in the analysis), and clocks as the kernel tells them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import repeat

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle
from tare.base.units import CLOCK, Channel, PositiveSeconds, cores
from tare.drivers import nvidia
from tare.drivers.kernel_files import (
    Field,
    FileFeed,
    KernelFile,
    Keyed,
    Rising,
    make_reading,
    number,
    pressure,
    text_of,
    unreadable,
    whole,
    within,
)
from tare.parts.protocols import Feed, Probe, Reading

STAT = "/proc/stat"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # the order of /proc/stat
_IOWAIT = _KINDS.index("iowait")
_GROUPS = {"cpu": "CPU of the device"}  # a single core has no chart of its own
_PRESSURE = Channel("cpu.pressure_some_s", "s", "counter", "time in which some task waited for a core")
_COUNTS = (
    Field("ctxt", Channel("cpu.switches", "1", "counter", "context switches of the device")),
    Field("procs_running", Channel("cpu.running", "1", "gauge", "tasks that run or wait for a core")),
)


class Cpu(Probe):
    """CPU time of the device by kind, context switches, and how long tasks waited for a core."""

    reads_files_only = True
    may_block = False  # counters in the kernel's memory

    per_core: bool = False
    """The times of each core as well."""
    frequency: bool = False
    """The clock of each core, where the kernel reports it; off, because asking may wake an idle core."""

    def obstacles(self, host: Host) -> list[Ruling]:
        return unreadable(host, STAT)

    def open(self, host: Host, scope: Scope) -> Feed:
        files = [KernelFile(STAT, self._parser), KernelFile("/proc/pressure/cpu", pressure(_PRESSURE), slow=True)]
        if self.frequency:
            files += [_clock_of(core) for core in _cores(host.read(STAT))]
        return FileFeed("cpu", host, files)

    def _parser(self, text: str) -> StatParser:
        return StatParser(text, _cores(text) if self.per_core else ())


class StatParser:
    """Reads /proc/stat: the `cpu` line, and `cpu0` ... where asked. A core that goes offline just has no readings."""

    def __init__(self, text: str, cores: Sequence[int]) -> None:
        self._lines = [_CoreLine("\ncpu ", "cpu")]
        self._lines += [_CoreLine(f"\ncpu{core} ", f"cpu.core{core}") for core in cores]
        self._counts = Keyed(_COUNTS, text)
        self.channels = tuple(c for line in self._lines for c in line.channels) + self._counts.channels

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        lines = "\n" + text
        readings = self._counts(t_ns, text)
        for line in self._lines:
            readings += line.readings(t_ns, lines)
        return readings


class _CoreLine:
    def __init__(self, key: str, prefix: str) -> None:
        self._key = key
        self._names = tuple(f"{prefix}.{kind}_s" for kind in (*_KINDS, "busy"))
        self._iowait = Rising()  # Documentation/filesystems/proc: this one may decrease
        *parts, busy = self._names
        self.channels = (
            *(Channel(name, "s", "counter") for name in parts),
            Channel(busy, "s", "counter", words="cores", group=_GROUPS.get(prefix, ""), rank=20),
        )

    def readings(self, t_ns: int, lines: str) -> list[Reading]:
        found = lines.find(self._key)
        if found < 0:
            return []
        begin = found + len(self._key)
        fields = lines[begin : lines.find("\n", begin)].split()
        times = [whole(field) * TICK_S for field in fields[: len(_KINDS)]]
        user, nice, system, _, iowait, irq, softirq, _ = times
        times[_IOWAIT] = self._iowait(iowait)
        times.append(user + nice + system + irq + softirq)
        return list(map(make_reading, zip(repeat(t_ns), self._names, times)))


def _cores(stat: str) -> list[int]:
    words = [line.partition(" ")[0] for line in stat.splitlines()]
    return [int(word[3:]) for word in words if word.startswith("cpu") and word[3:].isdecimal()]


def _clock_of(core: int) -> KernelFile:
    channel = Channel(f"cpu.core{core}.freq_hz", "Hz", "gauge", "clock of the core as the kernel reports it")
    return KernelFile(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", number(channel, 1000))


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

    reads_files_only = True
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
    for core in _present(host):
        channel = Channel(
            f"frequency.cpu{core}_hz", "Hz", "gauge", "scaling_cur_freq of the core", group=CLOCK, rank=72
        )
        yield KernelFile(f"{_CPUS}/cpu{core}/cpufreq/scaling_cur_freq", number(channel, 1000), slow=True)
    yield from nvidia.clock_files(
        Channel("frequency.gpu_hz", "Hz", "gauge", "devfreq of the GPU", group=CLOCK, rank=71)
    )
    for path in _MEMORY:
        channel = Channel("frequency.memory_hz", "Hz", "gauge", "clock of the memory controller")
        yield KernelFile(path, number(channel), slow=True)


def _present(host: Host) -> list[int]:
    try:
        return list(cores(host.read(f"{_CPUS}/present").strip()))
    except (OSError, ValueError):
        return []
