"""The modes that a Jetson itself knows, by `nvpmodel -q` and `nvpmodel -m`.

The mode outlives a reboot, so it is put back after one too. Not run on hardware here (docs/how-to/jetson.md).

NVIDIA's `jetson_clocks`: fixes all clocks at their limits, also those that no configuration names.

What it changed is known only to itself, so it is asked to store that first; the file is kept until it is put back.

Commands that turn knobs in their own time: one that a killed run left behind may still be writing.

Whoever holds the device's lock knows that no such command is about to start: until a child of the dead run has become
that command, it holds the lock itself.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tare.base.errors import BusyError, ControlNotHeld, TareError
from tare.base.files import state_dir
from tare.base.host import Completed, Host, lacks_root
from tare.base.processes import boot_id
from tare.base.rulings import Ruling, obstacle
from tare.drivers.power import hotplug
from tare.drivers.power.backend import OFF, PowerRequest, Settings, WithoutClocks, known
from tare.drivers.power.hotplug import online

# The clocks of a Jetson as its nvpmodel.conf names them: which files they are, how they stand, what they can be.
#
# nvpmodel.conf: which files of a Jetson hold its clocks and cores, and what each of its power modes puts there.
#
# < PARAM TYPE=CLOCK NAME=GPU >          a thing that can be set, and the files that it is made of
# MAX_FREQ /sys/devices/…/max_freq
# < POWER_MODEL ID=1 NAME=5W >           a mode, and a value for each of them; -1 is the highest that there is
# GPU MAX_FREQ 640000000
# < PM_CONFIG DEFAULT=0 >

_HEADER = re.compile(r"<\s*([A-Z_]+)((?:\s+[A-Z_0-9]+=\S+?)*)\s*>")
_CONF_PAIR = re.compile(r"([A-Z_0-9]+)=(\S+)")
_NAME = re.compile(r"[A-Za-z0-9_.()|+-]{1,64}")
CPU_ONLINE = "CPU_ONLINE"


@dataclass(frozen=True)
class Param:
    """A thing that a mode sets: its files, by what nvpmodel calls them (`MAX_FREQ`, `CORE_0`)."""

    name: str
    kind: str  # FILE or CLOCK
    files: Mapping[str, str] = field(default_factory=dict)


class Value(NamedTuple):
    """What a mode puts into one file of a param."""

    param: str
    key: str
    text: str


@dataclass(frozen=True)
class PowerModel:
    """One mode of the board."""

    id: int
    name: str
    values: tuple[Value, ...] = ()

    def cores(self) -> dict[int, bool]:
        """Which cores the mode switches on, and which off."""
        named = [value for value in self.values if value.param == CPU_ONLINE]
        return {int(value.key.rpartition("_")[2]): value.text != "0" for value in named}


@dataclass(frozen=True)
class Conf:
    """The whole file."""

    params: Mapping[str, Param]
    models: tuple[PowerModel, ...]
    default: int | None = None

    def model(self, wanted: str) -> PowerModel | None:
        """The mode of this name or id. Names are told apart by case last: `maxn` is MAXN."""
        exact = [one for one in self.models if wanted in (one.name, str(one.id))]
        near = [one for one in self.models if wanted.lower() == one.name.lower()]
        return next(iter(exact or near), None)


def parse_conf(text: str) -> Conf:
    """What the file says; raises `TareError` with the line where it cannot be read."""
    reader = _Reader()
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if line:
            try:
                reader.take(line)
            except ValueError as error:
                raise TareError(f"nvpmodel.conf, line {number}: {error}.") from None
    models = [PowerModel(one.id, one.name, tuple(values)) for one, values in reader.models]
    return Conf(reader.params, tuple(models), reader.default)


class _Reader:
    """Line by line; blocks that say nothing about power (fans, for one) are passed over."""

    def __init__(self) -> None:
        self.params: dict[str, Param] = {}
        self.models: list[tuple[PowerModel, list[Value]]] = []
        self.default: int | None = None
        self._block = ""
        self._files: dict[str, str] = {}

    def take(self, line: str) -> None:
        if line.startswith("<"):
            header = _HEADER.fullmatch(line)
            if header is None:
                raise ValueError(f"{line!r} is not the head of a block")
            self._begin(header[1], dict(_CONF_PAIR.findall(header[2])))
        elif self._block == "PARAM":
            self._file(line)
        elif self._block == "POWER_MODEL":
            self._value(line)

    def _begin(self, block: str, pairs: Mapping[str, str]) -> None:
        self._block = block
        try:
            if block == "PARAM":
                self._files = {}
                self.params[pairs["NAME"]] = Param(_named(pairs["NAME"]), pairs["TYPE"], self._files)
            elif block == "POWER_MODEL":
                self.models.append((PowerModel(int(pairs["ID"]), _named(pairs["NAME"])), []))
            elif block == "PM_CONFIG":
                self.default = int(pairs["DEFAULT"])
        except KeyError as missing:
            raise ValueError(f"a {block} needs {missing}") from None

    def _file(self, line: str) -> None:
        words = line.split()
        if len(words) != 2:
            raise ValueError(f"{line!r} is not KEY and PATH")
        if words[1].startswith("/sys/") and ".." not in words[1].split("/"):  # whatever else it names, we do not write
            self._files[_named(words[0])] = words[1]

    def _value(self, line: str) -> None:
        words = line.split()
        if len(words) != 3:
            raise ValueError(f"{line!r} is not PARAM, KEY and VALUE")
        self.models[-1][1].append(Value(_named(words[0]), _named(words[1]), words[2]))


def _named(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name")
    return text


CONF = "/etc/nvpmodel.conf"
EMC_TABLES = (  # L4T r32 and later; older ones
    "/sys/kernel/debug/bpmp/debug/emc/possible_rates",
    "/sys/kernel/debug/clock/emc/possible_rates",
)
HIGH, LOW, TABLE = "MAX_FREQ", "MIN_FREQ", "FREQ_TABLE"
_CPU = re.compile(r"/sys/devices/system/cpu/cpu(\d+)/")
_NEXT_KERNEL = "_KNEXT"  # newer kernels have the same file elsewhere, and the configuration names both


@dataclass(frozen=True)
class Clock:
    """One clock of the board, and its files."""

    param: str
    field: str | None  # of a request: cpu_mhz, gpu_mhz, mem_mhz; None for what only modes set
    core: int | None  # the core in whose folder the files lie
    files: Mapping[str, str]

    def key(self, end: str) -> str:
        return f"jetson.{self.param}.{end}"

    @property
    def per_mhz(self) -> int:
        return 1000 if self.core is not None else 1_000_000  # cpufreq counts in kHz, everything else in Hz


def board(host: Host) -> Conf | None:
    """What the board's configuration says; None where there is none, and so no Jetson."""
    try:
        text = host.read(CONF)
    except OSError:
        return None
    return parse_conf(text)


