from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from statistics import median
from typing import Any
from xml.etree import ElementTree

import pytest

import some_weighings as some
from figure_stores import drawn, parts_figures
from some_layers import container
from tare.analysis.model import Weighing
from tare.analysis.resources.bottlenecks import knee, knee_sentences
from tare.analysis.resources.curves import is_number, latency_sections
from tare.records.model import Record
from tare.report.charts.effects import effects_figure, why_figure
from tare.report.charts.trials import trials_figure
from tare.report.evidence import ReportData, layers_found, level_order, shown_trials
from tare.report.figure import (
    IN_PAGE,
    LEVELS,
    PAPER,
    PARTS,
    Figure,
    as_file,
    compiled,
    for_page,
    for_paper,
    level_colour,
    safe_json,
)

HREFS = {"bare": "#level-0", "docker": "#level-1"}
NUMBERS = {"bare": 0, "docker": 1}


def step_data(weighing: Weighing, records: Sequence[Record] = ()) -> ReportData:
    return ReportData(weighing, shown_trials(weighing, records), HREFS, records)


def effects(weighing: Weighing) -> Figure:
    figure = effects_figure(weighing, HREFS, NUMBERS)
    assert figure is not None
    return figure


def trials(sample: Any) -> Figure:
    shown = shown_trials(sample.weighing, sample.records)
    figure = trials_figure(sample.weighing, shown, level_order(sample.weighing, shown), NUMBERS)
    assert figure is not None
    return figure


def layer(figure: Figure, mark: str, place: int = 0) -> dict[str, Any]:
    """The n-th layer of this kind of mark."""
    kinds = [each for each in figure.chart["layer"] if mark in (each["mark"], dict(each["mark"]).get("type"))]
    found: dict[str, Any] = kinds[place]
    return found


def every_figure() -> list[Figure]:
    several = some.several()
    made = [
        effects(some.weighing()), trials(some.tainted()), trials(several), *parts_figures(some.weighing()).values(),
        why_figure(layers_found(container({"cpu": 0.3}), 0.05)),
    ]  # fmt: skip
    return [figure for figure in made if figure is not None]


@pytest.mark.parametrize("figure", every_figure(), ids=lambda figure: figure.name)
def test_the_library_takes_every_chart_and_draws_something(figure: Figure) -> None:
    drawn = as_file(figure, "svg").decode()
    assert drawn.count("<path") + drawn.count("<rect") + drawn.count("<line") > 4
    assert "NaN" not in drawn
    assert "@" not in drawn.replace("@import", "")


@pytest.mark.parametrize(("kind", "begins"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<svg")])
def test_a_figure_is_a_file_of_each_kind(kind: str, begins: bytes) -> None:
    assert as_file(effects(some.weighing()), kind).startswith(begins)


def test_colours_are_those_of_the_page_or_of_paper_and_data_is_never_one() -> None:
    chart = {"mark": {"color": "@ink"}, "data": {"values": [{"level": "@ink"}]}, "title": "@nobody"}
    assert for_page(chart)["mark"]["color"] == "var(--ink)"
    assert for_paper(chart, 400)["mark"]["color"] == PAPER["ink"]
    assert for_page(chart)["data"]["values"] == [{"level": "@ink"}]
    assert for_page(chart)["title"] == "@nobody"
    assert IN_PAGE.keys() == PAPER.keys()


def test_every_colour_of_the_charts_is_in_the_style_sheet_by_day_and_by_night() -> None:
    from importlib import resources

    sheet = resources.files("tare.report").joinpath("templates", "report.css").read_text("utf-8")
    light, dark = sheet.split("@media screen and (prefers-color-scheme: dark)", 1)
    for name in PAPER:
        assert f"--{name}:" in light, name
        assert f"--{name}:" in dark, name


def test_only_the_first_baseline_has_the_baseline_s_colour() -> None:
    assert [level_colour(number) for number in (0, 1, 6, 7)] == ["@level-0", "@level-1", "@level-6", "@level-7"]


def test_no_colour_is_another_level_s_and_none_is_a_part_s() -> None:
    known = [colour for name, colour in PAPER.items() if name.startswith(("level-", "part-"))]
    assert len(known) == len(set(known)) == LEVELS + 1 + PARTS
    assert level_colour(LEVELS + 30) == f"@level-{LEVELS}"  # the neutral one


def luminance(colour: str) -> float:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("screen", ["light", "dark"])
def test_every_mark_stands_out_from_the_paper_by_three_to_one(screen: str) -> None:
    style = resources.files("tare.report").joinpath("templates", "report.css").read_text("utf-8")
    light, _, dark = style.partition("prefers-color-scheme: dark")
    known = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light if screen == "light" else dark))
    paper = luminance(known["paper"])
    for name, colour in known.items():
        if name.startswith(("level-", "part-", "band-edge", "floor")):
            bright, dull = sorted((paper, luminance(colour)), reverse=True)
            assert (bright + 0.05) / (dull + 0.05) >= 3, (screen, name, colour)


