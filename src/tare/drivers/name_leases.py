"""Which names are in use: each process that makes places says so first, in a file that carries its own name.

A container, group, mount or folder without a living claim is what a dead run left behind. The file need not be removed
for that: a dead owner's claims are void.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tare.base.files import state_dir
from tare.base.processes import Owner, boot_id

SYSTEM = Path("/run/tare/owners")


def acquire(name: str) -> None:
    """Say that this process makes things under `name`, before it makes any."""
    first, *others = _folders()
    try:
        is_first = _note(first, name)
    except OSError:
        if not others:
            raise
        is_first = _note(others[0], name)
    if is_first:
        remove_stale()  # so that the folder does not grow with every run


def _note(folder: Path, name: str) -> bool:
    """Add a name to this process's file; whether that was made for it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder / f"{Owner.me()}:{boot_id()}", flags, 0o644)
    try:
        is_new = os.fstat(descriptor).st_size == 0
        os.write(descriptor, f"{name}\n".encode())
    finally:
        os.close(descriptor)
    return is_new


def active() -> dict[str, Owner]:
    """Every name that a living process has claimed, and that process."""
    found: dict[str, Owner] = {}
    for path in _files():
        owner = _living(path)
        if owner is not None:
            with contextlib.suppress(OSError):  # it ended just now, and someone removed its file
                found |= dict.fromkeys(path.read_text().split(), owner)
    return found


def remove_stale() -> None:
    """Remove the files of processes that are no more.

    A process that runs keeps its file, also if this one sees another boot id (in a namespace with one of its own).
    """
    for path in _files():
        owner = Owner.parse(path.name.rpartition(":")[0])
        if owner is None or not owner.is_alive():
            with contextlib.suppress(OSError):
                path.unlink()


def _folders() -> list[Path]:
    """Root's claims are in one place, whatever its state folder is; others' and those of a read-only /run in it."""
    own = state_dir() / "owners"
    return [SYSTEM, own] if os.geteuid() == 0 else [own]


def _files() -> list[Path]:
    folders = dict.fromkeys([SYSTEM, *_folders()])
    return [path for folder in folders if os.access(folder, os.R_OK | os.X_OK) for path in sorted(folder.iterdir())]


def _living(path: Path) -> Owner | None:
    """The process that a file is called after, if it still runs."""
    text, _, boot = path.name.rpartition(":")
    owner = Owner.parse(text)
    return owner if owner is not None and boot == boot_id() and owner.is_alive() else None
