"""Files: the file system of a container, layers that are not in the page cache, a limit on I/O."""

from __future__ import annotations

from typing import ClassVar

from tare.base.text import size_text
from tare.parts.causes.variables import env_cure
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_SLOW = {"fuse": 0.7, "fuse.": 0.7, "9p": 0.8, "virtiofs": 0.6, "nfs": 0.6, "nfs4": 0.6, "cifs": 0.6, "overlay": 0.2}


class RootFiles(Cause):
    """The container's file system: small files through an overlay, a FUSE mount, or a share of another machine."""

    title: ClassVar[str] = "the container's file system"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        kinds = {
            name: (slow.facts.get(f"file_system.{name}"), quick.facts.get(f"file_system.{name}"))
            for name in ("work", "tmp")
        }
        differing = {name: pair for name, pair in kinds.items() if pair[0] and pair[1] and pair[0] != pair[1]}
        ours, theirs = slow.env("TMPDIR"), quick.env("TMPDIR")
        if not differing and ours == theirs:
            return RuledOut("working folder and temporary files lie on the same kinds of file system.")
        weights = [
            weight for kind, _ in differing.values() for start, weight in _SLOW.items() if str(kind).startswith(start)
        ]
        told = [f"{name} lies on {ours}, {theirs} on the other side" for name, (ours, theirs) in differing.items()]
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
            weight=0.6 if counted else 0.15,
            evidence=f"{ours:.0f} major faults, {theirs:.0f} on the other side." if counted else evidence,
            without={"warm": True},
            cure="run it once before, or read its files: "
            "docker run --rm IMAGE sh -c 'find / -xdev -type f -exec cat {} + > /dev/null'",
        )


class IoLimit(Cause):
    """The I/O limit: what is not in the page cache is read no faster than it allows."""

    title: ClassVar[str] = "the I/O limit"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        rate = slow.fields.get("io_rate")
        if not rate or rate == quick.fields.get("io_rate"):
            return RuledOut("no limit on its reads and writes is known.")
        waited, others = (side.metrics.get("wall_s", 0.0) - side.metrics.get("cpu_s", 0.0) for side in (slow, quick))
        waits = f"; it waited for {waited:.1f} s, {others:.1f} s on the other side" if slow.metrics else ""
        return Suspicion(
            weight=0.8 if waited > others + 0.1 else 0.3,
            evidence=f"it may read and write {size_text(float(rate))} of a disk in a second{waits}.",
            without={"io_rate": None},
            added={"io_rate": int(rate)},
            cure="no --device-read-bps, --device-write-bps, or higher ones (--device-read-bps /dev/DISK:RATE)",
        )
