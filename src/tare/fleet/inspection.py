"""What a device is now, for `tare device fleet check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from tare import __version__
from tare.base.errors import TareError
from tare.base.rulings import Ruling, obstacle
from tare.base.untrusted import stranger_json
from tare.fleet.inventory import Device
from tare.fleet.ssh import DeviceError, ask, clock

AT_ONCE = 32  # connections, so that a fleet of hundreds is looked at in a minute
LEAST_FREE_BYTES = 256 << 20
MOST_CLOCK_OFFSET_S = 1.0
ANSWERS_WITHIN_S = 300.0  # its agent gives each of two short commands of the engine two minutes
_MOST_FREE_BYTES = 1 << 64
_Parts = dict[str, tuple[str, ...]]
_KINDS = ("platforms", "controls", "probes")
_LEAN_PARTS: _Parts = {"platforms": ("bare",), "controls": ()}


@dataclass(frozen=True)
class Inspection:
    """One device, as it stands now; what it could not be asked is None."""

    name: str
    type: str | None
    reachable: bool
    ready: bool  # nothing stands in the way of a trial
    troubles: tuple[Ruling, ...] = ()
    python: str | None = None
    tare: str | None = None
    machine: str | None = None
    kernel: str | None = None
    root: bool | None = None
    free_bytes: int | None = None
    clock_offset_s: float | None = None  # its clock less ours
    clock_within_s: float | None = None  # half the way there and back: no nearer can be said
    owner: Mapping[str, Any] | None = None
    driven: str | None = None  # "whole": by tare there; "lean": from here
    platforms: tuple[str, ...] | None = None  # those that work there
    controls: tuple[str, ...] | None = None
    probes: tuple[str, ...] | None = None  # None on a lean device: which sensors it has shows when a trial asks

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def inspect_all_devices(devices: Sequence[Device]) -> list[Inspection]:
    """Every device, in the order of the inventory."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(inspect_device, devices))


def inspect_device(device: Device) -> Inspection:
    """One device; that it cannot be reached is an answer too."""
    try:
        question = {"do": "look", "engine": device.engine, "abilities": not device.lean}
        reported = ask(device, question, within_s=ANSWERS_WITHIN_S).said
        offset_s, within_s = clock(device, ANSWERS_WITHIN_S)
    except TareError as error:
        why = obstacle(error.code, error.what if isinstance(error, DeviceError) else str(error))
        return Inspection(device.name, device.type, reachable=False, ready=False, troubles=(why,))
    if wrong := _misshapen(reported):
        sentence = f"its answer makes no sense here: {wrong}. Another program answers there, or another tare."
        strange = obstacle("fleet.not-understood", sentence)
        return Inspection(device.name, device.type, reachable=True, ready=False, troubles=(strange,))
    parts, unread = (_LEAN_PARTS, []) if device.lean else _abilities(reported)
    facts: dict[str, Any] = {key: reported[key] for key in ("python", "machine", "kernel", "root", "free_bytes")}
    troubles = (*_engine_troubles(device, reported), *unread, *_other_troubles(reported, offset_s, within_s))
    return Inspection(
        device.name,
        device.type,
        reachable=True,
        ready=not troubles,
        troubles=troubles,
        tare=_version(reported),
        owner=reported["owner"],
        driven="lean" if device.lean else "whole",
        clock_offset_s=offset_s,
        clock_within_s=within_s,
        platforms=parts.get("platforms"),
        controls=parts.get("controls"),
        probes=parts.get("probes"),
        **facts,
    )


_COMMAND: dict[str, tuple[type, ...]] = {"code": (int,), "out": (str,), "err": (str,)}
_OWNER: dict[str, tuple[type, ...]] = {name: (str, int, float, type(None)) for name in ("pid", "user", "run")}
_LOOK: dict[str, tuple[type, ...]] = {
    "python": (str,), "machine": (str,), "kernel": (str,), "root": (bool,), "free_bytes": (int,), "state": (str,),
    "owner": (dict, type(None)), "engine": (dict,), "abilities": (dict, type(None)),
}  # fmt: skip


