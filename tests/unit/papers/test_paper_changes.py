"""How a change is told: in percent or in times, with its interval or not at all."""

from __future__ import annotations

import pytest

from tare.papers.pages.rows import Change, change_texts, excludes_zero, known_change, range_text
from tare.papers.tables.rows import Ours


@pytest.mark.parametrize(
    ("change", "printed", "said"),
    [
        (Change(0.016, 0.004, 0.029), "+53.7 %", "+1.6 % [+0.4, +2.9]"),
        (Change(-0.842, -0.85, -0.834), "", "-84.2 % [-85.0, -83.4]"),
        (Change(0.99, 0.9, 1.2), "", "+99 % [+90, +120]"),
        (Change(1.0, 0.9, 1.2), "", "2.0x [1.90x, 2.2x]"),
        (Change(2.57, 2.1, 3.2), "1.4x", "3.6x [3.1x, 4.2x]"),
        (Change(93.099, 46.808, 184.215), "", "94.1x [47.8x, 185x]"),
        (Change(1.2, -0.03, 4.0), "", "2.2x [0.97x, 5.0x]"),
        (Change(-0.02, -0.05, 0.01), "0.888x", "0.98x [0.95x, 1.01x]"),
        (Change(-0.836, -0.857, -0.808), "4x to 9x less", "6.1x less [5.2x, 7.0x]"),
        (Change(-0.684, -0.78, -0.546), "far less than that", "3.2x less [2.2x, 4.5x]"),
        (Change(-0.03, -0.05, -0.01), "far less than that", "-3.0 % [-5.0, -1.0]"),
        (Change(-0.03, -0.05, -0.01), "2.5x less", "1.03x less [1.01x, 1.05x]"),
        (Change(-0.75, -0.8, -0.5), "6.7x", "4.0x less [2.0x, 5.0x]"),
        (Change(0.2, 0.1, 0.3), "2.5x less", "1.20x [1.10x, 1.30x]"),
        (Change(-0.999, -1.0, -0.99), "2.5x less", "-100 % [-100, -99]"),
        (Change(-0.00001, -0.00002, 0.00003), "", "0.00 % [0.00, 0.00]"),
        (Change(0.0, 0.0, 0.0), "", "0.0 % [0.0, 0.0]"),
    ],
)
def test_a_change_is_told_in_percent_unless_it_is_large_or_the_paper_has_it_in_times(change, printed, said):
    assert " ".join(change_texts(change, printed)) == said


def test_a_decrease_of_s1_is_told_by_its_own_formula():
    change = Change(-0.75, -0.8, -0.5)
    assert change_texts(change, "decreases by 3.1x", as_decrease=True) == ("decreases by 3x", "[1x, 4x]")
    assert range_text([-0.5, -0.75], change, as_decrease=True) == "3x to 1x"
    rise = Change(0.68, 0.58, 0.79)
    assert change_texts(rise, "decreases by 8.19x", as_decrease=True) == ("rises to 1.68x", "[1.58x, 1.79x]")


def test_other_changes_are_told_as_the_first_is():
    assert range_text([0.1, -0.2], Change(0.05, 0.01, 0.1)) == "-20.0 % to +10.0 %"
    assert range_text([1.5, 4.0], Change(2.0, 1.0, 3.0)) == "2.5x to 5.0x"
    assert range_text([0.1, 0.1], None) == "+10.0 %"


def test_a_change_without_an_interval_is_no_change_that_is_known():
    assert known_change(Ours(change=0.3, n=4)) is None
    assert known_change(Ours(low=0.1, high=0.2)) is None
    assert known_change(Ours(change=0.3, low=0.1, high=0.4)) == (0.3, 0.1, 0.4)


@pytest.mark.parametrize(
    ("change", "excludes"),
    [
        (Change(0.014, 0.003, 0.025), True),
        (Change(-0.014, -0.025, -0.003), True),
        (Change(0.014, -0.003, 0.025), False),
        (Change(0.014, 0.0001, 0.025), False),  # shown as [0.0, +2.5]
        (Change(0.0, 0.0, 0.0), False),
    ],
)
def test_an_interval_excludes_zero_where_one_can_see_it(change, excludes):
    assert excludes_zero(change) is excludes
