"""A verdict on the steps that a program reports stands only where the time of its runs, seen from outside, agrees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis_figures import FakeStore
from benchmarks.forgeries import FORGED, HONEST, Run, is_refused, records_of, weighed
from tare.analysis.weighing import weigh
from tare.base.rulings import Ruling
from tare.records.model import Record
from tare.report.export import as_comment, gate
from tare.report.text.verdict import verdict_text

WORDS = {0.0: {"equivalent"}, 0.1: {"slower"}, 0.4: {"slower"}, -0.1: {"faster"}, -0.4: {"faster"}}


def made(world: str, effect: float = 0.0, forged: str = "", seed: int = 3) -> list[Record]:
    liar, lie = FORGED[forged] if forged else ("", Run.reported)
    return records_of(HONEST[world], effect, np.random.default_rng(seed), 10, liar, lie)


@pytest.mark.parametrize("effect", WORDS)
@pytest.mark.parametrize("world", HONEST)
def test_an_honest_program_keeps_its_verdict(world: str, effect: float) -> None:
    found = weighed(made(world, effect))
    assert not is_refused(found)
    assert found.metric == "step_mean_s"
    assert found.comparisons[0].verdict in WORDS[effect]


@pytest.mark.parametrize("world", ["plain", "long start-up", "heavy checkpoints", "loader's start"])
@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_gain_is_judged_by_the_time_from_outside(world: str, forged: str) -> None:
    records = made(world, forged=forged)
    found = weighed(records)
    (only,) = found.comparisons
    assert is_refused(found)
    assert (found.metric, only.metric) == ("outside_s", "outside_s")
    assert only.verdict in ("equivalent", "cannot_tell")
    assert "step_s" not in {each.metric for each in found.others}
    assert only.effect is not None
    assert abs(only.effect) < 0.02


def test_a_slower_side_that_hides_it_is_over_the_gate_by_the_time_from_outside() -> None:
    found = weighed(made("plain", 0.4, "steps cut to 50 %"))
    checked = gate(found, 0.05)
    assert [each.code for each in checked.reasons] == ["gate.over"]
    assert "timed from outside" in verdict_text(found)
    assert "compare.outside-time" in {each.code for each in found.comparisons[0].notes}


def test_a_reader_of_the_short_answer_is_told_that_whole_runs_are_judged_instead() -> None:
    found = weighed(made("plain", 0.4, "steps cut to 50 %"))
    short, comment = " ".join(verdict_text(found).split()), as_comment(found, gate(found, 0.05))
    assert "judged by whole runs: docker: the mean step that 'docker' reports is -30.6 % against 'bare'" in short
    assert "the mean step that 'docker' reports is -30.6 % against 'bare'" in comment
    assert "the time from outside disagrees" not in short


def test_of_a_metric_that_was_named_there_is_no_verdict() -> None:
    found = weigh(FakeStore(made("plain", forged="steps cut to 8 %")), metric="step_mean_s")
    (only,) = found.comparisons
    assert (only.metric, only.verdict) == ("step_mean_s", "cannot_tell")
    assert [each.code for each in only.withheld] == ["compare.outside-time"]
    assert gate(found, 0.05).reasons
    assert "no verdict: docker: the mean step" in verdict_text(found, 200)


def test_a_sure_difference_with_a_hidden_reason_is_called_doubtful() -> None:
    found = weighed(made("plain", 0.4))
    reason = Ruling("compare.failed-trials", "note", "docker", "half of its trials failed.")
    (only,) = found.comparisons
    doubtful = replace(found, comparisons=(replace(only, withheld=(reason,)),))
    assert only.verdict == "slower"
    assert "doubtful: docker: half of its trials failed. (compare.failed-trials)" in verdict_text(doubtful, 200)


def test_a_start_up_that_is_moved_into_the_first_step_passes_no_gate() -> None:
    def moved(record: Record) -> Record:
        metrics = dict(record.metrics)
        if record.settings["platform"] == "docker":
            metrics |= {"startup_s": metrics["startup_s"] - 13.0, "steps_s": metrics["steps_s"] + 13.0}
        return replace(record, metrics=metrics)

    found = weighed(list(map(moved, made("long start-up"))))
    (start,) = (each for each in found.tested if each.metric == "startup_s")
    assert start.verdict == "cannot_tell"
    assert [each.code for each in start.withheld] == ["compare.outside-time"]
    assert "Where a start-up ends" in start.withheld[0].sentence


def test_a_start_up_keeps_its_verdict_where_the_steps_account_for_the_rest() -> None:
    """A side that starts slower and steps faster, as a compiled program does, of runs of a fixed number of steps."""

    def compiled(record: Record) -> Record:
        metrics = dict(record.metrics)
        if record.settings["platform"] == "docker":
            metrics |= {"startup_s": metrics["startup_s"] + 2.0, "outside_s": metrics["outside_s"] + 2.0}
        return replace(record, metrics=metrics)

    found = weighed(list(map(compiled, made("plain", -0.4))))
    (start,) = (each for each in found.tested if each.metric == "startup_s")
    assert (start.verdict, start.withheld) == ("slower", ())


@pytest.mark.parametrize(("steps", "metric"), [(4000, "step_mean_s"), (400, "outside_s")])
def test_steps_that_a_longer_start_up_pays_for_are_judged_where_the_whole_run_bears_them_out(
    steps: int, metric: str
) -> None:
    """A compiled side: 6 s of start-up for 3 s, and 7 ms a step for 10 ms, all of it reported."""
    rng = np.random.default_rng(3)

    def real(effect: float, rng: np.random.Generator) -> Run:
        start_s, step_s = (6.0, 0.007) if effect else (3.0, 0.010)
        return Run(start_s * float(np.exp(rng.normal(0, 0.02))), steps, step_s * float(np.exp(rng.normal(0, 0.01))))

    found = weighed(records_of(real, -0.3, rng, 10))
    assert found.metric == metric
    assert found.comparisons[0].verdict == ("faster" if metric == "step_mean_s" else "slower")
    (start,) = (each for each in found.tested if each.metric == "startup_s")
    assert (start.verdict, start.withheld) == ("slower", ())


def test_a_refusal_on_steps_withholds_no_verdict_on_a_start_up() -> None:
    found = weighed(made("plain", forged="steps cut to 8 %"))
    (start,) = (each for each in found.tested if each.metric == "startup_s")
    assert is_refused(found)
    assert "compare.outside-time" not in {each.code for each in start.withheld}


def test_steps_at_once_of_zero_in_an_export_are_no_error() -> None:
    records = [
        replace(record, metrics={**record.metrics, "steps_at_once": 0.0}) for record in made("concurrent server")
    ]
    assert not is_refused(weighed(records))


def test_records_without_a_time_from_outside_are_judged_as_before() -> None:
    records = [
        replace(record, metrics={name: value for name, value in record.metrics.items() if name != "outside_s"})
        for record in made("plain", forged="steps cut to 8 %")
    ]
    assert weighed(records).comparisons[0].verdict == "faster"


def test_runs_of_a_fixed_time_say_that_their_steps_are_their_own_count() -> None:
    found = weighed(made("timed", -0.1))
    assert "compare.timed-runs" in {each.code for each in found.comparisons[0].notes}


def test_a_run_that_takes_hundreds_of_times_as_long_is_compared() -> None:
    """An empty program in an emulated machine: its difference alone was beyond what a ratio of floats holds."""
    first, *others = made("plain")
    late = replace(first, metrics={**first.metrics, "outside_s": first.metrics["outside_s"] * 500})
    assert weighed([late, *others]).comparisons
