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
from tare.analysis.papers.rows import Answered, answered
from tare.report.columns import display_width
from tare.report.export.paper_markdown import paper_markdown
from tare.report.paper import paper_text

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
        if each.settings["platform"] == "docker"
        else each
        for each in trials(TAX, "small", metrics=["compute_s"])
    ]
    mine = replace(here.held[0], source=replace(here.held[0].source, records=hostile))
    text = paper_markdown(answered(paper("s0"), [machine(mine, name="a|b\x1b[31m")]), ["rows"])
    assert "\x1b" not in text
    assert "run\\|c \\<b\\>" in text
    rows = [line for line in text.splitlines() if line.startswith("| 0.")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}


def test_parts_follow_each_other_in_the_order_asked_for(found):
    text = paper_text(found, ["claims", "rows"], 80)
    assert text.index("lighter models lose more") < text.index("0.1 LeNet-5")
