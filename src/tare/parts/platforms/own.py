"""A container of a `docker run` or `podman run` line, as whoever wrote it runs it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from tare.base import processes
from tare.base.errors import TareError
from tare.base.files import make_folders, replace_file
from tare.base.host import Host, InnerHost, LocalHost, OwnDevice, Site
from tare.base.rulings import Ruling, obstacle
from tare.base.secrets import masked_words, shown_env
from tare.drivers.cgroups import tree
from tare.drivers.containers import own
from tare.drivers.containers.differing import inside
from tare.drivers.containers.line import Flag, Line, parsed
from tare.drivers.containers.unpacked import unpacked
from tare.drivers.places import Phases
from tare.parts.protocols import Json, Leftover, Platform

_AS_IS = {"--network": "none", "--net": "none", "--restart": "no"}  # what the container has anyway


# Limits by the names that they have on other platforms: the option that sets each, and those that go with it.
_LIMITS: Mapping[str, tuple[str, ...]] = {
    "quota": ("--cpus", "--cpu-quota", "--cpu-period"),
    "cpuset": ("--cpuset-cpus",),
    "cpu_shares": ("--cpu-shares",),
    "memory": ("--memory", "--memory-swap", "--memory-reservation", "--memory-swappiness", "--oom-kill-disable"),
    "shm": ("--shm-size",),
}
_PERIOD_US = 100_000  # where the line names none, or 0
_SIZE = re.compile(r"(\d+)([bkmgt]?)b?", re.IGNORECASE)


def _size(text: str) -> int:
    """As the engines read one: `2g`, `64m`, with powers of two."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no size")
    return int(found[1]) << 10 * "bkmgt".index(found[2].lower() or "b")


def _limit(flag: Flag, line: Line) -> dict[str, Json]:
    """What an option limits: a quota of 0 or -1 nothing. The engine knows the values that raise here."""
    match flag.name:
        case "--cpus":
            return {"quota": cores} if (cores := float(flag.value)) > 0 else {}
        case "--cpu-quota":
            period_us = int((line.values("--cpu-period") or ["0"])[0]) or _PERIOD_US
            return {"quota": quota_us / period_us} if (quota_us := int(flag.value)) > 0 else {}
        case "--cpuset-cpus":
            return {"cpuset": flag.value}
        case "--cpu-shares":
            return {"cpu_shares": int(flag.value)}
        case "--memory":
            return {"memory": _size(flag.value)}
        case "--shm-size":
            return {"shm": _size(flag.value)}
    return {}


def _ulimits(line: Line) -> dict[str, int]:
    """Those that processes begin with."""
    pairs = [value.partition("=") for value in line.values("--ulimit")]
    return {name: int(text.partition(":")[0]) for name, _, text in pairs}


def _text(value: Any) -> Any:
    """A line as one text; words are joined, so that a shell would take them apart again."""
    return shlex.join(map(str, value)) if isinstance(value, list | tuple) else value


@cache
def read(line: str) -> Line:
    """The line in its parts, as its own command reads it."""
    return parsed(shlex.split(line), LocalHost(), as_root=processes.is_root(LocalHost()))


