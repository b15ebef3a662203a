"""System calls counted from their entries and exits: how many, how long, how many failed, by role and over time.

A call is counted when it is entered, in the bin of that moment. Its time is known once it has returned: exit_group
never does, and a call that still waits when the trace ends has none either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.traces.syscall_names import name

Ints: TypeAlias = npt.NDArray[np.int64]
RoleOf: TypeAlias = Callable[[Ints, Ints], npt.NDArray[Any]]  # tids and times -> roles

_LAST_ERROR = -4095  # what the kernel returns for an error is between this and -1
_ENTER, _EXIT = 0, 1


class Calls(NamedTuple):
    """Calls in no particular order; `seconds` is NaN and `failed` false where the end is not known."""

    t_ns: Ints
    tid: Ints
    number: Ints
    seconds: npt.NDArray[np.float64]
    failed: npt.NDArray[np.bool_]


class Pairing:
    """Puts exits to their entries, a piece of the trace after another; who has not returned waits."""

    def __init__(self) -> None:
        self._waiting = _Edges.none()

    def add(self, enter: Mapping[str, Any] | None, leave: Mapping[str, Any] | None) -> Calls:
        """Calls that are complete with this piece."""
        edges = _Edges.joined([self._waiting, _Edges.of(enter, _ENTER, "id"), _Edges.of(leave, _EXIT, "ret")])
        edges = edges.take(np.lexsort((edges.kind, edges.t_ns, edges.tid)))
        enters = edges.kind == _ENTER
        following = np.append(edges.tid[1:] == edges.tid[:-1], False)  # the same task has one more edge after it
        returned = enters & following & np.append(edges.kind[1:] == _EXIT, False)
        self._waiting = edges.take(np.flatnonzero(enters & ~following))
        # An entry behind which another entry comes has lost its exit; it is counted all the same.
        alone = enters & following & ~returned
        return _calls(edges, np.flatnonzero(returned), np.flatnonzero(alone))

    def rest(self) -> Calls:
        """Those that never returned."""
        waiting, self._waiting = self._waiting, _Edges.none()
        return _calls(waiting, np.empty(0, np.int64), np.arange(len(waiting.t_ns)))


class _Edges(NamedTuple):
    t_ns: Ints
    tid: Ints
    kind: Ints
    value: Ints  # the call's number, or what it returned

    @classmethod
    def none(cls) -> _Edges:
        return cls(*(np.empty(0, np.int64) for _ in range(4)))

    @classmethod
    def of(cls, columns: Mapping[str, Any] | None, kind: int, value: str) -> _Edges:
        if columns is None:
            return cls.none()
        t_ns, tid, values = (np.asarray(columns[key]).astype(np.int64) for key in ("t_ns", "pid", value))
        return cls(t_ns, tid, np.full(len(t_ns), kind, np.int64), values)

    @classmethod
    def joined(cls, parts: list[_Edges]) -> _Edges:
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def take(self, rows: Ints) -> _Edges:
        return _Edges(*(column[rows] for column in self))


def _calls(edges: _Edges, returned: Ints, alone: Ints) -> Calls:
    rows = np.concatenate([returned, alone])
    seconds = np.full(len(rows), np.nan)
    failed = np.zeros(len(rows), bool)
    done = len(returned)
    seconds[:done] = (edges.t_ns[returned + 1] - edges.t_ns[returned]) / 1e9
    results = edges.value[returned + 1] if done else np.empty(0, np.int64)
    failed[:done] = (results < 0) & (results >= _LAST_ERROR)
    return Calls(edges.t_ns[rows], edges.tid[rows], edges.value[rows], seconds, failed)


class Tally:
    """Calls summed up by bin, role and number; its size depends on how many of these there are, not on the calls."""

    def __init__(self, bin_ns: int) -> None:
        self._bin_ns = bin_ns
        self._sums: dict[tuple[int, str, int], list[float]] = {}  # -> count, total_s, max_s, errors

    def add(self, calls: Calls, role_of: RoleOf) -> None:
        if not len(calls.t_ns):
            return
        roles, which = np.unique(role_of(calls.tid, calls.t_ns).astype(str), return_inverse=True)
        keys = np.stack([calls.t_ns // self._bin_ns, which.astype(np.int64), calls.number])
        found, place = np.unique(keys, axis=1, return_inverse=True)
        place, rows = place.ravel(), found.shape[1]
        seconds = np.nan_to_num(calls.seconds)
        longest = np.zeros(rows)
        np.maximum.at(longest, place, seconds)
        counts = np.bincount(place, minlength=rows)
        totals = np.bincount(place, weights=seconds, minlength=rows)
        errors = np.bincount(place, weights=calls.failed, minlength=rows)
        for row, (begin, role, number) in enumerate(found.T.tolist()):
            sums = self._sums.setdefault((begin, str(roles[role]), number), [0, 0.0, 0.0, 0])
            sums[0] += int(counts[row])
            sums[1] += float(totals[row])
            sums[2] = max(sums[2], float(longest[row]))
            sums[3] += int(errors[row])

    def columns(self, machine: str) -> dict[str, Any]:
        """The `syscalls` table."""
        ordered = sorted(self._sums.items())
        return {
            "t_ns": np.array([key[0] * self._bin_ns for key, _ in ordered], np.int64),
            "role": [key[1] for key, _ in ordered],
            "name": [name(machine, key[2]) for key, _ in ordered],
            "count": np.array([sums[0] for _, sums in ordered], np.int64),
            "total_s": np.array([sums[1] for _, sums in ordered], np.float64),
            "max_s": np.array([sums[2] for _, sums in ordered], np.float64),
            "errors": np.array([sums[3] for _, sums in ordered], np.int64),
        }
