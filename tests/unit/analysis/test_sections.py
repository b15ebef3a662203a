"""Sections as values: one unit for a column and its intervals, and nothing that a renderer would have to compute."""

from __future__ import annotations

import pytest

from tare.analysis.model import Estimate
from tare.analysis.sections import EFFECT, Answer, Chart, Column, List, Note, Section, Shown, Table, sentence_text
from tare.report.sections import answer_text, page_sections, section_markdown


def estimate(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(value, low, high, 8, "made up")


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Shown("energy_j", 913.0), "913 J"),
        (Shown("energy_j", estimate(913.0, 780.0, 1030.0)), "0.91 kJ [0.78, 1.03]"),
        (Shown("energy_j", estimate(0.95, 0.9, 1.02), signed=True), "+0.95 J [+0.90, +1.02]"),
        (Shown("step_s", estimate(0.004, 0.004, 9.0)), "4.00 ms [4.00, 9,000.00]"),
        (Shown(EFFECT, estimate(0.016, 0.004, 0.029), signed=True), "+1.6 % [+0.4, +2.9]"),
        (Shown(EFFECT, estimate(0.016), signed=True), "+1.6 % n = 8: too small for 95 %"),
        (Shown("stall_share", 0.05), "5 %"),
        (Shown("trials", 1234.0), "1,234"),
    ],
)
def test_a_figure_has_one_unit_with_its_interval(figure: Shown, text: str) -> None:
    assert str(figure) == text
    assert sentence_text(("It is ", figure, ".")) == f"It is {text}."


def test_a_column_has_one_unit_and_empty_columns_are_left_out() -> None:
    cells = Table(
        (Column("cell"), Column("energy", "interval"), Column("note"), Column("trials")),
        (
            ("bare", Shown("energy_j", estimate(900.0, 880.0, 910.0)), None, Shown("trials", 8.0)),
            ("docker", Shown("energy_j", estimate(1100.0)), None, None),
        ),
    )
    headers, rows, numeric = cells.grid()
    assert headers == ["cell", "energy", "interval", "trials"]
    assert rows == [["bare", "0.90 kJ", "[0.88, 0.91]", "8"], ["docker", "1.10 kJ", "", ""]]
    assert numeric == [False, True, True, True]


def test_renderers_show_all_that_has_content_and_make_it_once_asked() -> None:
    rows = Table((Column("cell"), Column("power")), (("ba|re", Shown("power_w", 30.0)),), notes=(("of the module",),))
    answer = Answer(
        ("docker takes ", Shown("energy_j", 3.0), " more."),
        result=None,
        sections=(
            Section("cells", "Energy of each cell", lambda: rows),
            Section("chart", "Drawn", lambda: Chart("stack", rows, "cell", ("power",), ("It is flat.",))),
            Section("none", "Nothing", lambda: List(())),
            Section("notes", "", lambda: Note((("one \x1b[2J",),))),
            Section("more", "", lambda: List((("only verbose",),)), level="verbose"),
        ),
    )
    text = answer_text(answer, 60)
    assert text == (
        "docker takes 3.00 J more.\n\nEnergy of each cell\ncell    power\nba|re  30.0 W\nof the module\n\n"
        "note: one \\x1b[2J"
    )
    assert answer_text(answer, 60, verbose=True) == f"{text}\n\nonly verbose"
    told, *on_page = page_sections(answer, {"ba|re": "#level-0"})
    assert (told.name, told.lines) == ("cells-answer", ("docker takes 3.00 J more.",))
    assert on_page[0].rows[0][0].href == "#level-0" and on_page[0].rows[0][1].numeric
    assert section_markdown(on_page[0]) == [
        "## Energy of each cell", "| cell | power |\n| --- | --- |\n| ba\\|re | 30.0 W |", "- of the module",
    ]  # fmt: skip
