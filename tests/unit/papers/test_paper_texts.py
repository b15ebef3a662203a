"""A paper's table as people see it: in a terminal and in Markdown; the golden files hold the whole of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from golden_files import assert_as_in_file
from paper_results import held, machine, trials
from some_layers import container
from some_records import because
from tare.base.columns import display_width
from tare.papers.claims.model import figure_words
from tare.papers.pages.markdown import paper_markdown
from tare.papers.pages.rows import HAZARDS, NOWHERE_MEASURED, ours_text
from tare.papers.pages.terminal import paper_text, whole_notes, whole_rows
from tare.papers.tables.model import paper
from tare.papers.tables.rows import Answered, Layers, Ours, answered
from tare.records.model import StoreTrials

TAX = "s0-container-tax"
LONGEST_LINE = 400  # of a table on a page


@pytest.fixture(scope="module")
def found() -> Answered:
    """Two machines: one with the whole container and its layers, one that has only run another study."""
    why = StoreTrials("cpu2/s0-why", container({"seccomp": 0.08}), {"study": "why-layers"})
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
    mine = replace(here.held[0], records=hostile)
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
    return ours_text(ours)


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
    other = Ours(word="does not hold", change=0.3, low=0.2, high=0.4, n=6, paired=True, where="torch 1.8")
    ours = Ours(word="holds", change=-0.1, low=-0.2, high=-0.05, n=6, paired=True, where="torch 2.13", also=(other,))
    assert words_of(ours) == (
        "holds (torch 2.13): -10.0 % [-20.0, -5.0], 6 blocks; "
        "does not hold (torch 1.8): +30.0 % [+20.0, +40.0], 6 blocks"
    )


def test_a_claim_about_a_share_has_no_sign_and_is_no_factor():
    ours = Ours(word="holds", change=1.0, low=0.98, high=1.0, n=6, paired=True, kind="share")
    assert words_of(ours) == "holds: 100.0 % [98.0, 100.0], 6 blocks"
    assert "too few blocks for an interval (4)" in words_of(replace(ours, low=None, high=None, n=4))


@pytest.mark.parametrize("kind", ["change", "share", "points"])
def test_a_claim_has_the_same_figure_in_its_row_as_in_its_evidence(kind):
    ours = Ours(word="holds", change=0.719, low=0.435, high=1.304, n=6, paired=True, kind=kind)
    assert words_of(ours) == f"holds: {figure_words(kind, 0.719, 0.435, 1.304)}, 6 blocks"
    assert ours_text(ours, printed="2.5x") == words_of(ours)


def test_a_share_below_a_tenth_of_a_percent_is_told_as_that():
    ours = Ours(metric="fault_top10_place_share", sides={"": 3.64e-6}, low=3.59e-6, high=3.87e-6, n=6)
    assert words_of(ours) == "below 0.1 %, 6 trials"
    assert words_of(replace(ours, low=None, high=None, elsewhere=(1e-5, 0.5))) == (
        "below 0.1 %, 6 trials; below 0.1 % to 50.0 % in 2 other configurations"
    )
    assert words_of(replace(ours, high=0.25)) == "below 0.1 % [below 0.1, 25.0], 6 trials"
    assert words_of(replace(ours, sides={"": 0.001}, low=0.001, high=0.001)) == "0.100 % [0.100, 0.100], 6 trials"
    seconds = replace(ours, metric="step_s", sides={"": 3.64e-6})
    assert words_of(seconds) == "3.64 µs [3.59, 3.87], 6 trials"


def test_a_change_without_an_interval_shows_both_medians_and_no_percentage():
    ours = Ours(
        metric="step_s", sides={"bare": 0.022, "runc": 0.025}, change=0.131, n=4, paired=True, verdict="cannot_tell",
        margin=0.05, elsewhere=(0.2, 0.3),
    )  # fmt: skip
    assert words_of(ours) == "bare 22.0 ms, runc 25.0 ms: too few blocks for an interval (4)"
    assert words_of(replace(ours, paired=False)).endswith(": too few trials for an interval (4)")
    worded = Ours(word="undecided", change=0.031, n=4, paired=True)
    assert words_of(worded) == "undecided: too few blocks for an interval (4)"


def test_a_workload_without_an_interval_has_no_change_in_the_table_of_the_whole_container():
    few = Ours(metric="compute_s", change=0.131, n=4, paired=True, verdict="cannot_tell", margin=0.05)
    sure = replace(few, low=0.1, high=0.2, n=6, verdict="slower", mde=0.01)
    each = Layers("here", {"LeNet-5, training: compute": few, "ResNet-18, training: compute": sure}, None)
    assert whole_rows(each, whole_notes(each)) == [
        ("LeNet-5, training", "", "too few blocks for an interval (4)", "4", "cannot tell", ""),
        ("ResNet-18, training", "+13.1 %", "[+10.0, +20.0]", "6", "slower", "1 %"),
    ]


def test_a_change_within_the_margin_is_told_apart_from_none():
    ours = Ours(
        metric="step_s", sides={"bare": 0.0105, "docker": 0.0107}, change=0.02, low=0.018, high=0.021, n=6,
        paired=True, verdict="equivalent", margin=0.05,
    )  # fmt: skip
    assert words_of(ours).endswith(": +2.0 % [+1.8, +2.1], 6 blocks, changed by less than 5 %")
    fewer = replace(ours, change=-0.02, low=-0.021, high=-0.018)
    assert words_of(fewer).endswith(": -2.0 % [-2.1, -1.8], 6 blocks, changed by less than 5 %")
    none = replace(ours, change=0.002, low=-0.012, high=0.015)
    assert words_of(none).endswith(": +0.2 % [-1.2, +1.5], 6 blocks, no change within 5 %")
    assert words_of(replace(none, verdict="cannot_tell")).endswith(", 6 blocks, cannot tell")


def test_a_large_change_is_a_factor_and_so_is_one_that_the_paper_prints_as_such():
    ours = Ours(
        metric="step_s", sides={"batch 1": 0.061, "batch 8": 0.218}, change=2.57, low=2.53, high=2.62, n=6,
        paired=True, elsewhere=(1.5, 3.0),
    )  # fmt: skip
    assert words_of(ours) == (
        "batch 1 61 ms, batch 8 218 ms: 3.6x [3.5x, 3.6x], 6 blocks; 2.5x to 4.0x in 2 other configurations"
    )
    little = replace(ours, change=0.2, low=0.1, high=0.3, elsewhere=())
    assert ": +20.0 % [+10.0, +30.0], 6 blocks" in ours_text(little, printed="+16.26 %")
    assert ": 1.20x [1.10x, 1.30x], 6 blocks" in ours_text(little, printed="6.7x")


def test_the_page_has_measured_rows_in_the_table_and_the_others_by_reason(found):
    text = paper_markdown(found, ["rows"])
    table, _, rest = text.partition(NOWHERE_MEASURED)
    assert "| 0.1 |" in table
    assert "| 0.7a |" not in table
    ids = {row.id for row in found.paper.rows}
    assert {each for each in ids if f"| {each} |" in table or f"**{each}**" in rest} == ids
    groups = {group.partition(":\n")[0]: group.splitlines()[1:] for group in rest.split("\n- ")}
    assert [line[:12] for line in groups["s0-power-sensitivity was not run"]] == [
        "  - **0.7a**", "  - **0.7b**", "  - **0.16a*", "  - **0.16b*",
    ]  # fmt: skip
    energy = groups["cpu2: no power sensor (power\\_median\\_w); h200: s0-container-tax was not run, or the like"]
    assert energy[0].startswith("  - **0.5** MobileNetV3, training: median power (bare 43.7 W, container 40.8 W) (")
    assert any(line.startswith("  - **0.17c** ResNet-50, inference: total energy (+2.68 %) (") for line in energy)
    assert not any("**0.8**" in line for line in energy)


def test_a_machine_that_has_measured_no_row_is_a_sentence_and_no_column_of_reasons():
    here = machine(held(TAX, "small", metrics=["compute_s"]), name="cpu2")
    there = machine(held("s3-batch", "small", metrics=["step_s"]), name="h200")
    found = answered(paper("s0"), [here, there])
    for text in (paper_text(found, ["rows"], 1000), paper_markdown(found, ["rows"])):
        assert "None of these rows was measured on h200." in text
        assert "h200 |\n" not in text
        assert "h200  not measured" not in text
    assert "None of these rows" not in paper_markdown(answered(paper("s0"), [here]), ["rows"])


def test_rows_that_nobody_has_measured_are_a_line_each_below_their_reason_in_a_terminal_too(found):
    text = paper_text(found, ["rows"], 200)
    table, _, rest = text.partition(NOWHERE_MEASURED)
    assert "\n0.1 LeNet-5, training: compute of a mini-batch (V-A1)\n" in table
    assert "0.7a" not in table
    lines = rest.splitlines()
    first = lines.index("  s0-phase-breakup was not run:")
    assert [line.split()[0] for line in lines[first + 1 : first + 4]] == ["0.8", "0.9a", "0.9b"]
    assert rest.count("s0-phase-breakup was not run") == 1


def test_what_is_wrong_with_printed_figures_is_told_once(found):
    for text in (paper_text(found, ["rows"], 1000), paper_markdown(found, ["rows"])):
        told = [line for line in text.splitlines() if line.endswith(": superseded by the authors' v2")]
        assert len(told) == 1
        letter = told[0].partition(":")[0].split()[-1]
        assert text.index(HAZARDS) < text.index(told[0]) < text.index(NOWHERE_MEASURED)
        assert text.count(f" ({letter})") > 20


@pytest.mark.parametrize("part", ["rows", "claims", "layers"])
def test_no_line_of_a_table_is_too_long_to_read(found, part):
    lines = [line for line in paper_markdown(found, [part]).splitlines() if line.startswith("| ")]
    assert lines
    assert max(map(len, lines)) <= LONGEST_LINE


def test_a_refusal_stands_once_however_many_rows_have_it(found):
    why = "s0-power-sensitivity cannot be run there: control dvfs: this device has no clocks that could be fixed"
    (here, there) = found.machines
    refused = replace(here, not_run={"s0-power-sensitivity": (because(why.partition(": ")[2], "obstacle"),)})
    for machines in ([refused, there], [refused]):
        several = answered(paper("s0"), machines)
        for text in (paper_text(several, ["rows"], 1000), paper_markdown(several, ["rows"])):
            assert text.count("no clocks that could be fixed") == 1
            assert text.count("s0-power-sensitivity cannot be run there") == len(machines)  # in short, and in whole


def test_the_layers_say_what_was_taken_apart_by_which_figure_and_what_could_have_been_seen(found):
    for text in (paper_text(found, ["layers"], 80), paper_markdown(found, ["layers"])):
        said = " ".join(text.split()).replace("\\", "")
        assert "minimum detectable effect" in said
        assert "ayer by layer: torch_train, median step" in said
        assert "the container in whole (compute of a mini-batch)" in said.replace("The container", "the container")
        assert "s0-container-tax was not run" in said.replace("s0-container- tax", "s0-container-tax")
