import math

import pytest
from pydantic import BaseModel, ValidationError

from tare.base.units import PositiveSeconds, Seconds, SizeBytes, parse_share


class Sample(BaseModel):
    period_s: Seconds = 0.0
    limit_s: PositiveSeconds = 1.0
    size_bytes: SizeBytes = 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10 ms", 0.01), ("1.5s", 1.5), ("2 min", 120.0), ("1e3 us", 0.001), ("0 s", 0.0), (0.25, 0.25)],
)
def test_a_time_becomes_seconds(text, seconds):
    assert Sample(period_s=text).period_s == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "size"), [("2 GiB", 2**31), ("64 kB", 64_000), (4096, 4096)])
def test_a_size_becomes_bytes(text, size):
    assert Sample(size_bytes=text).size_bytes == size


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("2.5 %", 0.025), (0.05, 0.05), ("0.05", 0.05)])
def test_a_share_may_be_written_in_per_cent(text, share):
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    ("field", "bad", "says"),
    [
        ("period_s", 10, "no unit"),
        ("period_s", "10 parsec", "not a unit of time"),
        ("period_s", "-1 s", "zero or more"),
        ("period_s", math.nan, "nan"),
        ("period_s", math.inf, "inf"),
        ("period_s", True, "True"),
        ("limit_s", "0 s", "more than zero"),
        ("size_bytes", "12", "no unit"),
    ],
)
def test_what_is_not_a_quantity_is_refused_in_words(field, bad, says):
    with pytest.raises(ValidationError, match=says):
        Sample(**{field: bad})


def test_what_is_not_a_share_is_answered_with_how_to_write_one():
    with pytest.raises(ValueError, match=r"'five' is not a share; write it like 5% or 0\.05"):
        parse_share("five")
