"""A low CPU weight beside a busy neighbour."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

USUAL = 1024


class CpuWeight(Cause):
    """The CPU weight: beside others who want the CPU too, a container of low weight waits."""

    title: ClassVar[str] = "the CPU weight beside busy neighbours"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        ours = float(slow.fields.get("cpu_shares") or slow.number("cgroup.cpu_shares") or USUAL)
        theirs = float(quick.fields.get("cpu_shares") or quick.number("cgroup.cpu_shares") or USUAL)
        if ours >= theirs:
            return RuledOut(f"its CPU weight of {ours:g} is not lower than the other side's.")
        waited, others = (side.metrics.get("wall_s", 0.0) - side.metrics.get("cpu_s", 0.0) for side in (slow, quick))
        waits = f"; without the CPU for {waited:.1f} s, {others:.1f} s on the other side" if slow.metrics else ""
        return Suspicion(
            weight=0.8 if waited > others else 0.3,
            evidence=f"a CPU weight of {ours:g}, {theirs:g} on the other side{waits}.",
            without={"cpu_shares": None},
            added={"cpu_shares": int(ours)},
            cure=f"--cpu-shares {theirs:.0f} (Kubernetes: raise requests.cpu)",
        )