def test_no_label_breaks_out_of_the_script_that_carries_the_charts() -> None:
    hostile = "</script><img src=x onerror=alert(1)> & <!--"
    text = safe_json(
        {"effects": compiled(replace(effects(some.weighing()), chart={"title": hostile, "mark": "point"}))}
    )
    assert not set("<>&") & set(text)
    assert json.loads(text)["effects"]["title"]["text"] == hostile
    with pytest.raises(ValueError, match="not JSON compliant"):
        safe_json({"x": float("nan")})


def test_the_effect_is_drawn_where_it_lies_against_margin_and_floor() -> None:
    chart = effects(some.weighing(others=())).chart
    (lane,) = chart["data"]["values"]
    assert (lane["effect"], lane["low"], lane["high"]) == pytest.approx((0.016, 0.004, 0.029))
    bands = [each["encoding"]["x2"]["datum"] for each in chart["layer"] if each["encoding"].get("x2", {}).get("datum")]
    assert bands == pytest.approx([0.05, 0.009])


def test_only_the_judged_metric_is_drawn_against_its_noise() -> None:
    (lane,) = effects(some.weighing()).chart["data"]["values"]
    assert lane["label"] == "docker"


def test_without_an_interval_none_is_drawn() -> None:
    (lane, *_) = effects(some.too_few().weighing).chart["data"]["values"]
    assert "low" not in lane
    assert "high" not in lane


def test_no_effect_no_figure() -> None:
    assert effects_figure(some.empty().weighing, HREFS, NUMBERS) is None
    assert effects_figure(some.half_finished().weighing, HREFS, NUMBERS) is None


@pytest.mark.parametrize(
    ("name", "reading"),
    [
        ("normal", "The whole interval of docker lies inside the margin of ±5 %."),
        ("slower", "docker is slower: +28.0 % [+12.0, +61.0]."),
        ("cannot_tell", "docker cannot be told: the interval contains zero and exceeds the declared margin of ±5 %."),
        ("too_few", "docker cannot be told: no interval is drawn, n = 3 is too small for one."),
        (
            "several",
            "The whole intervals of docker and runc lie inside the margin of ±5 %; "
            "gvisor is slower: +28.0 % [+12.0, +61.0].",
        ),
    ],
)
def test_the_reading_under_the_effects_says_what_to_see(name: str, reading: str) -> None:
    assert effects(some.SAMPLES[name]().weighing).reading == reading


def test_a_difference_below_the_noise_floor_is_not_read_as_holding_zero() -> None:
    below = some.comparison(verdict="cannot_tell", low=0.002, high=0.09, aa_floor=0.03)
    assert (
        "does not exceed the difference of two runs of the same thing"
        in effects(some.weighing(comparisons=(below,))).reading
    )


def test_every_trial_is_a_sign_that_leads_to_its_row() -> None:
    sample = some.tainted()
    shown = shown_trials(sample.weighing, sample.records)
    figure = trials(sample)
    signs = figure.chart["data"]["values"]
    assert {sign["href"] for sign in signs} == {f"#{each.anchor}" for each in shown}
    assert "34 trials in 12 blocks" in figure.reading
    assert len(layer(figure, "rule")["data"]["values"]) == 11  # one block lost its baseline, the other only a twin


def test_a_lost_trial_has_no_value_an_outlier_a_ring_and_a_doubtful_one_too() -> None:
    signs = trials(some.tainted()).chart["data"]["values"]
    assert sum("value" not in sign for sign in signs) == 2
    assert sum("ring" in sign for sign in signs) == 1
    assert sum("doubt" in sign for sign in signs) == 1
    lost = next(sign for sign in signs if "value" not in sign)
    assert "swapped" in lost["why"]


def test_signs_that_belong_to_no_level_are_told_where_there_are_any() -> None:
    assert "A × below the plot is an excluded trial." in trials(some.tainted()).reading
    assert "A ring marks suspect trials" in trials(some.tainted()).reading
    assert "×" not in trials(some.normal()).reading


def test_there_is_room_for_a_whole_sign_and_its_ring_at_the_edge_of_the_plot() -> None:
    figure = trials(some.tainted())
    ring = layer(figure, "point", 1)
    radius = math.sqrt(ring["mark"]["size"] / math.pi)
    for place in (0, 1):
        assert layer(figure, "point", place)["encoding"]["y"]["scale"]["padding"] > radius


