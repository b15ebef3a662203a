"""What a container puts around a process: its files, memory, filter, limits, network, and an engine that takes its
output.
"""

from __future__ import annotations

import math
from typing import ClassVar

from tare.base.text import size_text
from tare.parts.causes.variables import env_cure, suspected_variables
from tare.parts.knowledge import variables
from tare.parts.protocols import Cause, Json, Known, NotLooked, Observation, RuledOut, Side, Suspicion, unseen

_SLOW = {"fuse": 0.7, "fuse.": 0.7, "9p": 0.8, "virtiofs": 0.6, "nfs": 0.6, "nfs4": 0.6, "cifs": 0.6, "overlay": 0.2}
_PLACES = {
    "work": "the working folder lies",
    "tmp": "temporary files lie",
    "data": "the data that its command names lies",
    "python": "Python's modules lie",
}


_ALLOWED = "--set platform.allow_network=true"


class RootFiles(Cause):
    """The container's file system: small files through an overlay, a FUSE mount, or a share of another machine."""

    title: ClassVar[str] = "the container's file system"
    spends: ClassVar[frozenset[str]] = frozenset({"system", "wait", "off"})
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        kinds = {name: (slow.seen(f"file_system.{name}"), quick.seen(f"file_system.{name}")) for name in _PLACES}
        not_seen = unseen(*(each for name in ("work", "tmp") for each in kinds[name]))
        differing = {
            name: (one.value, other.value)
            for name, (one, other) in kinds.items()
            if isinstance(one, Known) and isinstance(other, Known) and one != other
        }
        folders = slow.variable("TMPDIR"), quick.variable("TMPDIR")
        ours, theirs = slow.env("TMPDIR"), quick.env("TMPDIR")
        if unseen(*folders):
            ours = theirs = None
        if not differing and ours == theirs:
            return (
                not_seen
                or unseen(*folders)
                or RuledOut("working folder and temporary files lie on the same kinds of file system.")
            )
        weights = [
            weight for kind, _ in differing.values() for start, weight in _SLOW.items() if str(kind).startswith(start)
        ]
        told = [f"{_PLACES[name]} on {ours}, {theirs} on the other side" for name, (ours, theirs) in differing.items()]
        if ours == theirs:
            return Suspicion(
                weight=max(weights, default=0.2),
                evidence=f"{'; '.join(told)}.",
                cure="-v FOLDER:FOLDER for the data, or --tmpfs /tmp",
                untried="the file system of a container cannot be exchanged alone; see the layer `mounts`.",
            )
        told.append(f"temporary files go to {ours or '/tmp'}, to {theirs or '/tmp'} on the other side (TMPDIR)")
        return Suspicion(
            weight=max([*weights, 0.5]),
            evidence=f"{'; '.join(told)}.",
            without={"env": {"TMPDIR": theirs}},
            added={"env": {"TMPDIR": ours}},
            cure=env_cure({"TMPDIR": theirs}),
        )


class ColdLayers(Cause):
    """A cold page cache: libraries and interpreter of an image are read from the disk, as after a pull or a reboot."""

    title: ClassVar[str] = "a cold page cache for the image's layers"
    spends: ClassVar[frozenset[str]] = frozenset({"system", "wait", "off"})
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        if not slow.fields.get("image") and not slow.fields.get("dockerfile"):
            return RuledOut("it has no image: its files are the device's own.")
        if slow.fields.get("warm"):
            return RuledOut("the image's files were read before.")
        ours, theirs = (side.metrics.get("major_faults", 0.0) for side in (slow, quick))
        counted = "major_faults" in slow.metrics  # not of a command in an image without a Python
        if counted and ours <= theirs + 20:
            return RuledOut(f"{ours:.0f} pages came from the disk, {theirs:.0f} on the other side.")
        evidence = "the first container after a pull reads its files from the disk; how much it read is not known."
        return Suspicion(
            guess=not counted,
            weight=0.6 if counted else 0.15,
            evidence=f"{ours:.0f} major faults, {theirs:.0f} on the other side." if counted else evidence,
            without={"warm": True},
            cure="run it once before, or read its files: "
            "docker run --rm IMAGE sh -c 'find / -xdev -type f -exec cat {} + > /dev/null'",
        )


