"""NVIDIA GPUs. Cards through NVML: power, energy, clocks, what holds the clocks back, and who else computes there.

Power is the instant field where the driver has one (525 and later). It changes every 100 ms, and on A100 and H100 the
sensor looks a quarter of the time only: the energy counter is the better source for a sum. A channel's `about` says
which field a value is from, and over which time it is averaged.

Asking can be dear: an H200's driver spends 3.6 ms of CPU time on the energy counter (0.1 ms on the power, 0.01 ms on a
clock), ten times a second 4 % of a core. So what is dear is asked less often: all together stays below a share of one.

A Jetson's GPU is told by the kernel's own files: how busy it is, and its clock. Its power is a rail's (`power_rails`).
So are AMD's and Intel's, where there is none of NVIDIA's: with power or a counter of energy, clock and temperature.
Where AMD's own library is there (`amdsmi`, with ROCm), it is asked instead: it has the energy counter too.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from tare.base.errors import DeviceLost, TareError
from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle, probe_note
from tare.base.units import Channel, parse_share
from tare.drivers import nvidia, other_gpus
from tare.drivers.cgroups.tree import NAME_VARIABLE
from tare.drivers.kernel_files import FileFeed
from tare.drivers.nvidia import Gpu as Device
from tare.drivers.other_gpus import AmdGpu
from tare.parts.protocols import Feed, Probe, Reading

SLOW_PERIOD_S = 1.0
_RECENT = 3  # answers of which the cheapest counts as what an answer costs
INSTANT = "NVML_FI_DEV_POWER_INSTANT: instant, a new value every 100 ms"
AVERAGE = "nvmlDeviceGetPowerUsage: averaged over 1 s since Ampere (but GA100)"
COUNTER = "nvmlDeviceGetTotalEnergyConsumption: since the driver was loaded"


class Gpu(Probe):
    """NVIDIA GPUs: power, energy, use, memory, clocks, throttling, processes of others; on a Jetson use and clock.

    Of AMD's what `amdsmi` tells where that is installed, else, and of Intel's, what the kernel's files tell; not run on
    such hardware.
    """

    share: Annotated[float, BeforeValidator(parse_share), Field(gt=0, le=1)] = 0.012
    """So much of a core may be spent on asking the driver of each GPU; where answers are dear, they are fewer."""

    def obstacles(self, host: Host) -> list[Ruling]:
        why = nvidia.trouble(host)
        if why is None or nvidia.has_integrated(host) or other_gpus.cards(host):
            return []
        return [obstacle("needs.gpu", f"{why.rstrip('.')}; and no AMD or Intel GPU with sensors is there.")]

    def open(self, host: Host, scope: Scope) -> Feed:
        try:
            devices = nvidia.gpus(host)
        except DeviceLost:
            raise
        except TareError:
            devices = []  # its obstacle says so; a trial goes on without it
        others = [] if devices else other_gpus.cards(host)
        if {card.vendor for card in others} == {"AMD"} and (theirs := other_gpus.amd_gpus(host)):
            return GpuFeed(host, [_of_amd(host, device, self.share) for device in theirs])
        if others:
            return FileFeed("gpu", host, other_gpus.files(host))
        cards = GpuFeed(host, [_of_nvidia(host, device, self.share) for device in devices])
        tells_use = any(channel.name.endswith(".util") for channel in cards.channels)
        if tells_use or not nvidia.has_integrated(host):
            return cards
        return FileFeed("gpu", host, nvidia.integrated_files())


class Source(NamedTuple):
    """One channel, and where its value comes from; None is no reading."""

    channel: Channel
    read: Callable[[], float | None]


class GpuFeed:
    """All GPUs of the device, while they are watched."""

    def __init__(self, host: Host, watched: Iterable[_Watched]) -> None:
        self.errors: Counter[str] = Counter()  # channel -> reads that failed
        self.lost: list[Ruling] = []  # what could not be watched to the end
        self._host = host
        self._watched = list(watched)
        self.channels: tuple[Channel, ...] = tuple(c for one in self._watched for c in one.channels())

    def poll(self) -> list[Reading]:
        return [reading for one in self._watched for reading in self._readings(one, one.due())]

    def close(self) -> list[Reading]:
        """Everything once more: the counters' end matters."""
        last = [reading for one in self._watched for reading in self._readings(one, one.groups)]
        self._watched = []
        return last

    def _readings(self, one: _Watched, groups: Iterable[_Group]) -> list[Reading]:
        """What one GPU says; of a GPU that is gone, only that it is, and that each time."""
        now_ns = self._host.clock.now_ns
        readings: list[Reading] = []
        for group in () if one.is_lost else groups:
            begin_s = time.thread_time()
            try:
                values = self._values(group)
            except DeviceLost as error:
                one.is_lost = True
                self.lost.append(probe_note(error.code, "gpu", str(error)))
                break
            readings += [Reading(now_ns(), name, value) for name, value in values.items()]
            group.was_read(now_ns(), time.thread_time() - begin_s)
        return [*readings, Reading(now_ns(), one.lost_channel.name, float(one.is_lost))]

    def _values(self, group: _Group) -> dict[str, float]:
        found = {}
        for source in group.sources:
            try:
                value = source.read()
            except DeviceLost:
                raise
            except (TareError, OSError, ValueError):
                self.errors[source.channel.name] += 1
                continue
            if value is not None:
                found[source.channel.name] = value
        return found


