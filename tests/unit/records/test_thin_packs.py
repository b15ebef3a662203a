"""A thinned pack: what the figures need is in it, the rest is vouched for by hashes, and strange ones are refused."""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from some_records import draft, ended
from tare.base import strict_json
from tare.base.errors import StoreError
from tare.base.units import Channel
from tare.records import thin_pack
from tare.records.column_codec import StreamWriter
from tare.records.merging import merge
from tare.records.pack import pack
from tare.records.parquet import TableFiles, TableName
from tare.records.schema import THINNED_FILE
from tare.records.spool import SpoolWriter
from tare.records.store import Store
from tare.records.thin_pack import InOrder, Thinning, held, thinned_content
from tare.records.unpack import KeptFolder, each_pack_once

FAULTS, STARTS, WRITES = TableName("perf", "faults"), TableName("ftrace", "starts"), TableName("ftrace", "writes")
THINNING = Thinning(
    lambda channel: channel["unit"] == "W",
    {FAULTS: ("role", "file")},
    {WRITES: InOrder(("role", "page"), "page", STARTS, lambda writes: np.append(2_000_500, writes["t_ns"].max()))},
)
CHANNELS = (Channel("gpu.power_w", "W", "gauge"), Channel("memory.used_bytes", "bytes", "gauge"))
TICKS = 12
MARKS = [
    (1_000_500, "step", "begin", 0),
    (2_000_999, "step", "end", 0),
    (2_001_001, "step", "begin", 1),
    (3_000_000, "step", "end", 1),
]


@pytest.fixture
def store(tmp_path) -> Path:
    with Store.create(tmp_path / "store", {"study": "s"}, "study: s\n") as opened:
        opened.plan([draft("aaaa"), draft("bbbb", position=1)])
        sealed(opened, "aaaa")
        sealed(opened, "bbbb", position=1)
    return tmp_path / "store"


def sealed(store: Store, trial: str, **changes) -> None:
    begun = draft(trial, start_ns=500_500, **changes)
    writer = store.begin(begun)
    with SpoolWriter(writer.spool) as spool:
        spool.channels(CHANNELS)
        for tick in range(TICKS):
            t_ns = 1_000_000 + tick * 100_777
            spool.tick(t_ns, [(t_ns, "gpu.power_w", 70 + tick / 3), (t_ns, "memory.used_bytes", 4096.0 * tick)])
    with TableFiles(writer.tables) as files:
        files.add(
            FAULTS,
            {
                "t_ns": np.array([2_000_100, 1_500_000, 2_500_000, 600_000]),
                "role": ["workload", "workload", "daemon", "daemon"],
                "file": ["libc", "libc", None, None],
                "address": np.array([4096, 8192, 12288, 16384], np.uint64),
            },
        )
        files.add(STARTS, {"t_ns": np.array([2_000_123]), "took_s": np.array([0.1 + 0.2]), "reason": ["sync"]})
        files.add(
            WRITES,
            {
                "t_ns": np.array([3_000_000, 1_500_000, 2_100_000, 12_345_678, 2_100_000, 2_000_123]),
                "page": np.array([13, 7, 11, 14, 12, 10]),
                "role": ["workload"] * 6,
                "cpu": np.zeros(6, np.int32),
            },
        )
        files.write()
    writer.seal(ended(begun), MARKS, "loss 0.1\r\n", "a warning\n")


@pytest.fixture
def thinned(store, tmp_path) -> Path:
    return thinned_as(store, tmp_path / "s.tare")


def thinned_as(store: Path, output: Path) -> Path:
    with Store.open(store) as opened:
        pack(opened, output, THINNING)
    return output


def test_records_plan_and_output_are_as_they_were_sealed(store, thinned):
    with Store.open(store) as whole, Store.open(thinned) as thin:
        assert thin.records() == whole.records()
        assert thin.planned() == whole.planned()
        assert thin.output("bbbb", 1) == whole.output("bbbb", 1)
        assert (thin.verify(), thin.problems) == ([], [])


def test_the_hashes_of_everything_that_was_sealed_are_kept(store, thinned):
    marks = store / "trials" / "aaaa.1" / "marks.parquet"
    with Store.open(thinned) as thin, Store.open(store) as whole:
        kept = thin.thinned("aaaa", 1)
        assert kept is not None
        assert kept.sealed["marks.parquet"] == (
            marks.stat().st_size,
            hashlib.sha256(marks.read_bytes()).hexdigest(),
        )
        assert kept.resolution_ns == 1000
        assert whole.thinned("aaaa", 1) is None


