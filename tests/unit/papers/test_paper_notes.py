"""Letters in cells: long reasons, taints, hazards and conditions stand once, below the table.

The take-aways of a paper: counted at the head, in a word each, and what the words rest on.
"""

from __future__ import annotations

from dataclasses import replace

from paper_results import machine
from tare.analysis.model import Difference
from tare.analysis.parity import taints
from tare.papers.claims.model import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, Answer, Word
from tare.papers.pages.markdown import paper_markdown
from tare.papers.pages.rows import (
    CONDITIONS,
    HAZARDS,
    NO_NOTES,
    POPULATIONS,
    REASONS,
    REMARKS,
    SHORT,
    TAINTS,
    not_here,
    notes_of,
    ours_notes,
    ours_text,
    parted,
    reason_notes,
)
from tare.papers.pages.terminal import claim_notes, claim_text, paper_text, summary_texts
from tare.papers.tables.model import paper
from tare.papers.tables.rows import NOT_HERE, Answered, Ours

REFUSED_CLAIM = "s0-power-sensitivity cannot be run there: control dvfs: this device has no clocks that could be fixed."
FEW = "Container cost of training: too few blocks for an interval (4), should fall by more than 5 %."


def answer(name: str, word: Word, why: str = "Step time: +9.0 % [+8.0, +10.0] over 6 blocks.") -> Answer:
    effect = None if word == NOT_MEASURED else 0.09
    return Answer(name, "S0", "V-A1", f"the claim {name}", word, effect, None, None, 6, (), why, "tare run s0-x")


def found(**claims: list[Answer]) -> Answered:
    """A paper without rows, and what machines say of its claims."""
    told = {name: tuple(answers) for name, answers in claims.items()}
    return Answered(paper("s0").model_copy(update={"rows": ()}), tuple(machine(name=name) for name in told), {}, told)


