"""Where the data set lies: on a medium of the device, or on one that is emulated by limits on reads and writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema, model_validator

from tare.errors import ControlNotHeld, TareError, TrialError
from tare.host import Host, LocalHost
from tare.measures import SizeBytes
from tare.parts import io_limits, loop_medium, media, placing, rate_check
from tare.parts.absolute_path import AbsolutePath, absolute
from tare.parts.protocols import Control, Json, Room

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

    extra_s: ClassVar[float] = 8.0  # the medium is made, filled, and its limits measured

    path: Annotated[Path, AfterValidator(_no_medium), AfterValidator(absolute)] | None = None
    """A folder on the medium. The copy is kept there, in `tare-data`, and used again while it is current."""
    emulate: Medium | None = None
    """hdd, sd or ssd; or its figures: {read_bps: 80 MB/s, read_iops: 150, write_bps: 20 MB/s, write_iops: 100}."""
    paths: tuple[AbsolutePath, ...] = ()
    """The files and folders that lie there; by default those that the workload reads."""
    room: SizeBytes = 0
    """So much can be written there, and goes with the trial; without it the data set is read-only."""

    @model_validator(mode="after")
    def _one_medium(self) -> Self:
        if (self.path is None) == (self.emulate is None):
            raise ValueError("say where the data lie: a folder (`path`), or a medium to `emulate`, and not both")
        return self

    def knob(self) -> str:
        return "storage"

    def obstacles(self, host: Host) -> list[str]:
        if not isinstance(host, LocalHost):
            return [f"storage: data are put onto a medium of the device itself, not of {host.name}."]
        sentences = []
        if os.geteuid() != 0:
            sentences.append("storage: mounting a medium needs root.")
        if self.path is not None and not self.path.is_dir():
            sentences.append(
                f"storage: there is no folder {self.path}; mount the medium first, and name a folder on it."
            )
        if self.emulate is not None:
            sentences += io_limits.obstacles(host)
            if missing := [name for name in _COMMANDS if shutil.which(name) is None]:
                sentences.append(
                    f"storage: emulating a medium needs {', '.join(missing)}, and this machine has it not."
                )
            if not Path("/dev/loop-control").exists():
                sentences.append("storage: emulating a medium needs a loop device: `modprobe loop` brings them.")
        return sentences

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
        return {"medium": loop_medium.pieces(host), "placed": names}

    def write(self, host: Host, state: Json) -> None:
        wanted = _checked(state)
        if wanted == _NOTHING:
            placing.displace(host)
            loop_medium.remove(host)
        elif (found := self.read(host)) != _NOTHING:
            left = f"something of an earlier run ({found}); `tare clean` removes it"
            raise ControlNotHeld("storage", asked="a medium of its own", found=left)
        else:
            self._place([_source(name) for name in wanted["placed"]], host)

    def _place(self, sources: Sequence[Path], host: Host) -> None:
        if missing := [source for source in sources if not source.exists()]:
            raise TrialError(f"storage: {missing[0]} is not there.")
        copies = self._kept(host, sources) if self.path is not None else self._made(host, sources)
        for source, copy in copies.items():
            placing.bind(host, copy, source, writable=self.room > 0)

    def _kept(self, host: Host, sources: Sequence[Path]) -> dict[Path, Path]:
        """Copies on a real medium."""
        assert self.path is not None
        return {source: placing.keep_copy(host, source, self.path) for source in sources}

    def _made(self, host: Host, sources: Sequence[Path]) -> dict[Path, Path]:
        """Copies on a medium of our own; they go with it."""
        sizes = [placing.size_of(source) for source in sources]
        files = sum(size.files for size in sizes)
        room = self.room + (_CHECK_FILE_BYTES if self.room else 0)
        size_bytes = loop_medium.size_for(sum(size.content_bytes for size in sizes), files, room)
        ahead = media.read_ahead_kib(media.rates(self.emulate))
        loop_medium.make(host, size_bytes, files, journal=self.room > 0, read_ahead_kib=ahead)
        copies = {source: loop_medium.point() / placing.name_of(str(source)) for source in sources}
        for source, copy in copies.items():
            placing.copy(host, source, copy)
        if not self.room:
            loop_medium.shut(host)
        placing.cool(copies.values())
        return copies

    def settle(self, host: Host, rooms: Sequence[Room]) -> Json | None:
        """Limit the workloads' own groups, and measure that each place sees the medium and reads it at its limit."""
        for room in rooms:
            _refuse_blind(host, room)
        if self.emulate is None:
            return {"path": str(self.path)}
        device = loop_medium.device(host)
        if device is None:
            raise ControlNotHeld("storage", asked=self.emulate, found="its loop device is gone")
        rates = media.rates(self.emulate).shared(len(rooms))
        facts = {"limits": rates.given(), "shared_by": len(rooms), **loop_medium.facts(host, device)}
        return {**facts, "measured": [self._limited(host, room, device, rates) for room in rooms]}

    def _limited(self, host: Host, room: Room, device: str, rates: media.Rates) -> dict[str, float]:
        group = io_limits.group_of(host, room.place.scope().cgroups)
        number = loop_medium.device_number(host, device)
        found: dict[str, float] = {"cgroup_version": group.version}
        for name, value in rates.given().items():
            io_limits.limit(host, group, number, media.Rates(**{name: value}))
            if name.startswith("read"):
                found |= rate_check.check(host, group, rate_check.wanted(name, rates, device))
            elif self.room:
                with _check_file(host) as file:
                    found |= rate_check.check(host, group, rate_check.wanted(name, rates, file))
        return found


def _refuse_programs(host: Host, source: Path) -> None:
    """A folder that holds the interpreter, or that one works in, is more than a data set."""
    for inside, what in ((Path(host.python), "the interpreter"), (Path.cwd(), "the folder that tare was started in")):
        if inside.is_relative_to(source):
            raise TrialError(
                f"storage: {source} holds more than data: {what} lies in it. Name the data set itself in `paths`."
            )


def _refuse_blind(host: Host, room: Room) -> None:
    """The copy's own time must be seen inside: what else is seen there is the original, on its old medium."""
    for mount in placing.placed(host):
        seen = [path for path in room.reads if Path(mount.point).is_relative_to(path.resolve())]
        if not seen:
            continue
        expected = str(Path(mount.point).stat().st_mtime_ns)
        found = room.place.run([room.place.python, "-I", "-S", "-c", _STAMP, mount.point])
        if found.out.strip() != expected:
            said = (found.err or found.out).strip()[-200:]
            raise ControlNotHeld(
                "storage", asked=f"the copy of {mount.point}", found=f"inside {room.place.name} another one ({said})"
            )


@contextmanager
def _check_file(host: Host) -> Iterator[str]:
    """A file on the medium to measure writes with, outside of every copy."""
    path = str(loop_medium.point() / "check")
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
