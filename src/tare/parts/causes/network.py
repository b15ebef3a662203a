"""Name look-ups that wait until they time out."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion


class Network(Cause):
    """The network namespace: a name look-up, or a library that calls home at import, waits until it times out."""

    title: ClassVar[str] = "the missing network"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        if slow.fields.get("network") == "host" or slow.platform == "bare":
            return RuledOut("it has the network of the device.")
        if slow.platform == quick.platform and slow.fields.get("network") == quick.fields.get("network"):
            return RuledOut("both sides have the same network.")
        waits, others = _waited_s(slow), _waited_s(quick)
        if slow.metrics and waits < others + 0.5:
            return RuledOut("it does not wait longer than the other side.")
        return Suspicion(
            weight=0.4 if slow.metrics else 0.1,
            evidence=f"it waited for {waits:.1f} s without using the CPU, {others:.1f} s on the other side."
            if slow.metrics
            else "it has no network but the loopback.",
            without={"network": "host"},
            cure="--network host, or HF_HUB_OFFLINE=1, WANDB_MODE=offline",
        )


def _waited_s(side: Side) -> float:
    """How long it neither computed nor was stopped by its quota."""
    used = side.metrics.get("cpu_s", 0.0) + side.metrics.get("cgroup_throttled_s", 0.0)
    return max(0.0, side.metrics.get("wall_s", 0.0) - used)