def _misshapen(reported: object) -> str | None:
    """What of an answer is not as our agent gives it; a device may send anything."""
    if not isinstance(reported, Mapping):
        return f"it is {reported!r:.80}"
    return (
        _wrong_in(reported, _LOOK, missing_ok=("abilities",))
        or (None if 0 <= reported["free_bytes"] < _MOST_FREE_BYTES else "free_bytes is no size of a disk")
        or _wrong_in(reported["engine"], _COMMAND, "engine.")
        or (_wrong_in(reported["abilities"], _COMMAND, "abilities.") if reported.get("abilities") else None)
        or (_wrong_in(reported["owner"], _OWNER, "owner.", tuple(_OWNER)) if reported["owner"] else None)
    )


def _wrong_in(
    found: Mapping[str, Any], shape: Mapping[str, tuple[type, ...]], above: str = "", missing_ok: Sequence[str] = ()
) -> str | None:
    for name, kinds in shape.items():
        if name not in found:
            if name not in missing_ok:
                return f"{above}{name} is missing"
        elif not isinstance(found[name], kinds) or (isinstance(found[name], bool) and bool not in kinds):
            return f"{above}{name} is {found[name]!r:.80}"
    return None


def _abilities(reported: Mapping[str, Any]) -> tuple[_Parts, list[Ruling]]:
    """The parts of each kind that work there, as `tare doctor` there says; another tare may say it in other words."""
    requested = reported.get("abilities") or {"code": 1}
    if requested["code"] != 0:
        return {}, []
    try:
        found = stranger_json(requested["out"])
        return {kind: tuple(str(part["name"]) for part in found[kind] if part["ok"]) for kind in _KINDS}, []
    except (ValueError, LookupError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        sentence = f"what `tare doctor --json` says there cannot be read here ({why}): it is another tare."
        return {}, [obstacle("fleet.not-understood", sentence)]


def _version(reported: Mapping[str, Any]) -> str | None:
    """`tare, version 0.1.0`, without the words."""
    words = reported["engine"]["out"].split()
    return words[-1] if reported["engine"]["code"] == 0 and words else None


def _engine_troubles(device: Device, reported: Mapping[str, Any]) -> list[Ruling]:
    if device.lean:
        return []
    version = _version(reported)
    if version is None:
        why = " ".join(reported["engine"]["err"].split())[-300:] or f"code {reported['engine']['code']}"
        sentence = (
            f"{device.engine} there does not run tare: {why}. Trials need tare on the device, with Python 3.11 or "
            f"newer (workloads may use {reported['python']}). Install it and name it as 'tare' in the inventory; or "
            "write 'tare: none' there, and it is driven from here (bare metal only, no controls)."
        )
        return [obstacle("fleet.no-tare", sentence)]
    if version != __version__:
        sentence = f"tare {version} is there, and {__version__} here: their records are not to be mixed. Install one."
        return [obstacle("fleet.other-version", sentence)]
    return []


def _other_troubles(reported: Mapping[str, Any], offset_s: float, within_s: float) -> list[Ruling]:
    troubles = []
    if reported["free_bytes"] < LEAST_FREE_BYTES:
        sentence = (
            f"{reported['free_bytes'] >> 20} MiB are free in {reported['state']}, {LEAST_FREE_BYTES >> 20} needed."
        )
        troubles.append(obstacle("fleet.full", sentence))
    if abs(offset_s) - within_s > MOST_CLOCK_OFFSET_S:
        way = "ahead of" if offset_s > 0 else "behind"
        sentence = f"its clock is {abs(offset_s):.1f} s {way} ours: set it (chrony, systemd-timesyncd)."
        troubles.append(obstacle("fleet.clock", sentence))
    if (owner := reported["owner"]) is not None:
        whose = f" of {owner['user']}" if owner.get("user") else ""
        run = f", run {owner['run']!r}" if owner.get("run") else ""
        sentence = f"another run owns it: pid {owner.get('pid')}{whose}{run}."
        troubles.append(obstacle("fleet.owned", sentence))
    return troubles
