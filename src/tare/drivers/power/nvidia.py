"""NVIDIA GPUs of `power_mode` and `dvfs`: locked clocks, the power limit, and persistence mode, through NVML.

NVML can set a lock on the clocks but cannot say whether there is one. What is known is the clock itself, which stands
at a lock even when the GPU is idle, and what we locked: that is noted in a file of tare's before it is done
(`gpu_locks`). A lock that we noted counts for as long as the clock is where it holds it; otherwise clocks are `free`.
So a lock that somebody else had set before is not seen, and is gone afterwards (docs/how-to/gpu.md).

With persistence mode off the driver forgets every setting with its last client, so that it is part of each mode.

Which GPU clocks we have locked, in a file: NVML cannot be asked. A reboot undoes locks, and with them the file.

It lies beside the undo journal, where only its owner can write; the journal decides what is put back, this file only
says what stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tare.base.errors import ControlNotHeld, DeviceLost, TareError
from tare.base.files import state_dir
from tare.base.host import Host, lacks_root
from tare.base.rulings import Ruling, obstacle
from tare.drivers import nvidia
from tare.drivers.nvidia import GRAPHICS, MEMORY, Gpu
from tare.drivers.places import comes_true
from tare.drivers.power.backend import NO_LIMIT, PowerRequest, Settings, every, known, nearest, unsupported

_BOOT = "/proc/sys/kernel/random/boot_id"
_FORM = re.compile(r"\d{1,5}(-\d{1,5})?")


class Noted(NamedTuple):
    """A lock: the clock, or the range of clocks; and whether the clock was seen to follow."""

    mhz: str
    held: bool


def noted_lock(host: Host, uuid: str, clock: str) -> Noted | None:
    """What we have locked this clock of this GPU to, since the last boot."""
    found = _locks(host).get(f"{uuid} {clock}")
    if not isinstance(found, dict) or _FORM.fullmatch(str(found.get("mhz"))) is None:
        return None
    return Noted(str(found["mhz"]), found.get("held") is True)


def note_lock(host: Host, uuid: str, clock: str, mhz: str, *, held: bool) -> None:
    """Write it down, before it is done and after it was seen."""
    _keep(host, {**_locks(host), f"{uuid} {clock}": {"mhz": mhz, "held": held}})


def forget_lock(host: Host, uuid: str, clock: str) -> None:
    """It is locked no more."""
    _keep(host, {key: value for key, value in _locks(host).items() if key != f"{uuid} {clock}"})


def _locks(host: Host) -> dict[str, Any]:
    try:
        reported = json.loads(_path().read_text())
    except (OSError, ValueError):
        return {}
    locks = reported.get("locks") if isinstance(reported, dict) and reported.get("boot") == _boot(host) else None
    return locks if isinstance(locks, dict) else {}


def _keep(host: Host, locks: dict[str, Any]) -> None:
    """Whole or not at all: whoever is killed here leaves the old file or the new one."""
    path = _path()
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.touch(mode=0o600)
        new.write_text(json.dumps({"boot": _boot(host), "locks": locks}))
        new.replace(path)
    except OSError as error:
        raise TareError(
            f"gpu: what is locked must be noted in {path}, and that cannot be written: {error.strerror}. "
            "Nothing was locked; set TARE_STATE to a folder of yours."
        ) from error


def _boot(host: Host) -> str:
    try:
        return host.read(_BOOT).strip()
    except OSError:
        return ""


def _path() -> Path:
    return state_dir() / "gpu-locks.json"


FREE = "free"
SETTLE_S = 1.0  # an H200 needed 0.16 s from the lock to the clock
_NAMES = {"gpu_mhz": "graphics_mhz", "mem_mhz": "memory_mhz", "power_w": "power_mw"}  # of a request, and of settings
_CLOCKS = {"graphics_mhz": GRAPHICS, "memory_mhz": MEMORY}
_FORMS = {
    "graphics_mhz": re.compile(r"free|\d{1,5}(-\d{1,5})?"),
    "memory_mhz": re.compile(r"free|\d{1,5}(-\d{1,5})?"),
    "power_mw": re.compile(r"\d{1,8}"),
    "persistence": re.compile(r"on|off"),
}


class Nvidia:
    """Every GPU that NVML lists is set alike."""

    name = "gpu"
    rank = 60

    def offers(self, host: Host) -> frozenset[str]:
        try:
            return frozenset(_values(nvidia.gpus(host)))
        except DeviceLost:
            return frozenset(_NAMES)  # it has not become a device without a GPU: reading says what is the matter
        except (TareError, OSError):
            return frozenset()

    def values(self, host: Host) -> dict[str, Sequence[Any]]:
        try:
            return _values(nvidia.gpus(host))
        except (TareError, OSError):
            return {}

    def obstacles(self, host: Host, request: PowerRequest) -> list[Ruling]:
        try:
            stopped = [sentence for gpu in nvidia.gpus(host) for sentence in _impossible(gpu, request)]
        except (TareError, OSError) as error:
            return [obstacle("needs.gpu", f"gpu: {str(error).rstrip('.')}.")]
        if request.asked() and lacks_root(host):
            stopped.append(obstacle("needs.root", "gpu: setting the clocks or the power limit of a GPU needs root."))
        return stopped

    def target(self, host: Host, request: PowerRequest) -> Settings:
        return {
            f"gpu.{gpu.index}.{name}": text for gpu in nvidia.gpus(host) for name, text in _wanted(gpu, request).items()
        }

    def read(self, host: Host, request: PowerRequest) -> Settings:
        requested = [name for field, name in _NAMES.items() if field in request.asked()]
        names = ["persistence", *requested] if requested else []
        return {f"gpu.{gpu.index}.{name}": _standing(host, gpu, name) for gpu in nvidia.gpus(host) for name in names}

    def write(self, host: Host, settings: Mapping[str, str]) -> None:
        """Persistence is the first to come on and the last to go off: without it nothing holds."""
        found = {gpu.index: gpu for gpu in nvidia.gpus(host)}
        known(self.name, settings, [f"gpu.{index}.{name}" for index in found for name in _FORMS])
        for key, text in settings.items():
            if _FORMS[key.rpartition(".")[2]].fullmatch(text) is None:
                raise TareError(f"{self.name}: {key!r} = {text!r} is no setting of this device")

        def put(key: str, text: str) -> None:
            _, index, name = key.split(".")
            if _standing(host, found[int(index)], name) != text:
                _write(host, found[int(index)], name, text)

        def order(item: tuple[str, str]) -> tuple[int, str]:
            key, text = item
            return (0 if text == "on" else 2) if key.endswith(".persistence") else 1, key

        every(partial(put, key, text) for key, text in sorted(settings.items(), key=order))

    def fixed(self, host: Host) -> Settings:
        """Held at the upper end of what they may be now."""
        return self._for_dvfs(host, lambda gpu, upper: str(upper))

    def free(self, host: Host) -> Settings:
        """Free up to the same upper end."""

        def up_to(gpu: Gpu, upper: int) -> str:
            supported = gpu.graphics_clocks_mhz()
            return FREE if upper >= max(supported) else f"{min(supported)}-{upper}"

        return self._for_dvfs(host, up_to)

    def clocks(self, host: Host) -> Settings:
        names = ("persistence", "graphics_mhz")
        return {
            f"gpu.{gpu.index}.{name}": _standing(host, gpu, name)
            for gpu in nvidia.gpus(host)
            if gpu.graphics_clocks_mhz()
            for name in names
        }

    def _for_dvfs(self, host: Host, text: Callable[[Gpu, int], str]) -> Settings:
        settings: Settings = {}
        for gpu in nvidia.gpus(host):
            if supported := gpu.graphics_clocks_mhz():
                now = _standing(host, gpu, "graphics_mhz")
                upper = max(supported) if now == FREE else _ends(now)[1]
                settings |= {
                    f"gpu.{gpu.index}.persistence": "on",
                    f"gpu.{gpu.index}.graphics_mhz": text(gpu, upper),
                }
        return settings


BACKEND = Nvidia()


def _values(found: Sequence[Gpu]) -> dict[str, Sequence[Any]]:
    """Clocks that all GPUs have; of the power limit, which can be any number of watts, the two ends."""
    values: dict[str, Sequence[Any]] = {
        "gpu_mhz": _common([gpu.graphics_clocks_mhz() for gpu in found]),
        "mem_mhz": _common([gpu.memory_clocks_mhz() for gpu in found]),
    }
    limits = [gpu.power_limits_mw() for gpu in found]
    ends = [pair for pair in limits if pair is not None and pair[0] < pair[1]]
    if len(ends) == len(limits):
        values["power_w"] = (max(low for low, _ in ends) / 1e3, min(high for _, high in ends) / 1e3)
    return {name: value for name, value in values.items() if len(value) > 1}


def _common(lists: Sequence[Sequence[int]]) -> list[float]:
    shared = set(lists[0]).intersection(*lists[1:]) if lists else set()
    return sorted(float(clock) for clock in shared)


def _impossible(gpu: Gpu, request: PowerRequest) -> Iterator[Ruling]:
    what = f"GPU {gpu.index} ({gpu.name()})"
    clocks = {"gpu_mhz": gpu.graphics_clocks_mhz, "mem_mhz": gpu.memory_clocks_mhz}
    for field, supported in clocks.items():
        requested = getattr(request, field)
        if requested is not None and nearest(requested, [float(clock) for clock in supported()]) is None:
            sentence = unsupported(field, requested, [float(clock) for clock in supported()], what)
            yield obstacle("needs.value", sentence)
    ends = gpu.power_limits_mw()
    if request.power_w is not None and request.power_w != NO_LIMIT and ends is not None:
        low, high = (end / 1e3 for end in ends)
        if not low <= request.power_w <= high:
            sentence = f"`power_w: {request.power_w:g}`: {what} takes a power limit of {low:g} to {high:g} W."
            yield obstacle("needs.value", sentence)


def _wanted(gpu: Gpu, request: PowerRequest) -> Settings:
    settings = {"persistence": "on"} if request.asked() & _NAMES.keys() else {}
    if request.gpu_mhz is not None:
        settings["graphics_mhz"] = _clock_text(gpu, request.gpu_mhz, gpu.graphics_clocks_mhz(), "gpu_mhz")
    if request.mem_mhz is not None:
        settings["memory_mhz"] = _clock_text(gpu, request.mem_mhz, gpu.memory_clocks_mhz(), "mem_mhz")
    if request.power_w is not None:
        limit = gpu.default_power_limit_mw() if request.power_w == NO_LIMIT else round(request.power_w * 1e3)
        settings["power_mw"] = _or_raise(None if limit is None else str(limit), gpu, "default power limit")
    return settings


def _clock_text(gpu: Gpu, requested: float, supported: Sequence[int], field: str) -> str:
    if requested == NO_LIMIT:
        return FREE
    clock = nearest(requested, [float(value) for value in supported])
    if clock is None:
        raise TareError(unsupported(field, requested, [float(value) for value in supported], f"GPU {gpu.index}"))
    return str(int(clock))


def _standing(host: Host, gpu: Gpu, name: str) -> str:
    """One setting as it is; of the clocks, as far as that can be known."""
    if name == "persistence":
        return _or_raise("on" if (found := gpu.is_persistent()) else None if found is None else "off", gpu, name)
    if name == "power_mw":
        limit = gpu.power_limit_mw()
        return _or_raise(None if limit is None else str(limit), gpu, name)
    noted = noted_lock(host, gpu.uuid(), name)
    if noted is None:
        return FREE
    if not noted.held:  # cut off between the note and the lock, or the lock went wrong: it may be there, and is ours
        return noted.mhz
    return noted.mhz if _is_held(host, gpu, _CLOCKS[name], noted.mhz) else FREE


def _or_raise(text: str | None, gpu: Gpu, name: str) -> str:
    if text is None:
        raise TareError(f"gpu: GPU {gpu.index} does not report its {name}")
    return text


def _is_held(host: Host, gpu: Gpu, kind: int, mhz: str) -> bool:
    """Whether the clock is where the lock wants it, within a second; or below, for heat or power, as it may be."""
    low, high = _ends(mhz)

    def is_there() -> bool:
        clock = gpu.clock_mhz(kind)
        if clock is None or clock > high:
            return False
        return clock >= low or bool((gpu.reasons() or 0) & nvidia.HELD_BACK)

    return comes_true(host.clock, is_there, SETTLE_S, 0.02)


def _ends(mhz: str) -> tuple[int, int]:
    low, _, high = mhz.partition("-")
    return int(low), int(high or low)


def _write(host: Host, gpu: Gpu, name: str, text: str) -> None:
    """Of a clock: noted, locked, seen; only then is the note good. What is freed is freed first, and forgotten then."""
    if name == "persistence":
        gpu.persist(text == "on")
        return
    if name == "power_mw":
        gpu.limit_power_mw(int(text))
        return
    lock, free = {
        "graphics_mhz": (gpu.lock_graphics_mhz, gpu.free_graphics),
        "memory_mhz": (gpu.lock_memory_mhz, gpu.free_memory),
    }[name]
    if text == FREE:
        free()
        forget_lock(host, gpu.uuid(), name)
        return
    before = noted_lock(host, gpu.uuid(), name)
    note_lock(host, gpu.uuid(), name, text, held=False)
    try:
        lock(*_ends(text))
    except Exception:  # the driver refused: all is as it was
        forget_lock(host, gpu.uuid(), name)
        if before is not None:
            note_lock(host, gpu.uuid(), name, before.mhz, held=before.held)
        raise
    if not _is_held(host, gpu, _CLOCKS[name], text):
        raise ControlNotHeld(
            f"gpu.{gpu.index}.{name}", asked=f"{text} MHz", found=f"{gpu.clock_mhz(_CLOCKS[name])} MHz"
        )
    note_lock(host, gpu.uuid(), name, text, held=True)
