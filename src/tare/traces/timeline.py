"""What held when: values that change at known times, asked for at many times at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Timeline:
    """For each key (a process, a file) a value that changes now and then; small whole numbers, -1 for none."""

    def __init__(self) -> None:
        self._keys: list[Ints] = []
        self._times: list[Ints] = []
        self._values: list[Ints] = []
        self._sorted: tuple[Ints, Ints, Ints, Ints] | None = None

    def add(self, keys: Sequence[int] | Ints, times: Sequence[int] | Ints, values: Sequence[int] | Ints) -> None:
        """From each time on, this key has this value; of several at one time the one that was added last."""
        if len(keys):
            for into, new in ((self._keys, keys), (self._times, times), (self._values, values)):
                into.append(np.asarray(new, np.int64))
            self._sorted = None

    def at(self, keys: npt.NDArray[np.integer], times: Ints) -> Ints:
        """The value of each key at each time; -1 where nothing is known of it yet."""
        known, moments, entries, values = self._table()
        if not len(entries) or not len(keys):
            return np.full(len(keys), -1, np.int64)
        keys = keys.astype(np.int64, copy=False)
        row = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        moment = np.searchsorted(moments, times, side="right")
        found = np.searchsorted(entries, (row << 32) | moment, side="right") - 1
        same = (found >= 0) & (known[row] == keys) & (entries[found] >> 32 == row)
        return np.where(same, values[found], -1)

    def forget_before(self, t_ns: int) -> None:
        """Keep of what is past only the last value of each key, so that memory does not grow with the trace."""
        if not self._keys:
            return
        keys, times, values = (np.concatenate(part) for part in (self._keys, self._times, self._values))
        order = np.lexsort((np.arange(len(keys)), times, keys))
        keys, times, values = keys[order], times[order], values[order]
        followed = np.append((keys[1:] == keys[:-1]) & (times[1:] <= t_ns), False)
        keep = ~followed
        self._keys, self._times, self._values = [keys[keep]], [times[keep]], [values[keep]]
        self._sorted = None

    def _table(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Keys and times by their rank, so that one sorted number stands for both."""
        if self._sorted is None:
            if not self._keys:
                empty = np.empty(0, np.int64)
                return empty, empty, empty, empty
            keys, times, values = (np.concatenate(part) for part in (self._keys, self._times, self._values))
            known, moments = np.unique(keys), np.unique(times)
            entries = (np.searchsorted(known, keys) << 32) | (np.searchsorted(moments, times) + 1)
            order = np.argsort(entries, kind="stable")
            self._sorted = known, moments, entries[order], values[order]
        return self._sorted
