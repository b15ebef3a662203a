"""The first page of a store: who made it, in which form, for which study."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tare import __version__
from tare.errors import NoSuchInput, StoreError
from tare.records import strict
from tare.records.durable import replace_file
from tare.records.model import Json
from tare.records.schema import PACK_SUFFIX, STORE_FILE, VERSION

_ADVICE = "Give the folder that `tare run` wrote, the one that holds store.json."


@dataclass(frozen=True, slots=True)
class Header:
    """store.json, as a value."""

    schema_version: int
    tare_version: str
    created_utc: str
    study: Json


def write_header(root: Path, study: Json) -> None:
    """Written last of all when a store is made: a folder that has it is a whole store."""
    data = {
        "schema_version": VERSION,
        "tare_version": __version__,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "study": study,
    }
    replace_file(root / STORE_FILE, strict.dump(data))


def read_header(root: Path) -> Header:
    """The header of the store at `root`, or a sentence about what is there instead. Nothing is touched."""
    path = root / STORE_FILE
    try:
        data = path.read_bytes()
    except PermissionError:
        raise StoreError(f"{root}: no permission to read this store. Run as its owner.") from None
    except (FileNotFoundError, NotADirectoryError):
        if not root.exists():
            raise NoSuchInput(f"{root}: there is no such folder. {_ADVICE}") from None
        raise StoreError(what_is_there(root)) from None
    except OSError as error:
        raise StoreError(f"{path}: it cannot be read: {error.strerror}.") from error
    return _parsed(root, path, data)


def what_is_there(root: Path) -> str:
    """What lies where a store was looked for, and what to do: one sentence or two."""
    if root.suffix == PACK_SUFFIX and root.is_file():
        return _what_is_no_pack(root)
    if not root.is_dir():
        return f"{root}: this is a file, and a store is a folder, or a pack that `tare store pack` made. {_ADVICE}"
    try:
        empty = not any(root.iterdir())
    except PermissionError:
        return f"{root}: no permission to look into this folder. Run as its owner."
    return f"{root}: this folder is {'empty' if empty else 'not a store (it has no store.json)'}. {_ADVICE}"


def _what_is_no_pack(file: Path) -> str:
    """Called like a pack, and does not begin like one."""
    if not os.access(file, os.R_OK):
        return f"{file}: no permission to read this file. Run as its owner."
    what = "it is empty" if not file.stat().st_size else "it does not begin as packs do"
    return (
        f"{file}: this file is called like a pack, and is none: {what}. Copy it again from where it came, or make it "
        "again with `tare store pack STORE -o FILE`; where it was never a pack, give it another name."
    )


def _parsed(root: Path, path: Path, data: bytes) -> Header:
    try:
        found = strict.load(data)
        version = found["schema_version"]
        if type(version) is not int or version < 1:
            raise ValueError(f"schema_version is {version!r}")
        if version > VERSION:
            raise StoreError(
                f"{root}: written by tare {found.get('tare_version', '?')} (schema {version}); "
                f"this is tare {__version__} (schema {VERSION}): upgrade tare. Nothing was touched."
            )
        if not isinstance(found["study"], dict):
            raise ValueError("its study is no mapping")
        return Header(version, str(found["tare_version"]), str(found["created_utc"]), found["study"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path}: damaged ({error}). Put this file back from a copy; the trials beside it were not touched."
        ) from error
