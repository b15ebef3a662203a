"""The image's own layers come from the disk, since the page cache does not hold them."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion


class ColdLayers(Cause):
    """A cold page cache: libraries and interpreter of an image are read from the disk, as after a pull or a reboot."""

    title: ClassVar[str] = "a cold page cache for the image's layers"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        if not slow.fields.get("image") and not slow.fields.get("dockerfile"):
            return RuledOut("it has no image: its files are the device's own.")
        if slow.fields.get("warm"):
            return RuledOut("the image's files were read before.")
        ours, theirs = (side.metrics.get("major_faults", 0.0) for side in (slow, quick))
        counted = "major_faults" in slow.metrics  # not of a command in an image without a Python
        if counted and ours <= theirs + 20:
            return RuledOut(f"{ours:.0f} pages came from the disk, {theirs:.0f} on the other side.")
        evidence = "the first container after a pull reads its files from the disk; how much it read is not known."
        return Suspicion(
            weight=0.6 if counted else 0.15,
            evidence=f"{ours:.0f} major faults, {theirs:.0f} on the other side." if counted else evidence,
            without={"warm": True},
            cure="run it once before, or read its files: "
            "docker run --rm IMAGE sh -c 'find / -xdev -type f -exec cat {} + > /dev/null'",
        )
