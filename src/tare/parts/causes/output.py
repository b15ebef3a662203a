"""Heavy output that goes through the engine."""

from __future__ import annotations

from typing import ClassVar

from tare.base.text import size_text
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

ENGINES = ("docker", "podman")
MUCH_BYTES = 256 << 10


class Output(Cause):
    """What it prints: every line goes through the engine and its log driver before the program may go on."""

    title: ClassVar[str] = "its output, which goes through the engine"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        printed = slow.number("output.bytes") or 0.0
        if slow.platform not in ENGINES:
            return RuledOut("its output goes through no engine.")
        if slow.env("TARE_OUTPUT"):
            return RuledOut("its output goes to a file.")
        if printed < MUCH_BYTES:
            return RuledOut(f"it prints {size_text(printed) if printed else 'little'}.")
        return Suspicion(
            weight=0.6,
            evidence=f"it prints {size_text(printed)} or more in a run, through the engine.",
            without={"env": {"TARE_OUTPUT": "/dev/null"}},
            cure="less output (`> FILE` in the container, a progress bar that is off), or --log-driver none, "
            "--log-opt mode=non-blocking",
        )
