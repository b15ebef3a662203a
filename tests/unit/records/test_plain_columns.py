"""Columns as plain arrays: what is read is what Parquet would give."""

from __future__ import annotations

import numpy as np
import pytest

from tare.records.column_codec import read_plain, write_plain
from tare.records.parquet import columns_of, engine, read_distributions, write_columns

KINDS = ("int64", "int32", "uint64", "uint32", "int16", "uint16", "int8", "uint8", "bool", "float64")
WORDS = ["step", "größe", "", "step", "a\nb"]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 7, 3000])
def test_plain_columns_are_read_as_parquet_is(tmp_path, rows, missing):
    folder, draw = tmp_path, np.random.default_rng(rows)
    columns = {kind: draw.integers(0, 2, rows).astype(kind) for kind in KINDS}
    columns["word"] = draw.integers(0 if missing else 1, len(WORDS) + 1, rows)
    write_plain(folder / "plain", columns, {"word": WORDS})
    with engine(folder / "spill") as db:
        write_columns(db, folder / "parquet", columns, {"word": WORDS})
    plain, parquet = columns_of(folder / "plain"), columns_of(folder / "parquet")
    assert list(plain) == list(parquet)
    for name, column in plain.items():
        assert column.dtype == parquet[name].dtype
        assert column.tolist() == parquet[name].tolist()
        assert np.ma.is_masked(column) == np.ma.is_masked(parquet[name])
    assert read_plain(folder / "parquet") is None


def test_distributions_of_plain_readings(tmp_path):
    columns = {"t_ns": np.arange(6) * 10**9, "channel": np.array([1, 1, 1, 2, 2, 2]), "value": np.arange(6.0)}
    write_plain(tmp_path / "plain", columns, {"channel": ["power_w", "energy_j"]})
    found = read_distributions(tmp_path / "plain", ["power_w", "energy_j"], [1])
    assert {channel: count for channel, (count, _) in found.items()} == {0: 3, 1: 2}
    assert set(found[1][1]) == {1.0}
