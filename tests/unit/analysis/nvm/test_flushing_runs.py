"""What a flushing layer comes to: its ends (no buffer, no limit), its figures, tenants, stores, and its speed.

Traces in files: the same page writes by every way in, and a sentence with the line for each way to be wrong.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from tare.base.errors import StudyError
from tare.kernel.nvm import sources
from tare.kernel.nvm.model import DESTAGES, POLICIES, Latency, Layer, Piece, Run, Trace, Writes, trace_of
from tare.kernel.nvm.replay import Simulation, simulate, writes_per_s
from tare.kernel.nvm.sources import bands, has_page_writes, pooled, store_traces, trace_file
from tare.papers.claims.deciding import answers, claims_of, source_of
from tare.records.store import Store
from traced_stores import page_writes, traced_store

HEADER = "t_s,dev,inode,page,tenant\n"
ROWS = [(0.5 * n, 8 + n % 2, 100 + n % 3, n % 7, "ab"[n % 2]) for n in range(60)]
SMALL = [Layer(POLICIES["lru"], 5 * 4096), Layer(POLICIES["lru"], 2 * 4096, DESTAGES["async"])]


def csv(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def parquet(folder: Path, rows: str, more: str = "") -> Path:
    path = folder / "trace.parquet"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT PARQUET{more})")
    return path


def simulated(path: Path, divided: bool = False) -> Simulation:
    with trace_file(path) as trace:
        return simulate(trace, SMALL, divided=divided)


def lines(rows: list[tuple]) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def test_csv_and_parquet_of_the_same_writes_give_the_same_runs(tmp_path: Path) -> None:
    text = csv(tmp_path, HEADER + lines(ROWS))
    typed = parquet(tmp_path, f"SELECT * FROM read_csv('{text}')")
    for divided in (False, True):
        ours, theirs = simulated(text, divided), simulated(typed, divided)
        assert [run.tenants for run in ours.runs] == [run.tenants for run in theirs.runs]
        assert (
            ours.distinct_pages
            == theirs.distinct_pages
            == len({row[1:4] + (row[4:] if divided else ()) for row in ROWS})
        )
    assert ours.trace.tenants == ("a", "b")
    assert ours.trace.duration_s == pytest.approx(ROWS[-1][0])


def test_devices_and_files_may_be_words(tmp_path: Path) -> None:
    words = [(t, f"8:{dev}", f"/data/it's {inode}", page, tenant) for t, dev, inode, page, tenant in ROWS]
    plain = simulated(csv(tmp_path, HEADER + lines(ROWS), "plain.csv"))
    worded = simulated(csv(tmp_path, HEADER + lines(words), "worded.csv"))
    assert [run.tenants for run in worded.runs] == [run.tenants for run in plain.runs]


def test_numbers_too_wide_for_one_key_are_told_apart_all_the_same(tmp_path: Path) -> None:
    wide = [(t, dev << 40, inode * (1 << 56), page, tenant) for t, dev, inode, page, tenant in ROWS]
    plain = simulated(csv(tmp_path, HEADER + lines(ROWS), "plain.csv"))
    assert [run.tenants for run in simulated(csv(tmp_path, HEADER + lines(wide))).runs] == [
        run.tenants for run in plain.runs
    ]


def test_a_piece_begins_where_the_last_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = csv(tmp_path, HEADER + lines(ROWS))
    whole = simulated(path)
    monkeypatch.setattr(sources, "PIECE_ROWS", 7)
    assert [run.tenants for run in simulated(path).runs] == [run.tenants for run in whole.runs]


def test_a_trace_without_tenants_and_in_nanoseconds(tmp_path: Path) -> None:
    path = parquet(tmp_path, "SELECT 3 * range AS t_ns, 1 AS dev, 2 AS inode, range % 4 AS page FROM range(40)")
    with trace_file(path) as trace:
        (piece,) = trace.pieces()
    assert trace.tenants == ("",)
    assert piece.times_ns.tolist() == [3 * n for n in range(40)]
    assert len(np.unique(piece.keys)) == 4


def test_a_file_may_say_how_large_its_pages_are(tmp_path: Path) -> None:
    rows = "SELECT 0.0::DOUBLE AS t_s, 1 AS dev, 2 AS inode, 3 AS page"
    with trace_file(parquet(tmp_path, rows, ", KV_METADATA {page_bytes: '16384'}")) as trace:
        assert simulate(trace, SMALL).page_bytes == 16384
        assert simulate(trace, SMALL, page_bytes=8192).page_bytes == 8192


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        (HEADER, "the trace has no rows"),
        ("t_s,dev,inode\n1,1,1\n", "no column 'page'; available: t_s, dev, inode"),
        ("dev,inode,page\n1,1,1\n", "no column 't_s'"),
        (HEADER + "0,1,1,1,a\n1,1,1,x,a\n", ":3: column 'page': 'x' is not a whole number"),
        (HEADER + "0,1,1,1,a\nsoon,1,1,1,a\n", ":3: column 't_s': 'soon' is not a number"),
        (HEADER + "0,1,1,1,a\nnan,1,1,1,a\n", ":3: column 't_s': 'nan' is not a time"),
        (HEADER + "0,1,1,-5,a\n", ":2: column 'page': -5 is below zero"),
        (HEADER + "0,1,1,1,a\n0,1,,1,a\n", ":3: column 'inode': it is empty"),
        (HEADER + "0,1,1,1,a\n0,1,1,1,\n", ":3: column 'tenant': it is empty"),
        (HEADER + "0,1,1,1,a\n0,8:0,1,1,a\n", ":3: column 'dev': '8:0' is not a whole number"),
        (HEADER + "0,1,1,1,a\n0,1,1\n", ":3: it has 3 fields where the header has 5"),
        (HEADER + "2,1,1,1,a\n\n1,1,1,1,a\n", ":4: column 't_s': the time goes back; sort the trace"),
        ("t_s,dev,dev,page\n", ":1: two columns have the same name"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_csv_trace_is_said_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(StudyError) as error:
        simulated(csv(tmp_path, text))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("SELECT 0.0::DOUBLE AS t_s, 1 AS dev, 2 AS inode, 1.5::DOUBLE AS page", "column 'page' holds DOUBLE"),
        ("SELECT range::DOUBLE AS t_s, 1 AS dev, 2 AS inode, nullif(range, 3) AS page FROM range(9)",
         "row 4, column 'page': it is empty"),
        ("SELECT range::DOUBLE AS t_s, 1 AS dev, 2 - range AS inode, 7 AS page FROM range(9)",
         "row 4, column 'inode': -1 cannot be"),
        ("SELECT 9.0 - range::DOUBLE AS t_s, 1 AS dev, 2 AS inode, 7 AS page FROM range(9)",
         "row 2, column 't_s': the time goes back"),
        ("SELECT 0.0::DOUBLE AS t_s, 1 AS dev, 2 AS inode, 7 AS page, range AS tenant FROM range(300)",
         "column 'tenant' has 300 different values; at most 256"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_parquet_trace_is_said_with_its_row(tmp_path: Path, rows: str, told: str) -> None:
    with pytest.raises(StudyError) as error:
        simulated(parquet(tmp_path, rows))
    assert told in str(error.value)


def test_what_is_no_parquet_and_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="cannot be read as Parquet"):
        simulated(csv(tmp_path, "hello", "trace.parquet"))
    with pytest.raises(StudyError, match="no such file"):
        simulated(tmp_path / "gone.csv")


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    simulated(csv(tmp_path, HEADER + lines(ROWS)))
    assert not list((tmp_path / "tmp").iterdir())


def made_up(pages: Any, **more: Any) -> Trace:
    count = len(pages)
    columns = {"t_ns": np.arange(count) * 1000, "dev": np.ones(count, int), "inode": np.ones(count, int)}
    return trace_of("made up", {**columns, "page": np.asarray(pages), **more})


def run_of(pages: Any, policy: str, size_pages: int | None, destage: str = "sync") -> Run:
    size = None if size_pages is None else size_pages * 4096
    return simulate(made_up(pages), [Layer(POLICIES[policy], size, DESTAGES[destage])]).runs[0]


@pytest.mark.parametrize("policy", list(POLICIES))
def test_no_buffer_improves_nothing(policy: str) -> None:
    found = run_of([1, 2, 1, 2, 3], policy, 0).as_json()
    assert (found["improvement"], found["disk_writes"], found["nvm_writes"]) == (0, 5, 0)
    assert found["latency_s"] == found["latency_disk_only_s"] == pytest.approx(5 * 8e-3)
    assert found["p99_s"] == 8e-3


@pytest.mark.parametrize("destage", list(DESTAGES))
@pytest.mark.parametrize("size", [None, 3, 1 << 40])
def test_a_buffer_without_an_end_serves_every_write_back_at_its_speed(destage: str, size: int) -> None:
    found = run_of([1, 2, 1, 2, 3], "lru", size, destage).as_json()
    assert (found["disk_writes"], found["nvm_writes"], found["left_in_nvm"]) == (0, 5, 3)
    assert found["latency_s"] == pytest.approx(5 * 350e-9)
    assert found["p99_s"] == 350e-9
    assert found["improvement"] == pytest.approx(1 - 350e-9 / 8e-3)


def test_a_loop_larger_than_the_buffer_defeats_lru() -> None:
    loop = [*range(10)] * 50
    assert run_of(loop, "lru", 9).writes.absorbed == 0
    assert run_of(loop, "lru", 10).writes.absorbed == 490


def test_a_rewrite_makes_a_page_the_youngest() -> None:
    assert run_of([1, 2, 1, 3, 1], "lru", 2).writes.absorbed == 2  # 3 takes the place of 2
    assert run_of([1, 1, 2, 3, 1], "lru", 2).writes.absorbed == 1  # 3 takes the place of 1


def test_a_page_that_makes_room_is_destaged_whoever_waits() -> None:
    runs = [run_of(range(200), "lru", 20, destage) for destage in ("sync", "async")]
    assert [(run.writes.evicting, run.destaged, run.left) for run in runs] == [(180, 180, 20)] * 2
    assert [run.as_json()["waited_writes"] for run in runs] == [180, 0]


def test_tenants_of_a_divided_buffer_do_not_drive_each_other_out() -> None:
    pages = [number for step in range(300) for number in (step % 4, 1000 + step)]  # one rewrites, one scans
    who = ["quiet", "loud"] * 300
    trace = made_up(pages, tenant=np.array(who))
    layer = [Layer(POLICIES["lru"], 8 * 4096)]
    shared = simulate(trace, layer).runs[0].tenants["quiet"]
    divided = simulate(trace, layer, divided=True).runs[0].tenants["quiet"]
    assert shared.absorbed == divided.absorbed == 296
    tight = [Layer(POLICIES["lru"], 6 * 4096)]
    assert simulate(trace, tight).runs[0].tenants["quiet"].absorbed == 0


def test_the_percentile_is_that_of_the_nearest_rank() -> None:
    layer = Layer(POLICIES["lru"], 4096)
    assert Latency(Writes(absorbed=99, direct=1), layer).percentile_s(0.99) == layer.nvm_s
    assert Latency(Writes(absorbed=98, direct=2), layer).percentile_s(0.99) == layer.disk_s
    assert Latency(Writes(absorbed=9, evicting=1), layer).percentile_s(0.99) == layer.disk_s + layer.nvm_s
    assert Latency(Writes(), layer).percentile_s(0.99) is None
    assert Latency(Writes(), layer).improvement == 0


def test_the_papers_band_is_found_between_sizes() -> None:
    pages = np.random.default_rng(4).integers(0, 1000, 20_000)
    layers = [Layer(POLICIES["lru"], share * 4096) for share in (100, 500, 850, 999, 2000)]
    (band,) = bands(simulate(made_up(pages), layers).runs)
    assert band.below is not None and band.below.pages == 500
    assert [run.pages for run in band.within] == [850]
    assert band.above is not None and band.above.pages == 999


def test_runs_of_several_trials_are_pooled_by_their_write_backs() -> None:
    runs = [run_of(pages, "lru", 2) for pages in ([1, 2, 3], [1, 1, 1, 1])]
    found = pooled(runs, "both")
    assert found.writes == Writes(absorbed=3, taken=3, evicting=1)
    assert (found.destaged, found.left) == (1, 3)


# Stores


def hot_and_cold(store: Path) -> Path:
    hot = [1, 2, 3, 4] * 100 + list(range(10, 40))
    cold = list(range(400))
    return traced_store(
        store,
        {
            "aaaa": ({"platform": "docker", "tenants": 1}, {"page_writes": page_writes(hot)}),
            "bbbb": ({"platform": "docker", "tenants": 4}, {"page_writes": page_writes(cold)}),
            "cccc": ({"platform": "bare", "tenants": 1}, {}),
        },
    )


def test_each_traced_trial_of_a_store_is_a_trace_of_the_devices_pages(tmp_path: Path) -> None:
    with Store.open(hot_and_cold(tmp_path / "store")) as store:
        assert [record.trial for record in store.records() if has_page_writes(store, record)] == ["aaaa", "bbbb"]
        found = {trace.name: simulate(trace, ()) for trace in store_traces(store)}
    assert [each.distinct_pages for each in found.values()] == [34, 400]
    assert list(found) == ["docker, tenants 1", "docker, tenants 4"]


def test_what_tare_itself_wrote_is_not_simulated(tmp_path: Path) -> None:
    ours = page_writes([9, 9, 9], role="tare")
    root = traced_store(tmp_path / "store", {"aaaa": ({"platform": "bare"}, {"page_writes": ours})})
    with Store.open(root) as store:
        assert [trace.writes for trace in store_traces(store)] == [0]


def test_the_claim_is_told_by_what_the_stores_traces_come_to_and_by_the_assumed_capacity(tmp_path: Path) -> None:
    hot = [*[1, 2, 3, 4] * 100, *range(10, 50)]
    for name, pages, halved in (("hot", hot, True), ("cold", list(range(400)), False)):
        trials = {f"{n:04}": ({"platform": "docker"}, {"page_writes": page_writes(pages)}) for n in range(8)}
        with Store.open(traced_store(tmp_path / name, trials)) as store:
            source = source_of(store, name)
        (answer,) = [a for a in answers(claims_of("s2"), [source]) if a.id == "s2.nvm-layer-cuts-flush-latency"]
        assert (answer.high is not None and answer.high < -0.5) is halved, answer.why
        assert answer.word == "undecided"  # it depends on the capacity, which is assumed
        assert "a tenth of the pages" in answer.why


# Speed, as CPU time: the figure that is promised is in benchmarks/simulate.py


def large(writes: int, pages: int, seed: int = 0) -> Trace:
    """Stretches of 16 pages, some of them hot, as files are written; keys are made a piece at a time."""

    def pieces() -> Any:
        rng = np.random.default_rng(seed)
        for begin in range(0, writes, 1 << 20):
            count = min(1 << 20, writes - begin)
            starts = rng.zipf(1.3, count // 16 + 1) % (pages // 16) * 16
            keys = (starts[:, None] + np.arange(16)).ravel()[:count].astype(np.uint64)
            yield Piece(keys, np.zeros(count, np.uint8), np.arange(begin, begin + count))

    return Trace("large", writes, ("",), pages, pieces)


def spent(trace: Trace) -> Simulation:
    return simulate(trace, [Layer(POLICIES["lru"], 64_000_000)])


def test_a_second_of_one_core_is_enough_for_millions_of_page_writes() -> None:
    best = max(writes_per_s([spent(large(1 << 22, 1 << 20))]) or 0 for _ in range(3))
    assert best > 2e6  # 14 to 20 million here when nobody else is about: a floor for a slow, shared machine, too


def test_twice_the_trace_takes_about_twice_the_time() -> None:
    short = min(spent(large(1 << 21, 1 << 18)).simulate_s for _ in range(3))
    long = min(spent(large(1 << 23, 1 << 18)).simulate_s for _ in range(3))
    assert long < 4 * short * 2.5


def test_memory_grows_with_the_pages_and_not_with_the_trace() -> None:
    def peak(writes: int, pages: int) -> int:
        tracemalloc.start()
        try:
            spent(large(writes, pages))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, long, many = peak(1 << 22, 1 << 14), peak(1 << 24, 1 << 14), peak(1 << 22, 1 << 21)
    assert long < 1.2 * few
    assert few < many < few + 200 * (1 << 21)  # bytes a page, with the room to grow
