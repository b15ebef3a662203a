"""Real stores of an H200, kept as packs: read as they are, or unpacked for a test that changes their files."""

from __future__ import annotations

import shutil
from pathlib import Path

from tare.records.store import Store

FOLDER = Path(__file__).parent / "recordings" / "h200"
ENERGY, MODES, IDLE = (FOLDER / f"{name}-store.tare" for name in ("energy", "modes", "idle"))


def unpacked(pack: Path, into: Path) -> Path:
    """The store of a pack as a folder of its own."""
    with Store.open(pack) as store:
        shutil.copytree(store.root, into)
    return into
