"""Energy that the processor counts itself (RAPL, on Intel and AMD), through powercap.

Packages do not overlap, and are summed; memory is not in them on servers, and is added. The cores are parts of their
package, and `psys` holds the packages: both are shown, and neither is added again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle, probe_note
from tare.base.units import Channel
from tare.drivers.kernel_files import Folder, folders, is_gone, text_of, told_apart, whole
from tare.drivers.sensors import EnergyCounter
from tare.parts.protocols import Feed, Probe, Reading

TOTAL = Channel("power_rapl.total_j", "J", "counter", "all packages, and the memory; not the socket")
# What a sum over time must know: a counter that was put right after a reset lacks the energy of these seconds.
DROPPED = Channel("power_rapl.dropped_s", "s", "counter", "time whose energy is in no counter: it fell back or jumped")
# `intel-rapl-mmio` shows the same counters a second time.
_ZONES = "/sys/class/powercap/intel-rapl:{}"


class Zone(NamedTuple):
    """One counter: its folder, its name with that of its package, and whether the total has it."""

    path: str
    name: str
    summed: bool


class PowerRapl(Probe):
    """Energy of each package of the processor and of its parts, and their sum, from the first reading on."""

    def obstacles(self, host: Host) -> list[Ruling]:
        zones = zones_of(host)
        if not zones:
            return [
                obstacle(
                    "needs.hardware",
                    f"CPU energy is not measured: {host.name} has no RAPL zones in /sys/class/powercap.",
                )
            ]
        try:
            host.read(f"{zones[0].path}/energy_uj")
        except OSError as error:
            why = error.strerror or "it cannot be read"
            return [obstacle("needs.root", f"CPU energy is not measured: root is needed since CVE-2020-8694 ({why}).")]
        return []

    def open(self, host: Host, scope: Scope) -> Feed:
        return RaplFeed(host, zones_of(host))


def zones_of(host: Host) -> list[Zone]:
    """All zones, packages first in their order; a zone that cannot be told is not summed."""
    return [zone for package in folders(host, _ZONES) for zone in _with_parts(host, package)]


def _with_parts(host: Host, package: Folder) -> Iterator[Zone]:
    is_package = package.name.startswith("package")
    yield Zone(package.path, package.name, is_package)
    for part in folders(host, package.path + ":{}"):
        yield Zone(part.path, f"{package.name} {part.name}", is_package and part.name == "dram")


class RaplFeed:
    """The counters while they are read; each is made to grow only, and what had to be left out is said."""

    def __init__(self, host: Host, zones: list[Zone]) -> None:
        self.errors: Counter[str] = Counter()  # zone -> reads that gave nothing usable
        self._lost: list[Ruling] = []
        self._host = host
        self._zones: dict[str, Zone] = {}
        self._counters: dict[str, EnergyCounter] = {}
        for word, zone in zip(told_apart(zone.name for zone in zones), zones, strict=True):
            if self._is_readable(zone):
                self._zones[word] = zone
                self._counters[word] = EnergyCounter(_range_uj(host, zone))
        self._summed = {word for word, zone in self._zones.items() if zone.summed}
        self.channels = tuple(
            Channel(f"power_rapl.{word}_j", "J", "counter", f"RAPL zone {zone.name}")
            for word, zone in self._zones.items()
        )
        self.channels += ((TOTAL,) if self._summed else ()) + ((DROPPED,) if self._zones else ())

    @property
    def lost(self) -> list[Ruling]:
        return self._lost + [
            probe_note(
                "probe.limited",
                "power_rapl",
                f"{word} fell back or jumped {counter.dropped} times; the energy of {counter.dropped_s:.1f} s "
                f"is not counted, and the rest is partial.",
            )
            for word, counter in self._counters.items()
            if counter.dropped
        ]

    def poll(self) -> list[Reading]:
        now_ns = self._host.clock.now_ns
        joules: dict[str, float] = {}
        for word, zone in list(self._zones.items()):
            try:
                raw_uj = whole(self._host.read(f"{zone.path}/energy_uj"))
            except (OSError, ValueError) as error:
                self._fail(word, error)
                continue
            if (value := self._counters[word](now_ns(), raw_uj)) is not None:
                joules[word] = value
        t_ns = now_ns()
        readings = [Reading(t_ns, f"power_rapl.{word}_j", value) for word, value in joules.items()]
        if self._summed and joules.keys() >= self._summed:
            readings.append(Reading(t_ns, TOTAL.name, sum(joules[word] for word in self._summed)))
        if self._zones:
            dropped_s = sum(counter.dropped_s for counter in self._counters.values())
            readings.append(Reading(t_ns, DROPPED.name, dropped_s))
        return readings

    def close(self) -> list[Reading]:
        last = self.poll()
        self._zones.clear()
        self._summed.clear()
        return last

    def _is_readable(self, zone: Zone) -> bool:
        try:
            whole(self._host.read(f"{zone.path}/energy_uj"))
        except OSError as error:
            sentence = f"{zone.name} cannot be read: {error.strerror or 'there is no counter'}."
            self._lost.append(probe_note("probe.file-unreadable", "power_rapl", sentence))
            return False
        except ValueError:
            self._lost.append(probe_note("probe.file-unreadable", "power_rapl", f"{zone.name} holds no number."))
            return False
        return True

    def _fail(self, word: str, error: Exception) -> None:
        if isinstance(error, OSError) and is_gone(error):
            sentence = f"{word} vanished; its energy, and the total, end there."
            self._lost.append(probe_note("probe.file-gone", "power_rapl", sentence))
            del self._zones[word]
        else:
            self.errors[word] += 1


def _range_uj(host: Host, zone: Zone) -> int | None:
    text = text_of(host, f"{zone.path}/max_energy_range_uj") or ""
    return int(text) if text.isascii() and text.isdecimal() and int(text) > 0 else None
