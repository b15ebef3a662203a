"""What the device did against heat and over-current: throttle counts, cooling devices at work, alarms."""

from __future__ import annotations

from collections.abc import Iterator

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel, PositiveSeconds
from tare.drivers.kernel_files import FileFeed, KernelFile, folders, number, text_of, told_apart, within
from tare.parts.protocols import Feed, Probe

_CPUS = "/sys/devices/system/cpu"
_COOLING = "/sys/class/thermal/cooling_device{}"
_HWMON = "/sys/class/hwmon/hwmon{}"
_MOST_CORES = 512
_MOST_ALARMS = 8
_ANSWER_S = 3.0
# They cool without slowing anything down, or are settings that stand at a number for ever.
_HARMLESS = ("fan", "tcc offset", "intel_powerclamp", "lcd", "charger")


class Thermal(Probe):
    """Throttle counts of the cores, states of cooling devices, over-current events and critical alarms."""

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
