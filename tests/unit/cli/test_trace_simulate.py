"""`tare trace simulate` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from golden_files import assert_as_in_file
from tare.base.errors import StoreError, StudyError
from tare.cli import tare as verbs
from traced_stores import page_writes, traced_store

KEYS = {
    "policy", "nvm_bytes", "page_writes", "disk_writes", "nvm_writes", "latency_s", "latency_disk_only_s",
    "improvement", "p99_s",
}  # fmt: skip


def tare(*words: str, columns: int = 80) -> Result:
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(
        verbs, ["trace", "simulate", *words], standalone_mode=False, catch_exceptions=True
    )
    if done.exception is not None:
        raise done.exception
    return done


def found(*words: str) -> dict:
    return json.loads(tare(*words, "--json").stdout)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Two tenants, 2,000 page writes, some pages hot; one every 5 ms."""
    rng = np.random.default_rng(7)
    pages = np.where(rng.random(2000) < 0.7, rng.integers(0, 60, 2000), rng.integers(0, 900, 2000))
    rows = [f"{0.005 * n:.3f},8388608,{100 + page % 5},{page},tenant{1 + n % 2}" for n, page in enumerate(pages)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["t_s,dev,inode,page,tenant", *rows]) + "\n")
    return str(path)


def test_the_data_are_those_that_the_issue_names(trace: str) -> None:
    data = found(trace, "--nvm-size", "64MB,256MB", "--policy", "lru,none")
    assert [(run["policy"], run["nvm_bytes"]) for run in data["runs"]] == [
        ("lru", 64_000_000),
        ("lru", 256_000_000),
        ("none", 0),
    ]
    assert all(run.keys() >= KEYS for run in data["runs"])
    assert data["writes_per_s"] > 0
    large, _, none = data["runs"]
    assert (none["improvement"], none["disk_writes"], none["latency_s"]) == (0, 2000, pytest.approx(16.0))
    assert (large["nvm_writes"], large["disk_writes"]) == (2000, 0)
    assert large["latency_s"] == pytest.approx(2000 * 350e-9)


def test_times_sizes_and_pages_are_as_asked(trace: str) -> None:
    (run,) = found(trace, "--disk", "2ms", "--nvm", "1us", "--nvm-size", "1MiB", "--page-size", "16KiB",
                   "--policy", "lru")["runs"]  # fmt: skip
    assert run["nvm_pages"] == 64
    assert run["latency_disk_only_s"] == pytest.approx(2000 * 2e-3)
    waited = run["waited_writes"]
    assert waited > 0
    assert run["latency_s"] == pytest.approx(2000 * 1e-6 + waited * 2e-3)
    assert run["disk_writes"] == run["destaged_writes"] == waited


def test_the_default_sweeps_policies_and_sizes(trace: str) -> None:
    runs = found(trace)["runs"]
    assert {run["policy"] for run in runs} == {"none", "lru"}
    assert len({run["nvm_bytes"] for run in runs}) == 14


def test_unlimited_is_a_size(trace: str) -> None:
    (run,) = found(trace, "--nvm-size", "unlimited", "--policy", "lru")["runs"]
    assert (run["nvm_bytes"], run["disk_writes"]) == (None, 0)


def test_destaging_and_dividing_are_part_of_the_result(trace: str) -> None:
    runs = found(trace, "--nvm-size", "400kB", "--policy", "lru", "--destage", "sync,async", "--buffer", "divided")
    sync, background = runs["runs"]
    assert [run["destage"] for run in runs["runs"]] == ["sync", "async"]
    assert background["waited_writes"] == 0 < background["destaged_writes"]
    assert background["latency_s"] < sync["latency_s"]
    assert set(sync["tenants"]) == {"tenant1", "tenant2"}
    assert sum(each["page_writes"] for each in sync["tenants"].values()) == 2000
    assert runs["assumptions"]["buffer"] == "divided"


@pytest.mark.parametrize("columns", [80, 40])
def test_the_table_is_as_it_was_accepted(trace: str, columns: int) -> None:
    words = (trace, "--nvm-size", "100kB,400kB,1MiB,unlimited", "--destage", "sync,async")
    assert_as_in_file(tare(*words, columns=columns).stdout.rstrip("\n"), f"report/simulate-{columns}.txt")


def test_no_line_is_wider_than_the_terminal(trace: str) -> None:
    assert max(map(len, tare(trace).stdout.splitlines())) <= 80


def test_a_store_is_simulated_cell_by_cell(tmp_path: Path) -> None:
    hot = page_writes([1, 2, 3, 4] * 100)
    trials = {name: ({"platform": "docker", "tenants": n}, {"page_writes": hot})
              for name, n in (("aaaa", 1), ("bbbb", 1), ("cccc", 4))}  # fmt: skip
    root = str(traced_store(tmp_path / "store", trials))
    data = found(root, "--nvm-size", "16KiB", "--policy", "lru")
    assert [trace["trial"] for trace in data["traces"]] == ["aaaa", "bbbb", "cccc"]
    assert [run["trace"] for run in data["runs"]] == ["docker, tenants 1"] * 2 + ["docker, tenants 4"]
    text = tare(root, "--nvm-size", "16KiB").stdout
    assert "docker, tenants 1 in 2 trials: 800 page writes" in text


def test_a_store_without_traces_says_what_is_missing(tmp_path: Path) -> None:
    root = traced_store(tmp_path / "store", {"aaaa": ({"platform": "bare"}, {})})
    with pytest.raises(StudyError, match="no usable trial of this store has page writes: they take the ftrace probe"):
        tare(str(root))
    with pytest.raises(StoreError):
        tare(str(tmp_path))


def test_figure_6_is_drawn(trace: str, tmp_path: Path) -> None:
    for kind, start in (("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        drawn = tmp_path / f"figure.{kind}"
        tare(trace, "-o", str(drawn))
        assert drawn.read_bytes().startswith(start)
    assert b"latency, of the disk alone" in (tmp_path / "figure.svg").read_bytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--policy", "fifo"], "No policy 'fifo'. Available: none, lru"),
        (["--policy", "lru,hot"], "No policy 'hot'. Available: none, lru"),
        (["--destage", "later"], "No way to destage 'later'. Available: sync, async"),
        (["--destage", "idle"], "No way to destage 'idle'. Available: sync, async"),
        (["--nvm-size", "64"], "'64' has no unit"),
        (["--nvm-size", "64MB,huge"], "'huge' is not a size"),
        (["--disk", "8"], "'8' has no unit"),
        (["--disk", "0ms"], "must be more than zero"),
        (["--page-size", "0B"], "a page has at least one byte"),
        (["-o", "figure.gif"], "a figure ends in .svg, .pdf, .png"),
        (["--reserve", "20%"], "No such option"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_is_read(trace: str, words: list[str], told: str) -> None:
    with pytest.raises((click.UsageError, StudyError)) as error:
        tare(trace, *words)
    assert told in str(error.value)
