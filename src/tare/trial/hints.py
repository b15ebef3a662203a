"""What is likely to be behind the exit code of a workload that runs on bare metal and not inside, and the cure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tare.base.host import Exit
from tare.plan.matrix import Cell

_LOOKED_AT = 20_000  # characters: the end of what it printed
_MISSING = re.compile(
    r"""(?:No such file or directory: |can't open file |cannot open |Cannot find |not found: )b?['"]([^'"\n]+)['"]"""
    r"""|(?:^|[\s:'"])((?:\.{1,2})?/[^\s:'"]+)['"]?: No such file or directory""",
    re.MULTILINE,
)
OWN = ("dev", "run")  # that a container has of its own, also where it sees all other files
_NO_NETWORK = (
    "Temporary failure in name resolution", "Name or service not known", "Network is unreachable",
    "Failed to resolve", "No route to host", "ConnectionError", "Could not resolve host",
)  # fmt: skip


def hints_for(cell: Cell, ended: Exit) -> list[str]:
    """Sentences for the record, the likeliest first; none on bare metal, where nothing is different."""
    if not [part for part in cell.platforms if part.part_name() != "bare" or part.fields().get("image")]:
        return []
    return list(_hints(cell, ended.err[-_LOOKED_AT:] + ended.out[-_LOOKED_AT:]))


def _hints(cell: Cell, printed: str) -> Iterator[str]:
    if "Read-only file system" in printed:
        yield (
            "The container's root is sealed, so that nothing but /tmp can be written: leave `writable: false` out, "
            "or name what it writes with `--mount DIR:rw` (in a study: `writes: [DIR]`)."
            if _sealed(cell)
            else "This part of the device is read-only, or layers over the device's files could not be mounted, which "
            "needs root: run tare as root, or name what it writes with `--mount DIR:rw`."
        )
    elif "exec failed" in printed and "permission denied" in printed:
        yield (
            "The engine could not start the program as your user: each folder on its path must be open to it "
            "(an interpreter below /root is not); use one in another folder."
        )
    elif "Permission denied" in printed and os.geteuid() != 0:
        yield (
            "Without root a container may write to the working folder alone: run tare as root, or name what else it "
            "writes with `--mount DIR:rw` (written for real)."
        )
    if found := outside_only(cell, printed):
        names = ", ".join(found)
        options = " ".join(f"--mount {path}" for path in found)
        yield f"{names}: on this device, but not inside; `{options}` brings it (in a study: `reads: [{names}]`)."
    networks = [part.fields().get("network") for part in cell.platforms if part.part_name() != "bare"]
    if any(words in printed for words in _NO_NETWORK) and set(networks) - {"host"}:
        yield (
            "A container has no network but its loopback: `--set platform.network=host` (in a study: `network: host`) "
            "opens the device's."
        )
    if "Bus error" in printed or ("No space left on device" in printed and "/dev/shm" in printed):
        yield "Data loader workers pass batches through /dev/shm: give the platform a larger `shm:`."


def outside_only(cell: Cell, printed: str) -> list[str]:
    """Paths that the workload did not find and that are on this device, where it does not see all of its files."""
    sees_all = not any(part.fields().get("image") for part in cell.platforms) and not _sealed(cell)
    folder = cell.workload.fields().get("cwd") or Path.cwd()
    named = dict.fromkeys(first or second for first, second in _MISSING.findall(printed))
    paths = [Path(os.path.normpath(Path(folder) / path)) for path in named]
    hidden = [path for path in paths if not sees_all or path.parts[1:2] in [(name,) for name in OWN]]
    # One that may not be looked at, or that no path can be, is not there: `Path.exists` raises, as does `os.access`.
    return [str(path) for path in hidden if os.path.exists(path)]  # noqa: PTH110


def _sealed(cell: Cell) -> bool:
    parts = [part.fields() for part in cell.platforms if part.part_name() != "bare"]
    return any(fields.get("writable") is False or (not cell.workload.layered and not fields.get("writable"))
               for fields in parts)  # fmt: skip
