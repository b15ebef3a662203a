"""What grew, by runs that were looked at."""

from __future__ import annotations

from analysis_figures import record
from tare.analysis.why.causes import Phase
from tare.analysis.why.where import Grown, Where, where
from tare.report.text.why import where_text

QUICK = {
    "app.py:<module>": [0.0, 2.0],
    "app.py:load": [0.1, 1.0],
    "parse.py:tokens": [0.8, 0.9],
    "n.py:ones": [1.0, 1.0],
}
SLOW = {
    "app.py:<module>": [0.0, 5.0],
    "app.py:load": [0.1, 4.0],
    "parse.py:tokens": [3.7, 3.8],
    "n.py:ones": [1.0, 1.0],
}


def sides(slow, quick, **counted):
    return [[record(step_s=None, facts={"stacks": each, "counted": counted})] for each in (slow, quick)]


def test_the_innermost_function_with_most_of_the_cost_is_named():
    found = where(*sides(SLOW, QUICK))

    assert found.function is not None and found.function.name == "parse.py:tokens"
    assert [each.name for each in found.inside] == ["parse.py:tokens"]
    assert where_text((), found, "step") == "most of it is in tokens() of parse.py (900 ms -> 3.80 s)."


def test_a_wait_in_the_kernel_is_named_beside_what_the_ledger_says():
    slow, quick = (
        [record(step_s=None, facts={"counted": {"sampled": seen}})]
        for seen in ({"cat in request_wait_answer": 3.0, "cat running": 1.0}, {"cat running": 1.0})
    )
    spent = (Phase("wait", 0.1, 3.1, 0.97),)
    said = where_text(spent, where(slow, quick), "step")

    assert "waiting (for a disk, a timer, a lock, a network): 100 ms -> 3.10 s per run" in said
    assert "cat in request_wait_answer (0 s -> 3.00 s)" in said


def test_what_a_program_wrote_that_are_no_times_is_left_out():
    odd = {"a:b": "x", "c:d": [1], "e:f": [True, 2], "g:h": [float("nan"), 1.0], "i:j": [-1, 2]}

    assert where(*sides(odd, QUICK)).function is None
    assert where(*sides(SLOW, {})).function is None


def test_functions_and_waits_are_told_in_words():
    found = Where(Grown("a.py:f", 1.0, 2.0), (Grown("a.py:g", 0.0, 1.0),), (Grown("cat in do_wait", 0.1, 0.9),))

    assert where_text((), found, "step") == (
        "most of it is in f() of a.py (1.00 s -> 2.00 s); these took longer in themselves: g() of a.py "
        "(0 s -> 1.00 s); samples of the process show more of: cat in do_wait (100 ms -> 900 ms)."
    )
