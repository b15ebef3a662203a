"""All back ends together: who sets what on this device, and settings that go to whoever they are called after."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from tare.base.errors import TareError, did_you_mean
from tare.base.host import Host, OwnDevice
from tare.base.rulings import Ruling, obstacle
from tare.drivers import power
from tare.drivers.power import named_mode
from tare.drivers.power.backend import NO_LIMIT, Backend, PowerRequest, Settings, every
from tare.drivers.power.jetson import stated
from tare.drivers.power.named_mode import with_cores

UNLIMITED = "MAXN"  # a Jetson's name for no limits; understood everywhere
_CONTEXT = ("mode", "cores", "online")  # every back end may look at these
_LIMITS = ("cores", "cpu_mhz", "gpu_mhz", "mem_mhz", "power_w")


@cache
def backends() -> tuple[Backend, ...]:
    """Every file in this folder that has a `BACKEND`, in the order in which settings are written."""
    modules = [importlib.import_module(f"{power.__name__}.{one.name}") for one in pkgutil.iter_modules(power.__path__)]
    found: list[Backend] = [module.BACKEND for module in modules if hasattr(module, "BACKEND")]
    return tuple(sorted(found, key=lambda one: one.rank))


def offered(host: Host) -> dict[str, list[Backend]]:
    """Who can set each field here, the first of them by rank."""
    found: dict[str, list[Backend]] = {}
    for backend in backends():
        for field in backend.offers(host):
            found.setdefault(field, []).append(backend)
    return found


def resolved(host: Host, request: PowerRequest) -> PowerRequest:
    """The request in terms of this device: the cores of a board's mode, and MAXN where no board knows it."""
    there = offered(host)
    if request.mode is None:
        return request
    if "mode" in there:
        return with_cores(host, request)
    if request.mode.upper() != UNLIMITED:
        return request
    requested = {name: getattr(request, name) for name in request.asked() - {"mode"}}
    return PowerRequest(**{field: NO_LIMIT for field in _LIMITS if field in there} | requested)


def shares(host: Host, request: PowerRequest) -> list[tuple[Backend, PowerRequest]]:
    """Each back end that is concerned, with what it is to look at."""
    there = offered(host)
    own: dict[str, set[str]] = {}
    for field in request.asked() & there.keys():
        for backend in there[field] if field == "mode" else there[field][:1]:
            own.setdefault(backend.name, set()).add(field)
    return [(one, request.only({*own[one.name], *_CONTEXT})) for one in backends() if one.name in own]


def obstacles(host: Host, request: PowerRequest) -> list[Ruling]:
    """Why the request cannot be met here: what no back end offers, and what those that do say."""
    then = resolved(host, request)
    there = offered(host)
    missing = sorted(then.asked() - there.keys() - {"online"})
    if not then.asked():
        return [
            obstacle(
                "needs.hardware",
                "nothing on this device can be set: it has no cores with switches, no CPU clocks and no GPU.",
            )
        ]
    stopped = [obstacle("needs.hardware", _lacking(field, then, there)) for field in missing]
    return stopped + [sentence for backend, share in shares(host, then) for sentence in backend.obstacles(host, share)]


def target(host: Host, request: PowerRequest) -> Settings:
    """The settings that meet the request."""
    return _joined(backend.target(host, share) for backend, share in shares(host, resolved(host, request)))


def read(host: Host, request: PowerRequest) -> Settings:
    """The same settings as they stand."""
    return _joined(backend.read(host, share) for backend, share in shares(host, resolved(host, request)))


def detours(host: Host, settings: Mapping[str, str]) -> list[Settings]:
    """What a board's own mode puts in force before the settings that differ from it are written."""
    if named_mode.KEY not in settings:
        return []
    own = target(host, PowerRequest(mode=settings[named_mode.KEY]))
    reported = stated(host, settings[named_mode.KEY])
    return [{key: source.get(key, text) for key, text in settings.items()} for source in (own, reported)]


