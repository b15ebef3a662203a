"""Memory: its limit, the size of /dev/shm, the allocator."""

from __future__ import annotations

import math
from typing import ClassVar

from tare.base.text import size_text
from tare.parts.causes.variables import ALLOCATION, suspected_variables
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


DOCKERS_OWN = 64 << 20


class SharedMemory(Cause):
    """The size of /dev/shm: Docker's default of 64 MB is full with a few batches of images."""

    title: ClassVar[str] = "the size of /dev/shm"
    phases: ClassVar[frozenset[str]] = frozenset({"data", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        ours, theirs = (side.fields.get("shm") or side.number("shm.bytes") for side in (slow, quick))
        if ours is None:
            return RuledOut("the size of its /dev/shm is not known.")
        if ours == theirs:
            return RuledOut(f"/dev/shm has {size_text(float(ours))} on both sides.")
        if float(ours) > 4 * DOCKERS_OWN and (theirs is None or float(ours) >= theirs / 4):
            return RuledOut(f"/dev/shm has {size_text(float(ours))}.")
        large = int(theirs or (8 << 30))
        return Suspicion(
            weight=0.6 if float(ours) <= DOCKERS_OWN else 0.2,
            evidence=f"/dev/shm has {size_text(float(ours))}"
            + (f", {size_text(float(theirs))} on the other side." if theirs else "."),
            without={"shm": large},
            cure="--shm-size 8g, or --ipc host",
        )


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
