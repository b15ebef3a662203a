"""The simulator does what the slow, obvious one does, for every policy, destage mode and way to share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flushing_reference import Write, reference
from tare.kernel.nvm import recency
from tare.kernel.nvm.model import DESTAGES, POLICIES, Layer, Piece, Run, Trace, trace_of
from tare.kernel.nvm.replay import simulate

PAGE = 4096
DISK_S, NVM_S = 0.002, 1e-6

tenants = st.sampled_from(["a", "b", "c"])
places = st.tuples(st.integers(0, 1), st.integers(7, 9), st.integers(0, 12))
gaps_ns = st.sampled_from([0, 1, 500_000, 1_999_999, 2_000_000, 9_000_000])
raw_writes = st.lists(st.tuples(gaps_ns, places, tenants), min_size=1, max_size=300)
layers = st.builds(
    lambda policy, size, destage: Layer(POLICIES[policy], size, DESTAGES[destage], DISK_S, NVM_S),
    st.sampled_from(sorted(POLICIES)),
    st.one_of(st.none(), st.integers(0, 70).map(lambda pages: pages * PAGE + pages)),
    st.sampled_from(sorted(DESTAGES)),
)


def made(raw: Sequence[Write]) -> list[Write]:
    now, writes = 5_000_000_000, []
    for gap, place, tenant in raw:
        now += gap
        writes.append((now, place, tenant))
    return writes


def trace(writes: Sequence[Write], size: int) -> Trace:
    """In pieces of so many writes: what is kept from one to the next is part of the promise."""
    times, at, who = zip(*writes, strict=True)
    dev, inode, page = zip(*at, strict=True)
    columns = {"t_ns": times, "dev": dev, "inode": inode, "page": page, "tenant": who}
    whole = trace_of("made up", {name: np.array(values) for name, values in columns.items()})
    (piece,) = whole.pieces()
    cuts = [slice(begin, begin + size) for begin in range(0, len(writes), size)]
    return replace(whole, pieces=lambda: (Piece(*(column[cut] for column in piece)) for cut in cuts))


def assert_as_reference(run: Run, writes: Sequence[Write], divided: bool) -> None:
    found, told = reference(writes, run.layer, PAGE, divided), run.as_json()
    assert told["page_writes"] == len(writes)
    assert told["nvm_writes"] == found.nvm_writes
    assert told["disk_writes"] == found.disk_writes
    assert told["left_in_nvm"] == found.left
    assert told["latency_s"] == pytest.approx(sum(found.latencies_s))
    assert told["latency_disk_only_s"] == pytest.approx(len(writes) * DISK_S)
    assert told["p99_s"] == pytest.approx(found.p99_s)
    for tenant, latencies_s in found.by_tenant.items():
        writes_of = run.tenants[tenant]
        assert writes_of.total == len(latencies_s)
        waited = writes_of.evicting if run.layer.destage.waits else 0
        assert NVM_S * writes_of.nvm + DISK_S * (writes_of.direct + waited) == pytest.approx(sum(latencies_s))


@settings(max_examples=400)
@given(
    raw_writes,
    st.lists(layers, min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([3, 64, 1 << 20]),
    st.integers(1, 40),
)
def test_each_run_is_that_of_the_obvious_implementation(
    raw: Any, asked: list[Layer], divided: bool, size: int, stretch: int
) -> None:
    writes = made(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recency, "_FEWEST", stretch)  # so that a short trace has several
        patch.setattr(recency, "_EARLIER", recency._EARLIER[:4, :4])
        found = simulate(trace(writes, size), asked, PAGE, divided)
    for run in found.runs:
        assert_as_reference(run, writes, divided)
    kept = {(place, tenant) if divided else place for _, place, tenant in writes}
    assert found.distinct_pages == len(kept)


@given(st.lists(st.integers(0, 30) | st.integers((1 << 62), (1 << 62) + 30), min_size=1, max_size=400), st.data())
def test_hits_by_whole_arrays_are_those_of_the_stack(keys: list[int], data: st.DataObject) -> None:
    capacity, cut = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 100))
    stack: list[int] = []
    expected = []
    for key in keys:
        expected.append(key in stack[-capacity:])
        stack = [*(other for other in stack if other != key), key]
    table = recency.Recency(capacity + data.draw(st.integers(0, 3)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recency, "_FEWEST", data.draw(st.integers(1, 50)))
        parts = [table.part(np.array(keys[begin : begin + cut], np.uint64)) for begin in range(0, len(keys), cut)]
        assert [bool(hit) for part in parts for hit in recency.hits(part, capacity)] == expected
    assert table.known == len(set(keys))
