"""`tare store pack --thin`: what the figures need is known to those who make them; here they are asked together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tare.analysis.derived import CHANNELS, CLOCKS, FAULT_COLUMNS, with_figures
from tare.analysis.kernel import counters, writebacks
from tare.analysis.nvm.sources import with_flush_latencies
from tare.base.errors import StoreError
from tare.figures.rederive import needs_all_readings, rederive
from tare.records.model import Record
from tare.records.pack import Packed, pack
from tare.records.parquet import TableName
from tare.records.sealed import folder_name
from tare.records.store import Store
from tare.records.thin_pack import InOrder, Thinning
from tare.traces.writeback import STARTS, moments_ns

_COUNTED = ("block_bio_queue", "writeback_dirty_folio", "writeback_single_inode_start", "writeback_single_inode",
            "writeback_pages_written")  # fmt: skip
THINNING = Thinning(
    in_full=lambda channel: (
        channel["name"] in CHANNELS or channel["name"].startswith(CLOCKS) or needs_all_readings(channel)
    ),
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


def thin_pack(store: Store, output: Path) -> Packed:
    """The store as a thinned pack, every figure of which comes out again; else no pack.

    A trial with a figure that does not is packed with its times to the nanosecond.
    """
    made = pack(store, output, THINNING)
    if wrong := _not_derived(store, output):
        made = pack(store, output, replace(THINNING, exact=frozenset(wrong)))
        wrong = _not_derived(store, output)
    if wrong:
        output.unlink()
        raise StoreError(
            f"{output}: no thinned pack is made: figures of {len(wrong)} trials do not follow from it, among them "
            f"{next(iter(wrong.items()))}. Pack it without --thin."
        )
    return made


def _not_derived(store: Store, output: Path) -> dict[str, str]:
    """TRIAL.ATTEMPT -> the first figure that the thinned pack gives otherwise than the whole store."""
    wrong: dict[str, str] = {}
    whole = {(record.trial, record.attempt): record for record in store.records()}
    with Store.open(output) as thinned:
        for record in thinned.records():
            found = []
            if differences := rederive(thinned, record).differences:
                # An older tare may have claimed less: what the whole store does not give either is not lost here.
                known = {each.figure for each in rederive(store, whole[record.trial, record.attempt]).differences}
                found = [str(each) for each in differences if each.figure not in known]
            before = _all_figures(store, whole[record.trial, record.attempt])
            after = _all_figures(thinned, record)
            found += [
                f"{name}: {before.get(name)!r} and {after.get(name)!r}"
                for name in {*before, *after}
                if name not in before or name not in after or not _alike(name, before[name], after[name])
            ]
            if found:
                wrong[folder_name(record.trial, record.attempt)] = found[0]
    return wrong


def _all_figures(store: Store, record: Record) -> Mapping[str, float]:
    [made] = with_flush_latencies(store, [with_figures(store, record)])
    return made.metrics


def _alike(name: str, before: float, after: float) -> bool:
    """Rates are divided by times of a tenth of a second, rounded to a microsecond; an epoch is a sum of such."""
    return math.isclose(before, after, rel_tol=2e-4 if name.startswith("epoch_") else 2e-5, abs_tol=2e-6)
