"""Figures of a trial from its marks and from what the program said: training, inference, and the phases of a run."""

from __future__ import annotations

import pytest

from tare.figures.steps import (
    PHASES,
    START_UP,
    activity_metrics,
    counter_metrics,
    job_metrics,
    phase_metrics,
    step_metrics,
    steps_from,
)
from tare.parts.protocols import Mark

MS = 1_000_000


def marked_steps(count, *, epochs=0, step_ms=10, first_epoch_ms=30, fetch_ms=2):
    """`count` steps per epoch, each a fetch and then a compute; without epochs one plain run."""
    t_ns, marks, step = 1, [], 0
    for epoch in range(max(epochs, 1)):
        if epochs:
            marks.append(Mark(t_ns, "epoch", "begin", epoch))
        for _ in range(count):
            length_ms = first_epoch_ms if epochs and epoch == 0 else step_ms
            fetched, ended = t_ns + fetch_ms * MS, t_ns + length_ms * MS
            marks += [Mark(t_ns, "step", "begin", step), Mark(t_ns, "fetch", "begin", step)]
            marks += [Mark(fetched, "fetch", "end", step), Mark(fetched, "compute", "begin", step)]
            marks += [Mark(ended, "compute", "end", step), Mark(ended, "step", "end", step)]
            t_ns, step = ended, step + 1
        if epochs:
            marks.append(Mark(t_ns, "epoch", "end", epoch))
    return marks


def test_epoch_0_is_kept_apart_and_never_averaged_with_the_rest():
    metrics = step_metrics(steps_from(marked_steps(20, epochs=3)))
    assert metrics["step_s"] == pytest.approx(0.010)
    assert metrics["epoch0_step_s"] == pytest.approx(0.030)
    assert metrics["warm_up_steps"] == 20
    assert metrics["steps"] == 60


def test_without_epochs_the_first_tenth_is_warm_up():
    assert step_metrics(steps_from(marked_steps(50)))["warm_up_steps"] == 5


def test_stall_compute_and_overhead_are_parts_of_the_step():
    metrics = step_metrics(steps_from(marked_steps(50)))
    assert metrics["stall_s"] == pytest.approx(0.002)
    assert metrics["compute_s"] == pytest.approx(0.008)
    assert metrics["overhead_s"] == pytest.approx(0.0)


def with_copies(copy_ms=1, stall_every=4):
    """Steps of 10 ms: 2 ms of fetching in one of four, a copy, 5 ms of computing; the rest is overhead."""
    t_ns, marks = 1, []
    for step in range(40):
        spans = {"fetch": 2 if step % stall_every == 0 else 0, "copy": copy_ms, "compute": 5}
        at_ns = t_ns
        for name, length_ms in spans.items():
            marks += [Mark(at_ns, name, "begin", step), Mark(at_ns + length_ms * MS, name, "end", step)]
            at_ns += length_ms * MS
        marks += [Mark(t_ns, "step", "begin", step), Mark(t_ns + 10 * MS, "step", "end", step)]
        t_ns += 10 * MS
    return marks


def test_the_copy_is_no_overhead_and_the_means_of_all_parts_add_up():
    metrics = step_metrics(steps_from(with_copies()))
    assert metrics["copy_s"] == pytest.approx(0.001)
    assert metrics["overhead_s"] == pytest.approx(0.004)
    parts = sum(metrics[f"{part}_mean_s"] for part in ("stall", "copy", "compute", "overhead"))
    assert parts == pytest.approx(metrics["step_mean_s"], rel=1e-9)


def test_a_stall_in_one_step_of_four_is_in_the_mean_and_not_in_the_median():
    metrics = step_metrics(steps_from(with_copies()))
    assert metrics["stall_s"] == 0
    assert metrics["stall_mean_s"] == pytest.approx(0.0005)


def test_a_pause_in_one_step_of_many_is_in_the_mean_where_only_steps_are_marked():
    marks, t_ns = [], 1
    for step in range(40):
        length_ms = 60 if step % 10 == 9 else 3  # as a CPU quota does it
        marks += [Mark(t_ns, "step", "begin", step), Mark(t_ns + length_ms * MS, "step", "end", step)]
        t_ns += length_ms * MS

    metrics = step_metrics(steps_from(marks))

    assert metrics["step_s"] == pytest.approx(0.003)
    assert metrics["step_mean_s"] == pytest.approx((32 * 3 + 4 * 60) / 36 / 1000)


