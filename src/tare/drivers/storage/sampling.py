"""Pieces of a data set, drawn evenly from all of its bytes, for what cannot be looked at as a whole."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from tare.drivers.storage.residency import open_files

WINDOW_BYTES = 1 << 20
_STEP = 0.6180339887498949  # the golden section: its multiples are spread evenly, and meet no period of the data


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of one file; its descriptor stays open while it is watched."""

    descriptor: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Pieces of a data set, and how large that is in all."""

    pieces: tuple[Piece, ...]
    total_bytes: int

    @property
    def share(self) -> float:
        """How much of the data set is looked at."""
        return sum(piece.length for piece in self.pieces) / self.total_bytes if self.total_bytes else 0.0

    def close(self) -> None:
        for descriptor in {piece.descriptor for piece in self.pieces}:
            os.close(descriptor)


def drawn(paths: Iterable[Path], most: int) -> Sample:
    """At most so many pieces of up to 1 MiB, drawn evenly from all bytes; everything, where that is not more."""
    seen = [
        (str(Path(f"/proc/self/fd/{descriptor}").readlink()), os.fstat(descriptor).st_size)
        for descriptor in open_files(paths)
    ]
    files = [(path, size) for path, size in seen if size > 0]
    counts = [-(-size // WINDOW_BYTES) for _, size in files]
    ends = list(accumulate(counts))
    windows = ends[-1] if ends else 0
    chosen = (
        range(windows) if windows <= most else sorted({int(number * _STEP % 1 * windows) for number in range(most)})
    )
    opened: dict[str, int] = {}
    pieces = []
    for window in chosen:
        file = bisect_right(ends, window)
        path, size = files[file]
        start = (window - (ends[file] - counts[file])) * WINDOW_BYTES
        if path not in opened:
            opened[path] = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        pieces.append(Piece(opened[path], start, min(WINDOW_BYTES, size - start)))
    return Sample(tuple(pieces), sum(size for _, size in files))
