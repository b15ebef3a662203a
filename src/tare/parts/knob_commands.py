"""Commands that turn knobs in their own time: one that a killed run left behind may still be writing.

Whoever holds the device's lock knows that no such command is about to start: until a child of the dead run has become
that command, it holds the lock itself.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from tare.errors import BusyError
from tare.parts import jetson_clocks
from tare.parts.power import named_mode

NAMES = frozenset({named_mode.COMMAND, jetson_clocks.COMMAND})
PATIENCE_S = named_mode.LIMIT_S + jetson_clocks.LIMIT_S  # what a run itself would have waited
_AGAIN_S = 0.05
_PROC = Path("/proc")


class Running(NamedTuple):
    """Such a command, at work."""

    pid: int
    line: str


def running() -> list[Running]:
    """Every one on this device, whoever started it: it is all the same to the knobs."""
    return [found for folder in _PROC.glob("[0-9]*") if (found := _look(folder)) is not None]


def await_end(limit_s: float = PATIENCE_S) -> list[str]:
    """Wait until none runs; says what was waited for."""
    began_s = time.monotonic()
    waited: dict[Running, None] = {}
    while at_work := running():
        waited |= dict.fromkeys(at_work)
        if time.monotonic() - began_s > limit_s:
            first = at_work[0]
            raise BusyError(
                f"`{first.line}` (pid {first.pid}) still runs after {limit_s:.0f} s, and may turn knobs yet: "
                f"nothing was put back.\nWait until it ends, or stop it with `kill {first.pid}`; then try again."
            )
        time.sleep(_AGAIN_S)
    return [f"`{each.line}` (pid {each.pid}) was still turning knobs; it was waited for." for each in waited]


def _look(folder: Path) -> Running | None:
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return None
    # The command itself, or an interpreter with the command as its script.
    for place, word in enumerate(words[:2]):
        if (name := word.rpartition("/")[2]) in NAMES:
            return Running(int(folder.name), " ".join([name, *words[place + 1 :]])[:80])
    return None
