"""The same file in two roots, whose links lead from their own tops."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable, Set
from pathlib import Path, PurePosixPath

_PROGRAMS = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
_MADE = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")  # by each engine, for each container


def differing(paths: Iterable[str], ours: Path, theirs: Path) -> list[str]:
    """Those of these files that are not the same in two roots, or in one of them only, by the names that programs use:
    a library by the link to it, which names another version on the other side.
    """
    names = {*paths, *_links_between({*paths}, ours, theirs)} - {*_MADE}
    names_at: dict[tuple[str, ...], str] = {}  # where a name leads in both roots: one name of several
    for name in sorted(name for name in names if _differs(name, ours, theirs)):
        names_at.setdefault(tuple(f"/{inside(root, name).relative_to(root)}" for root in (ours, theirs)), name)
    behind_links = {file for files, name in names_at.items() for file in files if file != name}
    return [name for name in names_at.values() if name not in behind_links]


def _differs(name: str, ours: Path, theirs: Path) -> bool:
    try:
        our_file, their_file = inside(ours, name), inside(theirs, name)
        if our_file.is_file() and their_file.is_file():
            return not filecmp.cmp(our_file, their_file, shallow=False)
        return our_file.is_file() or their_file.is_file()
    except OSError:  # not for us to read: nothing is known of it
        return False


def inside(root: Path, name: str) -> Path:
    """Where a file lies of this name inside a root, whose links lead from its own top."""
    at, waiting = PurePosixPath("/"), [*PurePosixPath(name).parts[:0:-1]]
    for _ in range(1000):  # links may go round
        if not waiting:
            break
        step = waiting.pop()
        at = at.parent if step == ".." else at / step
        here = root / str(at).lstrip("/")
        if here.is_symlink():
            link = PurePosixPath(here.readlink())
            waiting += [part for part in link.parts[::-1] if part != "/"]
            at = PurePosixPath("/") if link.is_absolute() else at.parent
    return root / str(at).lstrip("/")


def _links_between(paths: Set[str], *roots: Path) -> set[str]:
    """The links beside these files, and among programs, that lead to one of them wherever they lead."""
    folders = {*_PROGRAMS, *(path.rpartition("/")[0] for path in paths)}
    return {
        link
        for root in roots
        for folder in folders
        for link in _links(root, folder)
        if all(_leads_to(paths, top, link) for top in roots)
    }


def _links(root: Path, folder: str) -> list[str]:
    try:
        return [f"{folder}/{entry.name}" for entry in os.scandir(inside(root, folder)) if entry.is_symlink()]
    except OSError:
        return []


def _leads_to(paths: Set[str], root: Path, link: str) -> bool:
    return f"/{inside(root, link).relative_to(root)}" in paths
