"""Where the data set lies: on a medium of the device, or on one that is emulated by limits on reads and writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema, model_validator

from tare.base.errors import ControlNotHeld, TareError, TrialError
from tare.base.host import Host, OwnDevice
from tare.base.rulings import Ruling, obstacle
from tare.base.units import SizeBytes
from tare.drivers.storage import loop, media, placing
from tare.drivers.storage.paths import AbsolutePath, absolute
from tare.parts.protocols import Control, Json, TenantPlace

_COMMANDS = ("losetup", "mkfs.ext4", "fallocate", "mount", "umount", "cp")
_NOTHING: dict[str, Json] = {"medium": [], "placed": []}
_WHOLE = ["image", "loop", "mount"]
_STAMP = "import os, sys; print(os.stat(sys.argv[1]).st_mtime_ns)"
_CHECK_FILE_BYTES = 32 << 20

# Which path a name of a copy stands for, of this process alone. A state goes through the journal, and what comes back
# from there must not say which path of the device is mounted over: only `target` does.
_sources: dict[str, Path] = {}


def _no_medium(path: Path) -> Path:
    if path.name == str(path) and path.name in media.MEDIA:
        raise ValueError(f"'{path}' is no path; to emulate this medium write {{emulate: {path}}}")
    return path


def _medium(value: Any) -> Any:
    return None if value is None else media.level(value)


Medium = Annotated[
    str,
    BeforeValidator(_medium),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(media.MEDIA)},
                {"type": "object", "additionalProperties": {"type": ["string", "integer"]}},
                {"type": "string"},
            ]
        }
    ),
]


class Storage(Control):
    """Puts the data set onto a medium for the time of a trial: a copy of it, seen under its own path."""

    short: ClassVar[str | None] = "path"
    example: ClassVar[Mapping[str, Json]] = {"emulate": "sd"}
    persistence: ClassVar[Literal["volatile", "reboot-persistent"]] = "reboot-persistent"  # an image stays on the disk
    restore_rank: ClassVar[int] = 5  # what is throttled and mounted goes before any other knob (faults.md D4)
    hold_rank: ClassVar[int] = 10  # before the page cache is cooled or warmed: it is the copy's that counts

    extra_s: ClassVar[float] = 5.0  # the medium is made, filled, and its limits measured

    path: Annotated[Path, AfterValidator(_no_medium), AfterValidator(absolute)] | None = None
    """A folder on the medium. The copy is kept there, in `tare-data`, and used again while it is current."""
    emulate: Medium | None = None
    """hdd, sd or ssd; or its figures: {read_bps: 80 MB/s, read_iops: 150, write_bps: 20 MB/s, write_iops: 100}."""
    paths: tuple[AbsolutePath, ...] = ()
    """The files and folders that lie there; by default those that the workload reads."""
    tenant: SizeBytes = 0
    """So much can be written there, and goes with the trial; without it the data set is read-only."""

    @model_validator(mode="after")
    def _one_medium(self) -> Self:
        if (self.path is None) == (self.emulate is None):
            raise ValueError("say where the data lie: a folder (`path`), or a medium to `emulate`, and not both")
        return self

    def knob(self) -> str:
        return "storage"

    def obstacles(self, host: Host) -> list[Ruling]:
        if not isinstance(host, OwnDevice):
            return [
                obstacle("needs.outermost", f"data are put onto a medium of the device itself, not of {host.name}.")
            ]
        stopped = []
        if os.geteuid() != 0:
            stopped.append(obstacle("needs.root", "mounting a medium needs root."))
        if self.path is not None and not self.path.is_dir():
            stopped.append(
                obstacle("needs.file", f"no folder {self.path}; mount the medium first, and name a folder on it.")
            )
        if self.emulate is not None:
            stopped += media.obstacles(host)
            if missing := [name for name in _COMMANDS if shutil.which(name) is None]:
                stopped.append(
                    obstacle(
                        "needs.program", f"emulating a medium needs {', '.join(missing)}, and this machine has it not."
                    )
                )
            if not Path("/dev/loop-control").exists():
                stopped.append(
                    obstacle("needs.kernel", "emulating a medium needs a loop device: `modprobe loop` brings them.")
                )
        return stopped

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        sources = placing.outermost(self.paths or tuple(inputs))
        if not sources:
            raise TrialError("storage: the workload names no files that it reads; name them in `paths`.")
        for source in sources:
            _refuse_programs(host, source)
        named = {placing.name_of(str(source)): source for source in sources}
        _sources.update(named)
        return {"medium": _WHOLE if self.emulate is not None else [], "placed": sorted(named)}

    def read(self, host: Host) -> Json | None:
        names = sorted(Path(mount.root).name for mount in placing.placed(host))
        return {"medium": loop.pieces(host), "placed": names}

    def write(self, host: Host, state: Json) -> None:
        wanted = _checked(state)
        if wanted == _NOTHING:
            placing.displace(host)
            loop.remove(host)
        elif (found := self.read(host)) != _NOTHING:
            left = f"something of an earlier run ({found}); `tare device clean` removes it"
            raise ControlNotHeld("storage", asked="a medium of its own", found=left)
        else:
            self._place([_source(name) for name in wanted["placed"]], host)

    def _place(self, sources: Sequence[Path], host: Host) -> None:
        if missing := [source for source in sources if not source.exists()]:
            raise TrialError(f"storage: {missing[0]} is not there.")
        copies = self._kept(host, sources) if self.path is not None else self._made(host, sources)
        for source, copy in copies.items():
            placing.bind(host, copy, source, writable=self.tenant > 0)

    def _kept(self, host: Host, sources: Sequence[Path]) -> dict[Path, Path]:
        """Copies on a real medium."""
        assert self.path is not None
        return {source: placing.keep_copy(host, source, self.path) for source in sources}

    def _made(self, host: Host, sources: Sequence[Path]) -> dict[Path, Path]:
        """Copies on a medium of our own; they go with it."""
        sizes = [placing.size_of(source) for source in sources]
        files = sum(size.files for size in sizes)
        tenant = self.tenant + (_CHECK_FILE_BYTES if self.tenant else 0)
        size_bytes = loop.size_for(sum(size.content_bytes for size in sizes), files, tenant)
        ahead = media.read_ahead_kib(media.rates(self.emulate))
        loop.make(host, size_bytes, files, journal=self.tenant > 0, read_ahead_kib=ahead)
        copies = {source: loop.point() / placing.name_of(str(source)) for source in sources}
        for source, copy in copies.items():
            placing.copy(host, source, copy)
        if not self.tenant:
            loop.shut(host)
        placing.cool(copies.values())
        return copies

    def settle(self, host: Host, tenants: Sequence[TenantPlace]) -> Json | None:
        """Limit the workloads' own groups, and measure that each place sees the medium and reads it at its limit."""
        for tenant in tenants:
            _refuse_blind(host, tenant)
        if self.emulate is None:
            return {"path": str(self.path)}
        device = loop.device(host)
        if device is None:
            raise ControlNotHeld("storage", asked=self.emulate, found="its loop device is gone")
        rates = media.rates(self.emulate).shared(len(tenants))
        facts = {"limits": rates.given(), "shared_by": len(tenants), **loop.facts(host, device)}
        return {**facts, "measured": [self._limited(host, tenant, device, rates) for tenant in tenants]}

    def _limited(self, host: Host, tenant: TenantPlace, device: str, rates: media.Rates) -> dict[str, float]:
        group = media.group_of(host, tenant.place.scope().cgroups)
        number = loop.device_number(host, device)
        found: dict[str, float] = {"cgroup_version": group.version}
        for name, value in rates.given().items():
            media.limit(host, group, number, media.Rates(**{name: value}))
            if name.startswith("read"):
                found |= media.check(host, group, media.wanted(name, rates, device))
            elif self.tenant:
                with _check_file(host) as file:
                    found |= media.check(host, group, media.wanted(name, rates, file))
        return found


