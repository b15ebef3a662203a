"""Rounds of one errand of the flusher are one episode, and what it did for tare alone is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tare.kernel.traces import writeback
from tare.kernel.traces.writeback import APART_S, started

FLUSHER = 7


def words(*values: str) -> Any:
    return np.array(values, dtype=object)


def rounds(*rows: tuple[float, str, str], pid: int = FLUSHER) -> dict[str, Any]:
    t_s, bdi, reason = zip(*rows, strict=True)
    return {
        "t_ns": (np.array(t_s) * 1e9).astype(np.int64), "bdi": words(*bdi), "reason": words(*reason),
        "pid": np.full(len(rows), pid),
    }  # fmt: skip


def written(*rows: tuple[float, str, str], pid: int = FLUSHER) -> dict[str, Any]:
    """Page writes: when, whose, why."""
    t_s, role, reason = zip(*rows, strict=True)
    return {
        "t_ns": (np.array(t_s) * 1e9).astype(np.int64), "role": words(*role), "reason": words(*reason),
        "pid": np.full(len(rows), pid), "dev": np.full(len(rows), 1), "page": np.arange(len(rows)),
    }  # fmt: skip


def episodes(**tables: Any) -> list[int]:
    found = started(tables)
    assert found is not None
    return found["episode"].tolist()


def test_the_rounds_of_a_sync_are_one_episode_and_do_not_pull_the_interval_down():
    # As recorded on kernel 6.18: a periodic one with its second round, a sync of four rounds, another sync.
    reasons = ("periodic", "periodic", "sync", "sync", "sync", "sync", "sync")
    begin_s = (0.0, 0.0012, 4.117, 4.2018, 4.2025, 4.2223, 4.5081)
    end_s = (0.001, 0.0013, 4.2017, 4.2024, 4.2026, 4.2224, 4.509)
    start, ends = (rounds(*[(t, "254:0", why) for t, why in zip(at, reasons, strict=True)]) for at in (begin_s, end_s))

    assert episodes(writeback_start=start, writeback_written=ends) == [0, 0, 1, 1, 1, 1, 2]
    figures = writeback.figures({"writeback_start": start, "writeback_written": ends})
    assert (figures["writeback_count"], figures["writeback_episodes"]) == (7, 3)
    assert figures["writeback_interval_s"] == pytest.approx((4.117 + 0.3911) / 2)


def test_a_long_round_is_measured_from_its_end_where_that_was_traced():
    start = rounds((0, "8:0", "background"), (3.0, "8:0", "background"))
    ends = rounds((2.99, "8:0", "background"), (3.5, "8:0", "background"))

    assert episodes(writeback_start=start, writeback_written=ends) == [0, 0]
    assert episodes(writeback_start=start) == [0, 1]


def test_a_round_whose_end_was_lost_does_not_swallow_the_next_episode():
    start = rounds((0, "8:0", "periodic"), (5, "8:0", "periodic"))
    ends = rounds((5.01, "8:0", "periodic"))

    assert episodes(writeback_start=start, writeback_written=ends) == [0, 1]


@pytest.mark.parametrize(("gap_s", "found"), [(APART_S * 0.9, [0, 0]), (APART_S * 1.1, [0, 1])])
def test_what_is_apart_is_another_episode(gap_s: float, found: list[int]):
    assert episodes(writeback_start=rounds((1, "8:0", "sync"), (1 + gap_s, "8:0", "sync"))) == found


def test_another_reason_device_or_control_group_is_another_episode_though_rounds_alternate():
    start = rounds(
        (0, "8:0", "sync"), (0.01, "8:0", "background"), (0.02, "8:0", "sync"), (0.03, "8:16", "sync"),
        (0.04, "8:0", "background"),
    )  # fmt: skip
    assert episodes(writeback_start=start) == [0, 1, 0, 2, 1]

    start["cgroup_ino"] = np.array([1, 1, 2, 1, 1])
    assert episodes(writeback_start=start) == [0, 1, 2, 3, 1]


def test_an_episode_that_wrote_tares_pages_alone_is_left_out_and_one_with_others_stays():
    start = rounds((0, "8:0", "periodic"), (0.01, "8:0", "periodic"), (5, "8:0", "periodic"), (10, "8:0", "periodic"))
    pages = written(
        (0.001, "tare", "periodic"), (5.001, "tare", "periodic"), (5.002, "tenant1", "periodic"),
        (10.5, "tare", "outside"),
    )  # fmt: skip

    found = started({"writeback_start": start, "page_writes": pages})

    assert found is not None
    assert found["t_ns"].tolist() == [5 * 10**9, 10 * 10**9]  # the last one wrote nothing of anybody's
    figures = writeback.figures({"writeback_start": start, "page_writes": pages})
    assert (figures["writeback_count"], figures["writeback_interval_s"]) == (2, 5)
    assert writeback.our_flusher_pages(pages) == 2


def test_pages_of_another_flusher_at_that_time_do_not_count():
    start = rounds((0, "8:0", "periodic"))
    found = started({"writeback_start": start, "page_writes": written((0.001, "tare", "periodic"), pid=8)})

    assert found is not None
    assert len(found["t_ns"]) == 1


def test_rows_are_put_in_order_of_time_and_an_untraced_event_is_absent():
    assert episodes(writeback_start=rounds((5, "8:0", "sync"), (0, "8:0", "sync"))) == [0, 1]
    assert started({}) is None
    empty = {name: column[:0] for name, column in rounds((0, "8:0", "sync")).items()}
    assert episodes(writeback_start=empty, page_writes=written((0, "tare", "sync"))) == []