class IoLimit(Cause):
    """The I/O limit: what is not in the page cache is read no faster than it allows."""

    title: ClassVar[str] = "the I/O limit"
    spends: ClassVar[frozenset[str]] = frozenset({"wait", "off"})
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "tail"})
    option: ClassVar[str] = "io_rate"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        rate = slow.fields.get("io_rate")
        if not rate or rate == quick.fields.get("io_rate"):
            return RuledOut("it was started without a limit on its reads and writes, or both sides with the same.")
        spent = [side.spent() for side in (slow, quick)]
        waited, others = (each.get("wait", 0.0) for each in spent)
        known = all("wait" in each for each in spent)
        waits = f"; it waited for {waited:.1f} s, {others:.1f} s on the other side" if known else ""
        return Suspicion(
            weight=0.8 if waited > others + 0.1 else 0.3,
            evidence=f"it may read and write {size_text(float(rate))} of a disk in a second{waits}.",
            without={"io_rate": None},
            added={"io_rate": int(rate)},
            cure="no --device-read-bps, --device-write-bps, or higher ones (--device-read-bps /dev/DISK:RATE)",
        )


class MemoryLimit(Cause):
    """The memory limit: the page cache counts, and what is reclaimed has to be read again."""

    title: ClassVar[str] = "the memory limit"
    spends: ClassVar[frozenset[str]] = frozenset({"system", "wait", "off"})
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})
    option: ClassVar[str] = "memory"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        limit = slow.number("cgroup.memory_limit_bytes") or slow.fields.get("memory")
        if not limit:
            return unseen(slow.seen("cgroup.memory_limit_bytes")) or RuledOut("it has no memory limit.")
        held = size_text(float(limit))
        if limit == (quick.number("cgroup.memory_limit_bytes") or quick.fields.get("memory")):
            return RuledOut(f"both sides have a limit of {held}.")
        if float(limit) >= (slow.number("device.memory_bytes") or math.inf):
            return RuledOut(f"its limit of {held} is more than the device has.")
        faults, before = (side.metrics.get("major_faults", 0.0) for side in (slow, quick))
        peak = slow.metrics.get("max_rss_bytes")
        tight = peak is not None and peak > 0.7 * float(limit)
        read = f"{faults:.0f} major faults, {before:.0f} on the other side"
        if slow.metrics and not tight and faults <= before + 10:
            # Files that are read by calls leave no faults: whether their pages were reclaimed cannot be seen.
            read = "the page cache counts towards it, and what is read again is not counted"
        return Suspicion(
            weight=0.8 if faults > 2 * before + 10 else 0.4 if tight or not slow.metrics else 0.3,
            evidence=f"a limit of {held}; {read}.",
            without={"memory": None},
            added={"memory": int(float(limit))},
            cure="more memory: -m SIZE, or no limit (the page cache counts towards it)",
        )


DOCKERS_OWN = 64 << 20


class SharedMemory(Cause):
    """The size of /dev/shm: Docker's default of 64 MB is full with a few batches of images."""

    title: ClassVar[str] = "the size of /dev/shm"
    spends: ClassVar[frozenset[str]] = frozenset({"system", "wait", "off"})
    phases: ClassVar[frozenset[str]] = frozenset({"data", "tail"})
    option: ClassVar[str] = "shm"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        ours, theirs = (side.fields.get("shm") or side.number("shm.bytes") for side in (slow, quick))
        if ours is None:
            return NotLooked("the size of its /dev/shm is not known.")
        if ours == theirs:
            return RuledOut(f"/dev/shm has {size_text(float(ours))} on both sides.")
        if float(ours) > 4 * DOCKERS_OWN and (theirs is None or float(ours) >= theirs / 4):
            return RuledOut(f"/dev/shm has {size_text(float(ours))}.")
        large = int(theirs or (8 << 30))
        return Suspicion(
            weight=0.6 if float(ours) <= DOCKERS_OWN else 0.2,
            evidence=f"/dev/shm has {size_text(float(ours))}"
            + (f", {size_text(float(theirs))} on the other side." if theirs else "."),
            without={"shm": large},
            cure="--shm-size 8g, or --ipc host",
        )


