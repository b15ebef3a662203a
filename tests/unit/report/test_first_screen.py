"""What a reader who has ten seconds was misled by on the first screen of a report."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from figure_stores import parts_figures
from html_reading import read_page
from some_weighings import comparison, records, weighing
from tare.analysis.answer import sentences_of
from tare.analysis.model import Comparison, Measurement
from tare.base.text import going_on
from tare.report import html
from tare.report.evidence import ReportRow
from tare.report.figure import Figure
from tare.report.following import Source, next_steps
from tare.report.html import fine, page, render
from tare.report.panels import Axis, effect_plot


@pytest.mark.parametrize(("low", "high"), [(-0.043, 0.041), (-0.09, 0.92), (-0.002, 0.0013), (-0.05, 30.0)])
def test_an_axis_has_enough_numbers_to_read_a_value_by(low: float, high: float) -> None:
    ticks = [text for _, text in Axis(low, high).ticks()]

    assert 3 <= len(ticks) <= 6
    assert "0" in ticks


def test_a_block_that_the_comparison_leaves_out_has_no_dot() -> None:
    """Its two sides were run an hour apart: `n = 5` stood beside six dots."""
    measured, shown = [], []
    for block in range(6):
        for level, value in (("bare", 1.0), ("docker", 1.01)):
            late_s = 3600.0 if (block, level) == (2, "docker") else 0.0
            trial = f"{level}-{block}"
            measured.append(Measurement(level, value, str(block), 0, trial, started_s=100.0 * block + late_s))
            shown.append(ReportRow(f"t-{trial}", trial, level, str(block), "ok", value=value))
    found = replace(weighing(), comparisons=(comparison(n=5),), measurements=tuple(measured))

    plot = effect_plot(found, shown, {}, {})

    assert plot is not None
    assert [dot.href for dot in plot.panels[0].lanes[0].dots] == [f"#t-docker-{block}" for block in (0, 1, 3, 4, 5)]


def test_a_slower_start_up_is_something_to_repair() -> None:
    """`Nothing to repair` stood below `start-up +40 % slower`."""
    even, start = comparison(verdict="equivalent"), comparison(metric="startup_s", verdict="slower", effect=0.4)

    def steps(*tested: Comparison) -> list[str]:
        return [str(step) for step in next_steps(weighing(comparisons=(even,), tested=tested), Source())]

    (worse,) = steps(start)
    assert (
        worse.startswith("Worse in the start-up to the first step.")
        and "`tare why --set compare.metric=startup_s`" in worse
    )
    (unsure,) = steps(replace(start, verdict="cannot_tell"))
    assert (
        "Nothing to repair in the" in unsure and "what the start-up to the first step costs is not known yet" in unsure
    )
    assert steps(replace(start, verdict="equivalent"))[0].startswith("Nothing to repair. ")


def test_the_first_screen_says_the_answer_with_its_subject_and_when_the_trials_were_run() -> None:
    """The study's name and the hour of the report stood there."""
    ran = records()
    shown = page(weighing(), ran, "2030-01-01T00:00:00Z", "", ())
    text = read_page(render(weighing(), ran, "2030-01-01T00:00:00Z"))

    heading, title, description = (
        text.all("h1")[0], text.all("title")[0], text.all("meta", name_="description")[0],
    )  # fmt: skip
    assert " ".join(fine(shown.headline.title).split()) == heading.text()
    assert "docker" in shown.headline.title
    assert title.text().startswith(shown.headline.title)
    assert description.attributes["content"].startswith(shown.headline.title)
    assert min(record.started_utc for record in ran)[:10] in shown.provenance
    assert "2030" not in shown.provenance
    assert re.search(r"\d+ blocks", shown.provenance)


def test_several_contrasts_with_one_word_say_from_how_much_to_how_much() -> None:
    slower = [comparison(name, verdict="slower", effect=0.4 + n / 10, low=0.3, high=0.6)
              for n, name in enumerate(("docker", "runc"))]  # fmt: skip
    (sentence,) = sentences_of(weighing(comparisons=tuple(slower)))
    assert sentence.startswith("docker and runc are slower than ")
    assert "+40.0 % [+30.0, +60.0] to +50.0 % [+30.0, +60.0]" in sentence


def test_the_masthead_names_the_gpu() -> None:
    """`Intel(R) Xeon(R) Processor, 16 cores` stood on every page of an H200."""
    inside = {"torch": {"gpu": {"name": "NVIDIA H200"}}}
    on_gpu = [replace(each, facts={**each.facts, "inside": inside}) for each in records()]
    assert page(weighing(), on_gpu, "", "", ()).machine.startswith("NVIDIA H200, ")
    assert "NVIDIA" not in page(weighing(), records(), "", "", ()).machine


def test_a_row_has_the_colour_of_its_verdict() -> None:
    """Each row had a colour of its own, which said nothing."""
    words = ("slower", "equivalent", "slower")
    several = tuple(comparison(f"level {n}", verdict=word) for n, word in enumerate(words))
    shown = read_page(render(weighing(comparisons=several), records(), ""))
    points = [each.attributes["class"].split()[-1] for each in shown.all("circle", class_="point")]

    assert sorted(points[:3]) == ["is-equivalent", "is-slower", "is-slower"]


def test_the_chart_stands_before_its_controls() -> None:
    """On a telephone three menus filled the first screen."""
    several = tuple(comparison(f"level {n}") for n in range(5))
    shown = render(weighing(comparisons=several), records(), "")
    assert 0 < shown.index('id="effects"') < shown.index('class="controls"')


def test_no_two_phases_of_a_trial_share_a_colour() -> None:
    """`prepare` and `close` were one gold."""
    phases = ("prepare", "open", "enter", "wait", "run", "leave", "close", "collect", "restore")
    found = parts_figures(replace(weighing(), phases={"bare": dict.fromkeys(phases, 1.0)}))["phases"]
    colours = found.chart["layer"][0]["encoding"]["color"]["scale"]["range"]
    assert len(set(colours)) == len(phases)


def test_a_sentence_that_goes_on_keeps_a_name_as_it_is() -> None:
    """`leNet-5` stood in a note."""
    assert going_on("Only one model was trained.") == "only one model was trained."
    assert going_on("LeNet-5 was not trained.") == "LeNet-5 was not trained."
    assert going_on("GPU time is not known.") == "GPU time is not known."
    assert going_on("A trial failed.") == "a trial failed."


def test_a_command_in_a_caption_is_code(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = records()
    figure = Figure("made-up", "A figure", "See `tare show`.", {"mark": "point"}, (), ())
    monkeypatch.setattr(html, "figures", lambda evidence: (figure,))
    caption = read_page(render(weighing(), shown, "")).all("figcaption")
    told = [each for each in caption if "See" in each.text()]
    assert [each.text() for each in told[0].all("code")] == ["tare show"]
    assert not any("`" in each.text() for each in caption)