def test_a_percentile_is_given_only_with_enough_steps():
    assert "step_p90_s" not in step_metrics(steps_from(marked_steps(50)))
    assert "step_p90_s" in step_metrics(steps_from(marked_steps(200)))


def test_a_step_that_was_never_ended_is_not_a_step():
    marks = marked_steps(10)[:-1]
    assert len(steps_from(marks).numbers) == 9


def test_no_marks_are_no_steps():
    assert steps_from([]) is None


def test_what_the_launcher_did_not_count_is_absent_and_not_zero():
    assert job_metrics({}, {}) == {}
    assert job_metrics({"wall_s": 2.0, "cpu_user_s": 1.0, "cpu_system_s": 0.5}, {}) == {"wall_s": 2.0, "cpu_s": 1.5}


def test_cpu_time_per_step_is_of_the_training_alone():
    assert job_metrics({}, {"steps": 100, "cpu_train_s": 0.5})["cpu_step_s"] == pytest.approx(0.005)


def test_the_clock_of_the_training_gives_a_step_without_marks():
    outcome = {"steps": 30, "steps_per_epoch": 10, "train_s": 0.5, "epoch0_s": 0.3}
    assert job_metrics({}, outcome) == {"mean_step_s": pytest.approx(0.01)}
    only = {"steps": 10, "steps_per_epoch": 10, "train_s": 0.5, "epoch0_s": 0.5}
    assert job_metrics({}, only) == {"mean_step_s": pytest.approx(0.05)}
    assert job_metrics({}, {"steps": 0, "steps_per_epoch": 10, "train_s": 0.5, "epoch0_s": 0.5}) == {}


def test_what_marking_cost_is_kept():
    assert job_metrics({}, {"observer_s": 3e-6}) == {"observer_s": 3e-6}


def test_a_counter_tells_by_how_much_it_grew():
    assert counter_metrics({"cgroup.nr_throttled": [5, 7, 9]}) == {"cgroup_nr_throttled": 4.0}
    assert counter_metrics({"cgroup.nr_throttled": [5]}) == {}


def test_a_mark_of_the_users_own_becomes_a_figure_of_its_own():
    marks = [
        Mark(step * 100 + at, name, edge, step)
        for step in range(20)
        for at, name, edge in [
            (0, "step", "begin"), (10, "Tokenise it", "begin"), (40, "Tokenise it", "end"), (90, "step", "end")
        ]
    ]  # fmt: skip

    assert step_metrics(steps_from(marks))["own_tokenise_it_s"] == 30 / 1e9


def test_steps_that_a_profiler_watched_are_in_no_time():
    marks = marked_steps(100)
    spans = {mark.step: mark.t_ns for mark in marks if mark.name == "step" and mark.edge == "end"}
    slow = [mark._replace(t_ns=mark.t_ns + 500 * MS) if mark.step > 12 else mark for mark in marks]
    window = [Mark(spans[6], "gpu_window", "begin", -1), Mark(spans[13] + 499 * MS, "gpu_window", "end", -1)]
    steps = steps_from(sorted([*slow, *window]))
    assert steps.warm_up == 14  # the first tenth, and what the profiler watched
    metrics = step_metrics(steps)
    assert metrics["step_s"] == metrics["step_mean_s"] == pytest.approx(0.010)
    assert metrics["epoch0_step_s"] == pytest.approx(0.010)
    assert metrics["steps"] == 100


def test_a_late_window_is_left_out_and_the_steps_before_it_count():
    marks = marked_steps(20)
    spans = {mark.step: mark.t_ns for mark in marks if mark.name == "step" and mark.edge == "end"}
    window = [Mark(spans[8] + 1, "gpu_window", "begin", -1), Mark(spans[15], "gpu_window", "end", -1)]
    steps = steps_from(sorted([*marks, *window]))
    assert steps.warm_up == 2
    assert len(steps.measured("step")) == 20 - 2 - 7