class Allocator(Cause):
    """How memory is allocated: a tensor that is mapped and returned in every step costs a page fault per 4 KiB."""

    title: ClassVar[str] = "the memory allocator"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        found = suspected_variables(slow, quick, variables("allocator"))
        if isinstance(found, Suspicion):
            return found
        ours, theirs = (side.metrics.get("minor_faults", 0.0) for side in (slow, quick))
        if ours > 1.5 * theirs + 10_000 and slow.facts.get("libc") == quick.facts.get("libc"):
            fixed = {"MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_MMAP_THRESHOLD_": "4294967296"}
            return Suspicion(
                weight=0.5,
                evidence=f"{ours:,.0f} page faults, {theirs:,.0f} on the other side.",
                without={"env": fixed},
                cure=" ".join(f"-e {name}={value}" for name, value in fixed.items()),
                guess=True,
            )
        if not all("minor_faults" in side.metrics for side in (slow, quick)):
            found = found or NotLooked("page faults of a side were not counted.")
        return found or RuledOut("allocator settings and page faults are the same on both sides.")


_BYPASS = "process.Speculation_Store_Bypass"


class Seccomp(Cause):
    """The seccomp filter: each system call is checked, and older kernels slow down all code that runs under one."""

    title: ClassVar[str] = "the seccomp filter"
    spends: ClassVar[frozenset[str]] = frozenset({"system"})
    weakens: ClassVar[bool] = True
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})
    option: ClassVar[str] = "seccomp_profile"

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
            spends=("user", "system") if mitigated else (),
            evidence=evidence,
            without=_without(slow),
            guess=not (mitigated or own),
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
    """Limits of a process: a low one stops a loader with many files or pinned memory, a high one costs programs that
    close, or make room for, every descriptor that there may be.
    """

    title: ClassVar[str] = "a limit of the process (ulimit)"
    spends: ClassVar[frozenset[str]] = frozenset({"system", "wait", "off"})
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        sides = {name: (_limit(slow, name), _limit(quick, name)) for name in _LIMITS}
        not_seen = next((missing for pair in sides.values() if (missing := unseen(*pair))), None)
        differing = {
            name: (one.value, other.value)
            for name, (one, other) in sides.items()
            if isinstance(one, Known) and isinstance(other, Known) and one != other
        }
        if not differing:
            return not_seen or RuledOut("the limits of the process are the same on both sides.")
        told = ", ".join(
            f"{name} {_told(ours)} instead of {_told(theirs)}" for name, (ours, theirs) in differing.items()
        )
        lower = any(ours < theirs for ours, theirs in differing.values())
        own = slow.fields.get("ulimits") or {}
        wanted = {name: _number(theirs) for name, (_, theirs) in differing.items()}
        brought = {name: _number(ours) for name, (ours, _) in differing.items() if _may_have(quick, name, ours)}
        kept = {name: value for name, value in own.items() if name not in differing}
        # Without the option a container has its engine's own limit, which need not be the other side's.
        kept |= {name: wanted[name] for name in differing if _may_have(slow, name, wanted[name])}
        movable = [name for name in differing if name in own or name in kept]
        return Suspicion(
            weight=0.55 if lower and set(own) & set(differing) else 0.4,
            evidence=f"{told}.",
            without={"ulimits": kept or None} if movable else None,
            added={"ulimits": brought} if brought else None,
            cure=" ".join(f"--ulimit {name}={value}" for name, value in wanted.items()),
            untried="" if movable or brought else "these limits cannot be set for this container alone.",
        )


def _told(limit: float) -> str:
    return "without a limit" if limit == math.inf else f"{limit:.0f}"


