"""The kernel's view of traced trials: one section a file, each in the form of a paper's table or figure.

A section is a function of the traced trials that gives a `Section`, or None where no trial has what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tare.analysis.kernel import (
    callgraphs,
    counters,
    faults,
    hot_pages,
    syscalls,
    writeback_intervals,
    writebacks,
)
from tare.analysis.kernel.model import Section, Traced, traced_trials
from tare.errors import TareError
from tare.records.store import Store

SECTIONS: tuple[Callable[[Sequence[Traced]], Section | None], ...] = (
    counters.section,
    callgraphs.section,
    faults.section,
    faults.causes,
    syscalls.section,
    syscalls.stages,
    writebacks.section,
    writebacks.pages,
    writeback_intervals.section,
    hot_pages.section,
)

__all__ = ["SECTIONS", "Section", "Traced", "kernel_view", "traced_trials"]


def kernel_view(store: Store) -> list[Section]:
    """Every section that the store's traced trials have something for."""
    trials = traced_trials(store)
    if not trials:
        raise TareError(
            f"{store.path}: no usable trial was traced. Name a tracer in the study, like `probes: [perf, syscalls]` "
            "or `probes: [ftrace]`, and run it."
        )
    return [found for section in SECTIONS if (found := section(trials)) is not None]
