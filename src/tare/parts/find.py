"""From a name in a study to a class: the file of that name first, an entry point second. Nothing is registered."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import sys
from functools import cache
from typing import Literal, TypeAlias

from tare.base.errors import StudyError, did_you_mean
from tare.parts.protocols import Cause, Control, Part, Platform, Probe, Workload

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
    return sorted(_ours(kind) | _theirs(kind, tuple(sys.path)))


@cache
def _ours(kind: Kind) -> frozenset[str]:
    package = importlib.import_module(f"tare.parts.{kind}")
    shared = getattr(package, "SHARED", {})
    files = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return frozenset(files - {*shared.values()} | {*shared})


@cache
def _theirs(kind: Kind, path: tuple[str, ...]) -> frozenset[str]:
    """Parts of other packages on this path; to look through all packages takes longer than the rest of a look-up."""
    return frozenset(entry.name for entry in importlib.metadata.entry_points(group=f"tare.{kind}"))


def find(kind: Kind, name: str) -> type[Part]:
    """The class of the part called `name`; only that part's file is imported."""
    if name not in names(kind):
        raise StudyError(unknown(kind, name))
    file = getattr(importlib.import_module(f"tare.parts.{kind}"), "SHARED", {}).get(name, name)
    try:
        module = importlib.import_module(f"tare.parts.{kind}.{file}")
    except ModuleNotFoundError as missing:
        if missing.name == f"tare.parts.{kind}.{file}":
            return _called(name, _from_entry_point(kind, name))
        raise
    for value in vars(module).values():
        ours = isinstance(value, type) and issubclass(value, KINDS[kind]) and value.__module__ == module.__name__
        if ours and (file == name or value.__name__.lower() == name.replace("_", "")):  # several may share a file
            return _called(name, value)
    raise StudyError(f"{module.__file__} holds no {KINDS[kind].__name__}: a part's file has one class of its kind.")


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
    lines = [f"no {kind[:-1]} {name!r}.", f"{kind.capitalize()} here: {', '.join(here)}."]
    if meant := did_you_mean(name, here):
        lines.append(meant)
    return "\n".join(lines)


def _from_entry_point(kind: Kind, name: str) -> type[Part]:
    (entry,) = importlib.metadata.entry_points(group=f"tare.{kind}", name=name)
    part = entry.load()
    if not (isinstance(part, type) and issubclass(part, KINDS[kind])):
        raise StudyError(f"the entry point {entry.value!r} of {name!r} is not a {KINDS[kind].__name__}.")
    return part
