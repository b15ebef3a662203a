"""A limit on what it may read and write of a disk."""

from __future__ import annotations

from typing import ClassVar

from tare.base.text import size_text
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion


class IoLimit(Cause):
    """The I/O limit: what is not in the page cache is read no faster than it allows."""

    title: ClassVar[str] = "the I/O limit"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        rate = slow.fields.get("io_rate")
        if not rate or rate == quick.fields.get("io_rate"):
            return RuledOut("no limit on its reads and writes is known.")
        waited, others = (side.metrics.get("wall_s", 0.0) - side.metrics.get("cpu_s", 0.0) for side in (slow, quick))
        waits = f"; it waited for {waited:.1f} s, {others:.1f} s on the other side" if slow.metrics else ""
        return Suspicion(
            weight=0.8 if waited > others + 0.1 else 0.3,
            evidence=f"it may read and write {size_text(float(rate))} of a disk in a second{waits}.",
            without={"io_rate": None},
            added={"io_rate": int(rate)},
            cure="no --device-read-bps, --device-write-bps, or higher ones (--device-read-bps /dev/DISK:RATE)",
        )
