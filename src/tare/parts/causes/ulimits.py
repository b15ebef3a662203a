"""Limits of a process: locked memory, open files."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_LIMITS = ("memlock", "nofile", "nproc", "stack")


class Ulimits(Cause):
    """Limits of a process: pinned memory needs locked pages, and a loader with many files needs descriptors."""

    title: ClassVar[str] = "a limit of the process (ulimit)"
    phases: ClassVar[frozenset[str]] = frozenset({"data", "gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        lower = [name for name in _LIMITS if _soft(slow, name) < _soft(quick, name)]
        if not lower:
            return RuledOut("no limit of the process is lower than on the other side.")
        told = ", ".join(f"{name} {_soft(slow, name):g} instead of {_soft(quick, name):g}" for name in lower)
        own = slow.fields.get("ulimits") or {}
        set_here = [name for name in lower if name in own]
        kept = {name: value for name, value in own.items() if name not in set_here}
        return Suspicion(
            weight=0.55 if set_here else 0.4,
            evidence=f"{told}.",
            without={"ulimits": kept or None} if set_here else None,
            added={"ulimits": {name: own[name] for name in set_here}} if set_here else None,
            cure=" ".join(f"--ulimit {name}={_number(_soft(quick, name))}" for name in lower),
            untried="" if set_here else "these limits are not of this container's options (`ulimits`).",
        )


def _number(limit: float) -> int:
    return -1 if limit == float("inf") else int(limit)


def _soft(side: Side, name: str) -> float:
    found = side.facts.get(f"limits.{name}")
    value = found[0] if isinstance(found, (list, tuple)) and found else None
    value = (side.fields.get("ulimits") or {}).get(name, value)  # the option is the workload's, the fact its place's
    return float("inf") if value is None or value < 0 else float(value)
