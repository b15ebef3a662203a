"""Write-backs of traced trials in the form of the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tare.analysis.kernel import writebacks
from tare.analysis.kernel.model import Section, traced_trials
from tare.records.store import Store
from tare.report.charts.kernel import hot_pages_figure
from traced_stores import page_writes, traced_store

VM = {"vm.dirty_writeback_centisecs": "500", "vm.dirty_expire_centisecs": "3000"}


def starts(*reasons: str, every_s: float = 5.0) -> dict[str, Any]:
    count = len(reasons)
    return {
        "t_ns": (np.arange(count) * every_s * 1e9).astype(np.int64),
        "bdi": ["8:0"] * count,
        "reason": list(reasons),
    }


def told(section: Section | None) -> list[dict[str, Any]]:
    assert section is not None
    return section.as_json()["rows"]


def cell(platform: str, tenants: int, **tables: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"platform": platform, "tenants": tenants}, tables


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """One container, four, and four plain processes; two trials of the first."""
    one = starts("periodic", "periodic", "background", "periodic")
    another = starts("periodic", "periodic", "sync")
    four = starts(*["background"] * 6, *["periodic"] * 6, every_s=2.0)
    outside = {**page_writes([5, 5]), "reason": ["outside", "periodic"]}
    trials = {
        "aaaa": cell("docker", 1, writeback_start=one, page_writes=outside),
        "bbbb": cell("docker", 1, writeback_start=another),
        "cccc": cell("docker", 4, writeback_start=four, page_writes=page_writes(list(range(60)) + [7] * 60)),
        "dddd": cell("bare", 4, writeback_start=starts(*["periodic"] * 3), page_writes=page_writes([1, 2, 3])),
    }
    with Store.open(traced_store(tmp_path / "store", trials, device=VM)) as opened:
        yield opened


def test_write_backs_are_counted_by_reason_beside_as_many_plain_processes(store: Store) -> None:
    section = writebacks.section(traced_trials(store))
    rows = {(row["cell"], row["reason"]): row for row in told(section)}
    assert rows["docker, tenants 1", "all"]["count"] == 3.5
    assert rows["docker, tenants 1", "periodic"]["count"] == 2.5
    assert rows["docker, tenants 1", "sync"]["count"] == 0.5
    assert rows["docker, tenants 4", "background"]["share"] == 0.5
    assert rows["docker, tenants 4", "all"]["control"] == 3
    assert rows["docker, tenants 4", "all"]["ratio"] == 4
    assert rows["docker, tenants 4", "background"]["ratio"] is None  # the control had none: there is no ratio to zero
    assert rows["docker, tenants 1", "all"]["control"] is None
    assert section is not None and any("no plain processes" in note for note in section.notes)


def test_pages_past_the_flusher_are_counted_beside_it(store: Store) -> None:
    rows = {row["cell"]: row for row in told(writebacks.pages(traced_trials(store)))}
    assert rows["docker, tenants 1"]["outside"] == 1
    assert rows["docker, tenants 1"]["outside_share"] == 0.5
    assert rows["docker, tenants 1"]["flusher"] is None  # its events were not on: absent, and not zero
    assert (rows["docker, tenants 4"]["written"], rows["docker, tenants 4"]["ratio"]) == (120, 40)


def test_intervals_are_held_against_the_kernels_own_period(store: Store) -> None:
    section = writebacks.intervals_section(traced_trials(store))
    rows = {row["cell"]: row for row in told(section)}
    assert rows["docker, tenants 1"]["count"] == 5
    assert rows["docker, tenants 1"]["mean_s"] == rows["docker, tenants 1"]["period_s"] == 5
    assert rows["docker, tenants 1"]["sooner_share"] == 0
    assert (rows["docker, tenants 4"]["median_s"], rows["docker, tenants 4"]["sooner_share"]) == (2, 1)
    assert section is not None and "dirty for 30 s" in section.notes[-1]


def test_a_period_that_the_study_held_goes_before_the_one_that_was_found(tmp_path: Path) -> None:
    settings = {"platform": "bare", "control.dirty.writeback": 1.0}
    trials = {"aaaa": (settings, {"writeback_start": starts("periodic", "periodic", every_s=1.0)})}
    with Store.open(traced_store(tmp_path / "store", trials, device=VM)) as opened:
        (row,) = told(writebacks.intervals_section(traced_trials(opened)))
    assert (row["period_s"], row["sooner_share"], row["sd_s"]) == (1, 0, None)


def test_hot_pages_show_as_a_rising_share(store: Store) -> None:
    rows = [row for row in told(writebacks.hot_pages(traced_trials(store))) if row["cell"] == "docker, tenants 4"]
    assert [row["stretch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[0]["gini"] == pytest.approx(0)
    assert (rows[0]["hot_share"], rows[-1]["hot_share"]) == (pytest.approx(0.05), 1)
    assert (rows[-1]["writes"], rows[-1]["pages"]) == (20, 1)


def test_the_scatter_keeps_the_order_of_pages_and_says_how_many_points_it_has_of_how_many(store: Store) -> None:
    found = {each.label: each for each in writebacks.scatters(traced_trials(store))}["docker, tenants 4"]
    assert found.of == len(found.pages) == 120
    assert found.pages.tolist()[:60] == list(range(60))
    assert found.seconds[-1] == pytest.approx(1.19)
    figure = hot_pages_figure(traced_trials(store))
    assert figure is not None and "120 page writes" in figure.reading


def test_a_trial_without_write_backs_counts_as_none_and_one_without_the_events_is_left_out(tmp_path: Path) -> None:
    root = traced_store(tmp_path / "store", {"aaaa": cell("bare", 1, lost={"count": [0]})})
    with Store.open(root) as opened:
        trials = traced_trials(opened)
        assert writebacks.section(trials) is None
        assert writebacks.intervals_section(trials) is None
        assert writebacks.hot_pages(trials) is None
        assert hot_pages_figure(trials) is None


def test_a_long_trace_is_thinned_for_the_scatter(tmp_path: Path) -> None:
    many = page_writes(list(range(9000)))
    with Store.open(traced_store(tmp_path / "store", {"aaaa": cell("bare", 1, page_writes=many)})) as opened:
        (found,) = writebacks.scatters(traced_trials(opened))
    assert (found.of, len(found.pages)) == (9000, 3000)
