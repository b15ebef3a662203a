"""The chart library as one script, which is kept; its engine; the outline of a violin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import vl_convert

from tare.report import figure
from tare.report.charts.resources import relative_density


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache with nothing in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tare" / "charts"


@pytest.fixture
def bundles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the library was asked to make a script of."""
    asked: list[str] = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda ours: asked.append(ours) or f"made of {len(ours)}")
    return asked


def make(name: str = "figures.js") -> str:
    return figure.script.__wrapped__(name)


def test_the_script_is_made_once_and_kept_for_other_processes(cache: Path, bundles: list[str]) -> None:
    first = make()
    assert (make(), len(bundles)) == (first, 1)
    assert [path.read_text() for path in cache.iterdir()] == [first]


def test_another_library_or_other_lines_of_ours_are_another_script(
    cache: Path, bundles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    monkeypatch.setattr(vl_convert, "__version__", "0.0.1")
    make()
    assert len(list(cache.iterdir())) == len(bundles) == 2


def test_a_kept_script_of_somebody_else_is_not_used(
    cache: Path, bundles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    owner = next(cache.iterdir()).stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    make()
    assert len(bundles) == 2


def test_where_nothing_can_be_kept_it_is_made_each_time(
    tmp_path: Path, bundles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    make()
    make()
    assert len(bundles) == 2


def test_a_full_disk_leaves_nothing_half_made_in_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refused)
    figure.keep("charts-x.js", b"half")
    assert list(cache.iterdir()) == []


def test_the_engine_is_started_before_it_is_needed_and_a_report_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(vl_convert, "vega_to_html", lambda chart, bundle: started.append(chart))
    figure.start_engine.__wrapped__()
    assert started == [{}]
    monkeypatch.delattr(vl_convert, "vega_to_html")
    figure.start_engine.__wrapped__()


def test_the_outline_is_scipys_kernel_density() -> None:
    values = np.random.default_rng(3).lognormal(size=200)
    grid = np.linspace(values.min(), values.max(), 60)
    from scipy.stats import gaussian_kde  # a second of every worker that collects

    theirs = gaussian_kde(values)(grid)
    assert relative_density(values, grid) == pytest.approx(theirs / theirs.max(), rel=1e-9)
