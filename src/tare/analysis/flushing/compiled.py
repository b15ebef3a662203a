"""Inner loops are compiled where numba is installed, and run as plain Python where it is not: the same code, slower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Loop = TypeVar("Loop", bound=Callable[..., Any])

_compile: Callable[..., Any] | None
try:
    import numba
except ImportError:  # not installed, or not for this numpy
    _compile = None
else:
    _compile = numba.njit

IS_COMPILED = _compile is not None
WITHOUT = "numba is not installed, so that this is some 40 times slower"


def compiled(loop: Loop) -> Loop:
    """Machine code, kept beside the file for the next process; its Python text stays as `py_func`."""
    if _compile is None:
        return loop
    try:
        made: Loop = _compile(cache=True, nogil=True)(loop)
    except RuntimeError:  # nowhere to keep it: compiled once a process
        made = _compile(nogil=True)(loop)
    return made
