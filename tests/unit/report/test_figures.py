from __future__ import annotations

from dataclasses import replace

import pytest

import some_weighings as some
from html_reading import Element, read_page
from tare.analysis.model import Weighing
from tare.report.bars_figure import phases_figure, step_figure
from tare.report.effects_figure import effects_figure
from tare.report.figure import Figure
from tare.report.shown import level_order, shown_trials
from tare.report.svg import Scale, hue, tag, ticks
from tare.report.trials_figure import trials_figure

HREFS = {"bare": "#level-0", "docker": "#level-1"}


def effects(weighing: Weighing) -> Figure:
    figure = effects_figure(weighing, HREFS)
    assert figure is not None
    return figure


def drawing(figure: Figure) -> Element:
    return read_page(str(figure.wide))


@pytest.mark.parametrize(
    ("low", "high", "about", "expected"),
    [
        (0.0, 10.0, 5, [0, 2, 4, 6, 8, 10]),
        (-0.056, 0.056, 4, [-0.05, 0.0, 0.05]),
        (0.0017, 0.0022, 5, [0.0017, 0.0018, 0.0019, 0.002, 0.0021, 0.0022]),
        (3.0, 3.0, 5, [3.0]),
    ],
)
def test_ticks_are_round_numbers_within_the_range(low: float, high: float, about: int, expected: list[float]) -> None:
    assert ticks(low, high, about) == pytest.approx(expected)


def test_a_scale_maps_ends_to_ends_and_holds_what_lies_outside() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(0), scale(5), scale(10), scale.held(99), scale.held(-1)] == [100, 150, 200, 200, 100]
    assert Scale(3, 3, 0, 10)(3) == 5


def test_an_element_escapes_what_it_is_given() -> None:
    assert tag("text", "<b>&\x1b", class_='a"b', x=1.25) == '<text class="a&#34;b" x="1.2">&lt;b&gt;&amp;\\x1b</text>'


def test_only_the_first_baseline_has_the_baseline_s_colour() -> None:
    assert [hue(number) for number in (0, 1, 6, 7)] == ["hue-0", "hue-1", "hue-6", "hue-1"]


def test_the_effect_is_drawn_where_it_lies_against_margin_and_floor() -> None:
    tree = drawing(effects(some.weighing(others=())))
    interval = next(each for each in tree.all("line", class_="interval") if each.holds("class", "hue-1"))
    band, floor, zero = (tree.all(class_=name)[0].attributes for name in ("band", "floor", "zero"))
    middle = float(zero["x1"])
    per_share = (float(band["width"]) / 2) / 0.05
    assert float(interval.attributes["x1"]) == pytest.approx(middle + 0.004 * per_share, abs=0.2)
    assert float(interval.attributes["x2"]) == pytest.approx(middle + 0.029 * per_share, abs=0.2)
    assert float(floor["width"]) / 2 == pytest.approx(0.009 * per_share, abs=0.2)


def test_no_effect_no_figure() -> None:
    assert effects_figure(some.empty().weighing, HREFS) is None
    assert effects_figure(some.half_finished().weighing, HREFS) is None


@pytest.mark.parametrize(
    ("name", "reading"),
    [
        ("normal", "The whole interval of docker lies inside the margin of ±5 %."),
        ("slower", "docker is slower: +28.0 %."),
        ("cannot_tell", "docker cannot be told: the interval holds zero and leaves the margin."),
        ("too_few", "docker cannot be told: no interval is drawn, n = 3 is too small for one."),
        (
            "several",
            "The whole intervals of docker and runc lie inside the margin of ±5 %; gvisor is slower: +28.0 %.",
        ),
    ],
)
def test_the_reading_under_the_effects_says_what_to_see(name: str, reading: str) -> None:
    assert effects(some.SAMPLES[name]().weighing).reading == reading


def test_a_difference_below_the_noise_floor_is_not_read_as_holding_zero() -> None:
    below = some.comparison(verdict="cannot_tell", low=0.002, high=0.09, aa_floor=0.03)
    assert "noise floor" in effects(some.weighing(comparisons=(below,))).reading


def test_every_trial_is_a_sign_that_leads_to_its_row() -> None:
    sample = some.tainted()
    shown = shown_trials(sample.weighing, sample.records)
    figure = trials_figure(sample.weighing, shown, level_order(sample.weighing, shown))
    assert figure is not None
    links = drawing(figure).all("a")
    assert {link.attributes["href"] for link in links} == {f"#{each.anchor}" for each in shown}
    assert "34 trials in 12 blocks" in figure.reading
    assert len(drawing(figure).all("line", class_="join")) == 11  # one block lost its baseline, the other only a twin


def test_blocks_that_miss_a_level_say_missing_in_the_numbers() -> None:
    sample = some.normal()
    fewer = [record for record in sample.records if record.block or record.settings["platform"] == "bare"]
    shown = shown_trials(sample.weighing, fewer)
    known = [each for each in shown if each.trial in {record.trial for record in fewer}]
    figure = trials_figure(sample.weighing, known, ["bare", "docker"])
    assert figure is not None
    assert [cell.text for cell in figure.rows[0]][-1] == "missing"


def test_the_parts_of_a_step_are_as_long_as_their_medians() -> None:
    figure = step_figure(some.weighing(), HREFS)
    assert figure is not None
    stall, compute, overhead = (float(bar.attributes["width"]) for bar in drawing(figure).all("rect")[:3])
    assert compute / stall == pytest.approx(0.00155 / 0.000231, rel=0.01)
    assert overhead > 0


def test_parts_that_were_not_measured_are_not_drawn() -> None:
    medians = some.weighing().medians
    only_step = {level: {"step_s": held["step_s"]} for level, held in medians.items()}
    assert step_figure(some.weighing(medians=only_step), HREFS) is None
    assert phases_figure(replace(some.weighing(), phases={}), HREFS) is None


def test_a_short_phase_is_told_in_its_own_unit_and_never_as_zero() -> None:
    figure = phases_figure(some.weighing(), HREFS)
    assert figure is not None
    assert [cell.text for cell in figure.rows[0]][:3] == ["bare", "400 µs", "1.00 ms"]
    assert "docker 530 ms" in figure.reading
