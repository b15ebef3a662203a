"""The kernel's way to write a set of cores."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_CORES = 8192  # the largest that Linux is built for
_PIECE = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*")


def cores(text: str) -> list[int]:
    """`0-2,5` as numbers in order, each once; nothing for an empty text, as the kernel writes it."""
    named: set[int] = set()
    for piece in text.split(",") if text.strip() else ():
        found = _PIECE.fullmatch(piece)
        if found is None:
            raise ValueError(f"{text!r} is not a list of cores; write it like '0-1' or '0,2'")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{piece!r} counts backwards; write the lower core first")
        if last >= MOST_CORES:
            raise ValueError(f"{text!r} names a core that no machine has")
        named |= set(range(first, last + 1))
    return sorted(named)


def core_text(numbers: Iterable[int]) -> str:
    """Cores as the kernel writes them: 0, 1, 2, 5 as `0-2,5`."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
