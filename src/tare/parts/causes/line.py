"""The options of somebody's own `docker run` line: each that could cost is tried, by the same line without it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from tare.base.errors import TareError
from tare.base.host import LocalHost
from tare.base.processes import holding, mounts
from tare.base.text import size_text
from tare.drivers.containers.line import Flag
from tare.drivers.containers.line import Line as OwnLine
from tare.drivers.containers.own import OF_NETWORKS, folder_bytes, left_out, source_and_target
from tare.parts.causes.variables import PLACE_VARIABLES, suspected_variables
from tare.parts.platforms.own import allowed_by, read
from tare.parts.protocols import Cause, NotLooked, RuledOut, Side, Suspicion

# Without these a command may not find what it needs, or run at all.
_NEEDED = (
    "--volumes-from", "--volume-driver", "--workdir", "--entrypoint",
    "--env-file", "--env-host", "--gpus", "--device", "--device-cgroup-rule", "--platform", "--group-add", "--userns",
    "--uidmap", "--gidmap", "--subuidname", "--subgidname", "--hostname", "--add-host", "--secret",
    "--privileged", "--pid", "--pull", "--quiet", "--arch", "--os", "--variant", "--tls-verify", "--authfile",
    "--cgroup-parent", "--rm", "--stop-signal", "--stop-timeout", "--disable-content-trust",
)  # fmt: skip
# What is known of some: it orders them, and leaves none out. Limits that other platforms have are causes of their own.
_KNOWN: Mapping[str, tuple[str, float]] = {
    "--ulimit": ("a limit of the process", 0.4),
    "--device-read-bps": ("a disk is read no faster", 0.5),
    "--device-write-bps": ("a disk is written no faster", 0.5),
    "--device-read-iops": ("a disk is read no oftener", 0.5),
    "--device-write-iops": ("a disk is written no oftener", 0.5),
    "--health-cmd": ("it runs beside the command, again and again", 0.4),
    "--log-driver": ("each line of output goes through it", 0.4),
    "--runtime": ("another runtime starts the container", 0.4),
    "--security-opt": ("a security module works in another way", 0.3),
    "--user": ("another user may have no cache of its own, or other limits", 0.1),
    "--cap-add": ("it may do more, such as setting priorities", 0.1),
    "--network": ("another network", 0.2),
    "--net": ("another network", 0.2),
}
_UNKNOWN = ("an option of the line", 0.15)
_A_VARIABLE = 0.6  # more than of all variables that differ, which are a bundle
# What has to go with an option, or the engine refuses the line.
_TOGETHER: Mapping[str, tuple[str, ...]] = {
    "--health-cmd": ("--health-interval", "--health-retries", "--health-timeout", "--health-start-period",
                     "--health-start-interval", "--health-on-failure"),
    "--log-driver": ("--log-opt",),
}  # fmt: skip
_PROTECTING = ("--security-opt", "--cap-drop", "--read-only", "--pids-limit", "--no-new-privileges", "--user")
_VOLUMES = ("--volume", "--mount")
_MOST_IN_MEMORY = 1 << 30
_SLOW_KINDS = ("fuse", "9p", "virtiofs", "nfs", "cifs", "smb", "ceph", "overlay")
_ENTRY = "place.engine.entry"


class Line(Cause):
    """The options of the line that the container was started with."""

    title: ClassVar[str] = "an option of your line"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu", "tail"})

    def examine(self, slow: Side, quick: Side) -> RuledOut:
        return RuledOut("no line of yours started it, or one without an option that could cost.")

    def suspicions(self, slow: Side, quick: Side) -> Mapping[str, Suspicion | RuledOut | NotLooked]:
        if slow.platform != "own" or quick.platform == "own":  # two images have the same line
            return super().suspicions(slow, quick)
        try:
            line = read(str(slow.fields["line"]))
        except TareError as error:
            return {"": NotLooked(str(error))}
        led = {name for flag in line.flags for name in _TOGETHER.get(flag.name, ())}
        shared = OF_NETWORKS if slow.fields.get("joins") else ()  # that of those beside it
        skipped = {*_NEEDED, *led, *shared, *(flag.name for flag in left_out(line, allowed_by(slow.fields)))}
        named = {name: flag for name, flag in line.named.items() if flag.name not in skipped}
        found = {name: _of_option(name, flag, line, slow, quick) for name, flag in named.items()}
        found["entry"] = _entry(line, slow)
        held = {name: each for name, each in found.items() if each is not None}
        return held or super().suspicions(slow, quick)


def _of_option(name: str, flag: Flag, line: OwnLine, slow: Side, quick: Side) -> Suspicion | NotLooked | None:
    if flag.name == "--env":
        return _variable(flag, slow, quick)
    return _volume(flag) if flag.name in _VOLUMES else _suspicion(name, flag, line)


def _volume(flag: Flag) -> Suspicion | None:
    """A folder of the device: its files from memory instead; None where it is no folder, or too large."""
    source, target = source_and_target(flag)
    if not source.startswith("/") or not Path(source).is_dir():
        return None
    size = folder_bytes(source, _MOST_IN_MEMORY)
    held = holding(mounts(LocalHost()), os.path.realpath(source))
    kind = "an unknown file system" if held is None else held.kind
    is_slow = kind.startswith(_SLOW_KINDS)
    return Suspicion(
        weight=0.6 if is_slow else 0.1,
        title=f"the file system of `{target}`",
        evidence=f"{source}, mounted there, lies on {kind}.",
        without=None if size is None else {"in_memory": [target]},
        cure=f"a quicker file system for {source}: a local disk, or a tmpfs",
        untried=f"it has more than {size_text(float(_MOST_IN_MEMORY))}, or cannot be read." if size is None else "",
        phases=("data", "start", "tail"),
        spends=("system", "wait", "off"),
        guess=not is_slow,
    )


def _entry(line: OwnLine, slow: Side) -> Suspicion | None:
    """What its image runs before the command: the command alone instead."""
    entry, (first, *rest) = slow.facts.get(_ENTRY), (*line.command, "")
    if not entry or line.values("--entrypoint") or not first or first.startswith("-"):
        return None
    return Suspicion(
        weight=0.3,
        title="the image's entry point",
        evidence=f"`{entry}` runs before the command, or around it.",
        without={"entry": "none"},
        cure=f"--entrypoint {shlex.join([first, '...', *rest[:-1]])}",
        guess=True,
    )


def _variable(flag: Flag, slow: Side, quick: Side) -> Suspicion | NotLooked | None:
    """As on the other side; None where it is the same there."""
    if flag.setting in PLACE_VARIABLES:  # without its own a program may not be found
        return None
    found = suspected_variables(slow, quick, {flag.setting: ("a variable of your line", _A_VARIABLE)})
    if not isinstance(found, Suspicion):
        return found
    return replace(found, title=f"`{' '.join(flag.shown())}` in your line", given=True)


def _suspicion(name: str, flag: Flag, line: OwnLine) -> Suspicion:
    with_it = [each for each, other in line.named.items() if other.name in _TOGETHER.get(flag.name, ())]
    what, weight = _KNOWN.get(flag.name, _UNKNOWN)
    shown = " ".join(flag.shown())
    return Suspicion(
        weight=weight,
        title=f"`{shown}` in your line",
        evidence=f"{what}.",
        without={"flags": dict.fromkeys([name, *with_it])},
        cure=f"no {shown}",
        given=True,
        weakens=flag.name in _PROTECTING,
    )