def clocks(host: Host) -> Iterator[Clock]:
    """The clocks of the board that have an upper limit which can be written."""
    conf = board(host)
    for param in conf.params.values() if conf else ():
        if HIGH not in param.files:
            continue
        found = _CPU.match(param.files[HIGH])
        field = "cpu_mhz" if found else {"GPU": "gpu_mhz", "EMC": "mem_mhz"}.get(param.name)
        clock = Clock(param.name, field, int(found[1]) if found else None, _present_files(host, param.files))
        if field or (param.kind == "CLOCK" and _text(host, clock.files[HIGH]) is not None):
            yield clock


def _present_files(host: Host, files: Mapping[str, str]) -> dict[str, str]:
    """The file of each name that this kernel has."""
    chosen = {}
    for name in (HIGH, LOW, TABLE):
        places = [files[key] for key in (name, f"{name}{_NEXT_KERNEL}") if key in files]
        if places:
            chosen[name] = next((path for path in places if _text(host, path) is not None), places[0])
    return chosen


def stands(host: Host, clock: Clock, end: str) -> str:
    """One limit as it is."""
    return OFF if is_off(host, clock) else host.read(clock.files[end]).strip()


def is_off(host: Host, clock: Clock) -> bool:
    """Whether its core is offline, and its files with it."""
    return clock.core is not None and clock.core not in online(host)


