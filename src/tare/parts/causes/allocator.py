"""Another memory allocator, or other settings of it."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.causes.variables import ALLOCATION, suspected_variables
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion


class Allocator(Cause):
    """How memory is allocated: a tensor that is mapped and returned in every step costs a page fault per 4 KiB."""

    title: ClassVar[str] = "the memory allocator"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        found = suspected_variables(slow, quick, ALLOCATION)
        if found is not None:
            return found
        ours, theirs = (side.metrics.get("minor_faults", 0.0) for side in (slow, quick))
        if ours > 1.5 * theirs + 10_000 and slow.facts.get("libc") == quick.facts.get("libc"):
            fixed = {"MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_MMAP_THRESHOLD_": "4294967296"}
            return Suspicion(
                weight=0.5,
                evidence=f"{ours:,.0f} page faults, {theirs:,.0f} on the other side.",
                without={"env": fixed},
                cure=" ".join(f"-e {name}={value}" for name, value in fixed.items()),
            )
        return RuledOut("allocator settings and page faults are the same on both sides.")
