"""System calls counted from their entries and exits: how many, how long, how many failed, by role and over time.

A call is counted when it is entered, in the bin of that moment. Its time is known once it has returned: exit_group
never does, and a call that still waits when the trace ends has none either.

Names of system calls by their number, which differs between architectures.

`syscall_numbers/<machine>.txt` was made from asm/unistd.h of linux-libc-dev 6.1 (arm64, amd64, armhf; `gcc -E -dM`);
calls from 451 on came later and have one number everywhere. A file is called as `uname -m` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tare.traces.decode import pieces
from tare.traces.recording import Recording
from tare.traces.roles import Roles

_SAME = {"arm64": "aarch64", "amd64": "x86_64", "armv8l": "armv7l", "armv6l": "armv7l"}


@cache
def names(machine: str) -> dict[int, str]:
    """Number to name on this architecture; empty for one that has no list here."""
    try:
        text = (files("tare.traces") / "syscall_numbers" / f"{_SAME.get(machine, machine)}.txt").read_text()
    except FileNotFoundError:
        return {}
    pairs = (line.split() for line in text.splitlines())
    return {int(number): name for number, name in pairs}


def name(machine: str, number: int) -> str:
    """What the call is named; a number that is not in the list is shown as a number."""
    return names(machine).get(number, f"#{number}")


def number(machine: str, called: str) -> int | None:
    """The reverse of `name`; None where the list does not have it."""
    return next((known for known, name in names(machine).items() if name == called), None)


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
        # An entry behind which another entry comes has lost its exit; it is counted anyway.
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


_KEPT_NS = 10_000_000_000  # a task's past is kept this long, for calls that take long to return


def syscall_columns(recording: Recording, machine: str, bin_ns: int) -> dict[str, Any]:
    """Calls by bin, role and name; memory is bounded by a piece of the trace and by the size of the table."""
    roles, pairing, tally = Roles(recording.roles), Pairing(), Tally(bin_ns)
    for piece in pieces(recording.sources, recording.layout, recording.formats):
        events = {one.format.name: one.columns for one in piece}
        roles.learn(events)
        tally.add(pairing.add(events.get("sys_enter"), events.get("sys_exit")), roles.of)
        last_ns = max((int(columns["t_ns"][-1]) for columns in events.values()), default=0)
        roles.forget_before(last_ns - _KEPT_NS)
    tally.add(pairing.rest(), roles.of)
    return tally.columns(machine)
