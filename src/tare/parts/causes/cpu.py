"""The CPU: threads for more cores than it may use, a quota, a set of cores, a low weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import ClassVar

from tare.base import ledger
from tare.base.command_words import options_in
from tare.parts.causes.variables import POOLS, THREAD_OPTION, suspected_arguments, suspected_variables
from tare.parts.protocols import Cause, Json, Known, NotLooked, RuledOut, Side, Suspicion, unseen

_LLAMA = {"-t": "--threads", "-tb": "--threads-batch"}  # short forms, in programs of llama.cpp's own
# Servers, the names of their options, and the share of the host's cores that each takes by default.
_BY_DEFAULT: Mapping[str, Mapping[str, float]] = {
    "llama_cpp.server": {"--n_threads": 0.5, "--n_threads_batch": 1.0},
    "llama-server": {"--threads": 1.0},
}


class Threads(Cause):
    """More threads than cores: pools are sized by the host's cores, and a quota then stops them all at once."""

    title: ClassVar[str] = "the number of threads"
    spends: ClassVar[frozenset[str]] = frozenset({"cpu", "user", "system", "queue", "throttled", "off"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        cores = slow.cores
        given, enough = thread_options(slow), max(1, math.ceil(cores or 1))
        same = thread_options(quick)
        too_many = {n: count for n, count in given.items() if count > enough and same.get(n) == count}
        found = [
            suspected_arguments(slow, quick, _differing(slow, quick, cores)),
            suspected_variables(slow, quick, _table(slow, cores)),
            None if cores is None else _too_many(slow, cores, too_many),
        ]
        if held := [each for each in found if isinstance(each, Suspicion)]:
            return reduce(_both, held)
        if cores is None:
            return NotLooked("how many cores it may use is not known.")
        counted = threads = slow.number("torch.threads")
        if threads is None and given and _known(slow):
            threads = float(max(given.values()))
        if threads is None:
            named = [float(value) for name in POOLS if (value := slow.env(name)) and value.isdigit()]
            # What a library takes that asks for the host's cores.
            threads = max(named) if named else slow.number("place.host_cores")
        if threads is None:
            return NotLooked("how many threads it has was not counted.")
        if threads <= enough:
            missing = next((each for each in found if isinstance(each, NotLooked)), None)
            return missing or RuledOut(f"{threads:.0f} threads on {cores_text(cores)}.")
        fixed = {name: str(max(1, math.floor(cores))) for name in POOLS}
        share = throttled_share(slow)
        return Suspicion(
            guess=counted is None,
            weight=(0.9 if share else 0.6) if counted else 0.3,
            evidence=f"{threads:.0f} threads{'' if counted else ' (not counted)'} on {cores_text(cores)}"
            f"{_stopped(slow)}.",
            without={"env": fixed},
            cure=f"-e OMP_NUM_THREADS={fixed['OMP_NUM_THREADS']}",
        )


def thread_options(side: Side) -> dict[str, int]:
    """Options of the command line that are a number of threads; of known servers also those that are not given."""
    words = side.words()
    options = options_in(words)
    llama = any(word.rpartition("/")[2].startswith("llama-") for word in words[:3])
    found = {
        name: int(value)
        for name, value in options.items()
        if value.isdigit() and (THREAD_OPTION.fullmatch(name) or (llama and name in _LLAMA))
    }
    if (host := side.number("place.host_cores")) is not None:
        present = {_LLAMA.get(name, name) for name in options}
        defaults = {name: max(1, int(share * host)) for name, share in _known(side).items()}
        found |= {name: count for name, count in defaults.items() if name not in present}
    return found


def _known(side: Side) -> Mapping[str, float]:
    """Options of a server that looks at nothing else, and what each takes of the host's cores by default."""
    names = {word.rpartition("/")[2] for word in side.words()}
    return next((defaults for program, defaults in _BY_DEFAULT.items() if program in names), {})


def _too_many(slow: Side, cores: float, options: Mapping[str, int]) -> Suspicion | None:
    """Options that give more threads than cores, whatever the other side has, which may have more cores."""
    if not options:
        return None
    given = options_in(slow.words())
    wanted = {name: str(max(1, math.floor(cores))) for name in options}
    told = ", ".join(f"{name} {count}{'' if name in given else ' by default'}" for name, count in options.items())
    counted = slow.number("served.threads")
    seen = f" ({counted:.0f} threads were seen at once)" if counted else ""
    return Suspicion(
        weight=0.95,
        evidence=f"{told}, on {cores_text(cores)}{seen}{_stopped(slow)}.",
        without={"arguments": wanted},
        cure=" ".join(f"{name} {value}" for name, value in wanted.items()),
    )


def _differing(slow: Side, quick: Side, cores: float | None) -> dict[str, tuple[str, float]]:
    ours, theirs = thread_options(slow), thread_options(quick)
    found = {}
    for name in dict.fromkeys((*ours, *theirs)):
        over = cores is not None and ours.get(name, 0) > math.ceil(cores)
        found[name] = ("threads" if cores is None else f"threads, on {cores_text(cores)}", 0.95 if over else 0.6)
    return found


def _both(one: Suspicion, other: Suspicion) -> Suspicion:
    """As one: of an option that both name, what the first has."""
    return Suspicion(
        weight=max(one.weight, other.weight),
        evidence=f"{one.evidence.rstrip('.')}; {other.evidence}",
        without=_merged(other.without, one.without),
        added=_merged(other.added, one.added),
        cure=f"{one.cure} {other.cure}",
    )


def _merged(*changes: Mapping[str, Json] | None) -> dict[str, Json] | None:
    given = [each for each in changes if each]
    names = dict.fromkeys(name for each in given for name in each)
    return {name: {n: v for each in given for n, v in each.get(name, {}).items()} for name in names} or None


def _table(slow: Side, cores: float | None) -> dict[str, tuple[str, float]]:
    """Variables of pools with as many threads on one side only: too many for the cores, or fewer than there are."""
    found = {}
    for name in POOLS:
        value = slow.env(name) or ""
        if value.isdigit() and cores is not None:
            found[name] = (f"threads, on {cores_text(cores)}", 0.9 if int(value) > math.ceil(cores) else 0.6)
        else:
            found[name] = ("threads", 0.5)
    return found


def cores_text(cores: float) -> str:
    return f"{cores:g} core" if cores == 1 else f"{cores:g} cores"


def _stopped(side: Side) -> str:
    share = throttled_share(side)
    return f", throttled for at most {share:.0%} of the run" if share else ""


def throttled_share(side: Side) -> float:
    """The share of the run that it was stopped by its quota, at the most."""
    wall = side.metrics.get("wall_s", 0.0)
    return min(1.0, stopped_s(side) / wall) if wall > 0 else 0.0


def stopped_s(side: Side) -> float:
    """How long its quota stopped it, at the most; with another period than usual, if one was found inside."""
    return ledger.stopped_s(side.metrics, side.number("cgroup.cpu_period_s") or ledger.PERIOD_S)


class CpuQuota(Cause):
    """The CPU quota: whoever has used it up stands still until the next period of 0.1 s."""

    title: ClassVar[str] = "the CPU quota"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})
    spends: ClassVar[frozenset[str]] = frozenset({"throttled", "queue", "off"})
    option: ClassVar[str] = "quota"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        quota = slow.fields.get("quota") or slow.number("cgroup.cpu_quota_cores")
        if quota is None:
            return unseen(slow.seen("cgroup.cpu_quota_cores")) or RuledOut("it has no CPU quota.")
        if quota == (quick.fields.get("quota") or quick.number("cgroup.cpu_quota_cores")):
            return RuledOut(f"both sides have a quota of {cores_text(float(quota))}.")
        periods, share = slow.metrics.get("cgroup_nr_throttled"), throttled_share(slow)
        if periods == 0:
            return RuledOut(f"its quota of {cores_text(float(quota))} was never used up.")
        stopped = f", throttled in {periods:.0f} periods (at most {share:.0%} of the run)" if periods else ""
        return Suspicion(
            weight=0.85 if periods else 0.3,
            evidence=f"a quota of {cores_text(float(quota))}{stopped}.",
            without={"quota": None},
            added={"quota": quota},
            cure=f"--cpus {_cores_used(quick, float(quota))}",
        )


