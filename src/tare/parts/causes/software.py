"""Other software in the image: another build of Python, another C library, other versions of what does the work."""

from __future__ import annotations

import re
from typing import ClassVar

from tare.parts.protocols import Cause, Json, RuledOut, Side, Suspicion

# What is known to cost, heaviest first: a key of the fingerprint, what it is called.
_KEYS = (
    (r"python\.debug", "a debug build of Python", 0.9),
    (r"python\.optimized", "Python built without profile-guided optimisation", 0.7),
    (r"python\.lto", "Python built without link-time optimisation", 0.4),
    (r"python\.shared", "a shared libpython", 0.4),
    (r"libc", "another C library", 0.6),
    (r"torch\.(blas|mkl|mkldnn|parallel|cpu_capability)", "another linear-algebra library or code path", 0.7),
    (r"torch\.(version|build|git|cuda)", "another torch", 0.5),
    (r"libraries\.lib(open)?blas|libraries\.libmkl|libraries\.libdnnl", "another build of BLAS", 0.5),
    (r"libraries\.lib(cudnn|cublas|cudart|nccl)", "another CUDA library", 0.5),
    (r"numpy\.version", "another NumPy", 0.4),
    (r"python\.version", "another Python", 0.5),
)


class Software(Cause):
    """The image's own software: Python, C library, torch, BLAS, CUDA libraries of other versions or builds."""

    title: ClassVar[str] = "the image's software"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        found = [(weight, what, key) for pattern, what, weight in _KEYS for key in _differing(pattern, slow, quick)]
        ours, theirs = (side.fields.get("image") or side.fields.get("dockerfile") for side in (slow, quick))
        if not ours and not found:
            return RuledOut("both sides run the software of this device.")
        if ours == theirs and not found:
            return RuledOut("both sides run the software of the image.")
        if not found and slow.facts and quick.facts and not theirs:
            return RuledOut("Python, C library, torch, NumPy and BLAS are the same on both sides.")
        unknown = (0.2, "the images differ in something else than Python, C library, torch, NumPy and BLAS", "")
        weight, what, key = max(found, default=unknown if theirs else (0.3, "software of its own", ""))
        held = f": {key} is {slow.facts.get(key)}, {quick.facts.get(key)} on the other side" if key else ""
        more = f" ({len(found) - 1} more differences)" if len(found) > 1 else ""
        cure = "the same versions as on the other side"
        if ours and not theirs:
            cure = "build the image from the same versions: `tare device image` makes one of this device's own software"
        elif ours:
            cure = "build the image from the same versions as the other one"
        return Suspicion(
            weight=weight,
            evidence=f"{what}{held}{more}.",
            without=_with_other(quick) if ours else None,
            cure=cure,
            untried="" if ours else "the software of the other side is not at hand.",
        )


def _with_other(quick: Side) -> dict[str, Json]:
    """The same container with the other side's software."""
    image, dockerfile = quick.fields.get("image"), quick.fields.get("dockerfile")
    return {"image": image, "dockerfile": dockerfile, **({} if image or dockerfile else {"rootfs": "host"})}


def _differing(pattern: str, slow: Side, quick: Side) -> list[str]:
    keys = [key for key in {**slow.facts, **quick.facts} if re.match(pattern, key)]
    both = [key for key in keys if key in slow.facts and key in quick.facts]
    return sorted(key for key in both if slow.facts[key] != quick.facts[key])
