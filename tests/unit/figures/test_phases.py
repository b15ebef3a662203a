"""A run taken apart into its phases, from made-up marks."""

from __future__ import annotations

import pytest

from tare.figures.steps import PHASES, START_UP, phase_metrics, steps_from
from tare.parts.protocols import Mark

S = 1_000_000_000
RESULT = {"start_ns": 10 * S, "end_ns": 40 * S}


def span(name: str, begin_s: float, end_s: float, step: int = -1) -> list[Mark]:
    return [Mark(int(begin_s * S), name, "begin", step), Mark(int(end_s * S), name, "end", step)]


def whole_run() -> list[Mark]:
    """Two epochs of three steps: imports, data, device, fetches, a pause after each epoch, a checkpoint, an exit."""
    marks = [*span("imports", 10.5, 12), *span("data_open", 12, 12.5), *span("device", 12.5, 13.5)]
    for epoch, begin_s in enumerate((14.0, 20.0)):
        for number in range(3):
            at_s = begin_s + number
            marks += [
                *span("step", at_s, at_s + 1, 3 * epoch + number),
                *span("fetch", at_s, at_s + 0.25, 3 * epoch + number),
            ]
        marks += span("epoch", begin_s, begin_s + 3.5, epoch)
    marks += [*span("evaluate", 24, 25), *span("checkpoint", 25, 27), *span("checkpoint", 27, 28)]
    return sorted([*marks, Mark(38 * S, "exit", "point", -1)], key=lambda mark: mark.t_ns)


def test_each_phase_of_a_run_is_a_figure():
    marks = whole_run()

    found = phase_metrics(marks, RESULT, {"open": 0.5, "open.boot": 0.4, "close": 9.0}, steps_from(marks))

    assert found == pytest.approx(
        {
            "platform_open_s": 0.5, "interpreter_s": 0.5, "imports_s": 1.5, "data_open_s": 0.5, "device_s": 1.0,
            "setup_s": 2.0, "first_batch_s": 0.25, "first_step_s": 1.0, START_UP: 4.5, "steady_s": 3.0,
            "evaluation_s": 1.0, "checkpoints_s": 3.0, "exit_s": 2.0, "epoch_s": 3.5, "epoch_rest_s": 0.5,
        }
    )  # fmt: skip
    assert found.keys() == set(PHASES)


def test_what_no_mark_tells_is_absent():
    assert phase_metrics([], RESULT, {"open": 0.5}, None) == {"platform_open_s": 0.5}
    assert phase_metrics([], {}, {}, None) == {}
    marks = span("step", 14, 15, 0)
    assert phase_metrics(marks, RESULT, {}, steps_from(marks)).keys() == {
        "first_step_s",
        START_UP,
        "steady_s",
        "exit_s",
    }


def test_a_warm_up_that_lasts_until_times_are_steady_is_no_start_up():
    marks = [*span("settling", 11, 13), *span("step", 14, 15, 0)]
    assert phase_metrics(marks, RESULT, {"open": 0.5}, steps_from(marks))[START_UP] == pytest.approx(2.5)
    marks = [*span("warm_up", 11, 13), *span("step", 14, 15, 0)]  # of a fixed number of requests: as ever
    assert phase_metrics(marks, RESULT, {"open": 0.5}, steps_from(marks))[START_UP] == pytest.approx(4.5)