def _refuse_programs(host: Host, source: Path) -> None:
    """A folder that holds the interpreter, or that one works in, is more than a data set."""
    for inside, what in ((Path(host.python), "the interpreter"), (Path.cwd(), "the folder that tare was started in")):
        if inside.is_relative_to(source):
            raise TrialError(
                f"storage: {source} holds more than data: {what} lies in it. Name the data set itself in `paths`."
            )


def _refuse_blind(host: Host, tenant: TenantPlace) -> None:
    """The copy's own time must be seen inside: what else is seen there is the original, on its old medium."""
    for mount in placing.placed(host):
        seen = [path for path in tenant.reads if Path(mount.point).is_relative_to(path.resolve())]
        if not seen:
            continue
        expected = str(Path(mount.point).stat().st_mtime_ns)
        found = tenant.place.run([tenant.place.python, "-I", "-S", "-c", _STAMP, mount.point])
        if found.out.strip() != expected:
            reported = (found.err or found.out).strip()[-200:]
            raise ControlNotHeld(
                "storage",
                asked=f"the copy of {mount.point}",
                found=f"inside {tenant.place.name} another one ({reported})",
            )


@contextmanager
def _check_file(host: Host) -> Iterator[str]:
    """A file on the medium to measure writes with, outside of every copy."""
    path = str(loop.point() / "check")
    host.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={_CHECK_FILE_BYTES >> 20}", "conv=fsync"]).checked()
    try:
        yield path
    finally:
        host.run(["rm", "-f", "--", path]).checked()


def _source(name: str) -> Path:
    if name not in _sources:
        raise TareError(f"storage: {name!r} is not a data set that this run puts onto a medium")
    return _sources[name]


def _checked(state: Json) -> dict[str, Json]:
    """A state from the journal is data from a file: pieces that we know, and names of copies."""
    good = isinstance(state, dict) and state.keys() == _NOTHING.keys()
    if not good or any(not isinstance(items, list) for items in state.values()):
        raise TareError(f"storage: {state!r} is not a state of a medium")
    names = all(isinstance(name, str) and placing.NAME.fullmatch(name) for name in state["placed"])
    if not names or not set(map(str, state["medium"])) <= set(_WHOLE):
        raise TareError(f"storage: {state!r} is not a state of a medium")
    return dict(state)
