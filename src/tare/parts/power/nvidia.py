"""NVIDIA GPUs of `power_mode` and `dvfs`: locked clocks, the power limit, and persistence mode, through NVML.

NVML can set a lock on the clocks but cannot say whether there is one. What is known is the clock itself, which stands
at a lock even when the GPU is idle, and what we locked: that is noted in a file of tare's before it is done
(`gpu_locks`). A lock that we noted counts for as long as the clock is where it holds it; otherwise clocks are `free`.
So a lock that somebody else had set before is not seen, and is gone afterwards (docs/how-to/gpu-power.md).

With persistence mode off the driver forgets every setting with its last client, so that it is part of each mode.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tare.errors import ControlNotHeld, DeviceLost, TareError
from tare.host import Host, LocalHost
from tare.parts import nvml
from tare.parts.nvml import GRAPHICS, MEMORY, Gpu
from tare.parts.power import gpu_locks
from tare.parts.power.backend import NO_LIMIT, Settings, Wish, every, known, nearest, unsupported

FREE = "free"
SETTLE_S = 1.0  # an H200 needed 0.16 s from the lock to the clock
_NAMES = {"gpu_mhz": "graphics_mhz", "mem_mhz": "memory_mhz", "power_w": "power_mw"}  # of a wish, and of settings
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
            return frozenset(_values(nvml.gpus(host)))
        except DeviceLost:
            return frozenset(_NAMES)  # it has not become a device without a GPU: reading says what is the matter
        except (TareError, OSError):
            return frozenset()

    def values(self, host: Host) -> dict[str, Sequence[Any]]:
        try:
            return _values(nvml.gpus(host))
        except (TareError, OSError):
            return {}

    def obstacles(self, host: Host, wish: Wish) -> list[str]:
        try:
            sentences = [sentence for gpu in nvml.gpus(host) for sentence in _impossible(gpu, wish)]
        except (TareError, OSError) as error:
            return [f"gpu: {str(error).rstrip('.')}."]
        if wish.asked() and isinstance(host, LocalHost) and os.geteuid() != 0:
            sentences.append("gpu: setting the clocks or the power limit of a GPU needs root.")
        return sentences

    def target(self, host: Host, wish: Wish) -> Settings:
        return {f"gpu.{gpu.index}.{name}": text for gpu in nvml.gpus(host) for name, text in _wanted(gpu, wish).items()}

    def read(self, host: Host, wish: Wish) -> Settings:
        return {f"gpu.{gpu.index}.{name}": _standing(host, gpu, name) for gpu, name in _named(host, wish)}

    def write(self, host: Host, settings: Mapping[str, str]) -> None:
        """Persistence is the first to come on and the last to go off: without it nothing holds."""
        found = {gpu.index: gpu for gpu in nvml.gpus(host)}
        known(self.name, settings, [f"gpu.{index}.{name}" for index in found for name in _FORMS])
        for key, text in settings.items():
            if _FORMS[key.rpartition(".")[2]].fullmatch(text) is None:
                raise TareError(f"{self.name}: {key!r} = {text!r} is no setting of this device")
        every(partial(_put, host, found, key, text) for key, text in sorted(settings.items(), key=_order))

    def fixed(self, host: Host) -> Settings:
        """Held at the upper end of what they may be now."""
        return self._for_dvfs(host, lambda gpu, upper: str(upper))

    def free(self, host: Host) -> Settings:
        """Free up to the same upper end."""
        return self._for_dvfs(host, _up_to)

    def clocks(self, host: Host) -> Settings:
        names = ("persistence", "graphics_mhz")
        return {
            f"gpu.{gpu.index}.{name}": _standing(host, gpu, name)
            for gpu in nvml.gpus(host)
            if gpu.graphics_clocks_mhz()
            for name in names
        }

    def _for_dvfs(self, host: Host, text: Callable[[Gpu, int], str]) -> Settings:
        settings: Settings = {}
        for gpu in nvml.gpus(host):
            if supported := gpu.graphics_clocks_mhz():
                now = _standing(host, gpu, "graphics_mhz")
                upper = max(supported) if now == FREE else _ends(now)[1]
                settings |= {
                    f"gpu.{gpu.index}.persistence": "on",
                    f"gpu.{gpu.index}.graphics_mhz": text(gpu, upper),
                }
        return settings


BACKEND = Nvidia()


def _put(host: Host, found: Mapping[int, Gpu], key: str, text: str) -> None:
    """One setting, unless it stands so already."""
    _, index, name = key.split(".")
    if _standing(host, found[int(index)], name) != text:
        _WRITERS[name](host, found[int(index)], name, text)


def _up_to(gpu: Gpu, upper: int) -> str:
    supported = gpu.graphics_clocks_mhz()
    return FREE if upper >= max(supported) else f"{min(supported)}-{upper}"


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


def _impossible(gpu: Gpu, wish: Wish) -> Iterator[str]:
    what = f"GPU {gpu.index} ({gpu.name()})"
    clocks = {"gpu_mhz": gpu.graphics_clocks_mhz, "mem_mhz": gpu.memory_clocks_mhz}
    for field, supported in clocks.items():
        asked = getattr(wish, field)
        if asked is not None and nearest(asked, [float(clock) for clock in supported()]) is None:
            yield unsupported(field, asked, [float(clock) for clock in supported()], what)
    ends = gpu.power_limits_mw()
    if wish.power_w is not None and wish.power_w != NO_LIMIT and ends is not None:
        low, high = (end / 1e3 for end in ends)
        if not low <= wish.power_w <= high:
            yield f"`power_w: {wish.power_w:g}`: {what} takes a power limit of {low:g} to {high:g} W."


def _wanted(gpu: Gpu, wish: Wish) -> Settings:
    settings = {"persistence": "on"} if wish.asked() & _NAMES.keys() else {}
    if wish.gpu_mhz is not None:
        settings["graphics_mhz"] = _clock_text(gpu, wish.gpu_mhz, gpu.graphics_clocks_mhz(), "gpu_mhz")
    if wish.mem_mhz is not None:
        settings["memory_mhz"] = _clock_text(gpu, wish.mem_mhz, gpu.memory_clocks_mhz(), "mem_mhz")
    if wish.power_w is not None:
        limit = gpu.default_power_limit_mw() if wish.power_w == NO_LIMIT else round(wish.power_w * 1e3)
        settings["power_mw"] = _or_raise(None if limit is None else str(limit), gpu, "default power limit")
    return settings


def _clock_text(gpu: Gpu, asked: float, supported: Sequence[int], field: str) -> str:
    if asked == NO_LIMIT:
        return FREE
    clock = nearest(asked, [float(value) for value in supported])
    if clock is None:
        raise TareError(unsupported(field, asked, [float(value) for value in supported], f"GPU {gpu.index}"))
    return str(int(clock))


def _named(host: Host, wish: Wish) -> Iterator[tuple[Gpu, str]]:
    """The settings that a wish is about, on each GPU."""
    asked = [name for field, name in _NAMES.items() if field in wish.asked()]
    for gpu in nvml.gpus(host):
        yield from ((gpu, name) for name in (["persistence", *asked] if asked else []))


def _order(item: tuple[str, str]) -> tuple[int, str]:
    key, text = item
    _, _, name = key.split(".")
    return (0 if text == "on" else 2) if name == "persistence" else 1, key


def _standing(host: Host, gpu: Gpu, name: str) -> str:
    """One setting as it is; of the clocks, as far as that can be known."""
    if name == "persistence":
        return _or_raise("on" if (found := gpu.is_persistent()) else None if found is None else "off", gpu, name)
    if name == "power_mw":
        limit = gpu.power_limit_mw()
        return _or_raise(None if limit is None else str(limit), gpu, name)
    noted = gpu_locks.noted(host, gpu.uuid(), name)
    if noted is None:
        return FREE
    if not noted.held:  # cut off between the note and the lock, or the lock went wrong: it may be there, and is ours
        return noted.mhz
    return noted.mhz if _is_held(host, gpu, _CLOCKS[name], noted.mhz) else FREE


def _or_raise(text: str | None, gpu: Gpu, name: str) -> str:
    if text is None:
        raise TareError(f"gpu: GPU {gpu.index} does not tell its {name}")
    return text


def _is_held(host: Host, gpu: Gpu, kind: int, mhz: str) -> bool:
    """Whether the clock is where the lock wants it, within a second; or below, for heat or power, as it may be."""
    low, high = _ends(mhz)
    end_ns = host.clock.now_ns() + round(SETTLE_S * 1e9)
    while True:
        clock = gpu.clock_mhz(kind)
        if clock is not None and low <= clock <= high:
            return True
        if clock is not None and clock < low and (gpu.reasons() or 0) & nvml.HELD_BACK:
            return True
        if (now_ns := host.clock.now_ns()) >= end_ns:
            return False
        host.clock.sleep_until(now_ns + 20_000_000)


def _ends(mhz: str) -> tuple[int, int]:
    low, _, high = mhz.partition("-")
    return int(low), int(high or low)


def _write_persistence(host: Host, gpu: Gpu, name: str, text: str) -> None:
    gpu.persist(text == "on")


def _write_power(host: Host, gpu: Gpu, name: str, text: str) -> None:
    gpu.limit_power_mw(int(text))


def _write_clock(host: Host, gpu: Gpu, name: str, text: str) -> None:
    """Noted, locked, seen: only then is the note good. What is freed is freed first, and forgotten then."""
    lock, free = {
        "graphics_mhz": (gpu.lock_graphics_mhz, gpu.free_graphics),
        "memory_mhz": (gpu.lock_memory_mhz, gpu.free_memory),
    }[name]
    if text == FREE:
        free()
        gpu_locks.forget(host, gpu.uuid(), name)
        return
    before = gpu_locks.noted(host, gpu.uuid(), name)
    gpu_locks.note(host, gpu.uuid(), name, text, held=False)
    try:
        lock(*_ends(text))
    except Exception:  # the driver refused: all is as it was
        gpu_locks.forget(host, gpu.uuid(), name)
        if before is not None:
            gpu_locks.note(host, gpu.uuid(), name, before.mhz, held=before.held)
        raise
    if not _is_held(host, gpu, _CLOCKS[name], text):
        raise ControlNotHeld(
            f"gpu.{gpu.index}.{name}", asked=f"{text} MHz", found=f"{gpu.clock_mhz(_CLOCKS[name])} MHz"
        )
    gpu_locks.note(host, gpu.uuid(), name, text, held=True)


_WRITERS: dict[str, Callable[[Host, Gpu, str, str], None]] = {
    "persistence": _write_persistence,
    "power_mw": _write_power,
    "graphics_mhz": _write_clock,
    "memory_mhz": _write_clock,
}
