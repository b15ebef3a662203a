"""The page cache: the data set in it or out of it before each trial or epoch, and when dirty pages are written back."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from tare.base import untrusted
from tare.base.errors import ControlNotHeld, TareError, TrialError
from tare.base.host import Host, OwnDevice, clock_inside, may_write
from tare.base.rulings import Ruling, obstacle
from tare.base.units import PositiveSeconds, Seconds, SizeBytes, parse_share
from tare.drivers.storage.paths import AbsolutePath
from tare.drivers.storage.residency import Residency, open_files, residency
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
        if not isinstance(host, OwnDevice):
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
    if not isinstance(host, OwnDevice):
        raise TrialError(f"page_cache acts on the files of the device itself, not of {host.name}.")
    files = [host.file(path) for path in paths]
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


_FOLDER = "/proc/sys/vm"
_PAIRS = (("dirty_ratio", "dirty_bytes"), ("dirty_background_ratio", "dirty_background_bytes"))
_TIMES = ("dirty_expire_centisecs", "dirty_writeback_centisecs")
_NAMES = (*(name for pair in _PAIRS for name in pair), *_TIMES)
_LEAST_BYTES = 2 * os.sysconf("SC_PAGE_SIZE")  # the kernel refuses a dirty_bytes below two pages


def _percent(value: Any) -> Any:
    """`20 %` as 0.2; the kernel knows whole percents only."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit; write '{value} %'")
    share = parse_share(value)
    if share > 1 or abs(share * 100 - round(share * 100)) > 1e-9:
        raise ValueError(f"{value!r} is not a whole percentage between 0 % and 100 %, and the kernel knows no other")
    return share


Percent = Annotated[float, BeforeValidator(_percent)]


class Dirty(Control):
    """How much may wait to be written to disk, and for how long; what is not named stays as the device has it."""

    example: ClassVar[Mapping[str, Json]] = {"ratio": "20 %"}

    ratio: Percent | None = None
    """Of the memory that can hold dirty pages: at so much a writer has to write itself (vm.dirty_ratio), like 20 %."""
    background_ratio: Percent | None = None
    """At so much the kernel begins to write in the background (vm.dirty_background_ratio)."""
    bytes: SizeBytes | None = None
    """The same as `ratio` in bytes (vm.dirty_bytes), like 64 MiB; the kernel knows one of the two at a time."""
    background_bytes: SizeBytes | None = None
    """The same as `background_ratio` in bytes (vm.dirty_background_bytes)."""
    expire: PositiveSeconds | None = None
    """A page that is dirty for so long is written next time (vm.dirty_expire_centisecs), like 30 s."""
    writeback: Seconds | None = None
    """How often the kernel looks for such pages (vm.dirty_writeback_centisecs); 0 s: never."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for sentence in self._complaints():
            raise ValueError(sentence)
        return self

    def _complaints(self) -> Iterator[str]:
        """Why the kernel would not do what is written."""
        if all(value is None for value in self.fields().values()):
            yield "name at least one value, like {ratio: 20 %}"
        if self.ratio is not None and self.bytes is not None:
            yield "`ratio` and `bytes` are one limit in two units, and the kernel knows one of them at a time"
        if self.background_ratio is not None and self.background_bytes is not None:
            yield "`background_ratio` and `background_bytes` are one limit in two units"
        if self.bytes is not None and self.bytes < _LEAST_BYTES:
            yield f"`bytes` is at least two pages, {_LEAST_BYTES} B"
        if self.background_bytes is not None and self.background_bytes < 1:
            yield "`background_bytes` is more than zero"
        for below, above in (("background_ratio", "ratio"), ("background_bytes", "bytes")):
            low, high = getattr(self, below), getattr(self, above)
            if low is not None and high is not None and low >= high:
                yield f"`{below}` is below `{above}`: otherwise the kernel quietly takes half of that"
        for name in ("expire", "writeback"):
            seconds = getattr(self, name)
            if seconds is not None and abs(seconds * 100 - round(seconds * 100)) > 1e-6:
                yield f"`{name}` is a whole number of hundredths of a second, and {seconds} s is not"

    def knob(self) -> str:
        return "dirty"

    def obstacles(self, host: Host) -> list[Ruling]:
        try:
            _values(host)
        except OSError:
            return [obstacle("needs.kernel", f"{host.name} has no {_FOLDER}/{_NAMES[0]} and its like.")]
        if not may_write(host, f"{_FOLDER}/{_NAMES[0]}"):
            return [obstacle("needs.root", "setting vm.dirty_* needs root.")]
        return []

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        """What the device has, with what the study names; a limit in the one form switches the other off."""
        wanted = _values(host)
        for shares, sizes in _PAIRS:
            share, size = getattr(self, shares.removeprefix("dirty_")), getattr(self, sizes.removeprefix("dirty_"))
            if share is not None:
                wanted |= {shares: str(round(share * 100)), sizes: "0"}
            if size is not None:
                wanted |= {shares: "0", sizes: str(size)}
        for name, seconds in zip(_TIMES, (self.expire, self.writeback), strict=True):
            if seconds is not None:
                wanted[name] = str(round(seconds * 100))
        return wanted

    def read(self, host: Host) -> Json | None:
        return _values(host)

    def write(self, host: Host, state: Json) -> None:
        wanted = _checked(state)
        now = _values(host)
        for pair in _PAIRS:
            if [now[name] for name in pair] != [wanted[name] for name in pair]:
                _write_pair(host, pair, wanted)
        for name in _TIMES:
            if now[name] != wanted[name]:
                host.write(f"{_FOLDER}/{name}", wanted[name])
        if (found := _values(host)) != wanted:
            wrong = next(name for name in _NAMES if found[name] != wanted[name])
            raise ControlNotHeld(f"dirty: vm.{wrong}", asked=wanted[wrong], found=found[wrong])


def _values(host: Host) -> dict[str, str]:
    return {name: host.read(f"{_FOLDER}/{name}").strip() for name in _NAMES}


def _write_pair(host: Host, pair: tuple[str, str], wanted: Mapping[str, str]) -> None:
    """Write the one that counts: the kernel then zeroes the other, but only if the value changes."""
    shares, sizes = pair
    if wanted[sizes] != "0":
        host.write(f"{_FOLDER}/{sizes}", wanted[sizes])
        return
    host.write(f"{_FOLDER}/{shares}", wanted[shares])
    if host.read(f"{_FOLDER}/{sizes}").strip() != "0":
        # Both are to be zero, and the share was already: only a change of it takes the bytes away.
        host.write(f"{_FOLDER}/{shares}", "1")
        host.write(f"{_FOLDER}/{shares}", wanted[shares])


def _checked(state: Json) -> dict[str, str]:
    """A state from the journal is data from a file: these names, whole numbers, and not both forms of one limit."""
    good = isinstance(state, dict) and state.keys() == set(_NAMES)
    if not good or not all(isinstance(text, str) and text.isdecimal() for text in state.values()):
        raise TareError(f"dirty: {state!r} is not a set of vm.dirty_* values")
    if any(state[shares] != "0" and state[sizes] != "0" for shares, sizes in _PAIRS):
        raise TareError(f"dirty: {state!r} has one limit in both forms, and the kernel knows one at a time")
    return dict(state)
