"""What a reader who has ten seconds was misled by on the first screen of a report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from some_weighings import comparison, records, weighing
from tare.analysis.model import Comparison, Direction, Measurement
from tare.analysis.work import Place
from tare.report.evidence import ReportRow
from tare.report.following import Source, next_steps
from tare.report.html import page
from tare.report.panels import Axis, answer_line, effect_plot


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
    assert worse.startswith("Worse in the start-up to the first step.") and "`tare why --start-up`" in worse
    (unsure,) = steps(replace(start, verdict="cannot_tell"))
    assert (
        "Nothing to repair in the" in unsure and "what the start-up to the first step costs is not known yet" in unsure
    )
    assert steps(replace(start, verdict="equivalent"))[0].startswith("Nothing to repair. ")


def test_the_headline_names_what_it_is_compared_with_and_how_wide_an_open_answer_is() -> None:
    slower = [comparison(level, verdict="slower", effect=0.4, low=0.3, high=0.5) for level in ("docker", "runc")]
    undecided = [comparison(str(n), verdict="cannot_tell", low=-0.1 * n, high=0.1 * n) for n in range(1, 6)]
    places = {"bare": Place("", "bare", (("platform", "bare"),))}

    word, phrase, sentence = answer_line(weighing(comparisons=tuple(slower)), places)
    assert (word, phrase) == ("slower", "takes 40 % longer than bare metal")
    assert sentence.startswith("Slower in both comparisons: ")
    rates = [replace(each, metric="tokens_per_s", direction=Direction(True, "name")) for each in slower]
    assert answer_line(weighing(comparisons=tuple(rates)), places)[1] == "lower than bare metal in both comparisons"
    assert "[-50.0, +50.0] (5)" in answer_line(weighing(comparisons=tuple(undecided)), places)[2]


@pytest.mark.parametrize(
    ("effects", "says"),
    [
        ((0.482, 0.664, 0.805), "1 core: 48 to 80 % longer than 2 cores"),
        ((-0.476, -0.324), "1 core: 32 to 48 % less time than 2 cores"),
        ((0.5, 1.42), "1 core: 1.5 to 2.4 times as long as 2 cores"),
        ((0.061, 0.082), "1 core: 6.1 to 8.2 % longer than 2 cores"),
    ],
)
def test_the_headline_of_levels_that_are_all_slower_or_faster_says_by_how_much(effects, says) -> None:
    word = "slower" if effects[0] > 0 else "faster"
    found = [
        comparison(f"{n}", verdict=word, effect=effect, low=effect, high=effect) for n, effect in enumerate(effects)
    ]
    places = {each.level: Place(f"job {each.level}", "1 core", (("cores", "1 core"),)) for each in found}
    places["bare"] = Place("", "2 cores", (("cores", "2 cores"),))

    assert answer_line(weighing(comparisons=tuple(found)), places)[:2] == (word, says)


def test_the_masthead_names_the_gpu() -> None:
    """`Intel(R) Xeon(R) Processor, 16 cores` stood on every page of an H200."""
    inside = {"torch": {"gpu": {"name": "NVIDIA H200"}}}
    on_gpu = [replace(each, facts={**each.facts, "inside": inside}) for each in records()]
    assert page(weighing(), on_gpu, "", "", ()).machine.startswith("NVIDIA H200, ")
    assert "NVIDIA" not in page(weighing(), records(), "", "", ()).machine