def _cores_used(quick: Side, quota: float) -> int:
    """Whole cores that hold what the other side used, and more than the quota: at most what the host has."""
    wall_s = quick.metrics.get("wall_s", 0.0)
    used = quick.metrics.get("cpu_s", 0.0) / wall_s if wall_s > 0 else 0.0
    wanted = max(math.floor(quota) + 1, math.ceil(used))
    host = quick.number("place.host_cores")
    return wanted if host is None else min(wanted, max(1, math.floor(host)))


_NODES = "process.Mems_allowed_list"


class CpuSet(Cause):
    """The cores that it may run on: fewer of them, or on another NUMA node."""

    title: ClassVar[str] = "the cores that it may run on"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})
    option: ClassVar[str] = "cpuset"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        ours, theirs = (side.seen("process.Cpus_allowed_list") for side in (slow, quick))
        pinned = slow.fields.get("cpuset") or (ours.value if isinstance(ours, Known) else "")
        if slow.fields.get("cpuset") == quick.fields.get("cpuset"):
            if missing := unseen(ours, theirs):
                return missing
            if ours == theirs:
                return RuledOut("both sides may run on the same cores.")
        nodes = {side.facts[_NODES] for side in (slow, quick) if _NODES in side.facts}
        return Suspicion(
            weight=0.7,
            evidence=f"it may run on the cores {pinned} only" + (", of another NUMA node." if len(nodes) > 1 else "."),
            without={"cpuset": None},
            added={"cpuset": pinned},
            cure="more cores: --cpuset-cpus 0-N, or none",
        )


