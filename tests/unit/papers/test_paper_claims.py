"""The take-aways of a paper: counted at the head, in a word each, and what the words rest on."""

from __future__ import annotations

from dataclasses import replace

from paper_results import machine
from tare.papers.claims.model import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, Answer, Word
from tare.papers.pages.markdown import paper_markdown
from tare.papers.pages.notes import NO_NOTES
from tare.papers.pages.paper_claims import claim_notes, claim_text, summary_texts
from tare.papers.pages.terminal import paper_text
from tare.papers.tables.model import paper
from tare.papers.tables.rows import Answered

REFUSED = "s0-power-sensitivity cannot be run there: control dvfs: this device has no clocks that could be fixed."
FEW = "Container cost of training: too few blocks for an interval (4), should fall by more than 5 %."


def answer(name: str, word: Word, why: str = "Step time: +9.0 % [+8.0, +10.0] over 6 blocks.") -> Answer:
    effect = None if word == NOT_MEASURED else 0.09
    return Answer(name, "S0", "V-A1", f"the claim {name}", word, effect, None, None, 6, (), why, "tare run s0-x")


def found(**claims: list[Answer]) -> Answered:
    """A paper without rows, and what machines say of its claims."""
    told = {name: tuple(answers) for name, answers in claims.items()}
    return Answered(paper("s0").model_copy(update={"rows": ()}), tuple(machine(name=name) for name in told), {}, told)


TWO = found(
    cpu2=[answer("one", HOLDS), answer("two", FAILS), answer("three", NOT_MEASURED, REFUSED)],
    h200=[answer("one", UNDECIDED, FEW), answer("two", HOLDS), answer("three", HOLDS)],
)


def test_how_many_take_aways_hold_is_said_in_a_line_a_machine_at_the_head():
    lines = [
        "cpu2: of 3 take-aways, 1 holds, 1 does not hold, 0 undecided, 1 not measured here",
        "h200: of 3 take-aways, 2 hold, 0 do not hold, 1 undecided, 0 not measured here",
    ]
    assert summary_texts(TWO) == lines
    assert paper_markdown(TWO, ["claims"]).startswith("\n".join(f"- {line}" for line in lines) + "\n\n| claim |")
    text = " ".join(paper_text(TWO, ["claims"], 80).split())
    assert text.index(lines[0]) < text.index(lines[1]) < text.index("the claim one (S0 V-A1)")


def test_a_take_away_of_several_populations_counts_once():
    here = [answer("one", HOLDS), answer("one", HOLDS), answer("two", HOLDS), answer("two", FAILS)]
    assert summary_texts(found(here=here)) == [
        "here: of 2 take-aways, 1 holds, 0 do not hold, 0 undecided, 0 not measured here, "
        "1 differs between its populations"
    ]


def test_a_claim_tells_its_figures_once():
    assert claim_text(answer("one", HOLDS), NO_NOTES) == "holds. Step time: +9.0 % [+8.0, +10.0] over 6 blocks."
    where = replace(answer("one", FAILS), where="torch 1.8")
    assert claim_text(where, NO_NOTES).startswith("does not hold (torch 1.8). Step time: ")


def test_a_claim_with_too_few_blocks_shows_no_change():
    said = claim_text(answer("one", UNDECIDED, FEW), NO_NOTES)
    assert said.startswith("undecided. Container cost of training: too few blocks for an interval (4), should fall")
    assert "3.1 %" not in said


def test_a_refusal_stands_once_however_many_claims_and_machines_have_it():
    refused = [answer(name, NOT_MEASURED, REFUSED) for name in ("one", "two", "three")]
    several = found(cpu2=refused, h200=refused)
    assert claim_text(refused[0], claim_notes(several)) == (
        "not measured here: s0-power-sensitivity cannot be run there (a)"
    )
    page, text = paper_markdown(several, ["claims"]), " ".join(paper_text(several, ["claims"], 80).split())
    for said in (page, text):
        assert said.count("no clocks that could be fixed") == 1
        assert said.count("not measured here: s0-power-sensitivity cannot be run there (a)") == 6
        assert said.count("3 not measured here") == 2
    assert "What the words rest on" not in page


def test_the_page_has_evidence_below_each_claim_that_was_measured():
    page = paper_markdown(TWO, ["claims"])
    cell = "not measured here: s0-power-sensitivity cannot be run there (a)"
    assert f"| the claim three | S0 V-A1 | {cell} | holds |" in page
    _, _, rest = page.partition("What the words rest on:\n\n")
    assert rest.startswith(
        "- the claim one:\n  - *cpu2* holds. Step time: +9.0 % \\[+8.0, +10.0\\] over 6 blocks.\n  - *h200* undecided. "
    )
    assert "- the claim three:\n  - *h200* holds." in rest


def test_every_row_has_a_mark_for_each_machine():
    from tare.papers.pages.terminal import mark_rows, marks_sentence
    from tare.papers.tables.rows import NOT_HERE, Ours

    rows = paper("s0").rows[:3]
    ours = [Ours(change=0.1), Ours(word="holds"), Ours(word=NOT_HERE, why="s0-x was not run")]
    marked = Answered(
        paper("s0").model_copy(update={"rows": rows}),
        (machine(name="here"),),
        {row.id: {"here": one} for row, one in zip(rows, ours, strict=True)},
        {},
    )
    assert [row[-1] for row in mark_rows(marked)] == ["measured", "holds", "not here: s0-x was not run"]
    assert marks_sentence(marked) == "S0: 3 rows; here: 2 measured, 1 not here."
    assert "| 0.1 |" in paper_markdown(marked, ["marks"])
    assert "not here: s0-x was not run" in " ".join(paper_text(marked, ["marks"], 80).split())
