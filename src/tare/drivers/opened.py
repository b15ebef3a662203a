"""Which files are opened in containers while a trial runs, by fanotify: whatever the program is, and however short.

It takes root, and is for runs that are not timed. Elsewhere nothing is listed.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tare.drivers.cgroups.tree import KEEPER_VARIABLE, NAME_VARIABLE

# linux/fanotify.h
_CLOEXEC, _NONBLOCK, _UNLIMITED_QUEUE = 0x1, 0x2, 0x10
_ADD, _MOUNT = 0x1, 0x10
_OPEN = 0x20  # also of a file that is executed
_EVENT = struct.Struct("IBBHQii")
_AT_ONCE = 100  # events: each is an open file until it is read
_MOST_READS = 10_000  # in a row
_EVERY_S = 0.02
_OURS = tuple(f"{name}=".encode() for name in (KEEPER_VARIABLE, NAME_VARIABLE))


class Opened:
    """The files that are opened in the roots of containers while this is entered."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._roots = {_root_of(Path("/proc/self"))}

    def __enter__(self) -> Self:
        self._kernel = ctypes.CDLL(None, use_errno=True)
        self._kernel.fanotify_mark.argtypes = [
            ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p
        ]  # fmt: skip
        self._file = self._kernel.fanotify_init(_CLOEXEC | _NONBLOCK | _UNLIMITED_QUEUE, os.O_RDONLY | os.O_CLOEXEC)
        if self._file >= 0:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file < 0:
            return
        self._over.set()
        self._thread.join()
        self._read()
        os.close(self._file)

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._mark_new_roots()
            self._read()

    def _mark_new_roots(self) -> None:
        """The root of each container of ours that has begun; its first process only waits."""
        for process in Path("/proc").glob("[0-9]*"):
            root = _root_of(process)
            if root and root not in self._roots and _is_ours(process):
                path = str(process / "root").encode()
                if self._kernel.fanotify_mark(self._file, _ADD | _MOUNT, _OPEN, -1, path) == 0:
                    self._roots.add(root)

    def _read(self) -> None:
        for _ in range(_MOST_READS):
            try:
                data = os.read(self._file, _AT_ONCE * _EVENT.size)
            except BlockingIOError:  # nothing new
                return
            except OSError:  # a file that can no more be opened: its event is gone, those behind it are not
                continue
            while len(data) >= _EVENT.size:
                length, *_, file, _pid = _EVENT.unpack_from(data)
                data = data[length:]
                if file >= 0:
                    self.paths.add(str(Path(f"/proc/self/fd/{file}").readlink()))
                    os.close(file)


def _root_of(process: Path) -> str:
    """Its mount namespace; empty for one that has ended."""
    try:
        return str((process / "ns" / "mnt").readlink())
    except OSError:
        return ""


def _is_ours(process: Path) -> bool:
    try:
        return any(each.startswith(_OURS) for each in (process / "environ").read_bytes().split(b"\0"))
    except OSError:
        return False
