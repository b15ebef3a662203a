"""Figures of inference from marks and from what the program said."""

from __future__ import annotations

import pytest

from tare.figures.steps import job_metrics, step_metrics, steps_from
from tare.parts.protocols import Mark


def requests(count: int) -> list[Mark]:
    """Requests of 10 ms: 1 waiting, 4 before, 3 computing, 1 after, 1 lost in between; the last tenth takes 20."""
    marks = []
    for step in range(count):
        at_ns = step * 100_000_000
        slow_ns = 10_000_000 if step >= count * 0.95 else 0
        ends_ms = {
            "fetch": (0, 1),
            "pre_process": (1, 5),
            "inference": (5, 8),
            "compute": (5, 8),
            "post_process": (8, 9),
        }
        for name, (begin, end) in ends_ms.items():
            marks += [Mark(at_ns + begin * 10**6, name, "begin", step), Mark(at_ns + end * 10**6, name, "end", step)]
        marks += [Mark(at_ns, "step", "begin", step), Mark(at_ns + 10_000_000 + slow_ns, "step", "end", step)]
    return sorted(marks)


def metrics_of(count: int) -> dict[str, float]:
    steps = steps_from(requests(count))
    assert steps is not None
    return step_metrics(steps)


def test_pre_and_post_process_are_no_overhead() -> None:
    metrics = metrics_of(40)

    assert metrics["overhead_s"] == pytest.approx(0.001)
    parts = ("stall_mean_s", "pre_process_mean_s", "compute_mean_s", "post_process_mean_s", "overhead_mean_s")
    assert sum(metrics[name] for name in parts) == pytest.approx(metrics["step_mean_s"])


def test_the_99th_percentile_needs_a_thousand_requests() -> None:
    few, many = metrics_of(1000), metrics_of(1200)  # a tenth of them is warm-up

    assert "step_p99_s" not in few
    assert few["step_p90_s"] == pytest.approx(0.01)
    assert many["step_p99_s"] == pytest.approx(0.02)


def test_figures_that_a_program_names_itself_are_taken_and_what_is_no_figure_is_not() -> None:
    said = {
        "requests_per_s": 12.5,
        "loadgen_gap_s": -4e-05,
        "samples": 3,
        "bad": float("nan"),
        "word": "x",
        "yes": True,
    }

    assert job_metrics({}, {"metrics": said}) == {"requests_per_s": 12.5, "loadgen_gap_s": -4e-05, "samples": 3.0}
    assert job_metrics({}, {"metrics": "nothing"}) == {}
