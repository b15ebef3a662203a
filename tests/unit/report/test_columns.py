from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.base.columns import cut, display_width, wrap
from tare.report.columns import Chunk, cut_apart, flow, table


def test_wide_signs_take_two_cells_and_combining_ones_none() -> None:
    assert [display_width(text) for text in ("abc", "测试", "e\u0301", "✓")] == [3, 4, 1, 1]


def test_what_is_cut_off_is_marked() -> None:
    assert [cut("platform", 8), cut("platform", 5), cut("测试测试", 5), cut("abc", 0)] == [
        "platform",
        "plat…",
        "测试…",
        "",
    ]


def test_a_line_breaks_between_words_and_never_before_a_unit() -> None:
    assert wrap("the noise floor is 0.9 % here", 21, indent="  ") == ["the noise floor is", "  0.9 % here"]


def test_what_is_to_be_copied_whole_keeps_its_blanks() -> None:
    line = "runc |   loss  0.123   acc  0.98 in /data/my  set"
    assert wrap(line, 30, indent="  ", tear=False) == ["runc |   loss  0.123   acc", "  0.98 in /data/my  set"]
    assert wrap(line, 30, indent="  ")[0] == "runc | loss 0.123 acc 0.98 in"


@given(st.text(max_size=80), st.integers(min_value=4, max_value=40))
def test_no_wrapped_line_is_wider_than_asked_and_no_sign_is_lost(text: str, width: int) -> None:
    printable = "".join(sign for sign in text if sign.isprintable())
    lines = wrap(printable, width, indent="  ")
    assert all(display_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(printable.split())


def test_a_table_that_must_be_whole_goes_on_below_where_others_are_cut() -> None:
    rows = [["a/long/path/that is not cut", "12"], ["b", "3"]]
    cut_off, whole = table(rows, ("where", "n"), 20), table(rows, ("where", "n"), 20, whole=True)
    assert "…" in cut_off
    assert whole.splitlines() == ["where              n", "a/long/path/that  12", "is not cut", "b                  3"]


def test_chunks_stay_whole_where_a_line_is_wide_enough() -> None:
    chunks = [Chunk("step time"), Chunk("1.84 ms -> 1.87 ms"), Chunk("+1.6 %", "   ")]
    assert flow(chunks, 80) == ["step time  1.84 ms -> 1.87 ms   +1.6 %"]
    assert flow(chunks, 30) == ["step time  1.84 ms -> 1.87 ms", "  +1.6 %"]
    assert flow(chunks, 14) == ["step time", "  1.84 ms ->", "  1.87 ms", "  +1.6 %"]


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    rows = [["docker", 3, "1.84 ms", "+1.6 %"], ["bare", 12, "12.1 ms", None]]
    assert table(rows, ["platform", "n", "step", "effect"]).splitlines() == [
        "platform   n     step  effect",
        "docker     3  1.84 ms  +1.6 %",
        "bare      12  12.1 ms",
    ]


def test_columns_of_wide_signs_line_up() -> None:
    lines = table([["测试", "x"], ["ab", "y"]], ["name", "z"]).splitlines()
    assert [display_width(line) for line in lines] == [7, 7, 7]


def test_a_long_text_is_cut_and_a_number_never() -> None:
    rows = [["a long name of a platform", "1.84 ms", "a long reason that goes on and on"]]
    shown = table(rows, ["platform", "step time", "reason"], width=50)
    assert "1.84 ms" in shown
    assert all(display_width(line) <= 50 for line in shown.splitlines())
    assert shown.count("…") == 2


def test_a_terminal_that_no_table_fits_into_gets_one_line_a_cell() -> None:
    rows = [["abcdefgh", "docker", "1.84 ms", "ok"]]
    assert table(rows, ["trial", "platform", "step time", "state"], width=20).splitlines() == [
        "trial: abcdefgh",
        "  platform: docker",
        "  step time: 1.84 ms",
        "  state: ok",
    ]


def test_a_table_without_rows_is_its_headers() -> None:
    assert table([], ["trial", "state"]) == "trial  state"
    assert table([], []) == ""


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_hostile_cell_cannot_steer_the_terminal(width: int) -> None:
    assert "\x1b" not in table([["\x1b]0;owned\x07", 1]], ["label", "n"], width)


def test_what_is_cut_stays_different() -> None:
    long = ["resnet18 training with 2 workers", "resnet18 training with 4 workers", "lenet5"]
    shown = cut_apart(long, 12)

    assert shown == ["…2 workers", "…4 workers", "lenet5"]
    assert cut_apart(["alpha beta gamma", "delta epsilon zeta"], 8) == ["alpha b…", "delta e…"]
    assert cut_apart(long[:1] * 2, 12) == ["resnet18 tr…"] * 2  # the same may look the same


def test_a_table_never_shows_two_settings_as_one() -> None:
    rows = [[f"a very long name of a setting with the value {number}", "x" * 40] for number in (1, 2)]
    first, second = table(rows, width=40).splitlines()

    assert first.split()[0] != second.split()[0]


@pytest.mark.parametrize("part", ["a", "1", "1,", "é", "日", "a ", "+"])
def test_a_text_of_a_stranger_is_set_in_time_that_grows_with_it_and_no_faster(part: str):
    text = part * (100_000 // len(part))
    begin_s = time.process_time()
    wrap(text, 60)
    cut_apart([f"{text}a", f"{text}b"], 60)
    table([(f"1{text}!", "2")], ("a", "b"), 60)
    assert time.process_time() - begin_s < 50  # one of them took minutes
