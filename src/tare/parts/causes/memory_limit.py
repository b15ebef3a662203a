"""A memory limit that makes the kernel reclaim pages, or swap."""

from __future__ import annotations

import math
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
        if float(limit) >= (slow.number("device.memory_bytes") or math.inf):
            return RuledOut(f"its limit of {held} is more than the device has.")
        faults, before = (side.metrics.get("major_faults", 0.0) for side in (slow, quick))
        peak = slow.metrics.get("max_rss_bytes")
        tight = peak is not None and peak > 0.7 * float(limit)
        read = f"{faults:.0f} major faults, {before:.0f} on the other side"
        if slow.metrics and not tight and faults <= before + 10:
            # Files that are read by calls leave no faults: whether their pages were reclaimed cannot be seen.
            read = "the page cache counts towards it, and what is read again is not counted"
        return Suspicion(
            weight=0.8 if faults > 2 * before + 10 else 0.4 if tight or not slow.metrics else 0.3,
            evidence=f"a limit of {held}; {read}.",
            without={"memory": None},
            added={"memory": int(float(limit))},
            cure="more memory: -m SIZE, or no limit (the page cache counts towards it)",
        )
