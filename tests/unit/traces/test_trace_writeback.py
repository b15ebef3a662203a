"""Figures of write-backs, and which pages were written, why and for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tare.base.errors import TareError
from tare.kernel.traces import writeback
from tare.kernel.traces.recording import open_folder, tables
from tare.kernel.traces.writeback import PageWrites, is_page_write

RECORDING = Path(__file__).parents[2] / "recordings" / "trace-6.18"
DEV = 254 << 20


def words(*values: str) -> Any:
    return np.array(values, dtype=object)


def starts(*rows: tuple[float, str, str]) -> dict[str, Any]:
    t_s, bdi, reason = zip(*rows, strict=True)
    return {"t_ns": (np.array(t_s) * 1e9).astype(np.int64), "bdi": words(*bdi), "reason": words(*reason)}


def writes(pages: list[int], t_ns: list[int] | None = None) -> dict[str, Any]:
    return {
        "t_ns": np.array(t_ns or range(len(pages))), "dev": np.full(len(pages), DEV), "page": np.array(pages),
        "reason": words(*["periodic"] * len(pages)),
    }  # fmt: skip


def test_write_backs_are_counted_by_reason_and_timed_by_device():
    start = starts((0, "8:0", "periodic"), (1, "8:16", "sync"), (5, "8:0", "periodic"), (11, "8:0", "background"))

    found = writeback.figures({"writeback_start": start})

    assert found["writeback_count"] == 4
    assert (found["writeback_periodic_count"], found["writeback_background_count"]) == (2, 1)
    assert found["writeback_interval_s"] == pytest.approx(5.5)  # 5 and 6 s on one disk; the other had only one
    assert found["writeback_interval_sd_s"] == pytest.approx(np.std([5, 6], ddof=1))


def test_no_background_write_back_is_a_zero_and_no_interval_is_absent():
    found = writeback.figures({"writeback_start": starts((3, "8:0", "sync"))})

    assert found["writeback_background_count"] == 0
    assert "writeback_interval_s" not in found


def test_nothing_traced_gives_no_figures():
    assert writeback.figures({}) == {}


def test_evenly_written_pages_have_no_concentration_and_one_hot_page_has_all():
    even, one = (
        writeback.writes_by_page(np.arange(1000)),
        writeback.writes_by_page(np.array([7] * 900 + list(range(99)))),
    )

    assert writeback.gini(even) == pytest.approx(0)
    assert writeback.hot_share(even) == pytest.approx(0.01)
    assert writeback.hot_share(one) == pytest.approx(901 / 999)
    assert (writeback.gini(one) or 0) > 0.85


def test_gini_is_that_of_its_definition():
    times = np.sort(np.random.default_rng(1).integers(1, 50, 200))
    by_pairs = np.abs(times[:, None] - times[None, :]).sum() / (2 * len(times) ** 2 * times.mean())

    assert writeback.gini(times) == pytest.approx(by_pairs)


def test_no_page_has_no_concentration():
    empty = np.empty(0, np.int64)

    assert writeback.gini(empty) is None
    assert writeback.hot_share(empty) is None
    assert len(writeback.concentration(writes([]), 3).t_ns) == 0


def test_write_backs_that_grow_hot_are_seen_over_time():
    spread, hot = list(range(300)), [5] * 270 + list(range(30))
    found = writeback.figures({"page_writes": writes(spread + spread + hot)})

    assert found["writeback_hot_share_early"] == pytest.approx(0.01)
    assert found["writeback_hot_share_late"] == pytest.approx(271 / 300, abs=0.01)


def test_what_tare_itself_wrote_is_no_part_of_the_figures():
    pages = writes([1, 2, 3, 4])
    pages["role"] = words("workload", "tare", "host", "tare")
    pages["reason"] = words("sync", "sync", "outside", "outside")

    found = writeback.figures({"page_writes": pages, "writeback_pages_written": {"pages": np.array([2])}})

    assert (found["written_pages"], found["writeback_pages"], found["writeback_pages_outside"]) == (2, 1, 1)


def test_without_block_events_the_flushers_own_count_is_taken():
    assert writeback.figures({"writeback_pages_written": {"pages": np.array([5, 7])}})["writeback_pages"] == 12


def test_the_same_page_of_two_disks_is_two_pages():
    both = writes([3, 3])
    both["dev"] = np.array([DEV, DEV + 1])

    assert len(np.unique(writeback.page_keys(both))) == 2


def trace_of_two_tenants() -> dict[str, Any]:
    """Two files, dirtied by two tenants, written by one flusher in one write-back; then an fsync of the second."""
    return {
        "writeback_dirty_folio": {
            "t_ns": np.array([1, 2]), "pid": np.array([100, 200]), "dev": np.array([DEV, DEV]),
            "inode": np.array([11, 22]), "role": words("workload", "tenant1"),
        },
        "writeback_start": {"t_ns": np.array([10]), "pid": np.array([7]), "reason": words("periodic")},
        "writeback_single_inode_start": {
            "t_ns": np.array([11, 21]), "pid": np.array([7, 7]), "dev": np.array([DEV, DEV]),
            "inode": np.array([11, 22]),
        },
        "writeback_single_inode": {"t_ns": np.array([20, 30]), "pid": np.array([7, 7])},
        "writeback_written": {"t_ns": np.array([40]), "pid": np.array([7])},
        "block_bio_queue": {
            "t_ns": np.array([12, 22, 35, 50, 60]), "cpu": np.zeros(5, np.int32), "pid": np.array([7, 7, 7, 200, 200]),
            "dev": np.full(5, DEV), "sector": np.array([80, 160, 800, 160, 240]),
            "nr_sector": np.array([16, 8, 8, 8, 8]),
            "rwbs": words("W", "WS", "WM", "WFS", "R"), "role": words("host", "host", "host", "tenant1", "tenant1"),
        },
    }  # fmt: skip


def rows(found: dict[str, Any]) -> list[tuple[int, int, str, str]]:
    names = ("page", "inode", "reason", "role")
    return list(zip(*(found[name].tolist() for name in names), strict=True))


def test_a_page_belongs_to_whoever_dirtied_its_file_though_the_flusher_writes_it():
    (found,) = PageWrites(4096).piece(trace_of_two_tenants())

    assert rows(found) == [
        (10, 11, "periodic", "workload"),
        (11, 11, "periodic", "workload"),  # sixteen sectors are two pages
        (20, 22, "periodic", "tenant1"),
        (100, 0, "periodic", "host"),  # of no file that is known: metadata
        (20, 0, "outside", "tenant1"),  # fsync: the task writes itself
    ]


def test_a_write_back_that_is_cut_by_the_end_of_a_piece_goes_on_in_the_next():
    whole, cut = trace_of_two_tenants(), 21
    parts: list[dict[str, Any]] = [{}, {}]
    for table, columns in whole.items():
        early = columns["t_ns"] < cut
        for part, chosen in zip(parts, (early, ~early), strict=True):
            if chosen.any():
                part[table] = {name: column[chosen] for name, column in columns.items()}
    joined = PageWrites(4096)

    found = [table for part in parts for table in joined.piece(part)]

    (once,) = PageWrites(4096).piece(whole)
    assert [row for table in found for row in rows(table)] == rows(once)


def test_reads_discards_and_zeroes_are_no_page_writes():
    assert (
        is_page_write(words("W", "WSM", "FWFS", "R", "RA", "D", "DS", "WZ", "FF")).tolist() == [True] * 3 + [False] * 6
    )


def test_pages_of_64_kib_are_numbered_in_their_own_size():
    (found,) = PageWrites(65536).piece(trace_of_two_tenants())

    assert found["page"].tolist() == [0, 1, 6, 1]


@pytest.mark.parametrize(
    ("sector", "sectors"), [(8, 0xFFFF_FFFF), (8, 1 << 23), (0xFFFF_FFFF_FFFF_FFF0, 8), (1 << 60, 8)]
)
def test_a_write_that_no_kernel_makes_is_damage_and_not_expanded(sector: int, sectors: int):
    trace = trace_of_two_tenants()
    trace["block_bio_queue"]["sector"] = np.array([80, sector, 800, 160, 240], np.uint64)
    trace["block_bio_queue"]["nr_sector"] = np.array([16, sectors, 8, 8, 8], np.uint32)

    with pytest.raises(TareError, match=f"a write of {sectors} sectors at sector {sector}, 22 ns .* damaged"):
        list(PageWrites(4096).piece(trace))


def test_a_large_write_is_many_rows_in_tables_of_bounded_size_and_many_large_ones_are_damage():
    trace = trace_of_two_tenants()
    trace["block_bio_queue"]["nr_sector"] = np.full(5, (1 << 23) - 8, np.uint32)

    found = list(PageWrites(4096).piece(trace))

    assert sum(len(table["page"]) for table in found) == 4 * ((1 << 20) - 1)
    assert max(len(table["page"]) for table in found) <= 1 << 19
    assert np.concatenate([table["page"] for table in found])[: 1 << 20].tolist() == [*range(10, 9 + (1 << 20)), 20]
    joined = PageWrites(4096)
    with pytest.raises(TareError, match="damaged"):
        [len(table["page"]) for _ in range(3) for table in joined.piece(trace)]


def recorded() -> dict[str, dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for chunk in tables(open_folder(RECORDING)):
        found.setdefault(chunk.name, []).append(chunk.columns)
    return {name: {key: np.concatenate([one[key] for one in many]) for key in many[0]} for name, many in found.items()}


def test_what_was_written_in_a_recorded_trace_is_what_the_shell_wrote():
    found = recorded()
    pages = found["page_writes"]
    ours = {reason: (pages["reason"][pages["role"] == "workload"] == reason).sum() for reason in ("sync", "outside")}

    assert set(found["writeback_start"]["reason"]) == {"sync"}
    assert ours["sync"] == 2 * 1024 // 4  # 2 MiB before the `sync`
    assert ours["outside"] >= 2 * 512 // 4  # 512 KiB twice, with fsync; the journal's pages come on top
    assert set(pages["role"]) <= {"workload", "host", "tare"}


def test_every_row_says_who_and_whose_it_was():
    for name, columns in recorded().items():
        assert {"t_ns", "cpu", "pid", "comm", "role"} <= columns.keys(), name
        assert len({len(column) for column in columns.values()}) == 1

    dirtied = recorded()["writeback_dirty_folio"]
    assert set(dirtied["comm"][dirtied["role"] == "workload"]) <= {"dd", "rm", "sh", "sync"}
    assert "dev" in dirtied
    assert "inode" in dirtied