def _number(limit: float) -> int:
    return -1 if limit == math.inf else int(limit)


def _limit(side: Side, name: str) -> Observation:
    """The soft limit; the option is the workload's, the fact its place's."""
    if name in (own := side.fields.get("ulimits") or {}):
        return _as_limit(own[name])
    found = side.seen(f"limits.{name}")
    return _as_limit(found.value[0]) if isinstance(found, Known) else found


def _as_limit(value: Json) -> Known:
    return Known(math.inf if value < 0 else float(value))


def _may_have(side: Side, name: str, limit: float) -> bool:
    """Whether its processes may set this limit without rights: none above the hard one."""
    found = side.seen(f"limits.{name}")
    hard = _as_limit(found.value[1]).value if isinstance(found, Known) else 0.0
    return float(math.inf if limit < 0 else limit) <= hard


class Network(Cause):
    """The network namespace: a name look-up, or a library that calls home at import, waits until it times out."""

    title: ClassVar[str] = "the missing network"
    spends: ClassVar[frozenset[str]] = frozenset({"wait", "off"})
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        if slow.fields.get("network") == "host" or slow.platform == "bare":
            return RuledOut("it has the network of the device.")
        of_line = slow.platform == "own"
        if of_line and slow.fields.get("allow_network"):
            return RuledOut("it has the network of its line.")
        if slow.platform == quick.platform and slow.fields.get("network") == quick.fields.get("network"):
            return RuledOut("both sides have the same network.")
        if not slow.metrics:  # every container that tare makes is without one, and most programs need none
            return NotLooked("whether it waits for a network is seen only in a run.")
        spent = [side.spent() for side in (slow, quick)]
        key = "wait" if all("wait" in each for each in spent) else "off"
        if not all(key in each for each in spent):
            return NotLooked("how long it waited for something else than a core is not known.")
        waits, others = (each[key] for each in spent)
        if waits < others + 0.5:
            return RuledOut("it does not wait longer than the other side.")
        return Suspicion(
            weight=0.4,
            evidence=f"it did not run for {waits:.1f} s, {others:.1f} s on the other side.",
            guess=True,
            without=None if of_line else {"network": "host"},
            cure=f"{_ALLOWED if of_line else '--network host'}, or HF_HUB_OFFLINE=1, WANDB_MODE=offline",
            untried=f"its runs have the network of your line only with {_ALLOWED}." if of_line else "",
        )


ENGINES = ("docker", "podman")
MUCH_BYTES = 256 << 10
_LOGS = "place.engine.log_driver"


class Output(Cause):
    """What it prints: every line goes through the engine and its log driver before the program may go on."""

    title: ClassVar[str] = "its output, which goes through the engine"
    spends: ClassVar[frozenset[str]] = frozenset({"system", "wait", "off"})
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        printed = slow.number("output.bytes") or 0.0
        of_line, driver = slow.platform == "own", slow.facts.get(_LOGS)
        if of_line and driver is None:
            return NotLooked("which log driver its engine uses is seen only in a run.")
        if of_line and (quick.platform == "own" or driver == "none"):
            return RuledOut("its output goes through no log driver, or through the same one on both sides.")
        if not of_line and slow.platform not in ENGINES:
            return RuledOut("its output goes through no engine.")
        if slow.env("TARE_OUTPUT"):
            return RuledOut("its output goes to a file.")
        if not slow.metrics and not printed:
            return NotLooked("how much it prints is seen only in a run.")
        if printed < MUCH_BYTES:
            return RuledOut(f"it prints {size_text(printed) if printed else 'little'}.")
        return Suspicion(
            weight=0.6,
            evidence=f"it prints {size_text(printed)} or more in a run, through the engine"
            f"{f' and its log driver {driver}' if of_line else ''}.",
            guess=True,
            without={"flags": {"--log-driver": "none"}} if of_line else {"env": {"TARE_OUTPUT": "/dev/null"}},
            cure="less output (`> FILE` in the container, a progress bar that is off), or --log-driver none, "
            "--log-opt mode=non-blocking",
        )
