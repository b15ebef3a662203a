"""What a probe declares is sealed with the trial, and goes wherever the trial goes."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from some_records import draft, ended
from tare.base import declare
from tare.base.declare import learnt
from tare.base.units import Channel
from tare.records.merging import merge
from tare.records.pack import pack
from tare.records.spool import SpoolReader, SpoolWriter
from tare.records.store import Store
from tare.records.thin_pack import Thinning

FAN = Channel("board.fan_hz", "Hz", "gauge", "of the case", words="fan", group="Fans", rank=3, takes=("mean",))
DECLARED = {"board.fan_hz": {"words": "mean fan", "unit": "Hz", "better": "neutral"}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Store.create(tmp_path / "store", {"study": "s"}, "study: s\n") as opened:
        writer = opened.begin(draft("aaaa"))
        with SpoolWriter(writer.spool) as spool:
            spool.channels([FAN, Channel("board.lamp", "1", "gauge")])
            for t_ns in range(1_000_000, 20_000_000, 1_000_000):
                spool.tick(t_ns, [(t_ns, "board.fan_hz", 20.0), (t_ns, "board.lamp", 1.0)])
        record = replace(ended(draft("aaaa")), metrics={"board.fan_hz": 20.0}, declared=DECLARED)
        writer.seal(record, [], "", "")
    return tmp_path / "store"


def there(store: Path) -> Path:
    return store


def merged(store: Path) -> Path:
    with Store.create(store.with_name("merged"), {"study": "s"}, "study: s\n") as into:
        merge(into, [store])
    return store.with_name("merged")


def packed(store: Path) -> Path:
    return packed_as(store, "whole.tare")


def thinned(store: Path) -> Path:
    return packed_as(store, "thin.tare", Thinning(lambda channel: "takes" in channel))


def packed_as(store: Path, name: str, thinning: Thinning | None = None) -> Path:
    with Store.open(store) as opened:
        pack(opened, store.with_name(name), thinning)
    return store.with_name(name)


def merged_from_a_thinned_pack(store: Path) -> Path:
    return merged(thinned(store))


@pytest.mark.parametrize("way", [there, merged, packed, thinned, merged_from_a_thinned_pack])
def test_declarations_survive_merging_packing_and_thinning(way, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = way(store)
    monkeypatch.setattr(declare, "_learnt", {})
    with Store.open(place) as opened:
        (record,) = opened.records()
        fan, lamp = opened.channels("aaaa", 1, quantiles=False)
        readings = opened.readings("aaaa", 1)
    assert record.declared == DECLARED
    assert learnt("board.fan_hz") == declare.Metric(name="board.fan_hz", words="mean fan", unit="Hz")
    assert Channel.of(fan) == FAN
    assert not {"words", "group", "rank", "takes", "better"} & lamp.keys()
    assert len(readings["board.fan_hz"][0]) == 19


def test_a_spool_that_an_older_tare_left_is_read(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool.db") as spool:
        spool.channels([FAN])
    with sqlite3.connect(tmp_path / "spool.db") as older:
        older.execute("ALTER TABLE channel DROP COLUMN shown")
    older.close()
    with SpoolReader(tmp_path / "spool.db") as spool:
        assert spool.channels() == [{"name": "board.fan_hz", "unit": "Hz", "kind": "gauge", "about": "of the case"}]
        assert spool.damage is None
