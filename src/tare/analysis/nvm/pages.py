"""Pages get numbers, 0 for the first that was seen: what follows is arrays, and memory grows with the pages alone.

A hash table of our own, with open addressing. Eight neighbouring pages share a line of cache: files are written in
order, so that most look-ups find their line at hand. Importing this brings the compiler, where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Keys = npt.NDArray[np.uint64]


Loop = TypeVar("Loop", bound=Callable[..., Any])

_compile: Callable[..., Any] | None
try:
    import numba
except ImportError:  # not installed, or not for this numpy
    _compile = None
else:
    _compile = numba.njit

IS_COMPILED = _compile is not None
WITHOUT = "numba is not installed, so that plain LRU is some 4 times slower, and every other policy some 40 times"


def compiled(loop: Loop) -> Loop:
    """Machine code, kept beside the file for the next process; its Python text stays as `py_func`."""
    if _compile is None:
        return loop
    try:
        made: Loop = _compile(cache=True, nogil=True)(loop)
    except RuntimeError:  # nowhere to keep it: compiled once a process
        made = _compile(nogil=True)(loop)
    return made


FEWEST_SLOTS = 1 << 12
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE, _THREE, _SEVEN, _HALF, _TOP = (np.uint64(number) for number in (1, 3, 7, 32, 29))


class Numbers(Protocol):
    """Keys to numbers, over all pieces of a trace."""

    @property
    def known(self) -> int: ...

    def of(self, keys: Keys) -> Any: ...


def numbers() -> Numbers:
    """By machine code, or by a dict where there is none."""
    return TableOfPages() if IS_COMPILED else DictOfPages()


class DictOfPages:
    """What plain Python does quickest."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}

    @property
    def known(self) -> int:
        return len(self._number)

    def of(self, keys: Keys) -> list[int]:
        number = self._number
        return [number.setdefault(key, len(number)) for key in keys.tolist()]


class TableOfPages:
    """Slots of (key + 1, number), at most half of them full; key 0 means that a slot is free."""

    def __init__(self) -> None:
        self._slots = np.zeros((FEWEST_SLOTS, 2), np.uint64)
        self.known = 0

    def of(self, keys: Keys) -> npt.NDArray[np.int32]:
        found = np.empty(len(keys), np.int32)
        done = 0
        while True:
            done, self.known = _number(keys, done, self._slots, self.known, found)
            if done == len(keys):
                return found
            larger = np.zeros((2 * len(self._slots), 2), np.uint64)
            _move(self._slots, larger)
            self._slots = larger


@compiled
def _home(key: Any, mask: Any) -> Any:
    """The slot at which a look-up begins: pages 8n to 8n + 7 in one line of it, beginning anywhere in the line."""
    mixed = (key >> _THREE) * _GOLDEN
    mixed ^= mixed >> _HALF
    return ((mixed << _THREE) | ((key + (mixed >> _TOP)) & _SEVEN)) & mask


@compiled
def _number(keys: Any, begin: int, slots: Any, known: int, found: Any) -> tuple[int, int]:
    """Numbers for keys from `begin` on, until all have one or half of the slots are full; where it stopped."""
    mask, most = np.uint64(len(slots) - 1), len(slots) // 2
    for place in range(begin, len(keys)):
        key = keys[place]
        slot = _home(key, mask)
        while slots[slot, 0] != 0 and slots[slot, 0] != key + _ONE:
            slot = (slot + _ONE) & mask
        if slots[slot, 0] == 0:
            if known == most:
                return place, known
            slots[slot, 0], slots[slot, 1] = key + _ONE, known
            known += 1
        found[place] = slots[slot, 1]
    return len(keys), known


@compiled
def _move(slots: Any, larger: Any) -> None:
    mask = np.uint64(len(larger) - 1)
    for old in range(len(slots)):
        if slots[old, 0] != 0:
            slot = _home(slots[old, 0] - _ONE, mask)
            while larger[slot, 0] != 0:
                slot = (slot + _ONE) & mask
            larger[slot, 0], larger[slot, 1] = slots[old, 0], slots[old, 1]