def test_what_ran_in_the_window_makes_figures():
    found = {
        "steps": 8, "window_s": 0.08, "busy_share": 0.6, "between_share": 0.05, "idle_share": 0.35, "copy_s": 0.001,
        "idle_for": {"data": 0.1, "sync": 0.05, "launch": 0.2}, "kernels": 57.0, "pageable_copies": 2.0,
        "synchronising": {"cudaStreamSynchronize": 2.0, "cudaMemcpy": 1.0},
    }  # fmt: skip
    metrics = activity_metrics({"gpu_activity": found})
    assert metrics["gpu_busy_share"] == 0.6
    assert metrics["gpu_idle_share"] == 0.35
    assert metrics["gpu_launch_share"] == 0.2
    assert metrics["gpu_copying_share"] == pytest.approx(0.1)
    assert metrics["gpu_syncs"] == 3.0
    assert activity_metrics({"gpu_activity": {"problem": "too few steps"}}) == activity_metrics({}) == {}


def test_what_the_profiler_adds_to_launches_is_no_idle_time():
    """BERT-large, compiled, on an H200: 59.8 ms a step in its window, 49.8 ms outside, always at the power limit."""
    found = {
        "steps": 8, "window_s": 0.4786, "step_s": 0.0598, "busy_share": 0.783, "between_share": 0.055,
        "idle_share": 0.162, "copy_s": 0.0, "idle_for": {"data": 0.0, "sync": 0.0, "launch": 0.162}, "launches": 1675.0,
    }  # fmt: skip
    metrics = activity_metrics({"gpu_activity": found}, 0.0498)
    assert metrics["gpu_busy_share"] == pytest.approx(0.783 / (1 - 0.162))  # all of the wait was the profiler's
    assert metrics["gpu_idle_share"] == metrics["gpu_launch_share"] == pytest.approx(0.0)
    assert metrics["gpu_busy_share"] + metrics["gpu_between_share"] == pytest.approx(1)


def test_what_a_launch_bound_step_waits_without_the_profiler():
    found = {
        "steps": 10, "window_s": 0.025, "step_s": 0.0025, "busy_share": 0.08, "between_share": 0.02, "idle_share": 0.9,
        "copy_s": 0.0001, "idle_for": {"data": 0.1, "sync": 0.2, "launch": 0.6}, "launches": 55.0,
    }  # fmt: skip
    metrics = activity_metrics({"gpu_activity": found}, 0.002)
    assert metrics["gpu_busy_share"] == pytest.approx(0.1)  # 0.2 ms of 2
    assert metrics["gpu_copying_share"] == pytest.approx(0.05)
    assert metrics["gpu_data_share"] == pytest.approx(0.125)  # the loader is not slowed
    assert metrics["gpu_launch_share"] + metrics["gpu_sync_share"] == pytest.approx(0.75)  # 1.5 ms of 2
    assert metrics["gpu_idle_share"] == pytest.approx(0.875)
    as_seen = activity_metrics({"gpu_activity": found})
    assert activity_metrics({"gpu_activity": found}, 0.003) == as_seen  # longer steps outside it: nothing is taken off
    assert activity_metrics({"gpu_activity": {k: v for k, v in found.items() if k != "step_s"}}, 0.002) == as_seen


def test_what_the_profiler_cannot_have_added_stays_idle_time():
    """Ten requests per second that take 5 ms each: the GPU waits for the next one, not for the profiler."""
    found = {
        "steps": 8, "window_s": 0.8, "step_s": 0.1, "busy_share": 0.04, "between_share": 0.0, "idle_share": 0.96,
        "copy_s": 0.0, "idle_for": {"data": 0.0, "sync": 0.0, "launch": 0.96}, "launches": 50.0,
    }  # fmt: skip
    metrics = activity_metrics({"gpu_activity": found}, 0.005)
    assert metrics["gpu_busy_share"] == pytest.approx(0.04, abs=0.001)
    assert metrics["gpu_idle_share"] == pytest.approx(0.96, abs=0.001)


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
