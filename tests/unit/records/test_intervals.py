"""Marks to intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.parts.protocols import Mark
from tare.records.intervals import MarkColumns, MarkRows, begin_with, intervals, mark_columns

STEP = [(10, "step", "begin", 0), (12, "fetch", "begin", 0), (15, "fetch", "end", 0), (30, "step", "end", 0)]


def rows_of(marks, *names):
    found = intervals(mark_columns(marks), *names)
    columns = (found.name, found.step, found.begin_ns, found.end_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_intervals_come_in_the_order_of_their_ends():
    assert rows_of(STEP) == [("fetch", 0, 12, 15), ("step", 0, 10, 30)]


def test_only_the_asked_names():
    assert rows_of(STEP, "step") == [("step", 0, 10, 30)]


@pytest.mark.parametrize("cut", [[], STEP[1:], STEP[:3], [(1, "ready", "point", -1)]])
def test_what_is_not_both_begun_and_ended_is_no_interval(cut):
    assert [row for row in rows_of(cut) if row[0] == "step"] == []


def test_an_end_closes_the_newest_begin():
    twice = [(1, "step", "begin", 0), (2, "step", "begin", 0), (5, "step", "end", 0), (6, "step", "end", 0)]
    assert rows_of(twice) == [("step", 0, 2, 5)]


def test_marks_of_a_tenant_have_the_names_that_it_gave_them():
    """Also where the measured workload has one of the same name, and was seen first."""
    both = MarkColumns(mark_columns([*STEP, *((t_ns + 5, f"tenant1.{name}", *rest) for t_ns, name, *rest in STEP)]))
    its = both.where(begin_with(both, ("tenant1.",)), lambda name: name.removeprefix("tenant1."))
    assert its.intervals.names == ["fetch", "step"] and its["name"].tolist() == ["step", "fetch", "fetch", "step"]
    assert its.where(its["t_ns"] > 15).intervals.named("fetch").begin_ns.tolist() == [17]


def test_one_name_may_come_several_times_in_a_step():
    copies = [(1, "copy", "begin", 3), (2, "copy", "end", 3), (4, "copy", "begin", 3), (7, "copy", "end", 3)]
    assert rows_of(copies) == [("copy", 3, 1, 2), ("copy", 3, 4, 7)]


def test_seconds_and_steps():
    found = intervals(mark_columns([*STEP, (40, "epoch", "begin", -1), (90, "epoch", "end", -1)]))
    assert found.names == ["fetch", "step", "epoch"]
    assert found.of_steps().names == ["fetch", "step"]
    np.testing.assert_array_equal(found.seconds, [3e-9, 20e-9, 50e-9])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 99), st.sampled_from("ab"), st.sampled_from(["begin", "end", "point"]), st.integers(-1, 2)
        )
    )
)
def test_the_columns_say_the_same_as_one_mark_after_the_other(marks):
    begun, expected = {}, []
    for t_ns, name, edge, step in marks:
        if edge == "begin":
            begun[name, step] = t_ns
        elif edge == "end" and (name, step) in begun:
            expected.append((name, step, begun.pop((name, step)), t_ns))
    assert rows_of(marks) == expected


def test_columns_as_rows_are_the_marks_and_the_same_columns_again():
    columns = mark_columns(STEP)
    rows = MarkRows(columns, Mark._make)

    assert list(rows) == [rows[place] for place in range(len(rows))] == [Mark(*each) for each in STEP]
    assert rows[1:3] == list(rows)[1:3]
    assert all(mark_columns(rows)[name] is columns[name] for name in columns)
    assert not MarkRows(mark_columns([]), Mark._make)
