"""Power and energy that a device measures itself; not what the socket gives.

A Jetson's rails and its module, by the board's own monitors: where the kernel does not show them, NVIDIA's `tegrastats`
is asked, which needs a process of its own. And what a processor counts itself (RAPL, on Intel and AMD), by powercap:
packages do not overlap, and are summed; memory is not in them on servers, and is added. The cores are parts of their
package, and `psys` holds the packages: both are shown, and neither is added again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle, probe_note
from tare.base.units import POWER, Channel, PositiveSeconds
from tare.drivers.kernel_files import Folder, channel_word, folders, is_gone, text_of, told_apart, whole, within
from tare.drivers.sensors import (
    EnergyCounter,
    LineChild,
    Rail,
    module_rails,
    parse_line,
    rails_beside_total_w,
    rails_of,
)
from tare.parts.protocols import Feed, Probe, Reading

TOTAL = "power_rails.total_w"
OTHERS = "power_rails.others_w"
_ANSWER_S = 3.0  # for the monitors of a whole board, and for the first line of tegrastats


class PowerRails(Probe):
    """Power of each rail of a Jetson, and of its module where it is known which rails make it up."""

    reads_files_only = True
    period: PositiveSeconds = 0.1
    """How often the rails are read; the monitors themselves give a new value every few milliseconds to a second."""

    def obstacles(self, host: Host) -> list[Ruling]:
        try:
            found = within(_ANSWER_S, lambda: bool(rails_of(host)) or _has_tegrastats(host))
        except TimeoutError:
            return [
                obstacle("device.silent", f"the power monitors of {host.name} gave no answer within {_ANSWER_S:g} s.")
            ]
        if found:
            return []
        return [
            obstacle(
                "needs.hardware", f"{host.name} shows no power monitors (INA3221), and there is no tegrastats on it."
            )
        ]

    def open(self, host: Host, scope: Scope) -> Feed:
        rails = rails_of(host)
        if rails or not _has_tegrastats(host):
            return RailsFeed(host, rails, round(self.period * 1e9))
        return TegrastatsFeed(host, self.period)


def _has_tegrastats(host: Host) -> bool:
    return host.run(["tegrastats", "--help"], limit_s=_ANSWER_S).code not in (124, 127)


def channels_of(rails: Iterable[str], window_ms: int | None = None) -> tuple[Channel, ...]:
    """One for each rail, one for the module where the board is known, one for what lies behind a total rail."""
    names = dict.fromkeys(rails, 0.0)
    averaged = "" if window_ms is None else f"; averaged over {window_ms} ms"
    made = [Channel(channel_of(name), "W", "gauge", f"rail {name}, on the module{averaged}") for name in names]
    if parts := module_rails(names):
        about = f"the module, not the socket: {' + '.join(parts)}{averaged}"
        made.append(Channel(TOTAL, "W", "gauge", about, group=POWER, rank=41))
    if rails_beside_total_w(names) is not None:
        made.append(Channel(OTHERS, "W", "gauge", f"sum of the other rails, which {parts[0]} feeds{averaged}"))
    return tuple(made)


def channel_of(rail: str) -> str:
    return f"power_rails.{channel_word(rail)}_w"


def readings_of(t_ns: int, rails_w: dict[str, float], parts: tuple[str, ...], count: int) -> list[Reading]:
    """The rails that were read, the module if all of its parts were, and the others if all of them were."""
    readings = [Reading(t_ns, channel_of(name), watts) for name, watts in rails_w.items()]
    if parts and rails_w.keys() >= set(parts):
        readings.append(Reading(t_ns, TOTAL, sum(rails_w[part] for part in parts)))
        if len(rails_w) == count and (others_w := rails_beside_total_w(rails_w)) is not None:
            readings.append(Reading(t_ns, OTHERS, others_w))
    return readings


class RailsFeed:
    """The monitors while they are read. A rail that is lost takes the sum that it is part of with it."""

    def __init__(self, host: Host, rails: Iterable[Rail], period_ns: int) -> None:
        self.errors: Counter[str] = Counter()  # rail -> reads that gave nothing usable
        self.lost: list[Ruling] = []
        self._host, self._period_ns = host, period_ns
        self._start_ns = self._due_ns = host.clock.now_ns()
        self._rails = {rail.name: rail for rail in rails}
        self._parts, self._count = module_rails(self._rails), len(self._rails)
        windows_ms = [rail.window_ms for rail in self._rails.values() if rail.window_ms is not None]
        self.channels = channels_of(self._rails, max(windows_ms, default=None))
        if self._rails and not self._parts:
            self.lost.append(
                probe_note(
                    "probe.limited",
                    "power_rails",
                    f"which of {', '.join(self._rails)} make up the module is not known here.",
                )
            )

    @property
    def due_ns(self) -> int:
        """Before this there is nothing to read; a tick is never quite on time."""
        return self._due_ns - self._period_ns // 4

    def poll(self) -> list[Reading]:
        now_ns = self._host.clock.now_ns()
        if now_ns < self.due_ns:
            return []
        self._due_ns = max(self._due_ns + self._period_ns, now_ns)
        return self._read()

    def _read(self) -> list[Reading]:
        rails_w = {}
        for name, rail in list(self._rails.items()):
            try:
                rails_w[name] = rail.watts(self._host)
            except OSError as error:
                self._fail(name, error)
            except ValueError:
                self.errors[name] += 1
        return readings_of(self._host.clock.now_ns(), rails_w, self._parts, self._count)

    def close(self) -> list[Reading]:
        last = self._read()
        self._rails.clear()
        return last

    def _fail(self, name: str, error: OSError) -> None:
        if not is_gone(error):
            self.errors[name] += 1
            return
        at_s = (self._host.clock.now_ns() - self._start_ns) / 1e9
        what = "it and the module's power are" if name in self._parts else "it is"
        self.lost.append(
            probe_note(
                "probe.file-gone",
                "power_rails",
                f"the monitor of {name} vanished at {at_s:.1f} s; {what} missing from then on.",
            )
        )
        del self._rails[name]


class TegrastatsFeed:
    """tegrastats as a child, while it prints; what it says is taken as it comes."""

    def __init__(self, host: Host, period_s: float) -> None:
        self.errors: Counter[str] = Counter()
        self.lost: list[Ruling] = []
        self._host = host
        self._child = LineChild(["tegrastats", "--interval", str(max(1, round(period_s * 1000)))], host.clock)
        self._child.wait_for_a_line(_ANSWER_S)
        self._waiting = self._child.lines()
        first = [
            reported["rails_w"] for _, line in self._waiting if (reported := parse_line(line)) and "rails_w" in reported
        ]
        names = first[0] if first else {}
        self._parts, self._count = module_rails(names), len(names)
        self.channels = channels_of(names)
        self._ended = False
        if not first:
            self.lost.append(
                probe_note("probe.not-started", "power_rails", f"tegrastats named no rail within {_ANSWER_S:g} s.")
            )

    def poll(self) -> list[Reading]:
        lines, self._waiting = [*self._waiting, *self._child.lines()], []
        readings = [reading for t_ns, line in lines for reading in self._understood(t_ns, line)]
        if self._child.code is not None and not self._ended:
            self._ended = True
            self.lost.append(
                probe_note("probe.ended", "power_rails", f"tegrastats ended by itself with code {self._child.code}.")
            )
        return readings

    def close(self) -> list[Reading]:
        last = self.poll() if not self._ended else []
        self._ended = True
        self._child.close()
        self._child.lines()
        return last

    def _understood(self, t_ns: int, line: str) -> list[Reading]:
        reported = parse_line(line)
        if reported is None or "rails_w" not in reported:
            self.errors["tegrastats"] += 1
            return []
        known = {name: watts for name, watts in reported["rails_w"].items() if watts >= 0}
        return readings_of(t_ns, known, self._parts, self._count)


_RAPL_TOTAL = Channel(
    "power_rapl.total_j", "J", "counter", "all packages, and the memory; not the socket", group=POWER, rank=42
)
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

    reads_files_only = True

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
        self.channels += ((_RAPL_TOTAL,) if self._summed else ()) + ((DROPPED,) if self._zones else ())

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
            readings.append(Reading(t_ns, _RAPL_TOTAL.name, sum(joules[word] for word in self._summed)))
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
