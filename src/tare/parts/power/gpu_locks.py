"""Which GPU clocks we have locked, in a file: NVML cannot be asked. A reboot undoes locks, and with them the file.

It lies beside the undo journal, where only its owner can write; the journal decides what is put back, this file only
says what stands.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from tare.errors import TareError
from tare.host import Host
from tare.parts.state import state_dir

_BOOT = "/proc/sys/kernel/random/boot_id"
_FORM = re.compile(r"\d{1,5}(-\d{1,5})?")


class Noted(NamedTuple):
    """A lock: the clock, or the range of clocks; and whether the clock was seen to follow."""

    mhz: str
    held: bool


def noted(host: Host, uuid: str, clock: str) -> Noted | None:
    """What we have locked this clock of this GPU to, since the last boot."""
    found = _locks(host).get(f"{uuid} {clock}")
    if not isinstance(found, dict) or _FORM.fullmatch(str(found.get("mhz"))) is None:
        return None
    return Noted(str(found["mhz"]), found.get("held") is True)


def note(host: Host, uuid: str, clock: str, mhz: str, *, held: bool) -> None:
    """Write it down, before it is done and after it was seen."""
    _keep(host, {**_locks(host), f"{uuid} {clock}": {"mhz": mhz, "held": held}})


def forget(host: Host, uuid: str, clock: str) -> None:
    """It is locked no more."""
    _keep(host, {key: value for key, value in _locks(host).items() if key != f"{uuid} {clock}"})


def _locks(host: Host) -> dict[str, Any]:
    try:
        said = json.loads(_path().read_text())
    except (OSError, ValueError):
        return {}
    locks = said.get("locks") if isinstance(said, dict) and said.get("boot") == _boot(host) else None
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
