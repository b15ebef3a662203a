"""This machine in the place of a device without tare, behind an `ssh` that starts the agent here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tare.fleet.inventory import Device
from tare.fleet.lean_host import LeanHost
from tare.fleet.lean_line import opened

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIKOcvHYvSe0sNLOxuwBxBdDiuqiNwf2g899ZlkKEvuB"
RUN_IT = 'for last; do :; done; echo Welcome to this board; exec sh -c "$last"'  # as sshd does, after a login script


def a_device(**changes: Any) -> Device:
    fields = {"name": "d", "address": "10.0.0.2", "host_key": KEY, "python": sys.executable, "tare": "none"}
    return Device(**fields | changes)


@contextlib.contextmanager
def a_host(patience_s: float = 4, **changes: Any) -> Iterator[LeanHost]:
    with opened(a_device(**changes), patience_s) as line:
        yield LeanHost(line)


def with_words(words: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if words in line and is_alive(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_below(pid: int, parent: int) -> bool:
    while pid > 1:
        if pid == parent:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False