USUAL = 1024


class CpuWeight(Cause):
    """The CPU weight: beside others who want the CPU too, a container of low weight waits."""

    title: ClassVar[str] = "the CPU weight beside busy neighbours"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})
    spends: ClassVar[frozenset[str]] = frozenset({"queue", "off"})
    option: ClassVar[str] = "cpu_shares"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        ours = float(slow.fields.get("cpu_shares") or slow.number("cgroup.cpu_shares") or USUAL)
        theirs = float(quick.fields.get("cpu_shares") or quick.number("cgroup.cpu_shares") or USUAL)
        if ours >= theirs:
            return RuledOut(f"its CPU weight of {ours:g} is not lower than the other side's.")
        spent = [side.spent() for side in (slow, quick)]
        waited, others = (each.get("queue", each.get("off", 0.0)) for each in spent)
        known = all("queue" in each for each in spent)
        waits = f"; it waited for a core for {waited:.1f} s, {others:.1f} s on the other side" if known else ""
        return Suspicion(
            weight=0.8 if waited > others else 0.3,
            evidence=f"a CPU weight of {ours:g}, {theirs:g} on the other side{waits}.",
            without={"cpu_shares": None},
            added={"cpu_shares": int(ours)},
            cure=f"--cpu-shares {theirs:.0f} (Kubernetes: raise requests.cpu)",
        )


_BESIDE = "beside.cpu_s."


class OtherProcesses(Cause):
    """Other processes in the container: what its entry point starts in the background uses the same cores."""

    title: ClassVar[str] = "another process in the container"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})
    spends: ClassVar[frozenset[str]] = frozenset({"cpu", "user", "system", "queue", "throttled", "off"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        if missing := unseen(slow.seen("beside.looked"), quick.seen("beside.looked")):
            return missing
        used = {key.removeprefix(_BESIDE): value for key, value in slow.facts.items() if key.startswith(_BESIDE)}
        used = {name: cpu_s for name, cpu_s in used.items() if f"{_BESIDE}{name}" not in quick.facts}
        if not used:
            return RuledOut("no other process that either side started used the CPU.")
        told = ", ".join(f"{name} used {cpu_s:.1f} s of CPU time" for name, cpu_s in used.items())
        return Suspicion(
            weight=0.8,
            evidence=f"{told} beside it, and was still there when it had ended.",
            without={"env": {"TARE_STOPPED": "/".join(used)}},  # no name has a slash
            cure=f"an entry point, or a command, that does not start {', '.join(used)}",
        )
