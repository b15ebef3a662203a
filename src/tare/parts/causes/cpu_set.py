"""Fewer cores, or other ones, than the other side may use."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_NODES = "process.Mems_allowed_list"


class CpuSet(Cause):
    """The cores that it may run on: fewer of them, or on another NUMA node."""

    title: ClassVar[str] = "the cores that it may run on"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        ours, theirs = (str(side.facts.get("process.Cpus_allowed_list") or "") for side in (slow, quick))
        pinned = slow.fields.get("cpuset") or ours
        if slow.fields.get("cpuset") == quick.fields.get("cpuset") and (ours == theirs or not ours):
            return RuledOut("both sides may run on the same cores.")
        nodes = {side.facts[_NODES] for side in (slow, quick) if _NODES in side.facts}
        return Suspicion(
            weight=0.7,
            evidence=f"it may run on the cores {pinned} only" + (", of another NUMA node." if len(nodes) > 1 else "."),
            without={"cpuset": None},
            added={"cpuset": pinned},
            cure="more cores: --cpuset-cpus 0-N, or none",
        )
