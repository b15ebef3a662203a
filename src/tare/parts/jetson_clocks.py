"""NVIDIA's `jetson_clocks`: fixes all clocks at their limits, also those that no configuration names.

What it changed is known only to itself, so it is asked to store that first; the file is kept until it is put back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tare.errors import ControlNotHeld, TareError
from tare.host import Completed, Host
from tare.parts.owner import boot_id
from tare.parts.state import state_dir

COMMAND = "jetson_clocks"
ON, AS_FOUND = "on", "as found"
LIMIT_S = 20.0
_PAIR = re.compile(r"(\w+)=(\S+)")
_CORE = re.compile(r"(cpu\d+):")


def is_there(host: Host) -> bool:
    """Whether the board has the command."""
    return host.run(["which", COMMAND], limit_s=5).code == 0


def standing() -> str:
    """Whether it was switched on by us and is so still, as far as our own note says."""
    return ON if _stored().exists() else AS_FOUND


def put(host: Host, state: str) -> None:
    """Store and switch on, or put back what was stored; nothing where it stands so already."""
    if state not in (ON, AS_FOUND):
        raise TareError(f"{COMMAND}: {state!r} is neither {ON!r} nor {AS_FOUND!r}")
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
        raise ControlNotHeld(COMMAND, asked="a fixed memory clock", found="FreqOverride=0")


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


def is_on(shown: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether every CPU and GPU clock stands still: its lower limit is its upper one."""
    held = [one for name, one in shown.items() if name == "GPU" or name.startswith("cpu")]
    return bool(held) and all(one["MinFreq"] == one["MaxFreq"] for one in held)


def _store(host: Host) -> None:
    path = _stored()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)  # it asks before it overwrites
    _answered(host, "--store", str(draft))
    if not draft.exists() or not draft.stat().st_size:
        raise ControlNotHeld(COMMAND, asked=f"its settings in {draft}", found="no such file")
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
    done = host.run([COMMAND, *arguments], limit_s=LIMIT_S)
    if done.code != 0:
        said = (done.err or done.out).strip().splitlines()[-1:] or ["it said nothing"]
        raise ControlNotHeld(f"{COMMAND} {' '.join(arguments)}".strip(), asked="an answer", found=said[0])
    return done
