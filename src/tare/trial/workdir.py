"""The folders of one trial: its workdir (the same path inside every platform) and its scratch on the device."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import tare_inside
from tare.base import processes, untrusted
from tare.base.errors import TareError
from tare.base.host import LISTENER, Heard, LocalHost
from tare.base.processes import mounts
from tare.drivers.storage import placing
from tare_inside.jobs import remove_tree

SHARED_MEMORY = Path("/dev/shm")


def prepare_workdir(name: str, scratch: Path) -> Path:
    """A folder with a copy of `tare_inside` for one trial.

    It lies in memory where there is a tmpfs: the marks are written there during the timed loop,
    and the kernel must not write them back to a disk that is being measured.
    """
    processes.lease_name(name)
    workdir = (SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else scratch) / f"{name}-workdir"
    workdir.mkdir(mode=0o700)
    source = Path(tare_inside.__file__).parent
    shutil.copytree(
        source,
        workdir / "inside" / "tare_inside",
        ignore=shutil.ignore_patterns("__pycache__"),
        copy_function=shutil.copy,  # nobody looks at the times
    )
    return workdir


def remove_folders(name: str, scratch_root: Path) -> None:
    """Remove the workdir, scratch folder and checkpoints of the trial called `name`; nothing there is no error."""
    scratch = scratch_root / name
    if mounted := _mounted_in(scratch):
        # What is mounted there may be the device's own root: never delete through it.
        raise TareError(f"{mounted[0]} is still mounted, so {scratch} was left alone; `umount {mounted[0]}` frees it.")
    left = [SHARED_MEMORY / f"{name}-workdir", placing.checkpoints_of_site(name), scratch]
    for folder in left:
        remove_tree(folder)  # type: ignore[no-untyped-call]
    if still := [str(folder) for folder in left if os.path.lexists(folder)]:
        raise TareError(f"{still[0]} could not be removed; `tare device restore` tries again.")


def _mounted_in(folder: Path) -> list[str]:
    """Where something is mounted in this folder; who cannot tell must not delete."""
    mounted = mounts(LocalHost())
    if not mounted:
        raise TareError(f"/proc/self/mountinfo does not say what is mounted, so {folder} was left alone.")
    # The table is read as text, where a byte that is no text has become the replacement character: so here too.
    legible = os.fsencode(folder.absolute()).decode("utf-8", "replace")
    return [mount.point for mount in mounted if Path(mount.point).is_relative_to(legible)]


def read_json(text: str) -> dict[str, Any]:
    """What the workload's side printed, or nothing: its output is data, and may be missing or broken."""
    try:
        return untrusted.as_object(text)
    except RecursionError:
        return {}


OUTPUT_FILE = "output.txt"  # the last of what the workload printed, while it runs
_KEPT_BYTES = 4096
_EVERY_S = 0.5


class Tail:
    """Hears what a workload prints, passes it on, and keeps its end in a file of the workdir for `tare watch`."""

    def __init__(
        self, workdir: Path, heard: Heard | None = None, scrub: Callable[[str], str] = lambda text: text
    ) -> None:
        self._workdir = workdir
        self._heard = heard
        self._scrub = scrub
        self._kept = bytearray()
        self._written_s = -math.inf
        self._lock = Lock()  # two pipes are drained side by side

    def __call__(self, chunk: bytes) -> None:
        if self._heard is not None:
            self._heard(chunk)
        with self._lock:
            self._kept = (self._kept + chunk)[-_KEPT_BYTES:]
            if time.monotonic() - self._written_s > _EVERY_S:
                self._written_s = time.monotonic()
                with suppress(OSError, untrusted.Refused):  # the workdir may be gone: it is only for those who watch
                    kept = self._scrub(self._kept.decode("utf-8", "replace")).encode("utf-8", "replace")
                    untrusted.replace(self._workdir, OUTPUT_FILE, kept)


@contextmanager
def heard_by(listener: Heard) -> Iterator[None]:
    """Whatever is spawned in this thread meanwhile is heard."""
    before = LISTENER.set(listener)
    try:
        yield
    finally:
        LISTENER.reset(before)