def mhz(host: Host, clock: Clock) -> list[float]:
    """The same as `table`, as people write it."""
    return [value / clock.per_mhz for value in table(host, clock)]


def table(host: Host, clock: Clock) -> list[int]:
    """The values that the hardware has, ascending: from its own list, or wherever else they can be learnt."""
    own = _text(host, clock.files.get(TABLE, "")) if not is_off(host, clock) else None
    if own is None and clock.field == "cpu_mhz":
        identical = (one for one in clocks(host) if one.field == "cpu_mhz" and not is_off(host, one))
        own = next((found for one in identical if (found := _text(host, one.files.get(TABLE, "")))), None)
    if own is None and clock.field == "mem_mhz":
        # Lists of memory clocks come in kHz or in Hz; no memory runs below 10 MHz or above 10 GHz.
        values = _numbers(_memory_clocks(host, clock))
        return sorted({value if value >= 10_000_000 else value * 1000 for value in values})
    return sorted(set(_numbers(own or "")))


def _memory_clocks(host: Host, clock: Clock) -> str:
    """The memory controller's list; a board without one (Nano) can have what its modes mention."""
    for path in EMC_TABLES:
        if (text := _text(host, path)) is not None:
            return text
    conf = board(host)
    values = [value for model in conf.models for value in model.values] if conf else []
    return " ".join(value.text for value in values if value.param == clock.param and value.text not in ("0", "-1"))


def _numbers(text: str) -> list[int]:
    return [int(word) for word in re.findall(r"\b\d+\b", text)]


def _text(host: Host, path: str) -> str | None:
    try:
        return host.read(path) if path else None
    except OSError:
        return None


COMMAND = "nvpmodel"
STATUS = "/var/lib/nvpmodel/status"  # where nvpmodel itself keeps the mode over a reboot
KEY = "nvpmodel.mode"
LIMIT_S = 15.0
_TIMED_OUT = 124
_NOT_THERE = 127
_PMODE = re.compile(r"pmode:0*(\d+)")


class NamedMode(WithoutClocks):
    """The number of the board's mode."""

    name = "nvpmodel"
    rank = 10

    def offers(self, host: Host) -> frozenset[str]:
        try:
            conf = board(host)
        except TareError:
            return frozenset()
        return frozenset({"mode"}) if conf and conf.models else frozenset()

    def obstacles(self, host: Host, request: PowerRequest) -> list[Ruling]:
        conf = board(host)
        if conf is None or request.mode is None:
            return []
        model = conf.model(request.mode)
        if model is None:
            here = ", ".join(f"{one.name} ({one.id})" for one in conf.models)
            return [obstacle("needs.value", f"this board has no mode {request.mode!r}; its modes are {here}.")]
        if host.run(["which", COMMAND], limit_s=5).code != 0:
            return [
                obstacle(
                    "needs.program",
                    f"`{COMMAND}` is not on this board, so that its modes cannot be set; "
                    "name cores and clocks instead.",
                )
            ]
        stopped = [obstacle("needs.reboot", _reboot(model))] if needs_reboot(host, conf, model) else []
        if lacks_root(host):
            stopped.append(obstacle("needs.root", "changing the board's mode needs root."))
        return stopped

    def target(self, host: Host, request: PowerRequest) -> Settings:
        model = model_of(host, request)
        return {} if model is None else {KEY: str(model.id)}

    def read(self, host: Host, request: PowerRequest) -> Settings:
        return {} if model_of(host, request) is None else {KEY: current(host)}

    def write(self, host: Host, settings: Mapping[str, str]) -> None:
        conf = board(host)
        known(self.name, settings, [KEY])
        model = conf.model(settings[KEY]) if conf else None
        if model is None:
            raise TareError(f"nvpmodel: this board has no mode {settings[KEY]!r}")
        if current(host) == settings[KEY]:
            return
        if (now := online(host)) - {core for core, on in model.cores().items() if on}:
            hotplug.keep(host, now)
        _set(host, model)

    def values(self, host: Host) -> dict[str, Sequence[Any]]:
        conf = board(host)
        return {"mode": [model.name for model in conf.models]} if conf else {}


