"""The data set in the page cache, or out of it, before each trial; or out of it before each epoch."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from tare.base import untrusted
from tare.base.errors import ControlNotHeld, TrialError
from tare.base.host import Host, LocalHost, clock_inside
from tare.base.rulings import Ruling, obstacle
from tare.drivers.storage.placing import AbsolutePath, Residency, open_files, residency
from tare.parts.protocols import Control, Json, TenantPlace
from tare_inside.programs import cold_epochs
from tare_inside.programs.cold_epochs import COLD_SHARE

WARM_SHARE = 0.99
_TRIES = 3  # pages on their way through the kernel's lists are missed at first
_CHUNK = 1 << 20


class PageCache(Control):
    """Puts the workload's data set into the page cache (warm) or out of it (cold), and checks that it is there."""

    short: ClassVar[str | None] = "state"
    example: ClassVar[Mapping[str, Json]] = {"state": "warm"}

    hold_rank: ClassVar[int] = 90  # after the control that says where the data lie

    state: Literal["cold", "warm", "cold_every_epoch"]
    """cold: nothing of the data set is in memory when the trial begins; warm: all of it is; cold_every_epoch: nothing
    of it is when an epoch begins, each time (the workload's side drops it, outside of every timed step)."""
    paths: tuple[AbsolutePath, ...] = ()
    """The files and folders to act on; by default those that the workload reads."""
    drop_all: bool = False
    """If files do not leave the cache one by one, drop the whole machine's cache; other users notice. Needs root."""

    def obstacles(self, host: Host) -> list[Ruling]:
        stopped = []
        if not isinstance(host, LocalHost):
            stopped.append(
                obstacle("needs.outermost", f"page_cache acts on the files of the device itself, not of {host.name}.")
            )
        if self.drop_all and os.geteuid() != 0:
            stopped.append(
                obstacle("needs.root", "drop_all needs root; without it only the data set's own files are dropped.")
            )
        return stopped

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        return {"state": self.state, "paths": [str(path) for path in self.paths or tuple(inputs)]}

    def read(self, host: Host) -> Json | None:
        """None: what was in the cache cannot be put back, so there is nothing to restore."""
        return None

    def write(self, host: Host, state: Json) -> None:
        files = _on_device(host, state["paths"])
        if state["state"] == "warm":
            self._warm(host, files)
        else:
            self._cool(host, files)

    def settle(self, host: Host, tenants: Sequence[TenantPlace]) -> Json | None:
        """Leave the order for the workload's side in each workdir: only there it is known when an epoch begins."""
        if self.state != "cold_every_epoch":
            return None
        for tenant in tenants:
            if clock_inside(tenant.place) is not None:
                raise TrialError(
                    "page_cache: cold_every_epoch cannot be held in a virtual machine: what it drops of its own cache "
                    "is still in the device's. Use `page_cache: cold`, or another platform."
                )
            paths = [str(path) for path in self.paths or tenant.reads]
            untrusted.make(tenant.workdir, cold_epochs.ORDER, json.dumps({"paths": paths}).encode(), 0o644)
        return None

    def _cool(self, host: Host, files: list[Path]) -> None:
        for _ in range(_TRIES):
            _drop(files)
            if _share(seen := _measure(files)) <= COLD_SHARE:
                return
            os.sync()  # what is dirty stays, and an overlay does not pass an fsync on to the layer below
        if self.drop_all:
            host.write("/proc/sys/vm/drop_caches", "1")
            if _share(seen := _measure(files)) <= COLD_SHARE:
                return
        reason = "a process may have it mapped, or it lies in memory itself (tmpfs)"
        raise _not_held("cold", f"{_amount(seen)} still in the page cache; {reason}")

    def _warm(self, host: Host, files: list[Path]) -> None:
        missing_bytes = _missing_bytes(_measure(files))
        available_bytes = _available_bytes(host)
        if available_bytes is not None and missing_bytes > available_bytes:
            tenant = f"{_size(missing_bytes)} to be read in, and {_size(available_bytes)} of memory available"
            raise _not_held("warm", tenant)
        _read_through(files)
        seen = _measure(files)
        if _share(seen) < WARM_SHARE:
            raise _not_held("warm", f"{_amount(seen)} in the page cache after it was read through")


def _on_device(host: Host, paths: list[str]) -> list[Path]:
    if not isinstance(host, LocalHost):
        raise TrialError(f"page_cache acts on the files of the device itself, not of {host.name}.")
    files = [host.root / path.lstrip("/") for path in paths]
    if not files:
        raise TrialError("page_cache: the workload names no files that it reads; name them in `paths`.")
    if missing := [path for path in files if not path.exists()]:
        raise TrialError(f"page_cache: {missing[0]} is not there.")
    return files


def _drop(files: list[Path]) -> None:
    """Take each file out of the cache; what is dirty goes to disk first, or it would stay."""
    for descriptor in open_files(files):
        seen = residency(descriptor)
        if seen is None or seen.dirty != 0:
            os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _read_through(files: list[Path]) -> None:
    buffer = bytearray(_CHUNK)
    for descriptor in open_files(files):
        while os.readv(descriptor, [buffer]):
            pass


def _measure(files: list[Path]) -> Residency:
    total = Residency()
    for descriptor in open_files(files):
        seen = residency(descriptor)
        if seen is None:
            name = Path(f"/proc/self/fd/{descriptor}").readlink()
            raise TrialError(
                f"page_cache: the kernel does not report to this user how much of {name} is in memory, "
                "so cold or warm cannot be checked. Run as the owner of the file, or as root."
            )
        total += seen
    if total.pages == 0:
        raise TrialError(f"page_cache: there is nothing to read in {', '.join(map(str, files))}.")
    return total


def _share(seen: Residency) -> float:
    return seen.resident / seen.pages


def _missing_bytes(seen: Residency) -> int:
    return (seen.pages - seen.resident) * mmap.PAGESIZE


def _available_bytes(host: Host) -> int | None:
    for line in host.read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _amount(seen: Residency) -> str:
    return f"{_share(seen):.1%} of the data set's {_size(seen.pages * mmap.PAGESIZE)}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.1f} MiB"


def _not_held(requested: str, found: str) -> ControlNotHeld:
    return ControlNotHeld("page_cache", asked=requested, found=found)
