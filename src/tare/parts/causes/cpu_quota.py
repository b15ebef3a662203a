"""A CPU quota that is lower than what the work needs."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.causes.threads import cores_text, throttled_share
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion


class CpuQuota(Cause):
    """The CPU quota: whoever has used it up stands still until the next period of 0.1 s."""

    title: ClassVar[str] = "the CPU quota"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        quota = slow.fields.get("quota") or slow.number("cgroup.cpu_quota_cores")
        if quota is None:
            return RuledOut("it has no CPU quota.")
        if quota == (quick.fields.get("quota") or quick.number("cgroup.cpu_quota_cores")):
            return RuledOut(f"both sides have a quota of {cores_text(float(quota))}.")
        periods, share = slow.metrics.get("cgroup_nr_throttled", 0.0), throttled_share(slow)
        if slow.metrics and not periods:
            return RuledOut(f"its quota of {cores_text(float(quota))} was never used up.")
        stopped = f", throttled in {periods:.0f} periods ({share:.0%} of the run)" if periods else ""
        return Suspicion(
            weight=0.85 if share > 0.01 else 0.3,
            evidence=f"a quota of {cores_text(float(quota))}{stopped}.",
            without={"quota": None},
            added={"quota": quota},
            cure="more CPU: --cpus N, or no quota (Kubernetes: raise or remove limits.cpu)",
        )
