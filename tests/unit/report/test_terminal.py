from __future__ import annotations

import re
from dataclasses import replace

import pytest

import some_weighings as some
from golden_files import assert_as_in_file
from hostile import PAYLOADS, hostile_sample
from tare.base.columns import display_width
from tare.base.rulings import Ruling
from tare.report.text.verdict import verdict_text

ANSI = re.compile(r"\x1b\[[\d;]*m")


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("name", some.SAMPLES)
def test_what_the_terminal_says_is_as_in_the_golden_file(name: str, width: int) -> None:
    assert_as_in_file(verdict_text(some.SAMPLES[name]().weighing, width), f"report/{name}-{width}.txt")


def test_one_comparison_is_a_sentence_and_a_row() -> None:
    assert verdict_text(some.weighing()).splitlines() == [
        "docker is slower than bare, by less than the margin of 5 %: median step +1.6 %",
        "  [+0.4, +2.9].",
        "  median step  1.84 -> 1.87 ms  +1.6 %  [+0.4, +2.9]  slower, by less than 5 %",
    ]


def test_of_many_contrasts_those_that_are_decided_have_rows_and_the_rest_is_counted_by_name() -> None:
    names = [f"platform{n}" for n in range(28)]
    sure = [some.comparison(name, verdict="slower", effect=0.2, low=0.1, high=0.3) for name in names[:3]]
    within = [some.comparison(name, low=-0.01) for name in names[3:]]
    shown = verdict_text(some.weighing(comparisons=(*within, *sure), others=())).splitlines()
    assert shown[0].startswith("platform0, platform1 and platform2 are slower than bare")
    assert len(shown) <= 20
    assert all(any(line.startswith(f"  {name} ") for line in shown) for name in names[:3])
    assert "  equivalent within 5 %: 18 (platform10, platform11, platform12 and 15 more)" in shown


@pytest.mark.parametrize("width", [20, 27, 40, 61, 80, 200])
@pytest.mark.parametrize("name", some.SAMPLES)
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(name: str, width: int) -> None:
    shown = verdict_text(some.SAMPLES[name]().weighing, width)
    assert all(display_width(line) <= width for line in shown.splitlines())
    assert "…" not in shown


@pytest.mark.parametrize("name", some.SAMPLES)
def test_colour_adds_nothing_but_colour(name: str) -> None:
    weighing = some.SAMPLES[name]().weighing
    plain, coloured = verdict_text(weighing), verdict_text(weighing, color=True)
    assert "\x1b" not in plain
    assert ANSI.sub("", coloured) == plain
    assert coloured != plain


def test_further_metrics_get_no_word_of_claim() -> None:
    inside = some.comparison(low=-0.01)
    others = (some.comparison(metric="cpu_s", verdict="slower"),)
    shown = verdict_text(some.weighing(comparisons=(inside,), others=others), verbose=True)
    assert "CPU time" in shown
    assert "slower" not in shown


def test_medians_that_tell_another_story_than_the_effect_are_explained() -> None:
    other_sign = some.comparison(ours=some.estimate(0.00182))
    assert "the two medians alone differ by -1.1 %" in verdict_text(some.weighing(comparisons=(other_sign,)))
    assert "medians alone" not in verdict_text(some.weighing())
    unpaired = replace(other_sign, paired=False)
    assert "the middle of all differences" in verdict_text(some.weighing(comparisons=(unpaired,))).replace("\n  ", " ")


def test_too_few_trials_show_no_interval_and_say_why() -> None:
    shown = verdict_text(some.too_few().weighing)
    assert "n = 3: too small for 95 %" in shown
    assert "[" not in shown


def test_where_other_factors_vary_they_name_the_rows_and_what_all_share_is_said_once() -> None:
    pairs = [
        some.comparison(f"docker, batch={batch}", against=f"bare, batch={batch}", effect=effect)
        for batch, effect in ((16, 0.016), (64, 0.011))
    ]
    lines = verdict_text(some.weighing(comparisons=tuple(pairs), others=()), 100).splitlines()
    assert lines[0] == (
        "docker is slower than bare with batch=16 and batch=64, by less than the margin of 5 % (median step"
    )
    assert lines[1].split()[0] == "+1.1"
    assert lines[2].split()[:2] == ["median", "step"]  # the rows are batches: `platform` would be a wrong head
    assert [line.split()[0] for line in lines[3:5]] == ["batch=16", "batch=64"]
    narrow = verdict_text(some.weighing(comparisons=tuple(pairs), others=()), 40).splitlines()
    assert any(line.startswith("median step, effect") for line in narrow)


def test_an_interval_without_zero_that_tells_nothing_has_a_reason() -> None:
    noisy = some.comparison(verdict="cannot_tell", effect=0.98, low=0.95, high=1.01, aa_floor=1.2)
    other = some.comparison("runc", low=-0.01)

    alone, beside = (verdict_text(some.weighing(comparisons=its), 200) for its in ((noisy,), (noisy, other)))

    why = "the effect does not exceed the difference of two runs of the same thing (120 %)"
    assert f"\ncannot tell: {why}" in alone
    assert f"\ncannot tell, docker: {why}" in beside
    assert why not in verdict_text(some.weighing(comparisons=(replace(noisy, low=-0.5),)), 200)


def test_trials_that_are_lost_for_one_reason_are_told_once_and_counted() -> None:
    left = some.tainted().weighing.left_out[0]
    reasons = [replace(left.reasons[0], sentence=f"The machine swapped {block} pages.") for block in range(25)]
    lost = tuple(replace(left, block=block, reasons=(reason,)) for block, reason in enumerate(reasons))
    shown = verdict_text(some.weighing(left_out=lost), verbose=True)
    assert f"25 of {left.label}: {left.state}: The machine swapped 0 pages. ({left.trial[:8]}, for one)" in shown
    assert shown.count("The machine swapped") == 1


def test_many_reasons_are_counted_and_not_all_listed() -> None:
    left = some.tainted().weighing.left_out[0]
    each = [replace(left, reasons=(replace(left.reasons[0], subject=f"part {n}"),)) for n in range(25)]
    shown = verdict_text(some.weighing(left_out=tuple(each)), verbose=True)
    assert "and 15 more, all of them in the report" in shown
    assert shown.count("The machine swapped") == 10


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_labels_do_not_steer_the_terminal(payload: str) -> None:
    shown = verdict_text(hostile_sample(payload).weighing)
    assert not any(sign in shown for sign in "\x1b\x00\x07\u202e\u2028\ud800")


def test_which_way_is_better_is_told_once() -> None:
    found = some.weighing()
    way = Ruling("compare.rate", "note", "", "step_s: lower is better.")
    noted = replace(found, comparisons=tuple(replace(each, notes=(way,)) for each in found.comparisons))
    text = verdict_text(noted, verbose=True)
    assert text.count("is better") == 1
