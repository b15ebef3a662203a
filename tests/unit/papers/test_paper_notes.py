"""Letters in cells: long reasons, taints, hazards and conditions stand once, below the table."""

from __future__ import annotations

from dataclasses import replace

from tare.analysis.model import Difference
from tare.analysis.parity import taints
from tare.papers.pages.notes import (
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
    parted,
    reason_notes,
)
from tare.papers.pages.rows import ours_text
from tare.papers.tables.rows import NOT_HERE, Ours

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
