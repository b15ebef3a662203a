"""Arrays of many trials in few bytes: whatever goes in comes back bit by bit, and strange bytes are refused.

Columns as plain arrays: what is read is what Parquet would give.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tare.base import strict_json
from tare.records import parquet
from tare.records.column_codec import PlainColumns, StreamError, StreamReader, StreamWriter
from tare.records.parquet import columns_of, engine, read_distributions, write_columns

KINDS = ("int64", "int32", "uint64", "float64", "bool")


def round_trip(columns: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    writer = StreamWriter()
    abouts = strict_json.load(strict_json.dump([writer.add(column) for column in columns]))
    reader = StreamReader(memoryview(bytes(writer.body)), 10_000)
    found = [reader.take(about) for about in abouts]
    reader.end()
    for stream in found:
        one_by_one = [stream.of(place).tobytes() for place in range(len(stream.lengths))]
        assert one_by_one == [each.tobytes() for each in stream.each()]
    return [stream.each() for stream in found]


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.lists(arrays.arrays(kind, st.integers(0, 9)), max_size=5)))
def test_every_number_comes_back_bit_by_bit(column):
    [found] = round_trip([column])

    assert [(each.dtype, each.tobytes()) for each in found] == [(each.dtype, each.tobytes()) for each in column]


def test_texts_come_back_as_places_in_a_list_of_words():
    writer = StreamWriter()
    about = writer.add([np.array(["b", None, "a"], dtype=object), np.array(["ä"], dtype=object)])

    found = StreamReader(memoryview(bytes(writer.body)), 10).take(about)

    assert about["words"] == ["a", "b", "ä"]
    assert [each.tolist() for each in found.each()] == [[2, 0, 1], [3]]


def test_what_all_are_multiples_of_is_kept_once():
    writer = StreamWriter()

    about = writer.add([np.array([3_000, 90_000]), np.array([-7_000])])

    assert (about["unit"], len(writer.body)) == (1000, 3)


def test_a_clock_that_ticks_evenly_takes_next_to_nothing():
    writer = StreamWriter()

    writer.add([np.arange(60_000_000_000, 61_000_000_000, 100_000)])

    assert len(writer.body.replace(b"\0", b"")) < 16


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": [10**12]},
        {"lengths": [-1, 4]},
        {"type": "object"},
        {"type": "text", "words": []},
        {"level": 3},
        {"scale": 7},
        {"unit": 0},
        {"unit": 1 << 63},
        {"type": "text", "words": [[], [], [], []]},
    ],
)
def test_a_description_that_does_not_fit_is_refused(change):
    writer = StreamWriter()
    about = writer.add([np.array([1, 2, 3])])

    with pytest.raises(StreamError):
        StreamReader(memoryview(bytes(writer.body)), 100).take({**about, **change})


def test_what_is_cut_off_or_too_long_is_refused():
    writer = StreamWriter()
    about = writer.add([np.array([1, 2, 3])])

    with pytest.raises(EOFError):
        StreamReader(memoryview(bytes(writer.body[:-1])), 100).take(about)
    reader = StreamReader(memoryview(bytes(writer.body) + b"x"), 100)
    reader.take(about)
    with pytest.raises(StreamError):
        reader.end()


COLUMNS = ("int64", "int32", "uint64", "uint32", "int16", "uint16", "int8", "uint8", "bool", "float64")
WORDS = ["step", "größe", "", "step", "a\nb"]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 7, 3000])
def test_plain_columns_are_read_as_parquet_is(tmp_path, rows, missing):
    draw = np.random.default_rng(rows)
    columns = {kind: draw.integers(0, 2, rows).astype(kind) for kind in COLUMNS}
    columns["word"] = draw.integers(0 if missing else 1, len(WORDS) + 1, rows)
    plain = as_plain(columns, {"word": WORDS})
    with engine(tmp_path / "spill") as db:
        write_columns(db, tmp_path / "parquet", plain)
    parquet = columns_of(tmp_path / "parquet")
    assert list(plain) == list(parquet)
    for name, column in plain.items():
        assert column.dtype == parquet[name].dtype
        assert column.tolist() == parquet[name].tolist()
        assert np.ma.is_masked(column) == np.ma.is_masked(parquet[name])


def as_plain(columns: dict[str, np.ndarray], words: dict[str, list[str]]) -> PlainColumns:
    return PlainColumns({name: partial(np.asarray, column) for name, column in columns.items()}, words)


def test_of_more_readings_than_there_is_room_for_every_channel_keeps_its_count_and_its_shape(monkeypatch):
    """Quantiles hold what they are of: of a day's readings they would need more memory than a seal may take."""
    columns = {
        "t_ns": np.arange(40_003) * 10**6,
        "channel": np.repeat([1, 2], [40_000, 3]),
        "value": np.concatenate([np.random.default_rng(1).normal(50, 5, 40_000), [1.0, 2.0, 3.0]]),
    }
    plain = as_plain(columns, {"channel": ["power_w", "rare_w"]})
    whole = read_distributions(plain, ["power_w", "rare_w"], [])
    monkeypatch.setattr(parquet, "_MOST_FIGURES", 8_000)
    some = read_distributions(plain, ["power_w", "rare_w"], [])
    assert some[0][0] == 40_000 and some[1] == whole[1]
    assert some[0][1] != whole[0][1]
    assert np.allclose(some[0][1][2:-2], whole[0][1][2:-2], atol=1.0)


def test_channels_that_take_turns_keep_their_quantiles(monkeypatch):
    columns = {"t_ns": np.arange(120) * 10**6, "channel": np.tile([1, 2], 60), "value": np.arange(120.0)}
    monkeypatch.setattr(parquet, "_MOST_FIGURES", 100)
    found = read_distributions(as_plain(columns, {"channel": ["power_w", "rare_w"]}), ["power_w", "rare_w"], [])
    assert [found[channel][0] for channel in (0, 1)] == [60, 60]


def test_distributions_of_plain_readings():
    columns = {"t_ns": np.arange(6) * 10**9, "channel": np.array([1, 1, 1, 2, 2, 2]), "value": np.arange(6.0)}
    plain = as_plain(columns, {"channel": ["power_w", "energy_j"]})
    found = read_distributions(plain, ["power_w", "energy_j"], [1])
    assert {channel: count for channel, (count, _) in found.items()} == {0: 3, 1: 2}
    assert set(found[1][1]) == {1.0}
