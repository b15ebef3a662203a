"""From a name in a study or a job to what it names: `models`, `data`, ... here, and the kinds of parts of tare.

A kind is a package, and a name is a file in it. Names of one subject may share a file, in which each is the class of
that name ("bert_large" is BertLarge): SHARED of the package says which. A kind may also be one module, with NAMES.
"""

import functools
import importlib
import pkgutil
import sys
from typing import Any, Dict, List


@functools.lru_cache(maxsize=None)
def modules(kind: str) -> Dict[str, str]:
    """Every name of this kind ("tare_inside.workloads.data"), sorted, and its module. Only the package is imported."""
    files = {file.name for file in pkgutil.iter_modules(getattr(importlib.import_module(kind), "__path__", ()))}
    shared = _shared(kind)
    alone = {file: kind + "." + file for file in files}
    found = {name: module for name, module in alone.items() if module not in shared.values()}
    return dict(sorted({**found, **shared}.items()))


def _shared(kind: str) -> Dict[str, str]:
    home = importlib.import_module(kind)
    found = {name: kind + "." + file for file, several in getattr(home, "SHARED", {}).items() for name in several}
    return {**found, **dict.fromkeys(getattr(home, "NAMES", ()), kind)}


def load(kind: str, name: str) -> Any:
    """The module of this name; where several share one, the class in it."""
    module = importlib.import_module(modules(kind)[name])
    if name not in _shared(kind):
        return module
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    own = {value.__name__.lower(): value for value in classes if value.__module__ == module.__name__}
    if name.replace("_", "") not in own:
        raise ValueError(
            "{} has no class for {!r}, which SHARED or NAMES of {} has".format(module.__name__, name, kind)
        )
    return own[name.replace("_", "")]


def name_of(found: type) -> str:
    """The name of a class that was not looked for by one: of its file, or in a file of several its own."""
    kind, _, file = found.__module__.rpartition(".")
    several = getattr(sys.modules.get(kind), "SHARED", {}).get(file, ())
    return next((name for name in several if name.replace("_", "") == found.__name__.lower()), file)


def names(kind: str) -> List[str]:
    """Every name of this kind ("models", "data", "applications" or "backends"), sorted."""
    return list(modules("tare_inside.workloads." + kind))


def find(kind: str, name: str) -> Any:
    """What is called `name`; ValueError, with the names there are, if there is none."""
    if name not in names(kind):
        raise ValueError("no {!r} in {}. Available: {}".format(name, kind, ", ".join(names(kind))))
    return load("tare_inside.workloads." + kind, name)