def test_marks_are_all_there_to_a_microsecond(thinned):
    with Store.open(thinned) as thin:
        marks = thin.marks("aaaa", 1)
    rows = list(zip(*(marks[name].tolist() for name in ("t_ns", "name", "edge", "step")), strict=True))
    assert rows == [(t_ns // 1000 * 1000, name, edge, step) for t_ns, name, edge, step in MARKS]


def test_a_mark_may_have_a_name_of_two_lines(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "MARKS", [(1_000_500, "a\nb", "begin", 0)])
    with Store.create(tmp_path / "store", {"study": "s"}, "study: s\n") as opened:
        sealed(opened, "aaaa")
    with Store.open(thinned_as(tmp_path / "store", tmp_path / "s.tare")) as opened:
        marks = opened.marks("aaaa", 1)
    assert (marks["name"].tolist(), marks["edge"].tolist()) == (["a\nb"], ["begin"])


def test_a_channel_that_figures_need_is_whole_and_of_another_every_fifth_reading_and_the_last_is_kept(store, thinned):
    with Store.open(store) as whole, Store.open(thinned) as thin:
        before, after = whole.readings("aaaa", 1), thin.readings("aaaa", 1)
    assert after["gpu.power_w"][1].tolist() == before["gpu.power_w"][1].tolist()
    assert after["gpu.power_w"][0].tolist() == [t_ns // 1000 * 1000 for t_ns in before["gpu.power_w"][0].tolist()]
    assert after["memory.used_bytes"][1].tolist() == [4096.0 * tick for tick in (0, 5, 10, 11)]


def test_quantiles_are_made_again_from_what_is_there(store, thinned):
    with Store.open(store) as whole, Store.open(thinned) as thin:
        power, memory = thin.channels("aaaa", 1)
        assert power == whole.channels("aaaa", 1)[0]
        assert memory["count"] == 4
        assert memory["quantiles"][-1] == 4096 * 11


def test_events_that_are_only_counted_stand_at_the_mark_before_them(thinned):
    with Store.open(thinned) as thin:
        faults = thin.trace("aaaa", 1, "perf", "faults")
        starts = thin.trace("aaaa", 1, "ftrace", "starts")
    assert list(faults) == ["t_ns", "role", "file"]
    assert faults["t_ns"].tolist() == [500_000, 1_000_000, 2_000_000, 2_001_000]  # the first: where the trial began
    assert np.ma.filled(faults["file"], "").tolist() == ["", "libc", "libc", ""]
    assert starts["t_ns"].tolist() == [2_000_000]
    assert starts["took_s"].tolist() == [0.3]


def test_events_whose_order_counts_stand_where_figures_look_and_stretches_of_them_are_kept_as_one(thinned):
    with Store.open(thinned) as thin:
        writes = thin.trace("aaaa", 1, *WRITES)
    assert list(writes) == ["t_ns", "role", "page"]
    assert writes["page"].tolist() == [7, 10, 11, 12, 13, 14]
    assert writes["t_ns"].tolist() == [0, 2_000_000, *[2_001_000] * 3, 12_345_000]
    assert header_of(thinned)["tables"][WRITES.file]["runs"]["lengths"] == [4, 4]


def test_the_same_store_makes_the_same_bytes_also_from_a_thinned_pack(store, thinned, tmp_path):
    assert thinned_as(store, tmp_path / "again.tare").read_bytes() == thinned.read_bytes()
    assert thinned_as(thinned, tmp_path / "of-a-pack.tare").read_bytes() == thinned.read_bytes()


def test_thinned_trials_are_merged_and_packed_like_others(thinned, tmp_path):
    with Store.create(tmp_path / "into", {"study": "s"}, "study: s\n") as into:
        assert len(merge(into, [thinned]).copied) == 2
        assert into.thinned("aaaa", 1) is not None
        assert into.verify() == []
        pack(into, tmp_path / "whole.tare")
    with Store.open(tmp_path / "whole.tare") as opened:
        assert opened.thinned("bbbb", 1) is not None


def changed(pack_file: Path, old: bytes, new: bytes) -> Path:
    """The pack with other content in its one file."""
    with tarfile.open(pack_file) as tar:
        members = [(member, tar.extractfile(member).read()) for member in tar.getmembers()]
    with lzma.open(pack_file, "wb") as xz, tarfile.open(fileobj=xz, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member, data in members:
            if member.name == THINNED_FILE:
                assert old in data
                data = data.replace(old, new, 1)
                member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return pack_file


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"step_s":0.00184', b'"step_s":0.00183', "record.json is not what was sealed"),
        (b"loss 0.1", b"loss 0.2", "out.txt is not what was sealed"),
        (b'"trials":["aaaa.1"', b'"trials":["../a.1"', "is no name of a trial"),
        (b'"format":2', b'"format":7', "format 7"),
        (bytes([2, 0, 4, 3] * 2), bytes([2, 0, 4, 5] * 2), "rows of an unknown number"),  # 1, 1, 3, 1: differences
        (b'"unit":"W"', b'"Unit":"W"', "channels.json has a channel without"),
        (b'"trace-perf-faults.parquet":{"trials"', b'"../../perf-faults.parquet":{"trials"', "is no table of a trial"),
    ],
)
def test_a_pack_that_was_changed_is_refused_as_a_whole(thinned, old, new, why):
    with pytest.raises(StoreError, match=why):
        Store.open(changed(thinned, old, new))


def test_a_thinned_pack_that_is_cut_off_is_refused(thinned):
    with tarfile.open(thinned) as tar:
        data = tar.extractfile(THINNED_FILE).read()
    with pytest.raises(StoreError, match="it is cut off"):
        Store.open(changed(thinned, data, data[:-3]))


def test_a_pack_that_is_read_where_it_lies_holds_what_its_files_would(thinned):
    with Store.open(thinned) as files, each_pack_once(), Store.open(thinned) as held, Store.open(thinned) as again:
        assert [path for path in (held.root / "trials").rglob("*") if path.is_file()] == []
        for record in files.records():
            key = record.trial, record.attempt
            for store in (held, again):
                assert store.records() == files.records() and store.output(*key) == files.output(*key)
                assert store.channels(*key) == files.channels(*key) and store.thinned(*key) == files.thinned(*key)
                assert store.traces(*key) == files.traces(*key)
                assert {name: same(*pair) for name, pair in store.readings(*key).items()} == {
                    name: same(*pair) for name, pair in files.readings(*key).items()
                }
                of_store = [store.marks(*key), *store.tables(*key, "perf").values(), store.trace(*key, *STARTS)]
                of_files = [files.marks(*key), *files.tables(*key, "perf").values(), files.trace(*key, *STARTS)]
                assert [list(table) for table in of_store] == [list(table) for table in of_files]
                assert [same(*table.values()) for table in of_store] == [same(*table.values()) for table in of_files]


def same(*columns: np.ndarray) -> list[tuple[np.dtype, list]]:
    return [(column.dtype, column.tolist()) for column in columns]


def test_a_packs_study_is_told_without_a_look_at_its_trials(thinned):
    """`tare papers tables` asks this of every pack in a folder."""
    thinned.write_bytes(thinned.read_bytes()[:-40])
    assert Store.header_at(thinned).study == {"study": "s"}
    with each_pack_once():
        assert Store.header_at(thinned) == Store.header_at(thinned)
    with pytest.raises(StoreError, match="it is cut off"):
        Store.open(thinned)


def content_of(pack_file: Path) -> tuple[bytes, int]:
    """Its one file, and how long the description in it is."""
    with tarfile.open(pack_file) as tar:
        data = tar.extractfile(THINNED_FILE).read()
    return data, int.from_bytes(data[:8], "little")


def header_of(pack_file: Path):
    data, size = content_of(pack_file)
    return strict_json.load(data[8 : 8 + size])


def rewritten(pack_file: Path, change) -> Path:
    """The pack with a description that `change` was let at."""
    data, size = content_of(pack_file)
    change(header := header_of(pack_file))
    about = strict_json.dump(header)
    return changed(pack_file, data, len(about).to_bytes(8, "little") + about + data[8 + size :])


def column(header, name: str, file: str = "trace-perf-faults.parquet"):
    return header["tables"][file]["columns"][name]


HOSTILE = {
    "a scale": lambda header: column(header, "took_s", STARTS.file).update(scale=10**400),
    "words that are none": lambda header: column(header, "role").update(words=[1, 2]),
    "half a surrogate pair": lambda header: column(header, "role").update(words=["\ud800", "b"]),
    "a word too few": lambda header: column(header, "role").update(words=["a"]),
    "columns of two lengths": lambda header: column(header, "role").update(lengths=[5, 3]),
    "columns of one name": lambda header: header["tables"][FAULTS.file].update(
        columns={
            "T_ns" if name == "role" else name: its for name, its in header["tables"][FAULTS.file]["columns"].items()
        }
    ),
    "a table of a trial that is not there": lambda header: header["tables"][FAULTS.file].update(trials=[0, -1]),
    "a table twice of a trial": lambda header: header["tables"][FAULTS.file].update(trials=[1, 1]),
    "runs of words": lambda header: header["tables"][WRITES.file]["runs"].update(type="text", words=list("abcdefgh")),
    "runs of other trials": lambda header: header["tables"][WRITES.file]["runs"].update(lengths=[3, 5]),
    "a word that rises": lambda header: header["tables"][WRITES.file].update(rises="role"),
    "what rises has no runs": lambda header: header["tables"][STARTS.file].update(rises="t_ns"),
    "what is not there rises": lambda header: header["tables"][WRITES.file].update(rises="pages"),
    "marks that are numbers": lambda header: header["marks"]["kinds"].update(type="int64", words=["a"]),
    "marks of an unknown edge": lambda header: header["marks"]["kinds"].update(words=["step\nbegin", "step\nover"]),
    "steps that are fractions": lambda header: header["marks"]["steps"].update(type="float64"),
    "steps of other trials": lambda header: header["marks"]["steps"].update(lengths=[3, 5]),
    "values without times": lambda header: header["readings"][1]["values"].update(lengths=[3, 5]),
    "values that are times": lambda header: header["readings"][0]["values"].update(type="int64"),
    "readings of a trial that is not there": lambda header: header["readings"][0].update(trials=[0, 2]),
    "readings twice of a trial": lambda header: header["readings"][0].update(trials=[0, 0]),
    "a trial twice": lambda header: header.update(trials=["aaaa.1", "aaaa.1"]),
    "a unit": lambda header: header.update(resolution_ns=[10**400, 1000]),
}


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_description_that_does_not_fit_is_refused_when_the_pack_is_opened(thinned, change, held):
    hostile = rewritten(thinned, change)
    with each_pack_once() if held else nullcontext(), pytest.raises(StoreError, match="this pack is refused: it is"):
        Store.open(hostile)


def test_times_that_channels_share_count_against_what_a_pack_may_make(store, tmp_path):
    with Store.open(store) as opened:
        content = thinned_content([opened._shelf.get(("aaaa", 1))], Thinning(lambda channel: True))
    written = sum(sum(map(int, found[1].split(b","))) for found in re.finditer(rb'"lengths":\[([0-9,]+)\]', content))
    assert len(list(held(memoryview(content), tmp_path, 8 * (written + TICKS)))) == 1
    with pytest.raises(ValueError, match="a column that is too long"):
        list(held(memoryview(content), tmp_path, 8 * (written + TICKS - 1)))


def test_a_pack_that_is_damaged_after_it_was_unpacked_is_refused(thinned):
    with each_pack_once(), Store.open(thinned) as opened:
        (opened.root / THINNED_FILE).write_bytes(b"")
        with pytest.raises(StoreError, match="this pack is refused: it is damaged"):
            KeptFolder(opened.root, thinned).sealed  # noqa: B018  (as a process that was forked opens it)


def test_what_was_read_of_a_held_pack_cannot_be_written(thinned):
    with each_pack_once(), Store.open(thinned) as opened:
        handed_out = [*opened.readings("aaaa", 1)["gpu.power_w"], opened.marks("aaaa", 1)["t_ns"]]
        for array in [*handed_out, *opened.trace("aaaa", 1, *FAULTS).values()]:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = array[1]


def test_trials_whose_tables_have_different_columns_are_not_thinned_together():
    tables = [{"t_ns": np.arange(3), "role": np.array(["a"] * 3)}, {"t_ns": np.arange(3)}]
    with pytest.raises(StoreError, match="different columns in trace-perf-faults"):
        thin_pack._add_table(StreamWriter(), FAULTS, tables, Thinning(lambda channel: True, {FAULTS: ("role",)}))
