"""What stands between a process and the device: filter, limits, network, an engine that takes the output."""

from __future__ import annotations

from typing import ClassVar

from tare.base.text import size_text
from tare.parts.causes.cpu import stopped_s
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


_LIMITS = ("memlock", "nofile", "nproc", "stack")


class Ulimits(Cause):
    """Limits of a process: pinned memory needs locked pages, and a loader with many files needs descriptors."""

    title: ClassVar[str] = "a limit of the process (ulimit)"
    phases: ClassVar[frozenset[str]] = frozenset({"data", "gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        lower = [name for name in _LIMITS if _soft(slow, name) < _soft(quick, name)]
        if not lower:
            return RuledOut("no limit of the process is lower than on the other side.")
        told = ", ".join(f"{name} {_soft(slow, name):g} instead of {_soft(quick, name):g}" for name in lower)
        own = slow.fields.get("ulimits") or {}
        set_here = [name for name in lower if name in own]
        kept = {name: value for name, value in own.items() if name not in set_here}
        return Suspicion(
            weight=0.55 if set_here else 0.4,
            evidence=f"{told}.",
            without={"ulimits": kept or None} if set_here else None,
            added={"ulimits": {name: own[name] for name in set_here}} if set_here else None,
            cure=" ".join(f"--ulimit {name}={_number(_soft(quick, name))}" for name in lower),
            untried="" if set_here else "these limits are not of this container's options (`ulimits`).",
        )


def _number(limit: float) -> int:
    return -1 if limit == float("inf") else int(limit)


def _soft(side: Side, name: str) -> float:
    found = side.facts.get(f"limits.{name}")
    value = found[0] if isinstance(found, (list, tuple)) and found else None
    value = (side.fields.get("ulimits") or {}).get(name, value)  # the option is the workload's, the fact its place's
    return float("inf") if value is None or value < 0 else float(value)


class Network(Cause):
    """The network namespace: a name look-up, or a library that calls home at import, waits until it times out."""

    title: ClassVar[str] = "the missing network"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        if slow.fields.get("network") == "host" or slow.platform == "bare":
            return RuledOut("it has the network of the device.")
        if slow.platform == quick.platform and slow.fields.get("network") == quick.fields.get("network"):
            return RuledOut("both sides have the same network.")
        if not slow.metrics:  # every container that tare makes is without one, and most programs need none
            return RuledOut("whether it waits for a network is seen only in a run.")
        waits, others = _waited_s(slow), _waited_s(quick)
        if waits < others + 0.5:
            return RuledOut("it does not wait longer than the other side.")
        return Suspicion(
            weight=0.4,
            evidence=f"it waited for {waits:.1f} s without using the CPU, {others:.1f} s on the other side.",
            without={"network": "host"},
            cure="--network host, or HF_HUB_OFFLINE=1, WANDB_MODE=offline",
        )


def _waited_s(side: Side) -> float:
    """How long it neither computed nor was stopped by its quota."""
    used = side.metrics.get("cpu_s", 0.0) + stopped_s(side)
    return max(0.0, side.metrics.get("wall_s", 0.0) - used)


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
