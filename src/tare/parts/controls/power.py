"""The power mode (a board's name or number, or clocks and watts), whether clocks follow load, which cores are on, and
what may wake the device from a sleep: its network cards, on a magic packet or not at all.

`idle: {state: suspended}` sets the clock's alarm in the middle of a trial. It is part of the state of `wake_on_lan`, so
that one which a killed run left behind is taken away with the rest. Cards are set by `ethtool`, by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from tare.base.errors import TareError
from tare.base.host import Host, lacks_root
from tare.base.rulings import Ruling, obstacle
from tare.base.units import MOST_CORES, OnOff, cores
from tare.drivers.kernel_files import alarm_of, text_of, waking_clock
from tare.drivers.power import everything, hotplug
from tare.drivers.power.backend import Backend, PowerRequest, Settings
from tare.drivers.power.jetson import memory_moves
from tare.parts.protocols import Control, Json

_NAME = re.compile(r"[A-Za-z0-9_.()|+-]{1,64}")
_WORDS = {  # how each field is told in a table
    "cores": "{:g} cores",
    "cpu_mhz": "CPU {:g} MHz",
    "gpu_mhz": "GPU {:g} MHz",
    "mem_mhz": "memory {:g} MHz",
    "power_w": "{:g} W",
    "governor": "governor {}",
    "boost": "boost {}",
}


def _mode(value: Any) -> Any:
    """A number is a name too: `power_mode: 2`."""
    if type(value) is int and value >= 0:
        return str(value)
    if isinstance(value, str) and not _is_label(value) and not _NAME.fullmatch(value):
        raise ValueError("{given} is no name of a mode; clocks are written {cores: 4, cpu_mhz: 1200}")
    return value


Mhz = Annotated[float, Field(gt=0, le=100_000)]


class PowerMode(Control):
    """Limits cores, clocks and power for the time of a trial.

    Below the limits clocks may move, but for those of an NVIDIA card, which are locked at them; `dvfs` says otherwise.
    """

    short: ClassVar[str | None] = "mode"
    example: ClassVar[Mapping[str, Json]] = {"mode": everything.UNLIMITED}
    restore_rank: ClassVar[int] = 20
    hold_rank: ClassVar[int] = 40

    mode: Annotated[str | None, BeforeValidator(_mode)] = None
    """A name or a number that the board knows (`nvpmodel`); MAXN means no limits on every device. By default the
    other fields in words."""
    cores: Annotated[int, Field(ge=1, le=8192)] | None = None
    """So many CPU cores stay online, the first ones."""
    cpu_mhz: Mhz | None = None
    """The highest CPU clock; the nearest that the hardware has, if it is within 1.5 %."""
    gpu_mhz: Mhz | None = None
    """The highest GPU clock; an NVIDIA card is locked at it, and with `dvfs: on` free below it."""
    mem_mhz: Mhz | None = None
    """The highest memory clock of the board; that of an NVIDIA card's own memory is locked at it."""
    power_w: Annotated[float, Field(gt=0, le=100_000)] | None = None
    """What the GPU may draw."""
    governor: Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")] | None = None
    """The governor of the CPU's clock."""
    boost: StrictBool | None = None
    """Whether CPU clocks may go above the nominal one."""

    @model_validator(mode="before")
    @classmethod
    def _labelled(cls, data: Any) -> Any:
        """A mode without a name is called by what it sets, so that tables and comparisons can tell modes apart."""
        if not isinstance(data, dict):
            return data
        named = data.get("mode")
        if named is not None and not (isinstance(named, str) and _is_label(named)):
            return data
        label = _label(data)
        if named is not None and label is None:
            raise ValueError(f"{named!r} is no name of a mode; clocks are written {{cores: 4, cpu_mhz: 1200}}")
        if named is not None and named != label:
            raise ValueError(f"{named!r} is not what the other fields say ({label}); leave `mode` out")
        return {**data, "mode": label}

    @property
    def persistence(self) -> Literal["volatile", "reboot-persistent"]:  # type: ignore[override]
        """What nvpmodel is told outlives a reboot; clocks and cores do not."""
        return "volatile" if self.mode is None or _is_label(self.mode) else "reboot-persistent"

    def knob(self) -> str:
        return f"power_mode {','.join(sorted(self.request().asked()))}"

    def turns(self) -> frozenset[str]:
        requested = self.request().asked()
        return requested | {"cores", "cpu_mhz", "gpu_mhz", "mem_mhz"} if "mode" in requested else requested

    def request(self) -> PowerRequest:
        """What is asked for, as back ends take it."""
        fields = self.model_dump(exclude_none=True)
        if self.mode is not None and _is_label(self.mode):
            fields.pop("mode")
        return PowerRequest(**fields)

    def obstacles(self, host: Host) -> list[Ruling]:
        if not self.request().asked():
            return [obstacle("needs.value", "nothing is requested; name a mode, or write {cores: 4, cpu_mhz: 1200}.")]
        return everything.obstacles(host, self.request())

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        return everything.target(host, self.request())

    def read(self, host: Host) -> Json | None:
        return everything.read(host, self.request())

    def detours(self, host: Host, state: Json) -> list[Json]:
        return everything.detours(host, state)

    def write(self, host: Host, state: Json) -> None:
        everything.write(host, state)


