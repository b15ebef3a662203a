"""A new store. Its header is written last: until then the folder is no store, and can be begun again."""

from __future__ import annotations

from pathlib import Path

from tare.errors import StoreError
from tare.records import strict
from tare.records.catalogue import Catalogue
from tare.records.durable import explained, make_folder, make_folders, replace_file, sync_folder
from tare.records.header import write_header
from tare.records.local_disk import refuse_network_disk
from tare.records.lock import WriteLock
from tare.records.model import Json
from tare.records.schema import (
    CATALOGUE_FILE,
    HALF_MADE,
    LOCK_FILE,
    SPOOL_FOLDER,
    STORE_FILE,
    STUDY_FILE,
    TRIALS_FOLDER,
)

_BEGUN = {STUDY_FILE, LOCK_FILE, SPOOL_FOLDER, TRIALS_FOLDER}


def lay_out(root: Path, study: Json, text: str) -> None:
    """Make an empty store in a folder that is new, empty, or left by a creation that was cut off."""
    strict.dump(study)  # refused before anything is made
    _make_root(root)
    refuse_network_disk(root)
    with explained(root, "making the store", need_bytes=256 * 1024):
        lock = WriteLock.take(root)
        try:
            _refuse_what_is_there(root)
            _fill(root, study, text)
        finally:
            lock.release()


def _make_root(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root}: this is a file, and a store is a folder. Name another place.")
    try:
        make_folders(root)
        if any(root.iterdir()):
            _refuse_what_is_there(root)
    except OSError as error:
        raise StoreError(f"{root}: the folder cannot be made: {error.strerror} ({error.filename}).") from error


def _refuse_what_is_there(root: Path) -> None:
    names = {path.name for path in root.iterdir()}
    if STORE_FILE in names:
        raise StoreError(f"{root}: there is a store here already. Open it, or name another folder.")
    if foreign := sorted(name for name in names if not _is_begun(name)):
        raise StoreError(f"{root}: the folder is not empty ({', '.join(foreign[:3])}). Name a new or an empty one.")


def _is_begun(name: str) -> bool:
    return name in _BEGUN or name.startswith((HALF_MADE, CATALOGUE_FILE))


def _fill(root: Path, study: Json, text: str) -> None:
    replace_file(root / STUDY_FILE, text.encode("utf-8", "surrogatepass"))
    for name in (SPOOL_FOLDER, TRIALS_FOLDER):
        if not (root / name).is_dir():
            make_folder(root / name)
    for left_over in root.glob(f"{CATALOGUE_FILE}*"):
        left_over.unlink()
    Catalogue.create(root).close()
    sync_folder(root.absolute().parent)
    write_header(root, study)
