"""What a thinned pack keeps of kernel traces: the columns that figures are made of, and page writes in order."""

from __future__ import annotations

from functools import partial

from tare.ext.analysis import InOrder, TableName, TablesKept
from tare.kernel import counters, writebacks
from tare.kernel.figures import FAULT_COLUMNS
from tare.kernel.traces.writeback import STARTS, moments_ns

_COUNTED = ("block_bio_queue", "writeback_dirty_folio", "writeback_single_inode_start", "writeback_single_inode",
            "writeback_pages_written")  # fmt: skip


def kept() -> TablesKept:
    """Of page faults the places, of write-backs the counts, of page writes their order."""
    return TablesKept(
        counted={
            TableName(counters.PROBE, counters.FAULT_TABLE): FAULT_COLUMNS,
            **{TableName(writebacks.PROBE, name): ("role", "wrote", "pages") for name in _COUNTED},
        },
        in_order={
            TableName(writebacks.PROBE, writebacks.PAGE_WRITES): InOrder(
                ("pid", "dev", "reason", "role", "page"),
                rises="page",
                after=TableName(writebacks.PROBE, STARTS),
                moments=partial(moments_ns, stretches=writebacks.STRETCHES),
            )
        },
    )
