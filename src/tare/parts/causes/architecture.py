"""An image of another architecture, run by an emulator."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_SAME = {"amd64": "x86_64", "arm64": "aarch64"}


class Architecture(Cause):
    """The image's architecture: one that this CPU does not have is emulated, ten times slower and more."""

    title: ClassVar[str] = "the image's architecture"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        ours, theirs = (str(side.facts.get("machine") or "") for side in (slow, quick))
        ours, theirs = _SAME.get(ours, ours), _SAME.get(theirs, theirs)
        if not ours or not theirs:
            return RuledOut("the architecture of a side is not known.")
        if ours == theirs:
            return RuledOut(f"both sides run code for {ours}.")
        return Suspicion(
            weight=1.0,
            evidence=f"the image is for {ours}, this device is {theirs}: its code is emulated.",
            cure=f"--platform linux/{ {v: k for k, v in _SAME.items()}.get(theirs, theirs) }",
            untried="there is no image of the other architecture to try.",
        )
