"""`tare fleet check`: what each device is, what it can do, and what stands in its way. Changes nothing there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from tare import __version__
from tare.errors import TareError
from tare.fleet.inventory import Device
from tare.fleet.ssh import ask, clock

AT_ONCE = 32  # connections, so that a fleet of hundreds is looked at in a minute
LEAST_FREE_BYTES = 256 << 20
MOST_CLOCK_OFFSET_S = 1.0
_Parts = dict[str, tuple[str, ...]]
_KINDS = ("platforms", "controls", "probes")
_LEAN_PARTS: _Parts = {"platforms": ("bare",), "controls": ()}


@dataclass(frozen=True)
class Looked:
    """One device, as it stands now; what it could not be asked is None."""

    name: str
    type: str | None
    reachable: bool
    ready: bool  # nothing stands in the way of a trial
    troubles: tuple[str, ...] = ()
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


def look_at_all(devices: Sequence[Device]) -> list[Looked]:
    """Every device, in the order of the inventory."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(look_at, devices))


def look_at(device: Device) -> Looked:
    """One device; that it cannot be reached is an answer too."""
    try:
        said = ask(device, {"do": "look", "engine": device.engine, "abilities": not device.lean}).said
        offset_s, within_s = clock(device)
    except TareError as error:
        return Looked(device.name, device.type, reachable=False, ready=False, troubles=(str(error),))
    parts, unread = (_LEAN_PARTS, []) if device.lean else _abilities(said)
    facts: dict[str, Any] = {key: said[key] for key in ("python", "machine", "kernel", "root", "free_bytes")}
    troubles = (*_engine_troubles(device, said), *unread, *_other_troubles(said, offset_s, within_s))
    return Looked(
        device.name,
        device.type,
        reachable=True,
        ready=not troubles,
        troubles=troubles,
        tare=_version(said),
        owner=said["owner"],
        driven="lean" if device.lean else "whole",
        clock_offset_s=offset_s,
        clock_within_s=within_s,
        platforms=parts.get("platforms"),
        controls=parts.get("controls"),
        probes=parts.get("probes"),
        **facts,
    )


def _abilities(said: Mapping[str, Any]) -> tuple[_Parts, list[str]]:
    """The parts of each kind that work there, as `tare check` there says; another tare may say it in other words."""
    asked = said.get("abilities") or {"code": 1}
    if asked["code"] != 0:
        return {}, []
    try:
        found = json.loads(asked["out"])
        return {kind: tuple(str(part["name"]) for part in found[kind] if part["ok"]) for kind in _KINDS}, []
    except (ValueError, LookupError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        return {}, [f"what `tare check --json` says there cannot be read here ({why}): it is another tare."]


def _version(said: Mapping[str, Any]) -> str | None:
    """`tare, version 0.1.0`, without the words."""
    words = said["engine"]["out"].split()
    return words[-1] if said["engine"]["code"] == 0 and words else None


def _engine_troubles(device: Device, said: Mapping[str, Any]) -> list[str]:
    if device.lean:
        return []
    version = _version(said)
    if version is None:
        why = " ".join(said["engine"]["err"].split())[-300:] or f"code {said['engine']['code']}"
        return [
            f"{device.engine} there does not run tare: {why}. Trials need tare on the device, in a Python of 3.11 or "
            f"newer (workloads may use {said['python']}): install it there, and name it as 'tare' in the inventory; or "
            "write 'tare: none' there, and it is driven from here (bare metal only, no controls)."
        ]
    if version != __version__:
        return [f"tare {version} is there, and {__version__} here: their records are not to be mixed. Install one."]
    return []


def _other_troubles(said: Mapping[str, Any], offset_s: float, within_s: float) -> list[str]:
    troubles = []
    if said["free_bytes"] < LEAST_FREE_BYTES:
        troubles.append(f"{said['free_bytes'] >> 20} MiB are free in {said['state']}, {LEAST_FREE_BYTES >> 20} needed.")
    if abs(offset_s) - within_s > MOST_CLOCK_OFFSET_S:
        way = "ahead of" if offset_s > 0 else "behind"
        troubles.append(f"its clock is {abs(offset_s):.1f} s {way} ours: set it (chrony, systemd-timesyncd).")
    if (owner := said["owner"]) is not None:
        whose = f" of {owner['user']}" if owner.get("user") else ""
        run = f", run {owner['run']!r}" if owner.get("run") else ""
        troubles.append(f"another run owns it: pid {owner.get('pid')}{whose}{run}.")
    return troubles
