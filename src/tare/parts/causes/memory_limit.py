"""A memory limit that makes the kernel reclaim pages, or swap."""

from __future__ import annotations

from typing import ClassVar

from tare.base.text import size_text
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion


class MemoryLimit(Cause):
    """The memory limit: the page cache counts, and what is reclaimed has to be read again."""

    title: ClassVar[str] = "the memory limit"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        limit = slow.number("cgroup.memory_limit_bytes") or slow.fields.get("memory")
        if not limit:
            return RuledOut("it has no memory limit.")
        held = size_text(float(limit))
        if limit == (quick.number("cgroup.memory_limit_bytes") or quick.fields.get("memory")):
            return RuledOut(f"both sides have a limit of {held}.")
        faults, before = (side.metrics.get("major_faults", 0.0) for side in (slow, quick))
        peak = slow.metrics.get("max_rss_bytes")
        tight = peak is not None and peak > 0.7 * float(limit)
        if slow.metrics and not tight and faults <= before + 10:
            return RuledOut(f"its limit of {held} was not reached, and nothing was read again.")
        return Suspicion(
            weight=0.8 if faults > 2 * before + 10 else 0.4,
            evidence=f"a limit of {held}; {faults:.0f} major faults; {before:.0f} on the other side.",
            without={"memory": None},
            added={"memory": int(float(limit))},
            cure="more memory: -m SIZE, or no limit (the page cache counts towards it)",
        )
