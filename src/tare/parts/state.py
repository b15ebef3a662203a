"""Where tare keeps what must outlive a run: the one answer for the undo journal, the engine's folder and the rest."""

from __future__ import annotations

import os
from pathlib import Path

ROOT_STATE = Path("/var/lib/tare")


def state_dir() -> Path:
    """$TARE_STATE, the system's place for root, the user's for others; always the whole path."""
    if named := os.environ.get("TARE_STATE"):
        return Path(named).absolute()
    if os.geteuid() == 0:
        return ROOT_STATE
    return (Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "tare").absolute()