BACKEND = NamedMode()


def with_cores(host: Host, request: PowerRequest) -> PowerRequest:
    """The request with the cores that the board's mode leaves online, unless it says how many itself."""
    model = model_of(host, request)
    if model is None or request.cores is not None or not model.cores():
        return request
    on = [core for core, is_on in sorted(model.cores().items()) if is_on]
    return PowerRequest(**{name: getattr(request, name) for name in request.asked()} | {"online": tuple(on)})


def current(host: Host) -> str:
    """The number of the mode now. An nvpmodel that hangs has written it down anyway."""
    requested = host.run([COMMAND, "-q"], limit_s=LIMIT_S)
    numbers = [line.strip() for line in requested.out.splitlines() if line.strip().isdecimal()]
    if requested.code == 0 and numbers:
        return str(int(numbers[-1]))
    try:
        kept = _PMODE.search(host.read(STATUS))
    except OSError:
        kept = None
    if kept is None:
        reported = (requested.err or requested.out).strip() or "it printed nothing"
        raise TareError(f"`{COMMAND} -q` does not say which mode the board is in: {reported}")
    return kept[1]


def needs_reboot(host: Host, conf: Conf, model: PowerModel) -> bool:
    """Whether the mode gates other parts of the chip than are gated now: that is done at boot only."""
    for value in model.values:
        param = conf.params.get(value.param)
        path = param.files.get(value.key) if param and value.param.endswith("POWER_GATING") else None
        try:
            if path and int(host.read(path).strip(), 0) != int(value.text, 0):
                return True
        except (OSError, ValueError):
            continue
    return False


def model_of(host: Host, request: PowerRequest) -> PowerModel | None:
    """The board's mode that is asked for."""
    conf = board(host)
    return conf.model(request.mode) if conf and request.mode is not None else None


def _reboot(model: PowerModel) -> str:
    return (
        f"the mode {model.name} needs a reboot, and a study does not reboot the board: "
        f"`sudo nvpmodel -m {model.id}`, answer yes, then run this again for that mode alone."
    )


def _set(host: Host, model: PowerModel) -> None:
    """Its question whether to reboot finds nobody who answers, and is taken for what it is."""
    done = host.run([COMMAND, "-m", str(model.id)], limit_s=LIMIT_S)
    reported = f"{done.out}\n{done.err}"
    if "reboot" in reported.lower():
        raise ControlNotHeld("power_mode", asked=model.name, found=f"that it needs a reboot: {_reboot(model)[:-1]}")
    if done.code == _TIMED_OUT:
        raise ControlNotHeld("power_mode", asked=model.name, found=f"nothing: nvpmodel did not end in {LIMIT_S:g} s")
    if done.code == _NOT_THERE or done.code != 0:
        raise ControlNotHeld("power_mode", asked=model.name, found=reported.strip().splitlines()[-1:] or "nothing")
    if (now := current(host)) != str(model.id):
        raise ControlNotHeld("power_mode", asked=f"{model.name} ({model.id})", found=f"mode {now}")


JETSON_CLOCKS = "jetson_clocks"
ON, AS_FOUND = "on", "as found"
JETSON_CLOCKS_LIMIT_S = 20.0
_PAIR = re.compile(r"(\w+)=(\S+)")
_CORE = re.compile(r"(cpu\d+):")


def is_there(host: Host) -> bool:
    """Whether the board has the command."""
    return host.run(["which", JETSON_CLOCKS], limit_s=5).code == 0


def standing() -> str:
    """Whether it was switched on by us and is so still, as far as our own note says."""
    return ON if _stored().exists() else AS_FOUND