def _is_label(mode: str) -> bool:
    return " " in mode  # no board's mode has one, and each of our labels does


def _label(data: Mapping[str, Any]) -> str | None:
    """`4 cores, CPU 1200 MHz, GPU 670 MHz, memory 1333 MHz`; None where nothing, or nothing sensible, is asked for."""
    requested = {field: data[field] for field in _WORDS if data.get(field) is not None}
    if any(not isinstance(value, int | float) for field, value in requested.items() if field != "governor"):
        return None
    shown = {
        field: value if type(value) is not bool else "on" if value else "off" for field, value in requested.items()
    }
    text = ", ".join(_WORDS[field].format(value) for field, value in shown.items())
    return text.replace("1 cores", "1 core") if requested.get("cores") == 1 else text or None


_CLOCKS = ("cpu_mhz", "gpu_mhz")


class Dvfs(Control):
    """Lets the clocks of CPU and GPU follow the load, or fixes them at the limits that the power mode has set."""

    short: ClassVar[str | None] = "state"
    example: ClassVar[Mapping[str, Json]] = {"state": "off"}
    restore_rank: ClassVar[int] = 20  # with the power mode: what was turned last is put back first
    hold_rank: ClassVar[int] = 60  # after the power mode, whose limits it takes

    state: OnOff
    """off: every clock stands at its upper limit (jetson_clocks, governor performance, a locked GPU)."""

    def knob(self) -> str:
        return "dvfs"

    def turns(self) -> frozenset[str]:
        return frozenset({"cpu_mhz", "governor", "gpu_mhz"})

    def obstacles(self, host: Host) -> list[Ruling]:
        if not any(backend.clocks(host) for backend in _concerned(host)):
            return [
                obstacle(
                    "needs.hardware",
                    "this device has no clocks that could be fixed: neither cpufreq nor a GPU that can be locked.",
                )
            ]
        if lacks_root(host):
            return [obstacle("needs.root", "fixing clocks needs root.")]
        if self.state == "off" and memory_moves(host):
            return [
                obstacle(
                    "needs.program",
                    "this board's memory clock is fixed by `jetson_clocks`, which is not there; install it.",
                )
            ]
        return []

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        made: Settings = {}
        for backend in _concerned(host):
            made |= backend.fixed(host) if self.state == "off" else backend.free(host)
        return made

    def read(self, host: Host) -> Json | None:
        return {name: text for backend in _concerned(host) for name, text in backend.clocks(host).items()}

    def write(self, host: Host, state: Json) -> None:
        everything.write(host, state)


def _concerned(host: Host) -> list[Backend]:
    """Those who set the clocks of CPU and GPU here: on a Jetson the board, not cpufreq."""
    there = everything.offered(host)
    first = [there[field][0] for field in _CLOCKS if field in there]
    return [backend for backend in everything.backends() if backend in first]


def _cores(value: Any) -> Any:
    """A list, or the kernel's way to write one; in order, each once."""
    if isinstance(value, str):
        value = cores(value)
    if not isinstance(value, list | tuple | set | frozenset) or any(type(core) is not int for core in value):
        raise ValueError(f"{value!r} is not a list of cores; write it like [0, 1] or '0-2,5'")
    return sorted(set(value))


Core = Annotated[int, Field(ge=0, lt=MOST_CORES)]


