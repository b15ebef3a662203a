"""Fetch against pre-process, by difference of three kinds of trial."""

from __future__ import annotations

from typing import Any

from tare.analysis.weighing import stall_parts
from tare.records.model import Record

SYNTHETIC, CACHED, COLD = ("memory", "warm"), ("disk", "warm"), ("disk", "cold")


def trial(block: int, kind: tuple[str, str], stall_s: float, **settings: Any) -> Record:
    source, state = kind
    return Record(
        trial=f"{block}-{source}-{state}", attempt=1, study="s", block=block, position=0, twin=False,
        settings={"platform": "bare", "workload.source": source, "control.page_cache.state": state, **settings},
        state="ok", started_utc="", start_ns=0, tare_version="1", metrics={"stall_mean_s": stall_s},
    )  # fmt: skip


def blocks(count: int) -> list[Record]:
    """Each block is slower than the one before by a millisecond, all of it: pairing takes that out."""
    found = []
    for block in range(count):
        late_s = block / 1000
        found += [trial(block, SYNTHETIC, 0.001 + late_s), trial(block, CACHED, 0.004 + late_s)]
        found.append(trial(block, COLD, 0.010 + late_s))
    return found


def test_the_three_parts_are_differences_within_blocks() -> None:
    said = stall_parts(blocks(6))

    assert said is not None
    assert "fetch 6.00 [6.00, 6.00] ms" in said
    assert "pre-process 3.00 [3.00, 3.00] ms" in said
    assert "n = 6 blocks" in said


def test_too_few_blocks_have_figures_and_no_interval() -> None:
    said = stall_parts(blocks(2))

    assert said is not None
    assert "fetch 6.00 ms (cold - cached), pre-process 3.00 ms (cached - synthetic)" in said


def test_a_block_without_one_of_the_kinds_does_not_count() -> None:
    said = stall_parts([*blocks(3), trial(9, COLD, 5.0)])

    assert said is not None
    assert "n = 3 blocks" in said


def test_nothing_is_said_where_a_kind_is_missing_or_something_else_was_varied() -> None:
    assert stall_parts([]) is None
    assert stall_parts([trial(0, CACHED, 1.0), trial(0, COLD, 2.0)]) is None
    assert stall_parts([*blocks(2), trial(0, COLD, 2.0, **{"workload.batch": 64})]) is None
