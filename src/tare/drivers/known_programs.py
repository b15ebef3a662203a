"""Programs that manage the same knobs as we do, and would turn them back in the middle of a trial (faults.md D11)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tare.base.host import Host, LocalHost
from tare.base.rulings import Ruling, obstacle

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
    if not isinstance(host, LocalHost):
        return
    if (host.root / _TLP_RUNS.lstrip("/")).is_dir():
        yield "tlp"
    proc = host.root / "proc"
    for entry in os.scandir(proc) if proc.is_dir() else ():
        if entry.name[0].isdigit():
            with suppress(OSError):  # it may have ended
                line = Path(entry.path, "cmdline").read_bytes().split(b"\0", 4)[:4]
                yield from (_last_part(word) for word in line if not word.startswith(b"-"))


def _last_part(word: bytes) -> str:
    return word.rstrip(b"/").rpartition(b"/")[2].decode(errors="replace")


_VERSION = re.compile(r"\brunc version (\d+)\.(\d+)\.(\d+)")
_ESCAPE_2024 = (1, 1, 12)
_ESCAPE_2025 = {(1, 2): (1, 2, 8)}  # the older branch got the fix too; all others with 1.3.3
_ESCAPE_2025_NEWEST = (1, 3, 3)


def runc_advice(version_text: str) -> list[str]:
    """Sentences about the version that `runc --version` names; none where it names none."""
    found = _VERSION.search(version_text)
    if found is None:
        return []
    version = (int(found[1]), int(found[2]), int(found[3]))
    fixed_2025 = _ESCAPE_2025.get(version[:2], _ESCAPE_2025_NEWEST)
    known = []
    if version < _ESCAPE_2024:
        known.append("CVE-2024-21626")
    if version < fixed_2025:
        known.append("CVE-2025-31133")
    if not known:
        return []
    number = ".".join(found.groups())
    return [
        f"runc {number} is of a version in which a hostile image can leave the container ({', '.join(known)}). "
        "Distributions mend old versions without a new number, so look at theirs; run only images that you trust."
    ]


def advice(host: Host) -> list[str]:
    """What to say about the runtime of this host; nothing where it has none."""
    requested = host.run(["runc", "--version"])
    return runc_advice(requested.out) if requested.code == 0 else []