def test_blocks_that_miss_a_level_say_missing_in_the_numbers() -> None:
    sample = some.normal()
    fewer = [record for record in sample.records if record.block or record.settings["platform"] == "bare"]
    shown = shown_trials(sample.weighing, fewer)
    known = [each for each in shown if each.trial in {record.trial for record in fewer}]
    figure = trials_figure(sample.weighing, known, ["bare", "docker"], NUMBERS)
    assert figure is not None
    assert [cell.text for cell in figure.rows[0]][-1] == "missing"


def test_the_parts_of_a_step_add_up_to_the_figure_that_is_judged() -> None:
    """Medians do not add up; the means of the trial in the middle do."""
    made = []
    for place, record in enumerate(some.records(blocks=7)):
        step = 0.01 * (1 + place)
        means = {
            "step_mean_s": step,
            "stall_mean_s": 0.7 * step,
            "compute_mean_s": 0.2 * step,
            "overhead_mean_s": 0.1 * step,
        }
        made.append(replace(record, metrics={**record.metrics, **means}))
    data = step_data(some.weighing(made), made)
    figure = parts_figures(data.weighing, data.usable)["step-parts"]
    for level, records in data.usable.items():
        drawn = [piece["value"] for piece in layer(figure, "bar")["data"]["values"] if piece["level"] == level]
        middle = median(record.metrics["step_mean_s"] for record in records)
        assert sum(drawn) == pytest.approx(middle * 1000)
    assert "add up" in figure.reading


def test_where_only_medians_are_known_the_parts_are_those() -> None:
    figure = parts_figures(some.weighing())["step-parts"]
    values = {piece["part"]: piece["value"] for piece in layer(figure, "bar")["data"]["values"][:3]}
    assert values["compute"] / values["fetch stall"] == pytest.approx(0.00155 / 0.000231, rel=0.01)
    assert values["compute"] == pytest.approx(1.55)  # milliseconds, as the axis says
    assert values["overhead"] > 0


def test_parts_that_were_not_measured_are_not_drawn() -> None:
    medians = some.weighing().medians
    only_step = {level: {"step_s": held["step_s"]} for level, held in medians.items()}
    assert parts_figures(some.weighing(medians=only_step, phases={})) == {}


def test_a_short_phase_is_never_told_as_zero() -> None:
    figure = parts_figures(some.weighing())["phases"]
    assert [cell.text for cell in figure.rows[0]][:3] == ["bare", "0.40 ms", "1.0 ms"]


def test_a_setting_that_is_a_list_makes_no_curve() -> None:
    layered = [replace(each, settings={"platform.isolation": ["cpu", "pids"][: n % 3]}) for n, each in
               enumerate(some.records())]  # fmt: skip
    assert not is_number(layered, "platform.isolation")
    numbered = [replace(each, settings={"cores": n % 4}) for n, each in enumerate(some.records())]
    assert is_number(numbered, "cores")


def served(platforms: Sequence[str] = ("bare", "docker")) -> list[Record]:
    """A server that answers 250 requests a second, and 150 in a container, at four rates."""
    made = []
    for place, each in enumerate(each for each in some.records() if each.settings["platform"] in platforms):
        for rate in (100.0, 200.0, 300.0, 400.0):
            most = 250.0 if each.settings["platform"] == "bare" else 150.0
            late_s = 0.01 if rate <= most else 2.0
            metrics = {"step_s": late_s, "step_p99_s": 3 * late_s, "goodput_per_s": min(rate, most) * 0.99}
            settings = {**each.settings, "workload": "server", "workload.rate": rate}
            made.append(replace(each, trial=f"{place:08d}{rate:08.0f}", settings=settings, metrics=metrics))
    return made


def test_latency_is_drawn_against_the_rate_and_the_knee_is_named() -> None:

    figure = drawn(latency_sections(served()))["curve-latency"]

    assert figure.headers == ("series", "rate", "latency", "95 % interval", "trials")
    assert "bare: goodput follows the rate up to 200/s, the knee; at 300/s it is 248/s." in figure.reading
    assert "docker: goodput follows the rate up to 100/s, the knee; at 200/s it is 148/s." in figure.reading
    told = {(row[0].text, row[1].text): row[2].text for row in figure.rows}
    assert told["bare, median", "200"] == "0.010 s" and told["docker, median", "200"] == "2.000 s"
    assert told["bare, 99th percentile", "200"] == "0.030 s"
    assert figure.chart["layer"][3]["encoding"]["y"]["title"] == "latency, s"
    assert sorted({each["x"] for each in figure.chart["layer"][0]["data"]["values"]}) == [100.0, 200.0]
    compiled(figure)


