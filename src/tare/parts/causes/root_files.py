"""Many small files through an overlay, a volume or FUSE."""

from __future__ import annotations

from typing import ClassVar

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
