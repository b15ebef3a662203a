"""Whatever is put into a store comes out of it, to the last bit."""

from __future__ import annotations

import math
import struct
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from some_records import MEMORY
from tare.base.rulings import CODES, WEIGHTS, Ruling
from tare.base.units import Channel
from tare.records.model import Record
from tare.records.spool import SpoolWriter, read_spool
from tare.records.store import Store

T_NS = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=40)  # every character, also NUL, newlines and the private ones
ANY_TEXT = st.text(st.characters(), max_size=200)  # half surrogates, too
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FINITE | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
RULINGS = st.lists(
    st.builds(Ruling, st.sampled_from(sorted(CODES)), st.sampled_from(sorted(WEIGHTS)), ANY_TEXT, ANY_TEXT), max_size=3
).map(tuple)
RECORDS = st.builds(
    Record,
    trial=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
    attempt=st.just(1),
    study=ANY_TEXT,
    block=st.integers(0, 2**40),
    position=st.integers(0, 2**40),
    twin=st.integers(0, 3),
    settings=st.dictionaries(ANY_TEXT, PLAIN, max_size=4),
    state=st.sampled_from(["ok", "suspect", "invalid", "failed", "timeout", "oom", "interrupted"]),
    reasons=RULINGS,
    notes=RULINGS,
    metrics=st.dictionaries(TEXT, FINITE, max_size=4),
    phases=st.dictionaries(TEXT, FINITE, max_size=4),
    facts=st.dictionaries(ANY_TEXT, PLAIN, max_size=4),
    started_utc=TEXT,
    start_ns=T_NS,
    end_ns=T_NS,
    tare_version=TEXT,
)
MARKS = st.lists(st.tuples(T_NS, TEXT, st.sampled_from(["begin", "end", "point"]), st.integers(-(2**31), 2**31 - 1)))
TICKS = st.lists(st.lists(st.tuples(T_NS, TEXT, st.floats()), max_size=6), max_size=8)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def expected(ticks: list[list[tuple[int, str, float]]]) -> dict[str, list[tuple[int, bytes]]]:
    found: dict[str, list[tuple[int, bytes]]] = {}
    for tick in ticks:
        for t_ns, name, value in tick:
            if math.isfinite(value):
                found.setdefault(name, []).append((t_ns, bits(value)))
    return found


def as_bits(readings: dict[str, Any]) -> dict[str, list[tuple[int, bytes]]]:
    return {name: list(zip(t.tolist(), map(bits, v.tolist()), strict=True)) for name, (t, v) in readings.items()}


# Slow hosts are shared by others: the number of examples is the limit, not the time of one.
UNHURRIED = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@UNHURRIED
@given(record=RECORDS, marks=MARKS, ticks=TICKS, out=ANY_TEXT, err=ANY_TEXT, lost=st.integers(0, 2**40), text=ANY_TEXT)
def test_a_trial_comes_back_exactly(
    record: Record, marks: list[Any], ticks: list[Any], out: str, err: str, lost: int, text: str
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        with Store.create(Path(folder) / "store", record.as_json(), text) as store:
            writer = store.begin(record)
            with SpoolWriter(writer.spool) as spool:
                for t_ns, tick in enumerate(ticks):
                    spool.tick(t_ns, tick)
            assert writer.seal(record, marks, out, err, lost_marks=lost) == record

        with Store.open(Path(folder) / "store") as again:
            key = (record.trial, 1)
            assert again.problems == again.verify() == []
            assert again.records() == [record]
            assert again.states() == {record.trial: record.state}
            assert as_bits(again.readings(*key)) == expected(ticks)
            columns = again.marks(*key)
            kept = zip(*(columns[name].tolist() for name in ("t_ns", "name", "edge", "step")), strict=True)
            assert list(kept) == marks
            assert again.output(*key) == (out, err)
            assert again.lost_marks(*key) == lost
            assert again.text() == text
            plain = record.as_json()
            assert again.study == plain | {"reasons": list(plain["reasons"]), "notes": list(plain["notes"])}


@UNHURRIED
@given(ticks=TICKS, declared=st.lists(TEXT, max_size=6))
def test_a_spool_is_read_as_it_was_written(ticks: list[Any], declared: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "spool.db"
        with SpoolWriter(path) as spool:
            spool.channels([Channel(name, "1", "gauge") for name in declared])
            for t_ns, tick in enumerate(ticks):
                spool.tick(t_ns, tick)
                assert as_bits(read_spool(path)) == expected(ticks[: t_ns + 1])
