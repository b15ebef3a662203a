"""`tare show STORE kernel`: what the kernel did in traced trials."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.base.errors import TareError
from tare.ext.verbs import Result, Verb, draw, output_option, reads_store, width

if TYPE_CHECKING:
    from tare.ext.analysis import Store
    from tare.kernel.model import Section


@click.command("kernel", cls=Verb)
@reads_store("reading the traces")
@output_option("Draw which page was written when (S2, Figure 4) into this file: .svg, .pdf or .png.")
def kernel(store: Store, output: Path | None) -> Result:
    """What the kernel did in traced trials: for the workload, the engine's daemons and the host, side by side.

    Trials are traced if the study names a tracer: `probes: [perf]`, `[syscalls]` or `[ftrace]`. Their times are not
    compared with others.

    tare show out/my-study kernel

    --json: {"sections": [{"name", "title", "rows": [{...}], "notes"}]}; counts, seconds and shares.
    """
    from tare.kernel.charts import page_writes_figure
    from tare.kernel.text import kernel_text

    sections = _kernel_sections(store)
    if output is not None:
        draw(page_writes_figure(store), output)
    return Result(
        lambda: {"sections": [section.as_json() for section in sections]}, lambda: kernel_text(sections, width())
    )


def _kernel_sections(store: Store) -> list[Section]:
    """Every section that the store's traced trials have something for, each a paper's table or figure."""
    from tare.kernel import counters, writebacks
    from tare.kernel.model import traced_trials

    trials = traced_trials(store)
    if not trials:
        raise TareError(
            f"{store.path}: no usable trial was traced. Name a tracer in the study, like `probes: [perf, syscalls]` "
            "or `probes: [ftrace]`, and run it."
        )
    sections = (
        counters.section, counters.callgraphs, counters.faults, counters.fault_causes, counters.syscalls,
        counters.syscall_stages,
        writebacks.section, writebacks.pages, writebacks.intervals_section, writebacks.hot_pages,
    )  # fmt: skip
    return [found for section in sections if (found := section(trials)) is not None]
