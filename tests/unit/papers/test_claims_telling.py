"""The figure of a claim in words."""

import pytest

from tare.papers.claims.model import figure_words


@pytest.mark.parametrize(
    ("kind", "figure", "words"),
    [
        ("change", (0.016, 0.004, 0.029), "+1.6 % [+0.4, +2.9]"),
        ("change", (93.1, 46.8, 184.2), "94.1x [47.8x, 185x]"),
        ("change", (1.3, -0.03, 1500.0), "2.3x [0.97x, 1,501x]"),
        ("change", (-0.0001, -0.0004, 0.0002), "0.0 % [0.0, 0.0]"),
        ("share", (0.31, 0.284, 0.33), "31.0 % [28.4, 33.0]"),
        ("share", (1.0, 0.98, 1.0), "100.0 % [98.0, 100.0]"),
        ("share", (3.64e-6, 3.59e-6, 3.87e-6), "below 0.1 %"),
        ("share", (0.0006, 0.0, 0.02), "0.1 % [0.0, 2.0]"),
        ("share", (0.0, 0.0, 0.0), "0.0 % [0.0, 0.0]"),
        ("change", (0.0003, 0.0001, 0.0004), "0.0 % [0.0, 0.0]"),
        ("points", (0.3, -0.041, 1.3), "+30.0 points [-4.1, +130.0]"),
    ],
)
def test_a_figure_is_told_as_what_it_is(kind, figure, words):
    assert figure_words(kind, *figure) == words
