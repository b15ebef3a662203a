"""Rooms: packages of one subject beside the core, such as `tare.kernel` and `tare.papers`.

A room is a package of tare with a file `room.py`, whose OFFERS says what it adds at each door: door -> name ->
"module:attribute". Nothing of a room is imported before it is asked for, and nothing imports a room by name, so that
tare works without it. Its parts are found by the names of their files, in `parts/KIND/` of the room.

Other packages use the same doors by entry points in the group `tare.DOOR`: an offer of a room has their form.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

_HOME = Path(__file__).parents[1]
_PACKAGE = __name__.partition(".")[0]


@cache
def rooms() -> tuple[ModuleType, ...]:
    """The `room` module of each room that is installed."""
    names = [file.name for file in pkgutil.iter_modules([str(_HOME)]) if (_HOME / file.name / "room.py").is_file()]
    return tuple(importlib.import_module(f"{_PACKAGE}.{name}.room") for name in names)


def packages(inner: str) -> list[str]:
    """`parts.probes` as the packages of that name: of the core, then of each room that has one."""
    homes = [_PACKAGE, *(room.__name__.rpartition(".")[0] for room in rooms())]
    return [f"{home}.{inner}" for home in homes if _folder(f"{home}.{inner}").is_dir()]


def folders(inner: str) -> list[Path]:
    """The folders of `packages`."""
    return [_folder(package) for package in packages(inner)]


def _folder(package: str) -> Path:
    return _HOME.joinpath(*package.split(".")[1:])


@cache
def entry_points(door: str, path: tuple[str, ...]) -> Mapping[str, str]:
    """Name -> "module:attribute" of what other packages on this path offer; looking through all packages is slow."""
    return {entry.name: entry.value for entry in importlib.metadata.entry_points(group=f"{_PACKAGE}.{door}")}


def offers(door: str) -> dict[str, str]:
    """Name -> "module:attribute" of what rooms and other packages offer at this door; a room's goes first."""
    return {**entry_points(door, tuple(sys.path)), **of_rooms(door)}


def of_rooms(door: str) -> dict[str, str]:
    """The same of rooms alone, which takes no search through the packages that are installed."""
    return {name: target for room in rooms() for name, target in room.OFFERS.get(door, {}).items()}


def load(target: str) -> Any:
    """What "module:attribute" names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
