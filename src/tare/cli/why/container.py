"""The container that `tare why` explains: its image, its limits, and what is set inside of it alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tare.api.weighing import placed
from tare.cli.options import need

_OPTIONS = (
    click.option("--image", help="The container's image; else the host's own root file system."),
    click.option("--against-image", help="Another image on the other side, in the same container, for bare metal."),
    click.option("--quota", type=float, help="The container's CPU quota, in cores."),
    click.option("--cpuset", help="The container's cores, like 0-1."),
    click.option("--memory", help="The container's memory limit, like 2GiB."),
    click.option("--shm", help="The size of the container's /dev/shm, like 64MiB."),
    click.option("--cpu-shares", type=click.IntRange(2, 262144), help="The container's CPU weight; 1024 is usual."),
    click.option("--io-rate", help="What the container may read and write of a disk in a second, like 20MB."),
    click.option("--ulimit", "ulimits", multiple=True, metavar="NAME=NUMBER",
                 help="A limit of the container's processes: memlock, nofile, nproc, stack or core; -1 is none."),
    click.option("--inside-env", multiple=True, metavar="NAME=VALUE", help="A variable of the container alone."),
    click.option("--inside-arg", multiple=True, metavar="OPTION=VALUE",
                 help="An option of the command in the container alone."),
    click.option("--seccomp-profile", type=click.Path(path_type=Path, exists=True),
                 help="The container's own filter (runc)."),
    click.option("--writable", is_flag=True, help="A built-in workload may write to the container's root."),
)  # fmt: skip
_LIMITS = ("quota", "cpuset", "memory", "shm", "cpu_shares", "io_rate")


@dataclass(frozen=True)
class Container:
    """What its options say."""

    image: str | None
    against: str | None  # the image of the other side, which is bare metal without one
    fields: dict[str, Any]  # of its platform, with the image
    profile: dict[str, Any]  # the field for its own seccomp filter, which runc alone has


def container_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The options, which the verb gets as one value called `container`."""

    @functools.wraps(verb)
    def taking(
        *,
        image: str | None,
        against_image: str | None,
        ulimits: tuple[str, ...],
        inside_env: tuple[str, ...],
        inside_arg: tuple[str, ...],
        seccomp_profile: Path | None,
        writable: bool,
        **others: Any,
    ) -> Any:
        need(bool(image) or not against_image, "--against-image is the other one of two: name the slow one by --image.")
        named = all(each.startswith("-") for each in inside_arg)
        need(named, "--inside-arg: write an option with its value, --inside-arg=--threads=16.")
        given = {
            "image": image and placed(image),
            **{name: others.pop(name) for name in _LIMITS},
            "writable": writable or None,
            "ulimits": _numbers("--ulimit", ulimits) or None,
            "env": _assigned("--inside-env", inside_env) or None,
            "arguments": _assigned("--inside-arg", inside_arg) or None,
        }
        fields = {name: value for name, value in given.items() if value is not None}
        profile = {} if seccomp_profile is None else {"seccomp_profile": str(seccomp_profile.resolve())}
        against = against_image and placed(against_image)
        return verb(container=Container(fields.get("image"), against, fields, profile), **others)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking


def _assigned(option: str, variables: tuple[str, ...]) -> dict[str, str]:
    for each in variables:
        need("=" in each and not each.startswith("="), f"{option} {each!r}: write NAME=VALUE.")
    return dict(each.split("=", 1) for each in variables)


def _numbers(option: str, limits: tuple[str, ...]) -> dict[str, int]:
    given = _assigned(option, limits)
    for name, text in given.items():
        need(text.removeprefix("-").isdecimal(), f"{option} {name}={text}: write a number, or -1 for none.")
    return {name: int(text) for name, text in given.items()}
