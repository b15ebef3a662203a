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

import contextlib
import importlib
import io
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from tare.base.errors import DeviceLost, TareError
from tare.base.host import Host, OwnDevice, Scope
from tare.base.rulings import Ruling, obstacle, probe_note
from tare.base.units import CLOCK, GPU_USE, LAST_RANK, POWER, Channel, parse_share
from tare.drivers import nvidia
from tare.drivers.cgroups.tree import NAME_VARIABLE
from tare.drivers.kernel_files import FileFeed, KernelFile, number, text_of
from tare.drivers.nvidia import Gpu as Device
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
        if why is None or nvidia.has_integrated(host) or cards(host):
            return []
        return [obstacle("needs.gpu", f"{why.rstrip('.')}; and no AMD or Intel GPU with sensors is there.")]

    def open(self, host: Host, scope: Scope) -> Feed:
        try:
            devices = nvidia.gpus(host)
        except DeviceLost:
            raise
        except TareError:
            devices = []  # its obstacle says so; a trial goes on without it
        others = [] if devices else cards(host)
        if {card.vendor for card in others} == {"AMD"} and (theirs := amd_gpus(host)):
            return GpuFeed(host, [_of_amd(host, device, self.share) for device in theirs])
        if others:
            return FileFeed("gpu", host, files(host))
        feed = GpuFeed(host, [_of_nvidia(host, device, self.share) for device in devices])
        tells_use = any(channel.name.endswith(".util") for channel in feed.channels)
        if tells_use or not nvidia.has_integrated(host):
            return feed
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


_SHOWN = {"util": (GPU_USE, 30), "power_w": (POWER, 43), "clock_hz": (CLOCK, 70)}  # group and rank


def _channel(label: str, name: str, unit: str, kind: Literal["gauge", "counter"], about: str) -> Channel:
    group, rank = _SHOWN.get(name, ("", LAST_RANK))
    return Channel(f"{label}.{name}", unit, kind, about, group=group, rank=rank)


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
        return Source(_channel(device.label, name, unit, kind, f"{about} (amdsmi)"), read)

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
    return Source(_channel(device.label, "power_w", "W", "gauge", f"of the GPU with its memory; {about}"), read)


def _energy(device: Device) -> Source:
    channel = Channel(f"{device.label}.energy_j", "J", "counter", f"of the GPU with its memory; {COUNTER}")
    return Source(channel, _rising(device.energy_j))


def _clock(device: Device) -> Source:
    channel = _channel(device.label, "clock_hz", "Hz", "gauge", "of the multiprocessors (graphics clock)")
    return Source(channel, lambda: _hz(device.clock_mhz()))


