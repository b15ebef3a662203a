"""The system-call filter, and the mitigation that older kernels switch on with it."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_BYPASS = "process.Speculation_Store_Bypass"


class Seccomp(Cause):
    """The seccomp filter: each system call is checked, and older kernels slow down all code that runs under one."""

    title: ClassVar[str] = "the seccomp filter"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        if str(slow.facts.get("process.Seccomp", "2")) == "0":
            return RuledOut("it runs without a filter.")
        if slow.platform == quick.platform and all(_of(slow)[key] == _of(quick)[key] for key in _of(slow)):
            return RuledOut("both sides have the same filter.")
        known = _BYPASS in slow.facts and _BYPASS in quick.facts
        mitigated = known and slow.facts[_BYPASS] != quick.facts[_BYPASS]
        calls = slow.metrics.get("system_calls_step") or slow.metrics.get("system_calls")
        own = slow.fields.get("seccomp_profile")
        evidence = f"speculative store bypass: {slow.facts.get(_BYPASS)}, {quick.facts.get(_BYPASS)} on the other side."
        if not mitigated:
            evidence = f"a filter of its own ({own})." if own else "Docker's default filter."
        return Suspicion(
            weight=0.8 if mitigated else 0.5 if own else 0.15 if calls else 0.1,
            evidence=evidence,
            without=_without(slow),
            cure="--security-opt seccomp=unconfined (or a newer kernel: spec_store_bypass_disable=prctl)",
        )


def _of(side: Side) -> dict[str, object]:
    return {
        "filter": side.facts.get("process.Seccomp"),
        "bypass": side.facts.get(_BYPASS),
        "own": side.fields.get("seccomp_profile"),
        "layers": str(side.fields.get("isolation")),
        "docker": side.fields.get("seccomp"),
    }


def _without(side: Side) -> dict[str, object] | None:
    """runc has layers, Docker a switch; other platforms cannot leave the filter away."""
    if side.platform == "runc":
        from tare.drivers.containers.isolation import USUAL

        layers = side.fields.get("isolation") or USUAL
        return {"isolation": [layer for layer in layers if layer != "seccomp"], "seccomp_profile": None}
    return {"seccomp": False} if side.platform == "docker" else None