def put(host: Host, state: str) -> None:
    """Store and switch on, or put back what was stored; nothing where it stands so already."""
    if state not in (ON, AS_FOUND):
        raise TareError(f"{JETSON_CLOCKS}: {state!r} is neither {ON!r} nor {AS_FOUND!r}")
    if state == standing():
        return
    if state == AS_FOUND:
        _answered(host, "--restore", str(_stored()))
        _stored().unlink()
        return
    _store(host)
    _answered(host)
    shown = show(host)
    if shown.get("EMC", {}).get("FreqOverride") == "0":
        raise ControlNotHeld(JETSON_CLOCKS, asked="a fixed memory clock", found="FreqOverride=0")


def show(host: Host) -> dict[str, dict[str, str]]:
    """`jetson_clocks --show` as data: `{"GPU": {"MinFreq": "114750000", …}, "cpu0": {…}, "EMC": {…}}`."""
    return parse(_answered(host, "--show").out)


def parse(text: str) -> dict[str, dict[str, str]]:
    """The lines that speak of clocks; what is switched off, or not said by this release, is absent."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        head, _, _ = line.strip().partition(" ")
        pairs = dict(_PAIR.findall(line.partition("IdleStates")[0]))
        core = _CORE.match(head)
        name = core[1] if core else head.rstrip(":")
        if "MinFreq" in pairs and "MaxFreq" in pairs:
            found[name] = pairs
    return found


def _store(host: Host) -> None:
    path = _stored()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)  # it asks before it overwrites
    _answered(host, "--store", str(draft))
    if not draft.exists() or not draft.stat().st_size:
        raise ControlNotHeld(JETSON_CLOCKS, asked=f"its settings in {draft}", found="no such file")
    descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    draft.replace(path)


def _stored() -> Path:
    """Of this boot only: a reboot has put everything back."""
    return state_dir() / f"jetson_clocks.{boot_id()}.conf"


def _answered(host: Host, *arguments: str) -> Completed:
    """Run it with nothing to read and a deadline."""
    done = host.run([JETSON_CLOCKS, *arguments], limit_s=JETSON_CLOCKS_LIMIT_S)
    if done.code != 0:
        reported = (done.err or done.out).strip().splitlines()[-1:] or ["it printed nothing"]
        raise ControlNotHeld(f"{JETSON_CLOCKS} {' '.join(arguments)}".strip(), asked="an answer", found=reported[0])
    return done


NAMES = frozenset({COMMAND, JETSON_CLOCKS})
PATIENCE_S = LIMIT_S + JETSON_CLOCKS_LIMIT_S  # what a run itself would have waited
_AGAIN_S = 0.05
_PROC = Path("/proc")


class Running(NamedTuple):
    """Such a command, at work."""

    pid: int
    line: str


def running() -> list[Running]:
    """Every one on this device that can change something: root's. A process of that name of another user cannot."""
    return [found for folder in _PROC.glob("[0-9]*") if (found := _look(folder)) is not None]


def await_end(limit_s: float = PATIENCE_S) -> list[str]:
    """Wait until none runs; says what was waited for. BusyError where one still runs after the limit."""
    began_s = time.monotonic()
    waited: dict[Running, None] = {}
    while at_work := running():
        waited |= dict.fromkeys(at_work)
        if time.monotonic() - began_s > limit_s:
            first = at_work[0]
            raise BusyError(
                f"`{first.line}` (pid {first.pid}) still runs after {limit_s:.0f} s, and may change it yet. "
                f"Wait until it ends, or stop it with `kill {first.pid}`; then try again."
            )
        time.sleep(_AGAIN_S)
    return [f"`{each.line}` (pid {each.pid}) was still changing settings; tare waited for it." for each in waited]


def _look(folder: Path) -> Running | None:
    try:
        if folder.stat().st_uid != 0:
            return None
        words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return None
    # The command itself, or an interpreter with the command as its script.
    for place, word in enumerate(words[:2]):
        if (name := word.rpartition("/")[2]) in NAMES:
            return Running(int(folder.name), " ".join([name, *words[place + 1 :]])[:80])
    return None