def _state(device: Device) -> list[Source]:
    label = device.label
    return [
        Source(
            _channel(label, "util", "share", "gauge", "of the time in which some kernel ran, not of the GPU"),
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


# AMD and Intel GPUs by the files of their kernel drivers (amdgpu, i915, xe), under the names that NVIDIA's cards have.
#
# Nothing has to be installed and root is not needed. Energy: Intel's drivers count it (`energy1_input`, microjoules);
# amdgpu has a file for power only, and the energy is summed from that (AMD's own counter is in a binary table that only
# AMD's library reads). Not run on hardware: the files are as the kernel's documentation has them
# (Documentation/gpu/amdgpu/thermal.rst, Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon and -xe-hwmon).

_MOST_CARDS, _MOST_HWMON = 16, 96
_VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
_POWER_ABOUT = {
    "power1_average": "amdgpu's power1_average: of the GPU with its memory, averaged by its firmware",
    "power1_input": "amdgpu's power1_input: of the GPU with its memory, instant",
}


class Card(NamedTuple):
    """One GPU: its folder, its vendor, its sensors' folder, and how its channels are called."""

    path: str
    vendor: str
    hwmon: str
    label: str


def cards(host: Host) -> list[Card]:
    """The GPUs of these vendors that have sensors, in the order of the kernel's numbers."""
    found: list[Card] = []
    for index in range(_MOST_CARDS):
        path = f"/sys/class/drm/card{index}"
        vendor = _VENDORS.get(text_of(host, f"{path}/device/vendor") or "")
        if vendor is not None and (hwmon := _hwmon(host, f"{path}/device/hwmon")):
            found.append(Card(path, vendor, hwmon, f"gpu{len(found)}" if found else "gpu"))
    return found


def _hwmon(host: Host, folder: str) -> str:
    paths = (f"{folder}/hwmon{number}" for number in range(_MOST_HWMON))
    return next((path for path in paths if text_of(host, f"{path}/name") is not None), "")


def files(host: Host) -> Iterator[KernelFile]:
    """What each of them has; of files with the same channel the first that is there is read."""
    for card in cards(host):
        yield from _amd(card) if card.vendor == "AMD" else _intel(card)


def _amd(card: Card) -> Iterator[KernelFile]:
    for name, about in _POWER_ABOUT.items():
        channel = _channel(card.label, "power_w", "W", "gauge", about)
        yield KernelFile(f"{card.hwmon}/{name}", number(channel, 1e-6))
    util = _channel(card.label, "util", "share", "gauge", "of the time in which the GPU was busy (gpu_busy_percent)")
    yield KernelFile(f"{card.path}/device/gpu_busy_percent", number(util, 0.01))
    clock = _channel(card.label, "clock_hz", "Hz", "gauge", "of the shaders (sclk)")
    yield KernelFile(f"{card.hwmon}/freq1_input", number(clock))
    memory = Channel(f"{card.label}.memory_used_bytes", "bytes", "gauge", "of all processes")
    yield KernelFile(f"{card.path}/device/mem_info_vram_used", number(memory), slow=True)
    memory_clock = Channel(f"{card.label}.memory_clock_hz", "Hz", "gauge", "of the GPU's memory (mclk)")
    yield KernelFile(f"{card.hwmon}/freq2_input", number(memory_clock), slow=True)
    heat = Channel(f"{card.label}.temperature_c", "C", "gauge", "of the die's edge")
    yield KernelFile(f"{card.hwmon}/temp1_input", number(heat, 0.001), slow=True)


def _intel(card: Card) -> Iterator[KernelFile]:
    energy = Channel(
        f"{card.label}.energy_j", "J", "counter", "of the card; counted by the GPU since it was powered on"
    )
    yield KernelFile(f"{card.hwmon}/energy1_input", number(energy, 1e-6))
    clock = _channel(card.label, "clock_hz", "Hz", "gauge", "of the first graphics unit")
    for path in ("gt_act_freq_mhz", "gt/gt0/rps_act_freq_mhz", "device/tile0/gt0/freq0/act_freq"):
        yield KernelFile(f"{card.path}/{path}", number(clock, 1e6))
    heat = Channel(f"{card.label}.temperature_c", "C", "gauge", "of the package")
    for name in ("temp2_input", "temp1_input"):
        yield KernelFile(f"{card.hwmon}/{name}", number(heat, 0.001), slow=True)


# The one door to AMD's management library: `amdsmi`, which comes with ROCm, is imported here when it is first needed.
#
# It has what the kernel's files have not: the energy counter, whether the clock is held back, and who computes there.
# Units leave this file as tare has them; what a GPU does not have is None. Not run on hardware: written against the
# Python library 7.0.2, and tried with that and a stand-in for its `libamd_smi.so`.

_ABSENT = {1, 2, 3, 10, 31, 40, 43}  # invalid, not supported, not yet, no permission, not found, no data, odd data
_POWERS = ("current_socket_power", "average_socket_power", "socket_power")
_MICRO = 1e-6
_MIB = 1 << 20
_opened: dict[str, Any] = {}  # the library, once it is open in this process


class AmdGpu:
    """One GPU: asked in plain values."""

    def __init__(self, library: Any, handle: Any, index: int) -> None:
        self._library, self._handle = library, handle
        self.label = "gpu" if index == 0 else f"gpu{index}"

    def power_w(self) -> float | None:
        """Of the socket: the momentary one where the GPU has it, else the mean of its firmware."""
        found = self._ask("amdsmi_get_power_info") or {}
        return next((value for name in _POWERS if (value := _number(found.get(name)))), None)

    def energy_j(self) -> float | None:
        """Since the driver was loaded; the counter's step is in microjoules."""
        found = self._ask("amdsmi_get_energy_count") or {}
        count, step = _number(found.get("energy_accumulator")), _number(found.get("counter_resolution"))
        return None if not count or not step else count * step * _MICRO

    def clock_hz(self, name: str) -> float | None:
        """`GFX` or `MEM`."""
        found = self._ask("amdsmi_get_clock_info", self._library.AmdSmiClkType[name]) or {}
        megahertz = _number(found.get("clk"))
        return None if megahertz is None else megahertz * 1e6

    def util(self) -> float | None:
        percent = _number((self._ask("amdsmi_get_gpu_activity") or {}).get("gfx_activity"))
        return None if percent is None else percent / 100

    def memory_used_bytes(self) -> float | None:
        used = _number((self._ask("amdsmi_get_gpu_vram_usage") or {}).get("vram_used"))
        return None if used is None else used * _MIB

    def temperature_c(self) -> float | None:
        """Of the edge; newer cards have only that of the hottest spot."""
        kinds, current = self._library.AmdSmiTemperatureType, self._library.AmdSmiTemperatureMetric.CURRENT
        values = (_number(self._ask("amdsmi_get_temp_metric", kinds[name], current)) for name in ("EDGE", "HOTSPOT"))
        return next((value for value in values if value), None)

    def is_held_back(self) -> bool | None:
        """Whether its firmware throttles it now, for whatever reason: the library does not say which."""
        found = self._ask("amdsmi_get_gpu_metrics_info") or {}
        known = [found.get(name) for name in ("indep_throttle_status", "throttle_status")]
        return next((bool(value) for value in known if isinstance(value, (bool, int))), None)

    def compute_pids(self) -> list[int] | None:
        found = self._ask("amdsmi_get_gpu_process_list")
        return None if found is None else [int(each["pid"]) for each in found if isinstance(each, dict)]

    def _ask(self, name: str, *arguments: Any) -> Any:
        function = getattr(self._library, name, None)
        if function is None:
            return None
        try:
            return function(self._handle, *arguments)
        except self._library.AmdSmiException as error:
            if getattr(error, "err_code", 1) in _ABSENT:
                return None
            raise TareError(f"{self.label}: {name} failed: {str(error).strip()}") from error


def amd_gpus(host: Host) -> list[AmdGpu]:
    """Those that the library knows on this machine; none where it is not there, and the kernel's files must do."""
    if not isinstance(host, OwnDevice):
        return []
    library = _library()
    if library is None:
        return []
    try:
        handles = library.amdsmi_get_processor_handles()
    except Exception:  # no right to /dev/kfd, for one
        return []
    return [AmdGpu(library, handle, index) for index, handle in enumerate(handles)]


def _library() -> Any | None:
    if "library" not in _opened:
        _opened["library"] = _open()
    return _opened["library"]


def _open() -> Any | None:
    """Without `libamd_smi.so` importing it prints a line and fails in a way that its versions do not agree on."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            library = importlib.import_module("amdsmi")
            library.amdsmi_init(library.AmdSmiInitFlags.INIT_AMD_GPUS)
    except Exception:
        return None
    return library


def _number(value: Any) -> float | None:
    """A GPU that has no such value says `N/A`."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
