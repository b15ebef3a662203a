"""The kernel's view of traced trials: one section a file, each in the form of a paper's table or figure.

A section is a function of the traced trials that gives a `Section`, or None where no trial has what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tare.analysis.kernel import counters, faults, syscalls, writebacks
from tare.analysis.kernel.model import Section, TrialTraces, traced_trials
from tare.base.errors import TareError
from tare.records.store import Store

SECTIONS: tuple[Callable[[Sequence[TrialTraces]], Section | None], ...] = (
    counters.section,
    counters.callgraphs,
    faults.section,
    faults.causes,
    syscalls.section,
    syscalls.stages,
    writebacks.section,
    writebacks.pages,
    writebacks.intervals_section,
    writebacks.hot_pages,
)

__all__ = ["SECTIONS", "Section", "TrialTraces", "kernel_view", "traced_trials"]


def kernel_view(store: Store) -> list[Section]:
    """Every section that the store's traced trials have something for."""
    trials = traced_trials(store)
    if not trials:
        raise TareError(
            f"{store.path}: no usable trial was traced. Name a tracer in the study, like `probes: [perf, syscalls]` "
            "or `probes: [ftrace]`, and run it."
        )
    return [found for section in SECTIONS if (found := section(trials)) is not None]