class Cpu(Control):
    """Keeps the named cores online and takes the others offline, for the time of a trial."""

    example: ClassVar[Mapping[str, Json]] = {"online": "0"}
    restore_rank: ClassVar[int] = 20  # early, for others may need the cores; with the clocks, the last turned first
    hold_rank: ClassVar[int] = 30

    online: Annotated[tuple[Core, ...], Field(min_length=1), BeforeValidator(_cores)]
    """The cores that stay online, as a list, or as the kernel writes it: '0-2,5'."""

    def knob(self) -> str:
        return "cpu"

    def turns(self) -> frozenset[str]:
        return frozenset({"cores"})

    def obstacles(self, host: Host) -> list[Ruling]:
        if not hotplug.present(host):
            return [obstacle("needs.kernel", f"this machine does not list its cores in {hotplug.FOLDER}.")]
        return hotplug.switch_obstacles(host, self.online)

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        return {"online": list(self.online)} | _cpusets(hotplug.settings_for(host, set(self.online)))

    def read(self, host: Host) -> Json | None:
        return {"online": sorted(hotplug.online(host))} | _cpusets(hotplug.standing(host))

    def write(self, host: Host, state: Json) -> None:
        hotplug.switch(host, _checked(state))


def _cpusets(settings: Mapping[str, str]) -> dict[str, str]:
    """Whether the cpusets of cgroup v1 are kept aside, where there are any: they belong to the state of the cores."""
    return {"cpusets": settings[hotplug.CPUSETS]} if hotplug.CPUSETS in settings else {}


def _checked(state: Json) -> set[int]:
    """A state from the journal is data from a file: it must be a set of core numbers, and nothing else."""
    rest = dict(state) if isinstance(state, dict) else {}
    online = rest.pop("online", None)
    valid = isinstance(online, list) and online and all(type(core) is int and core >= 0 for core in online)
    if not valid or rest not in ({}, {"cpusets": hotplug.KEPT}, {"cpusets": hotplug.AS_FOUND}):
        raise TareError(f"cpu: {state!r} is not a set of cores")
    return set(online or ())


ALARM = "alarm"
_ABLE = re.compile(r"Supports Wake-on: \S*g\S*\s+Wake-on: (\S+)")


class WakeOnLan(Control):
    """Lets a magic packet wake the device by every network card that can, or nothing that comes over the network."""

    short: ClassVar[str | None] = "state"
    example: ClassVar[Mapping[str, Json]] = {"state": "on"}

    state: OnOff
    """on: the cards listen for a magic packet while the device sleeps, which takes power; off: they do not."""

    def knob(self) -> str:
        return "wake_on_lan"

    def obstacles(self, host: Host) -> list[Ruling]:
        if not _listening(host):
            cards = ", ".join(_cards(host)) or "none"
            return [obstacle("needs.hardware", f"no network card here ({cards}) can wake the device, by `ethtool`.")]
        if lacks_root(host):
            return [obstacle("needs.root", "setting what wakes a network card needs root.")]
        if at := alarm_of(host, waking_clock(host)):
            return [obstacle("needs.value", f"the clock's alarm is set already, for {at} s, by someone else.")]
        return []

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        return {ALARM: "", **dict.fromkeys(_listening(host), "g" if self.state == "on" else "d")}

    def read(self, host: Host) -> dict[str, str]:
        return {ALARM: alarm_of(host, waking_clock(host)), **_listening(host)}

    def detours(self, host: Host, state: Json) -> list[Json]:
        """There was no alarm when we came, so that whichever is set now is the one of a sleep that was cut off."""
        return [{**state, ALARM: at}] if (at := alarm_of(host, waking_clock(host))) else []

    def write(self, host: Host, state: Json) -> None:
        now = self.read(host)
        fits = isinstance(state, dict) and state.keys() == now.keys()
        if not fits or not all(re.fullmatch("[a-z]*|[0-9]*", str(text)) for text in state.values()):
            raise TareError(f"wake_on_lan: {state!r} is no state of this device's network cards")
        if now[ALARM] and not state[ALARM]:
            host.write(f"{waking_clock(host)}/wakealarm", "0")
        for card in [each for each in now if each != ALARM and state[each] != now[each]]:
            host.run(["ethtool", "-s", card, "wol", state[card]]).checked()


def _cards(host: Host) -> list[str]:
    """The network cards that are hardware, by name: those of containers and bridges have no device."""
    names = re.findall(r"^\s*([^\s:]+):", text_of(host, "/proc/net/dev") or "", re.MULTILINE)
    return [name for name in names if text_of(host, f"/sys/class/net/{name}/device/uevent") is not None]


def _listening(host: Host) -> dict[str, str]:
    """What wakes each card that a magic packet can wake, in ethtool's letters."""
    told = {card: _ABLE.search(host.run(["ethtool", card]).out) for card in _cards(host)}
    return {card: found[1] for card, found in told.items() if found}