class _Group:
    """Sources that are read together, not more often than their period, and seldom enough to keep to their share."""

    def __init__(self, sources: Sequence[Source], share: float, period_s: float = 0.0) -> None:
        begin_s = time.thread_time()
        self.sources = [source for source in sources if source.read() is not None]
        self._costs_s = deque([time.thread_time() - begin_s], maxlen=_RECENT)
        self._share, self._period_s = share, period_s
        self.due_ns = 0

    def was_read(self, now_ns: int, cost_s: float) -> None:
        """A single dear answer (the driver wakes up, a context is being made) does not silence a group for seconds."""
        self._costs_s.append(cost_s)
        self.due_ns = now_ns + round(max(self._period_s, min(self._costs_s) / self._share) * 1e9)


class _Watched:
    """One GPU: its sources by how often they are read. Only what it has is declared."""

    def __init__(self, host: Host, label: str, groups: Sequence[_Group]) -> None:
        self.is_lost = False
        about = "1 once the GPU no longer answers its driver"
        self.lost_channel = Channel(f"{label}.lost", "1", "counter", about)
        self.groups = groups
        self._clock = host.clock

    def channels(self) -> list[Channel]:
        return [source.channel for group in self.groups for source in group.sources] + [self.lost_channel]

    def due(self) -> list[_Group]:
        now_ns = self._clock.now_ns()
        return [group for group in self.groups if now_ns >= group.due_ns]


def _of_nvidia(host: Host, device: Device, share: float) -> _Watched:
    slow = [*_state(device), *_throttles(host, device), _foreign(host, device.label, device.compute_pids)]
    groups = [
        _Group([_power(device)], share * 0.1),
        _Group([_energy(device)], share * 0.7),
        _Group([_clock(device)], share * 0.1),
        _Group(slow, share * 0.1, SLOW_PERIOD_S),
    ]
    return _Watched(host, device.label, groups)


def _of_amd(host: Host, device: AmdGpu, share: float) -> _Watched:
    def source(name: str, unit: str, about: str, read: Callable[[], float | None]) -> Source:
        kind: Literal["counter", "gauge"] = "counter" if name.endswith(("_j", "_s")) else "gauge"
        return Source(Channel(f"{device.label}.{name}", unit, kind, f"{about} (amdsmi)"), read)

    held = _Polled(host, lambda: None if (now := device.is_held_back()) is None else int(now), 1)
    slow = [
        source("util", "share", "of the time in which the shaders were busy", device.util),
        source("memory_used_bytes", "bytes", "of all processes", device.memory_used_bytes),
        source("memory_clock_hz", "Hz", "of the GPU's memory", lambda: device.clock_hz("MEM")),
        source("temperature_c", "C", "of the die's edge, or its hottest spot", device.temperature_c),
        source("throttle_s", "s", "clock held back for power, current or heat; as seen once a second", held.seconds),
        _foreign(host, device.label, device.compute_pids),
    ]
    energy = _rising(device.energy_j)
    groups = [
        _Group([source("power_w", "W", "of the socket", device.power_w)], share * 0.1),
        _Group([source("energy_j", "J", "of the socket, since the driver was loaded", energy)], share * 0.7),
        _Group([source("clock_hz", "Hz", "of the shaders", lambda: device.clock_hz("GFX"))], share * 0.1),
        _Group(slow, share * 0.1, SLOW_PERIOD_S),
    ]
    return _Watched(host, device.label, groups)


def _power(device: Device) -> Source:
    def instant() -> float | None:
        milliwatts = device.fields(nvidia.POWER_INSTANT).get(nvidia.POWER_INSTANT)
        # A GPU that answers draws power: the H200's driver was seen to say 0 just after a limit was set.
        return milliwatts / 1e3 if milliwatts else None

    def average() -> float | None:
        return device.power_w() or None

    read, about = (instant, INSTANT) if instant() is not None else (average, AVERAGE)
    return Source(Channel(f"{device.label}.power_w", "W", "gauge", f"of the GPU with its memory; {about}"), read)


def _energy(device: Device) -> Source:
    channel = Channel(f"{device.label}.energy_j", "J", "counter", f"of the GPU with its memory; {COUNTER}")
    return Source(channel, _rising(device.energy_j))


def _clock(device: Device) -> Source:
    channel = Channel(f"{device.label}.clock_hz", "Hz", "gauge", "of the multiprocessors (graphics clock)")
    return Source(channel, lambda: _hz(device.clock_mhz()))


