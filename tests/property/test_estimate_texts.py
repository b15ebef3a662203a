"""A value and its interval, as they are printed: one unit, one precision, and the three numbers come back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.base.text import NOTHING, estimate_texts, quantity_texts

# Base units in one of each unit that is printed, written down here once more: what is read back must not rest on the
# tables that it was printed by.
UNITS = {
    "step_s": {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    "energy_j": {"mJ": 1e-3, "J": 1.0, "kJ": 1e3, "MJ": 1e6},
    "power_w": {"mW": 1e-3, "W": 1.0, "kW": 1e3},
    "max_rss_bytes": {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    "clock_hz": {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
    "busy_share": {"%": 0.01},
    "images_per_s": {"": 1.0},
}  # fmt: skip

magnitudes = st.floats(-4, 6).map(lambda power: 10.0**power)
metrics = st.sampled_from(sorted(UNITS))


def read(metric: str, value: str, interval: str) -> tuple[list[float], float]:
    """The numbers in base units, and what the last digit of each is worth."""
    number, _, unit = value.partition(" ")
    texts = [number, *interval.removeprefix("[").removesuffix("]").split(", ")]
    decimals = {len(text.partition(".")[2]) for text in texts}
    assert len(decimals) == 1, (value, interval)
    factor = UNITS[metric][unit]
    return [float(text.replace(",", "")) * factor for text in texts], factor * 10.0 ** -decimals.pop()


@given(metric=metrics, value=magnitudes, below=magnitudes, above=magnitudes)
def test_a_value_and_its_interval_come_back_in_the_unit_that_is_printed(
    metric: str, value: float, below: float, above: float
) -> None:
    low, high = value - below, value + above
    found, last = read(metric, *estimate_texts(metric, value, low, high))
    nothing = NOTHING * min(UNITS[metric].values())
    for was, told in zip((value, low, high), found, strict=True):
        assert abs(told - was) <= 0.5 * last + nothing + 1e-9 * abs(was), (was, told)
    assert abs(found[0] - value) <= 0.05 * value + nothing  # two digits of it: the ends never hide the value


@given(metric=metrics, value=magnitudes, below=magnitudes, above=magnitudes)
def test_what_may_be_below_zero_is_printed_with_its_sign(metric: str, value: float, below: float, above: float) -> None:
    for sign in (1, -1):
        ends = sorted((sign * value - below, sign * value + above))
        plain = estimate_texts(metric, sign * value, *ends)
        signed = estimate_texts(metric, sign * value, *ends, signed=True)
        assert [text.replace("+", "") for text in signed] == list(plain)
        assert signed[0].startswith("+") == (sign > 0)
        for end, text in zip(ends, signed[1].strip("[]").split(", "), strict=True):
            assert text.startswith("+") == (end > 0)


@pytest.mark.parametrize("missing", [(None, None), (1.0, None), (None, 1.0)])
def test_without_an_end_there_is_no_interval(missing: tuple[float | None, float | None]) -> None:
    assert estimate_texts("energy_j", 913.0, *missing) == ("913 J", "")


@given(metric=metrics, values=st.tuples(magnitudes, magnitudes, magnitudes))
def test_an_interval_is_printed_as_the_same_values_are_side_by_side(
    metric: str, values: tuple[float, float, float]
) -> None:
    """Unless they lie so far apart that each of them would have a unit of its own."""
    low, value, high = sorted(values)
    beside = quantity_texts(metric, [value, low, high])
    units = {text.partition(" ")[2] for text in beside}
    if high <= 1000 * low and len(units) == 1:
        text, interval = estimate_texts(metric, value, low, high)
        assert [text, interval] == [beside[0], f"[{', '.join(each.partition(' ')[0] for each in beside[1:])}]"]


@pytest.mark.parametrize(
    ("metric", "value", "low", "high", "text"),
    [
        ("energy_j", 913.0, 780.0, 1030.0, "0.91 kJ [0.78, 1.03]"),
        ("energy_step_j", 0.95, 0.9, 1.02, "0.95 J [0.90, 1.02]"),
        ("step_s", 0.005, 0.004, 9.0, "5.00 ms [4.00, 9,000.00]"),
        ("step_s", 9.0, 0.004, 10.0, "9.00 s [0.00, 10.00]"),
        ("workers", 2.0, 1.0, 4.0, "2 [1, 4]"),
        ("energy_j", 0.0, -0.5, 0.5, "0 mJ [-500, 500]"),
        ("step_s", 1.0, 0.9, math.inf, "1.00 s [0.90, not a number]"),
    ],
)
def test_values_whose_intervals_were_in_another_unit(
    metric: str, value: float, low: float, high: float, text: str
) -> None:
    assert " ".join(estimate_texts(metric, value, low, high)) == text
