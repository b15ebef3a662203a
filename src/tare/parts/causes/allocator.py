"""Another memory allocator, or other settings of it."""

from __future__ import annotations

from typing import ClassVar

from tare.parts.causes.debug_variables import suspected_variables
from tare.parts.protocols import Cause, RuledOut, Side, Suspicion

_SETTINGS = {
    "LD_PRELOAD": ("another library comes first, such as an allocator", 0.6),
    "GLIBC_TUNABLES": ("other settings of the C library", 0.6),
    "MALLOC_CHECK_": ("every allocation is checked", 0.9),
    "MALLOC_PERTURB_": ("every allocation is filled", 0.9),
    "MALLOC_ARENA_MAX": ("threads share arenas", 0.6),
    "MALLOC_TRIM_THRESHOLD_": ("memory is given back at another size", 0.7),
    "MALLOC_MMAP_THRESHOLD_": ("large blocks are mapped at another size", 0.8),
    "MALLOC_TOP_PAD_": ("the heap grows in other steps", 0.4),
    "MIMALLOC_PURGE_DELAY": ("memory is given back at another time", 0.5),
    "PYTORCH_CUDA_ALLOC_CONF": ("torch's CUDA allocator works differently", 0.5),
    "PYTORCH_ALLOC_CONF": ("torch's allocator works differently", 0.5),
}


class Allocator(Cause):
    """How memory is allocated: a tensor that is mapped and returned in every step costs a page fault per 4 KiB."""

    title: ClassVar[str] = "the memory allocator"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut:
        found = suspected_variables(slow, quick, _SETTINGS)
        if found is not None:
            return found
        ours, theirs = (side.metrics.get("minor_faults", 0.0) for side in (slow, quick))
        if ours > 1.5 * theirs + 10_000 and slow.facts.get("libc") == quick.facts.get("libc"):
            fixed = {"MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_MMAP_THRESHOLD_": "4294967296"}
            return Suspicion(
                weight=0.5,
                evidence=f"{ours:,.0f} page faults, {theirs:,.0f} on the other side.",
                without={"env": fixed},
                cure=" ".join(f"-e {name}={value}" for name, value in fixed.items()),
            )
        return RuledOut("allocator settings and page faults are the same on both sides.")