def _state(device: Device) -> list[Source]:
    label = device.label
    return [
        Source(
            Channel(f"{label}.util", "share", "gauge", "of the time in which some kernel ran, not of the GPU"),
            device.util,
        ),
        Source(Channel(f"{label}.memory_used_bytes", "bytes", "gauge", "of all processes"), device.memory_used_bytes),
        Source(
            Channel(f"{label}.memory_clock_hz", "Hz", "gauge", "of the GPU's memory"),
            lambda: _hz(device.clock_mhz(nvidia.MEMORY)),
        ),
        Source(Channel(f"{label}.temperature_c", "C", "gauge", "of the die"), device.temperature_c),
    ]


def _throttles(host: Host, device: Device) -> list[Source]:
    """How long each reason held the clock back: the driver's own count, else the polls at which it was given."""
    counts = _Counts(host, device)
    return [
        Source(reason.channel(device.label, "counted by the driver"), _rising(counts.reader(reason.field)))
        if counts.now().get(reason.field) is not None
        else Source(
            reason.channel(device.label, "as seen once a second"), _Polled(host, device.reasons, reason.bit).seconds
        )
        for reason in _REASONS
    ]


class _Counts:
    """The driver's counts of throttling, asked for together: one question costs as much as all."""

    def __init__(self, host: Host, device: Device) -> None:
        self._clock, self._device = host.clock, device
        self._asked_ns, self._found = -1, dict[int, int]()

    def now(self) -> dict[int, int]:
        now_ns = self._clock.now_ns()
        if self._asked_ns < 0 or now_ns - self._asked_ns > 1e9 * SLOW_PERIOD_S / 4:
            self._found = self._device.fields(*(reason.field for reason in _REASONS if reason.field))
            self._asked_ns = now_ns
        return self._found

    def reader(self, field: int) -> Callable[[], float | None]:
        def seconds() -> float | None:
            value = self.now().get(field)
            return None if value is None else value / 1e9

        return seconds


class _Reason(NamedTuple):
    name: str
    bit: int
    field: int  # of the driver's own counter, in ns; 0: it has none
    about: str

    def channel(self, label: str, how: str) -> Channel:
        return Channel(f"{label}.throttle_{self.name}_s", "s", "counter", f"{self.about}; {how}")


_REASONS = (
    _Reason("sw_power", nvidia.REASON_SW_POWER, nvidia.SW_POWER_CAP, "clock lowered to stay below the power limit"),
    _Reason("sw_thermal", nvidia.REASON_SW_THERMAL, nvidia.SW_THERMAL, "clock lowered by the driver for heat"),
    _Reason(
        "hw_thermal", nvidia.REASON_HW_THERMAL, nvidia.HW_THERMAL, "clock halved or worse by the hardware for heat"
    ),
    _Reason("hw_power_brake", nvidia.REASON_HW_POWER_BRAKE, nvidia.HW_POWER_BRAKE, "clock lowered by the power supply"),
    _Reason("hw_slowdown", nvidia.REASON_HW_SLOWDOWN, 0, "clock halved or worse by the hardware"),
)


class _Polled:
    """Adds up the time between two looks at which a reason was given."""

    def __init__(self, host: Host, reasons: Callable[[], int | None], bit: int) -> None:
        self._clock, self._reasons, self._bit = host.clock, reasons, bit
        self._last_ns, self._total_s = host.clock.now_ns(), 0.0

    def seconds(self) -> float | None:
        reasons = self._reasons()
        if reasons is None:
            return None
        now_ns, before_ns = self._clock.now_ns(), self._last_ns
        self._last_ns = now_ns
        if reasons & self._bit:
            self._total_s += (now_ns - before_ns) / 1e9
        return self._total_s


def _foreign(host: Host, label: str, compute_pids: Callable[[], Sequence[int] | None]) -> Source:
    """Processes that compute there and that tare did not start: each of ours carries a variable."""
    known: dict[int, bool] = {}

    def count() -> float | None:
        if (pids := compute_pids()) is None:
            return None
        for pid in set(pids) - known.keys():
            known[pid] = _is_foreign(host, pid)
        return float(sum(known[pid] for pid in pids))

    about = "processes on the GPU that tare did not start"
    return Source(Channel(f"{label}.foreign_processes", "1", "gauge", about), count)


def _is_foreign(host: Host, pid: int) -> bool:
    try:
        return f"{NAME_VARIABLE}=" not in host.read(f"/proc/{pid}/environ")
    except PermissionError:
        return True  # another user's
    except OSError:
        return False  # it has ended since, or cannot be seen from here


def _rising(read: Callable[[], float | None]) -> Callable[[], float | None]:
    """A counter that starts anew (the driver was loaded again): what it counts from then on is of another series."""
    highest = 0.0

    def risen() -> float | None:
        nonlocal highest
        value = read()
        if value is not None and value < highest:
            raise ValueError(f"the counter fell from {highest:g} to {value:g}")
        highest = highest if value is None else value
        return value

    return risen


def _hz(mhz: int | None) -> float | None:
    return None if mhz is None else mhz * 1e6
