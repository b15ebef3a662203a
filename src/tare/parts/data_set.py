"""The regular files under some paths, opened one by one: what a workload reads, without leaving the named folders."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_A_FILE_OF_IT = (errno.ELOOP, errno.ENOENT, errno.ENXIO)  # a link, gone since it was listed, a socket


def open_files(paths: Iterable[Path]) -> Iterator[int]:
    """Each regular file as a descriptor that is closed when the next one is asked for.

    A named path may be a link; links inside a named folder are not followed, so nothing outside of it is touched.
    Pipes and device nodes are left alone.
    """
    for path in paths:
        top = path.resolve(strict=True)
        if not top.is_dir():
            with _opened(str(top), None) as descriptor:
                yield from [] if descriptor is None else [descriptor]
            continue
        for _, _, names, folder in os.fwalk(top, follow_symlinks=False, onerror=_complain):
            for name in sorted(names):
                with _opened(name, folder) as descriptor:
                    yield from [] if descriptor is None else [descriptor]


@contextmanager
def _opened(name: str, folder: int | None) -> Iterator[int | None]:
    descriptor = _open(name, folder)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(name: str, folder: int | None) -> int | None:
    """A regular file, or None for anything else; looked at before it is opened, because opening a device acts on it."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return None
        with suppress(PermissionError):  # only the owner may read without a trace
            return os.open(name, _FLAGS | os.O_NOATIME, dir_fd=folder)
        return os.open(name, _FLAGS, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_A_FILE_OF_IT:
            return None
        raise


def _complain(error: OSError) -> None:
    raise error
