"""Programs that manage the same knobs as we do, and would turn them back in the middle of a trial (faults.md D11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tare.host import Host, LocalHost

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


def conflicts(host: Host, turns: Iterable[str]) -> list[str]:
    """Those that turn the same as a control, in sentences with the command that stops them."""
    ours = frozenset(turns)
    sentences = []
    for one in running(host) if ours else []:
        if both := sorted(one.turns & ours):
            sentences.append(
                f"{one.name} manages {', '.join(both)} on this device, and may turn it back during a trial: "
                f"`{one.stop}` stops it; or run with --ignore-managers, which is noted in the records."
            )
    return sentences


def _words(host: Host) -> Iterator[str]:
    """The last part of the first words of each process: what it is, also where an interpreter runs it."""
    if not isinstance(host, LocalHost):
        return
    if (host.root / _TLP_RUNS.lstrip("/")).is_dir():
        yield "tlp"
    for folder in (host.root / "proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        yield from (Path(word.decode(errors="replace")).name for word in line[:4] if not word.startswith(b"-"))
