"""Heat: temperatures of thermal zones and of a processor's own sensor, and what the device did against it and against
over-current (throttle counts, cooling devices at work, alarms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import Field

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel, PositiveSeconds, Seconds
from tare.drivers.kernel_files import (
    FileFeed,
    KernelFile,
    Sensor,
    folders,
    make_reading,
    milli_celsius,
    number,
    sensors_by_word,
    sensors_of,
    text_of,
    told_apart,
    within,
)
from tare.parts.protocols import Feed, Probe, Reading

_ANSWER_S = 3.0


class Temperature(Probe):
    """Temperature of each thermal zone. With it in a study, a trial starts as warm as the first one did."""

    reads_files_only = True
    period: PositiveSeconds = 1.0
    """How often they are read."""
    wait: Seconds = 120.0
    """At most so long a trial waits until every zone is back within 3 °C of what it was at the study's start."""
    limit_c: float | None = Field(None, gt=0)
    """A trial is ended when a zone is hotter; without it, 3 °C below where the device would switch itself off."""

    def obstacles(self, host: Host) -> list[Ruling]:
        try:
            found = within(_ANSWER_S, lambda: any(True for _ in sensors_of(host)))
        except TimeoutError:
            return [obstacle("device.silent", f"the sensors of {host.name} gave no answer within {_ANSWER_S:g} s.")]
        return (
            []
            if found
            else [obstacle("needs.hardware", f"{host.name} shows no temperatures (no thermal zones, no coretemp).")]
        )

    def open(self, host: Host, scope: Scope) -> Feed:
        files = [
            KernelFile(sensor.path, in_milli_celsius(_channel(word, sensor)), slow=True)
            for word, sensor in sensors_by_word(host).items()
        ]
        return FileFeed("temperature", host, files, round(self.period * 1e9))


def _channel(word: str, sensor: Sensor) -> Channel:
    critical = "" if sensor.critical_c is None else f", critical at {sensor.critical_c:g} °C"
    return Channel(f"temperature.{word}_c", "C", "gauge", f"{sensor.name}{critical}")


class MilliCelsius:
    """A file that is one temperature in thousandths of a degree."""

    def __init__(self, channel: Channel) -> None:
        self.channels = (channel,)

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        degrees = milli_celsius(text)
        return [] if degrees is None else [make_reading((t_ns, self.channels[0].name, degrees))]


def in_milli_celsius(channel: Channel) -> Callable[[str], MilliCelsius]:
    """`MilliCelsius`, in the shape that a kernel file wants."""
    return lambda _text: MilliCelsius(channel)


_CPUS = "/sys/devices/system/cpu"
_COOLING = "/sys/class/thermal/cooling_device{}"
_HWMON = "/sys/class/hwmon/hwmon{}"
_MOST_CORES = 512
_MOST_ALARMS = 8
# They cool without slowing anything down, or are settings that stand at a number for ever.
_HARMLESS = ("fan", "tcc offset", "intel_powerclamp", "lcd", "charger")


class Thermal(Probe):
    """Throttle counts of the cores, states of cooling devices, over-current events and critical alarms."""

    reads_files_only = True
    period: PositiveSeconds = 1.0
    """How often they are read."""

    def obstacles(self, host: Host) -> list[Ruling]:
        try:
            found = within(_ANSWER_S, lambda: any(True for _ in files_of(host)))
        except TimeoutError:
            return [obstacle("device.silent", f"{host.name} gave no answer within {_ANSWER_S:g} s.")]
        if found:
            return []
        return [
            obstacle(
                "needs.hardware",
                f"{host.name} reports no throttling (no throttle counts, cooling devices, alarms).",
            )
        ]

    def open(self, host: Host, scope: Scope) -> Feed:
        return FileFeed("thermal", host, files_of(host), round(self.period * 1e9))


def files_of(host: Host) -> Iterator[KernelFile]:
    yield from _throttle_counts(host)
    yield from _cooling_states(host)
    yield from _alarms(host)


def _throttle_counts(host: Host) -> Iterator[KernelFile]:
    """x86. A package's count is the same file in each of its cores: the first one of each package is enough."""
    packages = set()
    for core in range(_MOST_CORES):
        folder = f"{_CPUS}/cpu{core}/thermal_throttle"
        if text_of(host, f"{folder}/core_throttle_count") is None:
            if core and text_of(host, f"{_CPUS}/cpu{core}/topology/core_id") is None:
                return
            continue
        yield _count(f"{folder}/core_throttle_count", f"core{core}_throttled", "times the core was throttled by heat")
        package = text_of(host, f"{_CPUS}/cpu{core}/topology/physical_package_id")
        if package not in packages:
            packages.add(package)
            name = f"package{package or 0}_throttled"
            yield _count(f"{folder}/package_throttle_count", name, "times the package was throttled by heat")


def _cooling_states(host: Host) -> Iterator[KernelFile]:
    found = [
        one
        for one in folders(host, _COOLING, "type")
        if not any(word in one.name.lower().replace("-", " ") for word in _HARMLESS)
    ]
    for word, device in zip(told_apart(one.name for one in found), found, strict=True):
        channel = Channel(f"thermal.cooling_{word}", "1", "gauge", f"state of {device.name}: above 0 it slows down")
        yield KernelFile(f"{device.path}/cur_state", number(channel), slow=True)


def _alarms(host: Host) -> Iterator[KernelFile]:
    """Of hwmon chips: alarms of a critical temperature or current, and the over-current events of an Orin."""
    chips = [*folders(host, _HWMON)]
    for word, chip in zip(told_apart(one.name for one in chips), chips, strict=True):
        for index in range(1, _MOST_ALARMS + 1):
            for what in (f"temp{index}_crit_alarm", f"curr{index}_crit_alarm", f"curr{index}_max_alarm"):
                channel = Channel(f"thermal.{word}_{what}", "1", "gauge", "1 while the alarm is on")
                yield from _if_there(host, f"{chip.path}/{what}", channel)
            name = f"{word}_oc{index}_events"
            channel = Channel(f"thermal.{name}", "1", "counter", "times the board was throttled for its current")
            yield from _if_there(host, f"{chip.path}/oc{index}_event_cnt", channel)


def _count(path: str, name: str, about: str) -> KernelFile:
    return KernelFile(path, number(Channel(f"thermal.{name}", "1", "counter", about)), slow=True)


def _if_there(host: Host, path: str, channel: Channel) -> Iterator[KernelFile]:
    if text_of(host, path) is not None:
        yield KernelFile(path, number(channel), slow=True)
