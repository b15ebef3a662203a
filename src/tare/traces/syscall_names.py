"""Names of system calls by their number, which differs between architectures.

`syscall_numbers/<machine>.txt` was made from asm/unistd.h of linux-libc-dev 6.1 (arm64, amd64, armhf; `gcc -E -dM`);
calls from 451 on came later and have one number everywhere. A file is called as `uname -m` says.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_SAME = {"arm64": "aarch64", "amd64": "x86_64", "armv8l": "armv7l", "armv6l": "armv7l"}


@cache
def names(machine: str) -> dict[int, str]:
    """Number to name on this architecture; empty for one that has no list here."""
    try:
        text = (files("tare.traces") / "syscall_numbers" / f"{_SAME.get(machine, machine)}.txt").read_text()
    except FileNotFoundError:
        return {}
    pairs = (line.split() for line in text.splitlines())
    return {int(number): name for number, name in pairs}


def name(machine: str, number: int) -> str:
    """What the call is named; a number that is not in the list is shown as a number."""
    return names(machine).get(number, f"#{number}")


def number(machine: str, called: str) -> int | None:
    """The reverse of `name`; None where the list does not have it."""
    return next((known for known, name in names(machine).items() if name == called), None)