def test_a_knee_is_of_the_requests_that_came_and_not_of_those_that_were_planned() -> None:
    """Requests at random times are a few more or fewer: 6 % fewer answers than the rate, of which none is missing."""

    fewer = [
        replace(each, metrics={**each.metrics, "goodput_per_s": 0.94 * rate, "offered_per_s": 0.94 * rate})
        for each in served(("bare",))
        for rate in [each.settings["workload.rate"]]
    ]
    figure = drawn(latency_sections(fewer))["curve-latency"]
    assert "goodput follows the rate up to the highest, 400/s: the knee lies above." in figure.reading
    assert knee_sentences(served()) == (
        "bare: goodput follows the rate up to 200/s, the knee; at 300/s it is 248/s.",
        "docker: goodput follows the rate up to 100/s, the knee; at 200/s it is 148/s.",
    )
    assert knee_sentences(some.records()) == ()


def test_two_rates_are_a_curve_and_tell_at_which_of_them_the_server_keeps_up() -> None:

    two = [each for each in served() if each.settings["workload.rate"] in (200, 300)]
    figure = drawn(latency_sections(two))["curve-latency"]
    assert {row[1].text for row in figure.rows} == {"200", "300"}
    told = "bare: keeps up at 200/s, not at 300/s: goodput is 248/s; the knee lies between."
    assert knee_sentences(two) == (told, "docker: goodput is behind even the lowest rate, 200/s.")
    assert told in figure.reading


def test_other_workloads_and_one_rate_have_no_latency_curve() -> None:

    assert latency_sections(some.records()) == []
    one = [each for each in served() if each.settings["workload.rate"] < 200]
    assert latency_sections(one) == []
    assert knee({100.0: [60.0], 200.0: [199.0]}) is None
    assert knee({100.0: [99.0], 200.0: [150.0], 300.0: [299.0]}) == 100.0  # above it the rate was not kept
    assert knee({100.0: [99.0], 200.0: [198.0]}) == 200.0


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_a_figure_is_as_wide_as_the_column_it_is_for(kind: str) -> None:
    points = 84 / 25.4 * 72
    drawn = as_file(trials(some.several()), kind, points)
    if kind == "svg":
        text = drawn.decode()
        view = float((re.findall(r'viewBox="0 0 ([\d.]+) ', text) or ["0"])[0])
        assert f'width="{points:.2f}pt"' in text
        assert min(map(float, re.findall(r'font-size="([\d.]+)px"', text))) * points / view >= 6
        assert "\N{HORIZONTAL ELLIPSIS}" not in text
    elif kind == "pdf":
        assert f"[0 0 {points:.2f} ".encode() in drawn
    else:
        assert abs(int.from_bytes(drawn[16:20], "big") - 84 / 25.4 * 300) < 2


def test_one_column_has_smaller_type_than_two() -> None:
    from tare.report.figure import COLUMNS_MM

    figure, sizes = trials(some.several()), []
    for wide_mm in COLUMNS_MM.values():
        points = wide_mm / 25.4 * 72
        text = as_file(figure, "svg", points).decode()
        view = float(re.findall(r'viewBox="0 0 ([\d.]+) ', text)[0])
        sizes.append(min(map(float, re.findall(r'font-size="([\d.]+)px"', text))) * points / view)
    assert 6 <= sizes[0] < sizes[1] < 11


def texts_of(figure: Figure, wide_mm: float = 84) -> dict[str, float]:
    """Every text of the drawing with the height at which it stands."""
    found: dict[str, float] = {}

    def walk(element: ElementTree.Element, down: float) -> None:
        move = re.match(r"translate\(([-\d.]+),([-\d.]+)\)", element.get("transform", ""))
        down += float(move[2]) if move else 0.0
        if element.tag.endswith("text") and element.text:
            found[element.text] = down
        for child in element:
            walk(child, down)

    walk(ElementTree.fromstring(as_file(figure, "svg", wide_mm / 25.4 * 72)), 0.0)
    return found


@pytest.mark.parametrize("level", ["docker", "docker-with-a-name-as-long-as-images-have:latest"])
def test_no_label_lies_on_the_figures_of_its_lane(level: str) -> None:
    figure = effects(some.weighing(comparisons=(some.comparison(level=level),)))
    texts = texts_of(figure)
    numbers = next(text for text in texts if text.startswith(("+", "\N{MINUS SIGN}")) and "[" in text)
    assert (texts[level] < texts[numbers]) == (len(level) > 20)
    assert "0" in texts and "+0.0%" not in texts  # zero has no sign
    assert any(text.startswith("change of ") for text in texts)


def test_every_lane_has_its_zero_and_signs_that_no_level_has_are_in_the_drawing() -> None:
    figure = effects(some.several().weighing)
    assert layer(figure, "tick")["encoding"]["x"]["datum"] == 0
    assert "y" not in layer(figure, "tick")["encoding"]  # of every lane, not once
    assert any("excluded" in text for text in texts_of(trials(some.tainted()))) == any(
        each.value is None for each in shown_trials(some.tainted().weighing, some.tainted().records)
    )
    assert any("hollow: A/A repeat" in text for text in texts_of(trials(some.several())))
