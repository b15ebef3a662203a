"""From a name in a job to a module: a model is a file in models/, a data set is a file in data/."""

import functools
import importlib
import os
import pkgutil
from typing import Any, List, Tuple


def names(kind: str) -> List[str]:
    """Every name of this kind ("models" or "data"), sorted; none of them is imported."""
    return list(_listed(kind))


@functools.lru_cache(maxsize=None)
def _listed(kind: str) -> Tuple[str, ...]:
    """Once for each kind: a study of many levels asks for each of them."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), kind)
    return tuple(sorted(module.name for module in pkgutil.iter_modules([folder])))


def find(kind: str, name: str) -> Any:
    """The module called `name`; ValueError, with the names there are, if there is none."""
    if name not in names(kind):
        raise ValueError("no {!r} in {}. Available: {}".format(name, kind, ", ".join(names(kind))))
    return importlib.import_module("tare_inside.{}.{}".format(kind, name))
