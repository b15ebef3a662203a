"""A paper's table as people see it: in a terminal and in Markdown; the golden files hold the whole of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from golden_files import assert_as_in_file
from paper_results import held, machine, trials
from some_layers import container
from tare.analysis.claims.pooling import Source
from tare.analysis.papers.library import paper
from tare.analysis.papers.machines import Held
from tare.analysis.papers.rows import Answered, Ours, answered
from tare.report.columns import display_width
from tare.report.export.paper_markdown import NOT_MEASURED, paper_markdown
from tare.report.paper import paper_text
from tare.report.paper_words import ours_text

TAX = "s0-container-tax"


@pytest.fixture(scope="module")
def found() -> Answered:
    """Two machines: one with the whole container and its layers, one that has only run another study."""
    why = Held("cpu2/s0-why", "why-layers", Source("cpu2/s0-why", container({"seccomp": 0.08}), {}))
    here = machine(held(TAX, "small", metrics=["compute_s", "memory_median_bytes"]), why, name="cpu2")
    there = machine(held("s0-seccomp", "small", metrics=["step_s"]), name="h200")
    return answered(paper("s0"), [here, there])


@pytest.mark.parametrize("part", ["rows", "claims", "layers"])
def test_each_part_fits_a_terminal(found, part):
    text = paper_text(found, [part], 80)
    assert all(display_width(line) <= 80 for line in text.splitlines())
    assert_as_in_file(text, f"report/paper-s0-{part}-80.txt")


@pytest.mark.parametrize("part", ["rows", "claims", "layers"])
def test_each_part_is_markdown_for_a_page(found, part):
    assert_as_in_file(paper_markdown(found, [part]), f"report/paper-s0-{part}.md")


def test_a_pipe_in_a_label_does_not_break_the_table(found):
    (here, _) = found.machines
    hostile = [
        replace(each, settings={**each.settings, "platform": "run|c <b>"}, state="ok")
        if each.settings["platform"] == "docker" and each.settings["workload.model"] == "lenet5"
        else each
        for each in trials(TAX, "small", metrics=["compute_s"])
    ]
    mine = replace(here.held[0], source=replace(here.held[0].source, records=hostile))
    text = paper_markdown(answered(paper("s0"), [machine(mine, name="a|b\x1b[31m")]), ["rows"])
    assert "\x1b" not in text
    assert "run\\|c \\<b\\>" in text
    rows = [line for line in text.splitlines() if line.startswith("| 0.")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}
    assert "**0.1**" in text


def test_parts_follow_each_other_in_the_order_asked_for(found):
    text = paper_text(found, ["claims", "rows"], 80)
    assert text.index("lighter models lose more") < text.index("0.1 LeNet-5")


def words_of(ours: Ours) -> str:
    return ours_text(ours, {})


def test_a_change_is_told_by_the_papers_own_formula_where_it_has_another():
    ours = Ours(
        metric="stall_mean_s", sides={"0 workers": 0.8, "1 worker": 0.2}, change=-0.75, low=-0.8, high=-0.5, n=6,
        paired=True, elsewhere=(-0.5, -0.75), as_decrease=True,
    )  # fmt: skip
    assert words_of(ours) == (
        "0 workers 800 ms, 1 worker 200 ms: decreases by 3x [1x, 4x], 6 blocks; 3x to 1x in 2 other configurations"
    )
    assert "-75.0 % [-80.0, -50.0]" in words_of(replace(ours, as_decrease=False))


def test_a_row_without_a_ratio_shows_both_medians_and_how_many_trials_have_nothing():
    ours = Ours(
        metric="gpu_util_share", sides={"0 workers": 0.0, "1 worker": 0.99}, zeros={"0 workers": (4, 6)}, n=6,
        without_ratio=1,
    )  # fmt: skip
    assert words_of(ours) == (
        "0 workers 0.0 %, 1 worker 99.0 %: no ratio, since it is zero in 4 of 6 trials of 0 workers; "
        "no ratio in 1 other configuration"
    )


def test_a_value_says_what_the_other_configurations_have_and_which_trials_have_no_share():
    ours = Ours(metric="writeback_sync_share", sides={"": 0.25}, n=4, elsewhere=(0.1, 0.5))
    assert words_of(ours) == "25.0 %, 4 trials; 10.0 % to 50.0 % in 2 other configurations"
    without = replace(ours, elsewhere=(), zeros={"writeback_count": (2, 6)})
    assert words_of(without) == "25.0 %, 4 trials (2 of 6 have none: writeback count is zero)"


def test_a_claim_is_told_of_every_population():
    other = Ours(word="does not hold", change=0.3, n=6, paired=True, where="torch 1.8")
    ours = Ours(word="holds", change=-0.1, n=6, paired=True, where="torch 2.13", also=(other,))
    said = words_of(ours)
    assert said.startswith("holds (torch 2.13): -10")
    assert "; does not hold (torch 1.8): +30" in said


def test_the_page_has_measured_rows_in_the_table_and_the_others_by_reason(found):
    text = paper_markdown(found, ["rows"])
    table, _, rest = text.partition(NOT_MEASURED)
    assert "| 0.1 |" in table
    assert "| 0.7a |" not in table
    reasons = [line for line in rest.splitlines() if line.startswith("- ")]
    assert sum("s0-power-sensitivity was not run: **0.7a**" in line for line in reasons) == 1
    ids = {row.id for row in found.paper.rows}
    assert {each for each in ids if f"| {each} |" in table or f"**{each}**" in rest} == ids
    energy = next(line for line in reasons if "**0.11a**" in line)
    assert energy.startswith(
        "- cpu2: no power sensor (power\\_median\\_w); h200: s0-container-tax was not run, or the like: **0.5** "
    )
    assert "**0.17c** ResNet-50, inference: total energy (+2.68 %; withdrawn by the authors)" in energy
    assert "**0.8**" not in energy


def test_the_layers_say_what_was_taken_apart_by_which_figure_and_what_could_have_been_seen(found):
    for text in (paper_text(found, ["layers"], 80), paper_markdown(found, ["layers"])):
        said = " ".join(text.split()).replace("\\", "")
        assert "minimum detectable effect" in said
        assert "ayer by layer: torch_train, step time" in said
        assert "the container in whole (compute of a mini-batch)" in said.replace("The container", "the container")
        assert "s0-container-tax was not run" in said.replace("s0-container- tax", "s0-container-tax")
