"""A small /dev/shm, through which DataLoader workers pass their batches."""

from __future__ import annotations

from typing import ClassVar

from tare.base.text import size_text
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

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