TWO = found(
    cpu2=[answer("one", HOLDS), answer("two", FAILS), answer("three", NOT_MEASURED, REFUSED_CLAIM)],
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
    refused = [answer(name, NOT_MEASURED, REFUSED_CLAIM) for name in ("one", "two", "three")]
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


REFUSED = (
    "s4-gpu cannot be run there: workload application: the PyTorch of python3 sees no GPU: check the driver with "
    "`nvidia-smi`; workload torch_infer: the same"
)


def differing(count: int) -> tuple[str, ...]:
    """What the parity gate says of as many libraries."""
    found = [
        Difference(f"libraries.lib{place}.so.9", "cuda", "cpu", f"{place}.5. beta", None, True, "another build of it")
        for place in range(count)
    ]
    return tuple(taints(found))


def test_a_reason_is_a_short_beginning_in_the_cell_and_the_whole_sentence_once_below():
    assert parted("S4-platforms was not run.") == ("S4-platforms was not run", "")
    assert parted(REFUSED) == ("s4-gpu cannot be run there", REFUSED)
    notes = notes_of([*reason_notes(REFUSED), *reason_notes(REFUSED)])
    assert not_here(REFUSED, notes) == "not measured here: s4-gpu cannot be run there (a)"
    assert notes.lists() == {REASONS: [f"a: {REFUSED}"]}


def test_a_long_reason_without_a_short_beginning_stands_below_in_whole():
    long = "No training in a container and on bare metal has its phases apart (`phases: true`)."
    assert parted(long) == ("", f"n{long[1:-1]}")
    assert not_here(long, notes_of(reason_notes(long))) == "not measured here (a)"
    in_brackets = f"It is not so (`phases: {'very ' * 9}true`)."
    assert parted(in_brackets)[0] == ""  # a beginning that ends within brackets says nothing


def test_a_short_reason_stands_in_the_cell_and_takes_no_letter():
    assert reason_notes("s4-platforms was not run") == []
    assert not_here("s4-platforms was not run", NO_NOTES) == "not measured here: s4-platforms was not run"
    assert not_here("", NO_NOTES) == NOT_HERE


def test_reasons_that_differ_in_details_alone_share_a_letter():
    whys = [f"energy is not claimed (energy_j): too short: {seconds} s, and it takes 4 s" for seconds in (1.3, 2.1)]
    notes = notes_of(note for why in whys for note in reason_notes(why))
    assert [not_here(why, notes)[-4:] for why in whys] == [" (a)", " (a)"]
    assert notes.lists() == {
        REASONS: ["a: energy is not claimed (energy_j): too short: 1.3 s, and it takes 4 s, or the like"]
    }


def test_other_notes_are_alike_only_where_they_are_the_same():
    notes = notes_of([(HAZARDS, "S1 has 173 s at one worker"), (HAZARDS, "S1 has 456 s at one worker")])
    assert len(notes.lists()[HAZARDS]) == 2


def test_letters_go_on_from_list_to_list_and_beyond_z():
    notes = notes_of([*((HAZARDS, f"hazard {place}") for place in range(26)), (CONDITIONS, "scale small")])
    assert list(notes.lists()) == [CONDITIONS, HAZARDS]
    assert notes.lists()[CONDITIONS] == ["a: scale small"]
    assert notes.lists()[HAZARDS][0] == "b: hazard 0"
    assert notes.lists()[HAZARDS][-1] == "aa: hazard 25"
    assert notes.mark([(CONDITIONS, "scale small"), (HAZARDS, "hazard 25"), (HAZARDS, "unknown")]) == " (a, aa)"


def test_letters_do_not_run_out():
    told = notes_of((HAZARDS, f"hazard {place}") for place in range(26 + 26**2 + 2)).lists()[HAZARDS]
    assert [each.partition(":")[0] for each in (told[25], told[26], told[51], told[52], *told[-3:])] == [
        "z", "aa", "az", "ba", "zz", "aaa", "aab",
    ]  # fmt: skip
    assert len({each.partition(":")[0] for each in told}) == len(told)


def test_a_remark_has_a_letter_of_its_own_so_that_cells_of_the_same_conditions_share_theirs():
    one = Ours(metric="step_s", sides={"": 0.02}, n=6, conditions=("scale small", "on the CPU"))
    other = replace(one, remarks=("from gpu.power_w: the GPU alone", "the scale decides it"))
    notes = notes_of([*ours_notes(one), *ours_notes(other)])
    assert notes.lists() == {
        CONDITIONS: ["a: scale small, on the CPU"],
        REMARKS: ["b: from gpu.power_w: the GPU alone", "c: the scale decides it"],
    }
    assert ours_text(one, notes).endswith(" (a)")
    assert ours_text(other, notes).endswith(" (a, b, c)")


def tainted(count: int) -> Ours:
    return Ours(
        metric="step_s", sides={"cpu": 0.0272, "cuda": 0.0044}, change=-0.837, low=-0.894, high=-0.708, n=6,
        paired=True, taints=differing(count), conditions=("scale cuda",),
    )  # fmt: skip


def test_a_taint_is_a_count_in_the_cell_and_its_differences_stand_below():
    ours = tainted(3)
    notes = notes_of(ours_notes(ours))
    assert ours_text(ours, notes, "4x to 9x less") == (
        "cpu 27.2 ms, cuda 4.4 ms: 6.1x less [3.4x, 9.4x], 6 blocks; tainted (3 differences) (a, b)"
    )
    (told,) = notes.lists()[TAINTS]
    assert told.startswith("b: libraries.lib0.so.9 differs (another build of it): cuda has 0.5. beta, cpu has none; ")
    assert "more" not in told


def test_of_many_differences_eight_are_told_and_the_others_counted():
    (told,) = notes_of(ours_notes(tainted(11))).lists()[TAINTS]
    assert told.count(" differs (") == 8
    assert told.endswith("; and 3 more (--json has them all)")
    assert "tainted (11 differences)" in ours_text(tainted(11))
    assert "tainted (1 difference)" in ours_text(tainted(1))


def test_a_population_with_a_long_name_is_a_letter():
    where = "h200/s4-gpu.tare (orin-1), " * 4
    assert len(where) > SHORT
    first = Ours(word="holds", change=-0.1, low=-0.2, high=-0.05, n=6, paired=True, where="torch 1.8")
    other = Ours(word="undecided", change=0.3, n=4, paired=True, where=where)
    ours = replace(first, also=(other,))
    notes = notes_of(ours_notes(ours))
    assert ours_text(ours, notes) == (
        "holds (torch 1.8): -10.0 % [-20.0, -5.0], 6 blocks; undecided (a): too few blocks for an interval (4)"
    )
    assert notes.lists() == {POPULATIONS: [f"a: {where}"]}
