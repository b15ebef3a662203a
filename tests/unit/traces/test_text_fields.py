"""Reading many texts at once gives what reading each by itself does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.traces import importing
from tare.traces.importing import columns_of

TEXTS = st.sampled_from(
    [
        "bdi 254:0: ino=77 index=3", "bdi 254:0: ino=0x4d index=-3", "bdi 8:16 ino=77 index=3", "ino=77 index=3",
        "index=3 ino=77", "ino=7,index=3", "ino=77 index=3 more=1", "ino=77 index= 3", "ino=1 ino=2", "a = 3 ino=4",
        "254,0 W 800 + 16 [x]", "254,0 WS 4096 () 800 + 16 [x]", "8,0 sector=5 size=4096", "NR 64 (3, ffff)",
        "NR 64 = -11", "a b:7 [120] R ==> c:8 [120]", "", "words only", "ino=99999999999999999999 index=1",
        "x=1_0 y=--1",
    ]
)  # fmt: skip


def one_by_one(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[object]]:
    with monkeypatch.context() as patched:
        patched.setattr(importing, "_at_once", lambda texts: None)
        return {key: column.tolist() for key, column in columns_of(texts).items()}


@given(texts=st.lists(TEXTS, min_size=1, max_size=6) | TEXTS.flatmap(lambda text: st.just([text] * 3)))
def test_at_once_is_as_one_by_one(texts: list[str]):
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = one_by_one(texts, monkeypatch)
    assert {key: column.tolist() for key, column in columns_of(texts).items()} == expected


@pytest.mark.parametrize(
    "text", ["bdi 254:0: ino=77 index=3", "254,0 W 800 + 16 [x]", "NR 64 = -11", "a b:7 [120] R ==> c:8 [120]", "a=1"]
)
def test_rows_of_one_form_are_read_at_once(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importing, "_fields", lambda text: pytest.fail("a row was read by itself"))
    assert columns_of([text] * 100)


def test_numbers_are_numbers_and_what_is_too_large_for_one_is_a_word():
    found = columns_of(["a=1 b=0x10 c=99999999999999999999 d=x"] * 2)
    assert [found[key].dtype.kind for key in "abcd"] == ["i", "i", "O", "O"]
    assert (found["a"].tolist(), found["b"].tolist()) == ([1, 1], [16, 16])
    assert found["a"].dtype == np.int64
