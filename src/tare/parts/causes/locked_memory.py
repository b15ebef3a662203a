"""Limits of a process: locked memory, open files."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_LIMITS = {"memlock": "--ulimit memlock=-1", "nofile": "--ulimit nofile=65536", "stack": "--ulimit stack=-1"}


class LockedMemory(Cause):
    """Limits of a process: pinned memory needs locked pages, and a loader with many files needs descriptors."""

    title: ClassVar[str] = "a limit of the process (ulimit)"
    phases: ClassVar[frozenset[str]] = frozenset({"data", "gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        lower = [name for name in _LIMITS if _soft(slow, name) < _soft(quick, name)]
        if not lower:
            return RuledOut("no limit of the process is lower than on the other side.")
        told = ", ".join(f"{name} {_soft(slow, name):g} instead of {_soft(quick, name):g}" for name in lower)
        return Suspicion(
            weight=0.4,
            evidence=f"{told}.",
            cure=" ".join(_LIMITS[name] for name in lower),
            untried="limits of processes cannot be set for one side.",
        )


def _soft(side: Side, name: str) -> float:
    found = side.facts.get(f"limits.{name}")
    value = found[0] if isinstance(found, (list, tuple)) and found else None
    return float("inf") if value is None or value < 0 else float(value)