def write(host: Host, settings: object) -> None:
    """Put settings in force, back end by back end; one that fails does not keep the others from theirs."""
    by_name = {backend.name: backend for backend in backends()}
    apart: dict[str, Settings] = {}
    for key, value in settings.items() if isinstance(settings, Mapping) else [("", settings)]:
        owner = str(key).partition(".")[0]
        if owner not in by_name or not isinstance(value, str):
            raise TareError(f"{key!r} = {value!r} is no setting of a power mode")
        apart.setdefault(owner, {})[key] = value
    every(partial(one.write, host, apart[one.name]) for one in backends() if one.name in apart)


def _joined(pieces: Iterable[Settings]) -> Settings:
    return {name: text for piece in pieces for name, text in piece.items()}


def _lacking(field: str, request: PowerRequest, there: Mapping[str, list[Backend]]) -> str:
    value = getattr(request, field)
    named = f"`{field}: {value:g}`" if isinstance(value, float) else f"`{field}: {value}`"
    if field == "mode":
        near = did_you_mean(str(request.mode), [UNLIMITED])
        return f"{named}: this device has no modes with names but {UNLIMITED}.{f' {near}' if near else ''}"
    have = sorted(there.keys() - {"online"})
    here = f"what it has is {', '.join(have)}" if have else "it has nothing that could be"
    return f"{named}: this device has no such thing that can be set; {here}."


# Programs that manage the same knobs as we do, and would turn them back in the middle of a trial (faults.md D11).


_CLOCKS = frozenset({"cpu_mhz", "governor", "boost"})


@dataclass(frozen=True)
class Manager:
    """A program, how its process is called, what it turns, and how it is kept from it."""

    name: str
    process: str  # the last part of a word of its command line
    turns: frozenset[str]
    stop: str


MANAGERS = (
    Manager("TuneD", "tuned", _CLOCKS | {"cores"}, "sudo systemctl stop tuned"),
    Manager("TLP", "tlp", _CLOCKS, "sudo systemctl stop tlp"),
    Manager("power-profiles-daemon", "power-profiles-daemon", _CLOCKS, "sudo systemctl stop power-profiles-daemon"),
    Manager("auto-cpufreq", "auto-cpufreq", _CLOCKS, "sudo systemctl stop auto-cpufreq"),
    Manager(
        "the nvpmodel indicator",
        "nvpmodel_indicator.py",
        frozenset({"mode", "cores", "cpu_mhz", "gpu_mhz", "mem_mhz"}),
        "pkill -f nvpmodel_indicator.py",
    ),
    Manager("irqbalance", "irqbalance", frozenset({"cores"}), "sudo systemctl stop irqbalance"),
    Manager("jtop", "jtop", frozenset({"mode", "cpu_mhz", "gpu_mhz", "mem_mhz", "fan"}), "sudo systemctl stop jtop"),
    Manager("nvfancontrol", "nvfancontrol", frozenset({"fan"}), "sudo systemctl stop nvfancontrol"),
)
_TLP_RUNS = "/run/tlp"  # it is no daemon, but acts on every change of the power supply


def running(host: Host) -> list[Manager]:
    """Those that are at work on this device."""
    words = set(_words(host))
    return [one for one in MANAGERS if one.process in words]


def conflicts(host: Host, turns: Iterable[str]) -> list[Ruling]:
    """Those that turn the same as a control, in found with the command that stops them."""
    ours = frozenset(turns)
    found = []
    for one in running(host) if ours else []:
        if both := sorted(one.turns & ours):
            found.append(
                obstacle(
                    "device.managed",
                    f"{one.name} manages {', '.join(both)} on this device, and may turn it back during a trial: "
                    f"`{one.stop}` stops it; or run with --ignore-managers, which is noted in the records.",
                )
            )
    return found


def _words(host: Host) -> Iterator[str]:
    """The last part of the first words of each process: what it is, also where an interpreter runs it."""
    if not isinstance(host, OwnDevice):
        return
    if host.file(_TLP_RUNS).is_dir():
        yield "tlp"
    proc = host.file("/proc")
    for entry in os.scandir(proc) if proc.is_dir() else ():
        if entry.name[0].isdigit():
            with suppress(OSError):  # it may have ended
                line = Path(entry.path, "cmdline").read_bytes().split(b"\0", 4)[:4]
                words = [word.rstrip(b"/").rpartition(b"/")[2] for word in line if not word.startswith(b"-")]
                yield from (word.decode(errors="replace") for word in words)
