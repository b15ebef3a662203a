"""Strict JSON, out and in."""

from __future__ import annotations

import math

import pytest

from tare.base import strict_json
from tare.base.errors import StoreError


@pytest.mark.parametrize("data", [None, [], {"a": [1, 2.5, "é\ud800\x00"], "b": {"c": True}}, 2**80, 5e-324, "\u2028"])
def test_plain_data_comes_back_as_it_was(data: object) -> None:
    assert strict_json.load(strict_json.dump(data)) == data


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        strict_json.dump({"x": [value]})


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b'{"a": -Infinity}'])
def test_what_is_no_number_is_not_read(text: bytes) -> None:
    with pytest.raises(ValueError, match="is not a number that JSON knows"):
        strict_json.load(text)


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object])
def test_what_is_not_plain_is_refused_by_its_kind(value: object) -> None:
    with pytest.raises(StoreError, match=f"a {type(value).__name__} is not plain data"):
        strict_json.dump({"x": value})


def test_missing_numbers_are_taken_out_and_named() -> None:
    data = {"a": math.nan, "b": {"c": math.inf, "d": 1.0}, "e": [math.nan, 2.0, {"f": -math.inf}], "g": (1, "x")}
    clean, left_out = strict_json.without_missing(data)
    assert clean == {"b": {"d": 1.0}, "e": [None, 2.0, {}], "g": [1, "x"]}
    assert sorted(left_out) == ["a", "b.c", "e.0", "e.2.f"]
