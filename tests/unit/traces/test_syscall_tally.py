"""System calls are paired, counted and timed; what has no end is counted all the same."""

from __future__ import annotations

import numpy as np
import pytest

from tare.kernel.traces.recording import Pairing, Tally, call_name, call_number


def enter(*rows):
    t_ns, pid, number = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return {"t_ns": t_ns, "pid": pid, "id": number}


def leave(*rows):
    t_ns, pid, result = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return {"t_ns": t_ns, "pid": pid, "ret": result}


def test_an_exit_belongs_to_the_last_entry_of_the_same_task():
    calls = Pairing().add(enter((10, 1, 63), (20, 2, 64)), leave((30, 1, 5), (60, 2, -2)))
    assert calls.number.tolist() == [63, 64]
    assert calls.seconds.tolist() == pytest.approx([20e-9, 40e-9])
    assert calls.failed.tolist() == [False, True]


def test_a_call_may_end_in_a_later_piece():
    pairing = Pairing()
    assert len(pairing.add(enter((10, 1, 63)), None).t_ns) == 0
    calls = pairing.add(None, leave((1010, 1, 0)))
    assert calls.seconds.tolist() == pytest.approx([1e-6])
    assert len(pairing.rest().t_ns) == 0


def test_a_call_that_never_returns_is_counted_without_a_time():
    pairing = Pairing()
    pairing.add(enter((10, 1, 94)), None)
    rest = pairing.rest()
    assert rest.number.tolist() == [94]
    assert np.isnan(rest.seconds).all()


def test_an_entry_that_lost_its_exit_is_counted():
    calls = Pairing().add(enter((10, 1, 63), (30, 1, 64)), leave((40, 1, 0)))
    assert sorted(calls.number.tolist()) == [63, 64]


def test_an_exit_without_an_entry_is_nothing():
    assert len(Pairing().add(None, leave((10, 1, 0))).t_ns) == 0


def test_a_result_that_looks_like_an_address_is_no_error():
    calls = Pairing().add(enter((1, 1, 222)), leave((2, 1, -5000)))
    assert calls.failed.tolist() == [False]


def test_calls_are_summed_by_bin_role_and_name():
    tally = Tally(100)
    calls = Pairing().add(enter((10, 1, 63), (120, 1, 63), (130, 2, 64)), leave((20, 1, 0), (150, 1, -1), (131, 2, 0)))
    tally.add(calls, lambda tids, _: np.where(tids == 1, "workload", "host"))
    table = tally.columns("aarch64")
    rows = list(zip(table["t_ns"].tolist(), table["role"], table["name"], table["count"].tolist(), strict=True))
    assert rows == [(0, "workload", "read", 1), (100, "host", "write", 1), (100, "workload", "read", 1)]
    assert table["errors"].tolist() == [0, 0, 1]
    assert table["max_s"].tolist() == pytest.approx([10e-9, 1e-9, 30e-9])


@pytest.mark.parametrize(
    ("machine", "number", "name"),
    [
        ("aarch64", 63, "read"),
        ("x86_64", 0, "read"),
        ("armv7l", 3, "read"),
        ("aarch64", 79, "newfstatat"),
        ("x86_64", 462, "mseal"),
        ("arm64", 241, "perf_event_open"),
        ("x86_64", 9999, "#9999"),
        ("mips", 5, "#5"),
    ],
)
def test_a_number_has_the_name_of_its_architecture(machine, number, name):
    assert call_name(machine, number) == name


def test_a_name_has_its_number_back():
    assert call_number("x86_64", "perf_event_open") == 298
    assert call_number("x86_64", "no_such_call") is None
