"""From a name in a study to a class: the file of that name first, an entry point second. Nothing is registered."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Literal, TypeAlias

from tare.base import rooms
from tare.base.errors import StudyError, did_you_mean
from tare.parts.protocols import Cause, Control, Part, Platform, Probe, Workload
from tare_inside import named

Kind: TypeAlias = Literal["causes", "controls", "platforms", "probes", "workloads"]
KINDS: dict[Kind, type[Part]] = {
    "controls": Control,
    "platforms": Platform,
    "probes": Probe,
    "workloads": Workload,
    "causes": Cause,
}


def names(kind: Kind) -> list[str]:
    """Every part of this kind that can be named here, sorted; none of them is imported."""
    return sorted({*_ours(kind), *rooms.entry_points(kind, tuple(sys.path))})


def _ours(kind: Kind) -> dict[str, str]:
    """Name -> the package that it lies in: of the core's parts, and of those of rooms."""
    return {name: package for package in rooms.packages(f"parts.{kind}") for name in named.modules(package)}


def find(kind: Kind, name: str) -> type[Part]:
    """The class of the part called `name`; only that part's file is imported."""
    if name not in names(kind):
        raise StudyError(unknown(kind, name))
    package = _ours(kind).get(name)
    if package is None:
        return _called(name, _from_entry_point(kind, name))
    found = named.load(package, name)
    if isinstance(found, type):  # of a file that several share
        if not issubclass(found, KINDS[kind]):
            where = f"{found.__module__}.{found.__name__}, which SHARED of {package} names,"
            raise StudyError(f"{name!r}: {where} is not a {KINDS[kind].__name__}: derive it from that class.")
        return _called(name, found)
    for value in vars(found).values():
        if isinstance(value, type) and issubclass(value, KINDS[kind]) and value.__module__ == found.__name__:
            return _called(name, value)
    raise StudyError(f"{found.__file__} holds no {KINDS[kind].__name__}: a part's file has one class of its kind.")


def _called(name: str, part: type[Part]) -> type[Part]:
    """The class, which from now on knows its name: records, the sampler and the journal ask it."""
    before = vars(part).get("called")
    if before not in (None, name):
        raise StudyError(f"{before!r} and {name!r} are the same class {part.__qualname__}; give each one of its own.")
    part.called = name
    return part


def unknown(kind: Kind, name: str) -> str:
    """What to say to someone who named a part that does not exist."""
    here = names(kind)
    meant = did_you_mean(name, here)
    return f"no {kind[:-1]} {name!r}.{meant and ' '}{meant}\n{kind.capitalize()} here: {', '.join(here)}."


def _from_entry_point(kind: Kind, name: str) -> type[Part]:
    (entry,) = importlib.metadata.entry_points(group=f"tare.{kind}", name=name)
    part = entry.load()
    if not (isinstance(part, type) and issubclass(part, KINDS[kind])):
        raise StudyError(f"the entry point {entry.value!r} of {name!r} is not a {KINDS[kind].__name__}.")
    return part
