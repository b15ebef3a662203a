"""Where stores and packs lie in a folder of results."""

from __future__ import annotations

from pathlib import Path

from tare.errors import NoSuchInput, StoreError
from tare.records.header import what_is_there
from tare.records.packing import SUFFIX
from tare.records.schema import STORE_FILE
from tare.records.unpacking import is_pack


def stores_in(results: Path) -> list[Path]:
    """Every store and pack in a folder, sorted; a store or a pack itself is the only one."""
    try:
        if is_pack(results) or (results / STORE_FILE).is_file():
            return [results]
        if not results.exists():
            raise NoSuchInput(f"{results}: there is no such folder of results.")
    except PermissionError:
        raise StoreError(f"{results}: no permission to look into it. Run as its owner.") from None
    if not results.is_dir():
        raise StoreError(what_is_there(results))
    folders = {path.parent for path in results.rglob(STORE_FILE)}
    packs = {path for path in results.rglob(f"*{SUFFIX}") if path.is_file()}
    if not folders | packs:
        raise StoreError(f"{results}: there is no store in this folder, and no pack (*{SUFFIX}).")
    return sorted(folders | packs)
