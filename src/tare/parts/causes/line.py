"""The options of somebody's own `docker run` line: each that could cost is tried, by the same line without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tare.base.errors import TareError
from tare.drivers.containers.line import Flag
from tare.drivers.containers.line import Line as OwnLine
from tare.drivers.containers.own import left_out
from tare.parts.causes.variables import PLACE_VARIABLES, suspected_variables
from tare.parts.platforms.own import allowed_by, read
from tare.parts.protocols import Cause, NotLooked, RuledOut, Side, Suspicion

# Without these a command may not find what it needs, or run at all.
_NEEDED = (
    "--volume", "--mount", "--volumes-from", "--volume-driver", "--workdir", "--user", "--entrypoint",
    "--env-file", "--env-host", "--gpus", "--device", "--device-cgroup-rule", "--platform", "--group-add", "--userns",
    "--uidmap", "--gidmap", "--subuidname", "--subgidname", "--hostname", "--add-host", "--secret", "--cap-add",
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
_PROTECTING = ("--security-opt", "--cap-drop", "--read-only", "--pids-limit", "--no-new-privileges")


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
        skipped = {*_NEEDED, *led, *(flag.name for flag in left_out(line, allowed_by(slow.fields)))}
        named = {name: flag for name, flag in line.named.items() if flag.name not in skipped}
        found = {name: _variable(flag, slow, quick) if flag.name == "--env" else _suspicion(name, flag, line)
                 for name, flag in named.items()}  # fmt: skip
        held = {name: each for name, each in found.items() if each is not None}
        return held or super().suspicions(slow, quick)


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
