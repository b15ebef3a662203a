"""Which events can be counted on this device: the kernel's own, block events, and the CPU's, by core type."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tare.host import Host
from tare.parts import perf_events
from tare.parts.core_list import cores
from tare.parts.perf_events import CACHE, HARDWARE, SOFTWARE, TRACEPOINT, Event

SOFTWARE_EVENTS = (
    Event("page-faults", SOFTWARE, 2),
    Event("minor-faults", SOFTWARE, 5),
    Event("major-faults", SOFTWARE, 6),
    Event("cpu-migrations", SOFTWARE, 4),
)
BLOCK_EVENTS = (  # as in the paper's Table 5
    "block_touch_buffer", "block_dirty_buffer", "block_rq_insert", "block_rq_issue", "block_rq_complete",
    "block_bio_queue", "block_bio_backmerge", "block_bio_frontmerge",
)  # fmt: skip
_DEVICES = Path("/sys/bus/event_source/devices")
_L1_READ, _L1_WRITE = 0, 1 << 8  # level-1 data cache, accesses

# What may stand for an event, best first: the kernel's own name for it, then one that the CPU's driver lists.
_GENERIC = {
    "cycles": Event("cycles", HARDWARE, 0),
    "instructions": Event("instructions", HARDWARE, 1),
    "cache-misses": Event("cache-misses", HARDWARE, 3),
    "loads": Event("loads", CACHE, _L1_READ),
    "stores": Event("stores", CACHE, _L1_WRITE),
}
_LISTED = {"loads": ("ld_retired", "mem_access_rd"), "stores": ("mem-stores", "st_retired", "mem_access_wr")}


def online(host: Host) -> list[int]:
    return cores(host.read("/sys/devices/system/cpu/online").strip())


def block_events(host: Host, root: Path | None) -> list[Event]:
    """Those of the paper's block events that this kernel has; `root` is where tracefs is mounted."""
    found = []
    for name in BLOCK_EVENTS if root is not None else ():
        try:
            found.append(Event(name, TRACEPOINT, int(host.read(f"{root}/events/block/{name}/id"))))
        except (OSError, ValueError):
            continue
    return found


def core_types(host: Host, root: Path = _DEVICES) -> dict[str, frozenset[int]]:
    """The CPU's counting units by name, with their cores; only where there are several kinds of cores."""
    units = {}
    for name in sorted(path.name for path in root.iterdir()) if root.is_dir() else ():
        try:
            units[name] = frozenset(cores(host.read(root / name / "cpus").strip()))
        except (OSError, ValueError):
            continue
    return units if len(units) > 1 else {}


def hardware_groups(cpu: int, unit: str, prefix: str, root: Path = _DEVICES) -> list[list[Event]]:
    """What this CPU can count, in groups that it can count at once; no group where it counts nothing."""
    found = [event for name in _GENERIC if (event := _working(cpu, name, root / unit)) is not None]
    groups: list[list[Event]] = []
    for event in found:
        named = event._replace(name=f"{prefix}{event.name}")
        if groups and _fits(cpu, [*groups[-1], named]):
            groups[-1].append(named)
        else:
            groups.append([named])
    return groups


def _working(cpu: int, name: str, unit: Path) -> Event | None:
    """The first of the candidates that can be opened on this CPU."""
    listed = [_listed(name, unit, other) for other in _LISTED.get(name, ())]
    return next((event for event in (_GENERIC[name], *listed) if event is not None and _fits(cpu, [event])), None)


def _listed(name: str, unit: Path, other: str) -> Event | None:
    """An event that the driver describes, such as `event=0x6` or `event=0xd0,umask=0x82`."""
    try:
        text = (unit / "events" / other).read_text()
        config = config_of(text, {path.name: path.read_text() for path in (unit / "format").iterdir()})
        return Event(name, int((unit / "type").read_text()), config)
    except (OSError, ValueError, KeyError):
        return None


def config_of(text: str, formats: dict[str, str]) -> int:
    """The number for `event=0xd0,umask=0x82`, from where the driver says that each field goes (`config:8-15`)."""
    config = 0
    for term in text.strip().split(","):
        key, _, value = term.partition("=")
        place = re.fullmatch(r"config:(\d+)(?:-\d+)?", formats[key].strip())
        if place is None:
            raise ValueError(f"{key} does not go into one stretch of config")
        config |= int(value or "1", 0) << int(place[1])
    return config


def _fits(cpu: int, events: Sequence[Event]) -> bool:
    """Whether the CPU can count these together; nothing stays open."""
    opened: list[int] = []
    try:
        for event in events:
            opened.append(perf_events.open_event(event, cpu, opened[0] if opened else -1))
    except OSError:
        return False
    finally:
        for descriptor in reversed(opened):
            os.close(descriptor)
    return True