class Own(Platform):
    """Run the container of a `docker run` or `podman run` line of yours, as it is, through the engine that the line
    itself would use: its entry point, health check, limits, shared memory, log driver, volumes, user and variables.

    Its name, ports, labels and restart policy are left out, so that what runs already is not touched.
    """

    extra_s: ClassVar[float] = 2.0
    why_no_turns: ClassVar[str | None] = None

    line: Annotated[str, BeforeValidator(_text)] = ""
    """The whole line: `docker run --cpus 2 -v /data:/data:ro app:1 python train.py`."""

    flags: dict[str, str | None] = Field(default_factory=dict)
    """Options of the line that have another value than there, by name: {--ulimit=nofile: 1024}; null takes one away."""

    env: dict[str, str | None] = Field(default_factory=dict)
    """Variables that have another value than in the line and its image; null takes one away."""

    joins: str | None = None
    """A network of this run, or `container:NAME`, in place of the line's: what it needs beside it is there."""

    hidden: tuple[str, ...] = ()
    """Files of its image that are empty inside, like a *.pth file: to see what each of them costs."""

    taken: tuple[str, ...] = ()
    """Files and folders that are inside as they are in `taken_from`: to see what each of them costs."""

    taken_from: str | None = None
    """The image that `taken` is from; this device by default."""

    in_memory: tuple[str, ...] = ()
    """Volumes, by where they are mounted, of which a copy in memory stands there: to see what their disk costs."""

    entry: Literal["none"] | None = None
    """none: the command without the entry point of its image."""

    allow_network: bool = False
    """The line's own network, which may lead outside; else the container has the loopback alone."""

    real_volumes: bool = False
    """The runs write to the line's volumes for real, and get its sockets; else to a copy in each trial."""

    allow_privileged: bool = False
    """Run it even if it is privileged, sees the device's processes or memory, has devices, or may change the device."""

    def __hash__(self) -> int:
        return hash(json.dumps(self.fields(), sort_keys=True))  # the default cannot hash `env`

    @classmethod
    def masked(cls, fields: Mapping[str, Json]) -> dict[str, Json]:
        """The line with the names of its variables, and of their values what tells nothing."""
        shown = dict(fields)
        if line := _text(fields.get("line")):
            shown["line"] = _shown(str(line))
        given = {name: value for name, value in (fields.get("env") or {}).items() if value is not None}
        if given:
            shown["env"] = {**fields["env"], **shown_env(given)}
        return shown

    @property
    def allowed(self) -> set[own.Allow]:
        return allowed_by(self.model_dump())

    def variables(self) -> Mapping[str, str | None]:
        return self.env

    def obstacles(self, host: Host) -> list[Ruling]:
        if not self.line:
            return [obstacle("needs.value", "`own` needs the `line` to run: `docker run ...` or `podman run ...`.")]
        if not isinstance(host, OwnDevice):
            return [obstacle("needs.outermost", f"a line of yours runs on the device itself, and not in {host.name}.")]
        try:
            line = self._line()
            own.refuse_remote(host, line)
            refused = own.refusals(line, own.look_at(host, line, self.allowed), self.allowed)
        except TareError as error:
            return [obstacle("needs.engine", str(error))]
        return [obstacle("needs.option", each) for each in refused]

    def image_now(self, host: Host) -> str | None:
        return own.look_at(host, self._line(), self.allowed).image if self.line else None

    def _line(self) -> Line:
        line = read(self.line).changed({}, self.flags)
        if self.joins is not None:
            away = {name: None for name, flag in line.named.items() if flag.name in own.OF_NETWORKS}
            line = line.changed({}, {**away, "--network": self.joins})
        if self.entry == "none" and line.command:
            flag = Flag("--entrypoint", line.command[0], (f"--entrypoint={line.command[0]}",))
            line = replace(line, flags=(*line.flags, flag), command=line.command[1:])
        places = dict.fromkeys(self.hidden, "/dev/null")
        other = unpacked(self.taken_from).root if self.taken_from and self.taken else Path("/")
        for path in self.taken:
            source = inside(other, path)
            places[path] = str(source) if source.exists() else "/dev/null"
        bound = [Flag("--volume", f"{source}:{path}:ro", (f"--volume={source}:{path}:ro",))
                 for path, source in places.items()]  # fmt: skip
        return replace(line, flags=(*line.flags, *bound))

    @classmethod
    def limits(cls, fields: Mapping[str, Json]) -> dict[str, Json]:
        line = read(_text(fields["line"])).changed({}, fields.get("flags") or {})
        found: dict[str, Json] = {"image": line.image}
        for flag in line.flags:
            with suppress(ValueError):
                found |= _limit(flag, line)
        with suppress(ValueError):
            found |= {"ulimits": limits} if (limits := _ulimits(line)) else {}
        return found

    @classmethod
    def as_own(cls, fields: Mapping[str, Json], change: Mapping[str, Json]) -> Mapping[str, Json]:
        rest, flags = dict(change), dict[str, str | None]()
        line = read(_text(fields["line"])) if {*_LIMITS, "ulimits", "image"} & rest.keys() else None
        named = line.named if line else {}
        if line and (image := rest.pop("image", None)):
            rest["line"] = shlex.join(replace(line, image=image).words())
        for name in _LIMITS.keys() & rest.keys():
            value, options = rest.pop(name), _LIMITS[name]
            flags |= {each: None for each, flag in named.items() if flag.name in options}
            flags |= {} if value is None else {options[0]: str(value)}
        if "ulimits" in rest:
            flags |= {each: None for each, flag in named.items() if flag.name == "--ulimit"}
            flags |= {f"--ulimit={name}": str(value) for name, value in (rest.pop("ulimits") or {}).items()}
        return {**rest, "flags": {**flags, **(rest.get("flags") or {})}} if flags else rest

    def open(self, host: Host, site: Site) -> InnerHost:
        line, phases = self._line(), Phases(host.clock)
        processes.lease_name(site.name)
        with ExitStack() as stack:
            note = own.note_of(site.name)
            make_folders(note.parent)
            replace_file(note, json.dumps(line.engine).encode())
            stack.callback(note.unlink, missing_ok=True)
            with phases.timed("open.look"):
                seen = own.look_at(host, line, self.allowed)
            place = own.begin(host, line, seen, site, self.allowed, stack, phases, self.in_memory)
            return place.keep(stack.pop_all(), phases)

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        notes = own.note_of("").parent
        names = sorted(note.name for note in notes.iterdir()) if notes.is_dir() else []
        return [Leftover(name, f"the container {name} of a line of yours") for name in names]

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        note = own.note_of(name)
        if not note.is_file():
            return
        own.remove(host, json.loads(note.read_text()), name)
        if folders := tree.own_folders(host, name):
            own.remove_groups(host, folders)
        host.run(["rm", "-rf", "--one-file-system", "--", f"/dev/shm/{name}"])  # volumes that lay in memory
        note.unlink(missing_ok=True)


def allowed_by(fields: Mapping[str, Any]) -> set[own.Allow]:
    options: Mapping[own.Allow, str] = {
        "network": "allow_network", "volumes": "real_volumes", "privileged": "allow_privileged",
    }  # fmt: skip
    joined: set[own.Allow] = {"network"} if fields.get("joins") else set()
    return joined | {name for name, option in options.items() if fields.get(option)}


def not_honoured(line: Line, fields: Mapping[str, Any]) -> list[Flag]:
    """The options of the line that a container with these fields does not have."""
    return [
        flag for flag in own.left_out(line, allowed_by(fields)) if flag.is_on and flag.value != _AS_IS.get(flag.name)
    ]


@cache
def _shown(line: str) -> str:
    with suppress(TareError, ValueError):
        return read(line).shown()
    return shlex.join(masked_words(shlex.split(line)))  # its command is not on this device
