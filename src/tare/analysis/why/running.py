"""What may slow down a program that runs already, by what was read of it from outside, against thresholds.

There is no other side to compare with: these are suspects, of which `tare why -- docker run ...` gives the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tare.base.ledger import stopped_s
from tare.base.text import count_text, size_text

LEAST_SHARE = 0.02  # of the time: what stops it for less is no suspect
LEAST_WAIT = 0.1  # of the time in which it wanted a core
NEAR = 0.8  # of a limit
READS_A_SECOND = 1 << 20  # bytes from a disk
WRITES_A_SECOND = 1 << 20
FAULTS_A_SECOND = 10
IDLE_GPU = 0.7
_OFF = ("0", "", "false", "no", "off")
_SLOW_FILES = ("fuse", "9p", "virtiofs", "nfs", "cifs", "smb", "ceph")


@dataclass(frozen=True, slots=True)
class Found:
    """Something that may slow it down, what it may take of the time, and what to change."""

    name: str
    evidence: str
    change: str
    share: float = 0.0  # of the time, at the most; 0 where that is not known


def suspects(seen: Mapping[str, Any], costly: Mapping[str, str]) -> list[Found]:
    """The one that may take most of the time first; `costly`: variables that are known to cost, and what they do."""
    found = [*_cpu(seen), *_memory(seen), *_files(seen), *_limits(seen), *_other(seen)]
    variables = seen["facts"].get("variables") or {}
    found += [
        Found(name, f"{name}={variables[name]}: {what}.", f"without {name}")
        for name, what in costly.items()
        if variables.get(name, "0").lower() not in _OFF
    ]
    return sorted(found, key=lambda each: -each.share)


def _cpu(seen: Mapping[str, Any]) -> Iterator[Found]:
    """The quota, the wait for a core, more threads than cores."""
    seconds, spent, facts = seen["seconds"], seen["spent"], seen["facts"]
    quota, cores = (facts.get("cgroup") or {}).get("cpu_quota_cores"), facts["cores"]
    periods = seen["counted"].get("nr_throttled", 0.0)
    stopped = stopped_s({"cgroup_throttled_s": spent.get("throttled", 0.0), "cgroup_nr_throttled": periods})
    share = min(1.0, stopped / seconds)
    if quota and share >= LEAST_SHARE:
        used = math.floor(quota) + 1
        yield Found(
            "the CPU quota",
            f"a quota of {quota:g} cores stopped it in {periods:.0f} periods, at most {share:.0%} of the time.",
            f"--cpus {used}, or none",
            share,
        )
    ran, queued = spent.get("user", 0.0) + spent.get("system", 0.0), spent.get("queue", 0.0)
    # The kernel counts a thread that the quota stops as one that waits for a core.
    waited = max(0.0, queued - share * (ran + queued))
    wanted = waited / (ran + queued) if ran + queued > 0 else 0.0
    usable = min(quota or math.inf, cores)
    if wanted >= LEAST_WAIT and ran + queued >= LEAST_SHARE * seconds:
        yield Found(
            "the wait for a core",
            f"its threads ran for {ran:.1f} s, and were ready but waited for a core for {waited:.1f} s: "
            + (
                "other programs use the cores." if facts["threads"] <= usable else "they are many, or others use these."
            ),
            "fewer programs beside it, other cores (--cpuset-cpus), or a higher --cpu-shares",
            wanted * min(1.0, (ran + queued) / seconds),
        )
    if facts["threads"] > 2 * math.ceil(usable) and (share >= LEAST_WAIT or wanted >= LEAST_WAIT):
        yield Found(
            "the number of threads",
            f"{facts['threads']} threads on {usable:g} cores, which wait for them.",
            f"-e OMP_NUM_THREADS={max(1, math.floor(usable))}, or the program's own option",
            max(share, wanted) / 2,
        )


def _memory(seen: Mapping[str, Any]) -> Iterator[Found]:
    facts, counted = seen["facts"], seen["counted"]
    limit = (facts.get("cgroup") or {}).get("memory_limit_bytes")
    again = counted.get("refaults", 0.0) / seen["seconds"]
    if limit and (counted.get("limit_hits", 0.0) > 0 or again >= FAULTS_A_SECOND):
        held = size_text(facts["memory"]) if facts.get("memory") else "all"
        yield Found(
            "the memory limit",
            f"{held} of {size_text(limit)} is used, with the page cache; it was at the limit "
            f"{counted.get('limit_hits', 0.0):.0f} times, and {again:.0f} pages were read again per second.",
            "-m SIZE: more memory, or no limit",
            min(1.0, seen["spent"].get("pressure.memory", 0.0) / seen["seconds"]),
        )


def _files(seen: Mapping[str, Any]) -> Iterator[Found]:
    facts, counted, seconds = seen["facts"], seen["counted"], seen["seconds"]
    reads, faults = (counted.get(name, 0.0) / seconds for name in ("read_bytes", "major_faults"))
    if reads >= READS_A_SECOND or faults >= FAULTS_A_SECOND:
        yield Found(
            "reads from a disk",
            f"it reads {size_text(reads)} per second from a disk; {faults:.0f} page faults per second wait for it.",
            "data that fits into memory or lies on a faster disk; a limit of reads (--device-read-bps) taken away",
            min(1.0, seen["spent"].get("pressure.io", 0.0) / seconds),
        )
    slow = {kind: count for kind, count in facts["file_systems"].items() if kind.startswith(_SLOW_FILES)}
    for kind, count in slow.items():
        yield Found(
            "the file system of its files",
            f"{count_text(count, 'open file')} of it {'lies' if count == 1 else 'lie'} on {kind}.",
            "a copy on a local disk: -v FOLDER:FOLDER",
        )
    writes = counted.get("wchar", 0.0) / seconds
    if writes >= WRITES_A_SECOND:
        yield Found(
            "what it writes",
            f"it writes {size_text(writes)} per second: output, files or sockets.",
            "less output, `> FILE` in the container, or --log-driver local",
        )


def _limits(seen: Mapping[str, Any]) -> Iterator[Found]:
    facts = seen["facts"]
    most = (facts.get("limits") or {}).get("nofile", [-1])[0]
    for name, used, limit, option in (
        ("the limit of open files", facts.get("open_files"), most, "--ulimit nofile"),
        ("the limit of processes", facts.get("tasks"), facts.get("tasks_limit"), "--pids-limit"),
    ):
        if used and limit and limit > 0 and used >= NEAR * limit:
            yield Found(name, f"{used:.0f} of {limit:.0f} are used.", f"{option}={4 * int(limit)}")


def _other(seen: Mapping[str, Any]) -> Iterator[Found]:
    facts = seen["facts"]
    for name, busy in (facts.get("gpus") or {}).items():
        if busy is not None and busy < IDLE_GPU:
            yield Found(
                "a GPU that waits",
                f"{name} was busy for {busy:.0%} of the last moment: what feeds it is slower.",
                "look at the CPU's suspects first; more workers of the data loader",
            )
    bypass = str((facts.get("process") or {}).get("Speculation_Store_Bypass", ""))
    if bypass.startswith("thread") and "mitigated" in bypass:
        yield Found(
            "the speculative store bypass mitigation",
            "the kernel has switched it on for this process, as older kernels do under seccomp.",
            "a newer kernel, or spec_store_bypass_disable=prctl on its command line",
        )
