"""A verdict is about what the user pays: what a figure hides, its direction, unlike work, cells, marks of one side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis_figures import FakeStore, record
from some_records import because
from tare.analysis import sentences
from tare.analysis.answer import weighing_json
from tare.analysis.compare import more_far_off
from tare.analysis.directions import direction_of
from tare.analysis.sentences import contrast_sentence, interaction_sentence, verdict_word
from tare.analysis.tables.table import with_error_rates
from tare.analysis.weighing import is_enough, weigh, weigh_table
from tare.analysis.work import _kind, is_counted, is_per_step, need_like_work, per_sample, samples_of, unlike_work
from tare.base.errors import StudyError
from tare.base.rulings import Ruling
from tare.records.model import Record, TrialRow
from tare.report.export import gate
from tare.report.html import answers_of
from tare.report.text.verdict import verdict_text

POWER_LIMIT = Ruling("gpu.power-limit", "suspect", "gpu0", "GPU 0 was held back by its power limit.")
FOREIGN = Ruling("cpu.foreign", "suspect", "cpu", "other processes used 3 % of the device's CPU time.")


def trials(
    n: int = 8,
    sides: Mapping[str, Mapping[str, float]] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    noise: float = 0.002,
) -> list[Record]:
    """n blocks of each side: its factors on the median step, the mean step, the epoch; other figures as given."""
    rng = np.random.default_rng(seed)
    made = []
    for block in range(n):
        speed = 0.002 * float(np.exp(rng.normal(0, 0.03)))
        for platform, its in (sides or {"bare": {}, "docker": {}}).items():
            one = speed * float(np.exp(rng.normal(0, noise)))
            scale = {name: its.get(name, 1.0) for name in ("median", "mean", "epoch", "start")}
            metrics = {name: value for name, value in its.items() if name not in scale}
            mean_s, epoch_s = one * 1.05 * scale["mean"], one * 110 * scale["epoch"]
            metrics |= {"step_mean_s": mean_s, "epoch_s": epoch_s}
            metrics.setdefault("epoch_rest_s", max(epoch_s - 100 * mean_s, 0.0))
            metrics |= {"startup_s": 2 * float(np.exp(rng.normal(0, 0.01))) * scale["start"]} if "start" in its else {}
            made.append(record(platform, block, one * scale["median"], settings=settings, metrics=metrics))
    return made


def only(records: list[Record], **asked: Any) -> Any:
    (found,) = weigh(FakeStore(records), **asked).comparisons
    return found


# 1: the figure that is judged


def test_the_mean_step_is_judged_and_the_median_stands_beside_it():
    found = weigh(FakeStore(trials()))

    assert found.metric == "step_mean_s"
    assert "step_s" in [each.metric for each in found.others]
    assert found.comparisons[0].verdict == "equivalent"
    assert gate(found, 0.05).passed


QUOTA = {"bare": {}, "docker": {"median": 1.02, "mean": 1.15}}


@pytest.mark.parametrize("metric", ["step_mean_s", "step_s"])
def test_a_quota_that_stops_a_few_steps_is_never_equivalent_whichever_figure_is_judged(metric):
    found = weigh(FakeStore(trials(sides=QUOTA)), metric=metric)

    assert found.comparisons[0].verdict != "equivalent"
    failed = gate(found, 0.05)
    assert not failed.passed
    assert "compare.mean-and-median" in [each.code for each in found.comparisons[0].withheld]


@pytest.mark.parametrize(
    ("hides", "code"),
    [
        ({"cgroup_throttled_s": 0.2, "cgroup_nr_throttled": 30.0}, "compare.throttled"),
        ({"major_faults_training": 500.0}, "compare.major-faults"),
        ({"epoch": 1.2}, "compare.epoch-tail"),
    ],
)
def test_what_differs_beside_equal_steps_takes_the_word_away_and_fails_the_gate_with_its_code(hides, code):
    plain = {"cgroup_throttled_s": 0.0, "cgroup_nr_throttled": 0.0, "major_faults_training": 0.0}
    alike = weigh(FakeStore(trials(sides={"bare": {**plain, **hides}, "docker": {**plain, **hides}})))
    apart = weigh(FakeStore(trials(sides={"bare": plain, "docker": {**plain, **hides}})))

    assert (alike.comparisons[0].verdict, alike.comparisons[0].withheld) == ("equivalent", ())
    (reason,) = apart.comparisons[0].withheld
    assert (apart.comparisons[0].verdict, reason.code) == ("cannot_tell", code)
    assert [each.code for each in gate(apart, 0.05).reasons] == ["gate.hidden"]


@pytest.mark.parametrize(
    ("whose", "longest", "is_told"), [("docker", 0.3, True), ("bare", 0.3, True), ("docker", 0.003, False)]
)
def test_few_long_steps_of_a_side_take_equivalent_away(whose: str, longest: float, is_told: bool) -> None:
    """Eight trials of 100 steps of 2 ms take 1.6 s: half of the margin is 40 ms, and five of 3 ms are 5 ms more."""
    made = [
        replace(
            each,
            metrics={**each.metrics, "steps": 110.0, "warm_up_steps": 10.0},
            facts={**each.facts, "longest_steps_s": [longest if each.settings["platform"] == whose else 0.002] * 5},
        )
        for each in trials()
    ]
    found = only(made)
    assert (found.verdict == "cannot_tell") is is_told
    assert [each.code for each in found.withheld] == ["compare.long-steps"] * is_told


@pytest.mark.parametrize(
    ("mean", "later", "verdict"),
    [(1.0, 1.0, "equivalent"), (1.0, 1.03, "equivalent"), (1.0, 1.08, "cannot_tell"), (1.2, 1.15, "slower"),
     (1.2, 1.02, "cannot_tell"), (0.8, 1.2, "cannot_tell")],
)  # fmt: skip
def test_a_verdict_that_the_first_steps_of_turns_make_is_not_claimed(mean: float, later: float, verdict: str) -> None:
    """The later steps keep a verdict from being claimed only where they have another one; and that is the reason."""
    made = [
        replace(each, facts={**each.facts, "later_steps_s": each.metrics["step_mean_s"] * factor})
        for each in trials(sides={"bare": {}, "docker": {"median": mean, "mean": mean, "epoch": mean}})
        for factor in [later / mean if each.settings["platform"] == "docker" else 1.0]
    ]
    found = only(made)
    assert found.verdict == verdict
    assert [each.code for each in found.withheld] == ["compare.carry-over"] * (verdict == "cannot_tell")
    assert ("first three steps of each turn" in sentences.verdict_reading(found)) == (verdict == "cannot_tell")


@pytest.mark.parametrize(("stopped", "seconds"), [(5, 0.2), (1, 2.0)])
def test_stops_in_a_minority_of_the_trials_are_seen(stopped, seconds):
    made = []
    for each in trials(12):
        hit = each.settings["platform"] == "docker" and each.block < stopped
        figures = {"cgroup_throttled_s": seconds * hit, "cgroup_nr_throttled": 30.0 * hit, "wall_s": 5.0}
        made.append(replace(each, metrics={**each.metrics, **figures}))

    (found,) = weigh(FakeStore(made)).comparisons

    assert found.verdict == "cannot_tell" and [each.code for each in found.withheld] == ["compare.throttled"]
    assert f"in {stopped} of 12 trials" in str(found.withheld[0])
    rare = [replace(each, metrics={**each.metrics, "wall_s": 500.0}) for each in made]
    assert weigh(FakeStore(rare)).comparisons[0].verdict == "equivalent"


@pytest.mark.parametrize(("checkpoints_s", "verdict"), [(4.0, "cannot_tell"), (2.1, "equivalent")])
def test_what_neither_the_steps_nor_the_start_up_show_is_not_hidden(checkpoints_s, verdict):
    phases = {"wall_s": 9.5, "checkpoints_s": 2.0, "exit_s": 0.5, "start": 1.0}
    (found, *_) = weigh(
        FakeStore(trials(sides={"bare": phases, "docker": {**phases, "checkpoints_s": checkpoints_s}}))
    ).comparisons

    assert found.verdict == verdict
    if verdict == "cannot_tell":
        assert [each.code for each in found.withheld] == ["compare.outside-steps"]
        assert "take 4.5 s of a trial of 'docker' and 2.5 s of 'bare'" in str(found.withheld[0])


@pytest.mark.parametrize("docker", [{"start": 2.0, "wall_s": 24.0}, {"evaluation_s": 5.0, "wall_s": 17.0}])
def test_neither_a_longer_start_nor_a_shorter_evaluation_is_a_hidden_cost(docker):
    """Evaluation takes 10 s of 22 s on bare metal."""
    bare = {"start": 1.0, "evaluation_s": 10.0, "exit_s": 0.1, "wall_s": 22.0}
    found = weigh(FakeStore(trials(sides={"bare": bare, "docker": {**bare, **docker}}))).comparisons[0]

    assert found.verdict == "equivalent" and not found.withheld


def test_a_store_of_two_factors_in_which_everything_failed_has_no_interaction():
    made = [replace(each, state="failed", metrics={}) for each in batches({16: 0.1, 64: 0.1})]

    assert weigh(FakeStore(made)).interactions == ()


def test_stops_by_a_quota_are_no_hidden_reason_where_the_quota_is_what_is_compared():
    stopped = {"cgroup_throttled_s": 0.2, "cgroup_nr_throttled": 30.0, "median": 1.9, "mean": 1.7}
    free = {"cgroup_throttled_s": 0.0, "cgroup_nr_throttled": 0.0}

    def cores(sides, number):
        return trials(sides={"bare": sides}, settings={"platform.cores": number})

    slower = only(cores(free, 2) + cores(stopped, 1), by="platform.cores", against="2")
    assert (slower.verdict, slower.withheld) == ("slower", ())
    alike = only(cores(free, 2) + cores({**stopped, "median": 1, "mean": 1}, 1), by="platform.cores", against="2")
    assert [each.code for each in alike.withheld] == ["compare.throttled"]


def test_of_inference_the_tail_is_tested_in_one_family_with_the_mean():
    sides = {"bare": {"step_p99_s": 0.01}, "docker": {"step_p99_s": 0.013}}
    records = trials(sides=sides, settings={"workload": "torch_infer"})

    found = weigh(FakeStore(records))

    assert (found.metric, [each.metric for each in found.tested]) == ("step_mean_s", ["step_p99_s"])
    assert found.comparisons[0].confidence + found.tested[0].confidence > 1.9  # one of the two at 97.5 %
    assert [each.code for each in gate(found, 0.05).reasons] == ["gate.over"]


def test_of_generation_the_tail_and_the_first_token_are_tested_too():
    sides = {"bare": {"first_token_s": 0.1, "step_p90_s": 0.01}, "docker": {"first_token_s": 0.2, "step_p90_s": 0.01}}
    few = weigh(FakeStore(trials(sides=sides, settings={"workload": "generate"})))
    for side in sides.values():
        side["step_p99_s"] = 0.02
    many = weigh(FakeStore(trials(sides=sides, settings={"workload": "generate"})))

    assert [each.metric for each in few.tested] == ["step_p90_s", "first_token_s"]
    assert [each.metric for each in many.tested] == ["step_p99_s", "first_token_s"]
    assert [each.verdict for each in many.tested] == ["equivalent", "slower"]
    assert not gate(many, 0.05).passed


def test_of_a_server_goodput_is_tested_and_less_of_it_is_worse():
    sides = {
        "bare": {"goodput_per_s": 100.0, "step_p99_s": 0.02},
        "docker": {"goodput_per_s": 80.0, "step_p99_s": 0.02},
    }
    found = weigh(FakeStore(trials(sides=sides, settings={"workload": "server"})))

    assert {each.metric: each.verdict for each in found.tested} == {
        "step_p99_s": "equivalent",
        "goodput_per_s": "slower",
    }
    assert found.comparisons[0].verdict == "equivalent"
    assert not gate(found, 0.05).passed
    assert {each.unit for each in (*found.comparisons, *found.tested, *found.others)} == {found.unit} == {"request"}
    assert (found.called, found.tested[0].called) == ("mean latency", "latency, 99th percentile")
    assert not [line for line in verdict_text(found).splitlines() if re.search(r"\bsteps?\b", line)]


def test_sides_that_generate_other_tokens_are_told_by_a_code():
    def tokens(record, digest):
        return replace(record, facts={**record.facts, "outcome": {"answers_digest": digest}})

    records = trials(sides={"bare": {}, "docker": {}}, settings={"workload": "generate"})
    apart = [tokens(each, str(each.settings["platform"])) for each in records]
    same = [tokens(each, "same") for each in records]

    (found,) = weigh(FakeStore(apart)).comparisons
    assert [note.code for note in found.notes if note.code == "compare.other-tokens"] == ["compare.other-tokens"]
    assert any("gave other answers" in word for word in found.tainted)
    (found,) = weigh(FakeStore(same)).comparisons
    assert "compare.other-tokens" not in [note.code for note in found.notes]
    batches = {"bare": 1, "docker": 4}  # other prompts have other answers, and nobody is surprised
    requested = [
        replace(each, settings={**each.settings, "workload.batch": batches[str(each.settings["platform"])]})
        for each in apart
    ]
    (found,) = weigh(FakeStore(requested)).comparisons
    assert "compare.other-tokens" not in [note.code for note in found.notes]


# 2: the start-up


def test_steady_state_and_start_up_are_two_tested_lines_and_words_tell_which_costs():
    found = weigh(FakeStore(trials(sides={"bare": {"start": 1.0}, "docker": {"start": 1.2}})))

    (start,) = found.tested
    assert (found.comparisons[0].verdict, start.metric, start.verdict) == ("equivalent", "startup_s", "slower")
    assert start.confidence == pytest.approx(0.975)
    assert start.effect == pytest.approx(0.2, abs=0.03)
    from tare.report.text.verdict import verdict_text

    assert "docker costs more than bare in the start-up to the first step" in " ".join(
        verdict_text(found, 200, verbose=True).split()
    )
    assert answers_of(found)[0].costs.startswith("docker costs more than bare in the start-up to the first step")


def test_the_start_up_has_a_gate_of_its_own():
    late = weigh(FakeStore(trials(sides={"bare": {"start": 1.0}, "docker": {"start": 1.3}})))
    slow = weigh(
        FakeStore(trials(sides={"bare": {"start": 1.0}, "docker": {"start": 1.0, "median": 1.2, "mean": 1.2}}))
    )

    assert gate(late, 0.05).passed  # every container starts later
    assert [each.code for each in gate(late, 0.05, start_up=0.2).reasons] == ["gate.over"]
    assert gate(late, 0.05, start_up=0.5).passed
    assert gate(slow, None, start_up=0.2).passed
    assert not gate(slow, 0.05, start_up=0.2).passed
    with pytest.raises(StudyError, match="no start-up was tested"):
        gate(weigh(FakeStore(trials())), 0.05, start_up=0.2)


def test_a_named_metric_is_tested_alone():
    records = trials(sides={"bare": {"start": 1.0}, "docker": {"start": 1.2}})

    found = weigh(FakeStore(records), metric="step_mean_s")

    assert (found.tested, found.comparisons[0].confidence) == ((), 0.95)


def test_the_start_up_does_not_hold_up_the_stop_rule():
    study = {"study": "weigh", "repeat": {"min": 6, "max": 20, "until": 0.02}}
    records = trials(sides={"bare": {"start": 1.0}, "docker": {"start": 1.2}})
    loud = [replace(each, metrics={**each.metrics, "startup_s": 1.0 + each.block}) for each in records]

    assert is_enough(FakeStore(loud, study), until=0.02)
    assert not is_enough(FakeStore(loud, study), until=1e-6)


# 3: direction


@pytest.mark.parametrize(
    "metric",
    ["throughput", "tokens_per_second", "train_samples_per_second", "fps", "samples/s", "it/s", "qps", "ips", "mfu",
     "accuracy", "eval_accuracy", "images_per_joule", "tokensPerSecond", "mAP", "img/sec", "GFLOPS"],
)  # fmt: skip
def test_of_a_rate_a_fifth_less_is_worse_and_the_gate_fails(metric, tmp_path):
    rows = [f"{block},{side},{100 * (0.8 if side == 'docker' else 1.0) + block % 3}" for block in range(8)
            for side in (("bare", "docker"), ("docker", "bare"))[block % 2]]  # fmt: skip
    table = tmp_path / "mine.csv"
    table.write_text("\n".join([f"run,platform,{metric}", *rows]))

    found = weigh_table(table, by="platform", value=metric, block="run")

    assert found.comparisons[0].verdict == "slower"
    assert found.comparisons[0].direction == direction_of(metric)
    assert not gate(found, 0.05).passed
    assert weigh_table(table, by="platform", value=metric, block="run", rises=False).comparisons[0].verdict == "faster"


@pytest.mark.parametrize(
    "metric", ["step_s", "ms", "s/it", "seconds_per_step", "ms_per_token", "joules_per_second", "train_loss",
               "stepTime", "error_rate", "latency_p99", "max_rss_bytes", "energy_sample_j", "cost_per_hour"],
)  # fmt: skip
def test_what_is_spent_is_better_when_it_is_less(metric):
    assert (direction_of(metric).rises, direction_of(metric).source) == (False, "name")


def test_a_gate_is_refused_on_a_guess_and_taken_with_a_statement(tmp_path):
    table = tmp_path / "mine.csv"
    rows = [f"{side},{value + block % 3}" for block in range(8) for side, value in (("bare", 100), ("docker", 80))]
    table.write_text("\n".join(["platform,score", *rows]))

    guessed = weigh_table(table, by="platform", value="score")
    stated = weigh_table(table, by="platform", value="score", rises=True)

    assert "compare.direction-guessed" in [note.code for note in guessed.comparisons[0].notes]
    with pytest.raises(StudyError, match="--higher-is-better"):
        gate(guessed, 0.05)
    assert not gate(stated, 0.05).passed


# 11: suspect trials


def suspects(records: list[Record], ruling: Ruling, platforms: tuple[str, ...], blocks: int) -> list[Record]:
    return [
        replace(each, state="suspect", reasons=(ruling,))
        if each.settings["platform"] in platforms and each.block < blocks
        else each
        for each in records
    ]


def test_what_both_sides_share_is_a_note_on_the_study_and_no_mark():
    found = weigh(FakeStore(suspects(trials(), POWER_LIMIT, ("bare", "docker"), 8)))

    assert found.marked == ()
    assert any("16 of 16 trials, on all sides alike (gpu.power-limit)" in note for note in found.notes)
    assert not any("suspect trials" in note for note in found.notes)


def test_what_one_side_has_is_told_with_its_share_and_whether_the_word_hangs_on_it():
    records = suspects(trials(12), FOREIGN, ("docker",), 3)
    slowed = [
        replace(each, metrics={**each.metrics, "step_mean_s": 1.5 * each.metrics["step_mean_s"],
                               "step_s": 1.5 * each.metrics["step_s"], "epoch_s": 1.5 * each.metrics["epoch_s"]})
        if each.state == "suspect" else each
        for each in records
    ]  # fmt: skip

    found, alike = weigh(FakeStore(slowed)), weigh(FakeStore(records))

    assert {each.level: (each.suspect, each.trials) for each in found.marked} == {"bare": (0, 12), "docker": (3, 12)}
    assert found.comparisons[0].verdict == "cannot_tell"
    assert any("3 of 12 of docker; without them docker would be equivalent" in note for note in found.notes)
    assert any("3 of 12 of docker; without them no word changes" in note for note in alike.notes)
    assert "compare.unlike-conditions" in [note.code for note in found.comparisons[0].notes]


# 13: unlike work


def batches(effects: Mapping[int, float], n: int = 8, tenants: int | None = None) -> list[Record]:
    made: list[Record] = []
    for batch, effect in effects.items():
        sides = {"bare": {"median": batch / 16, "mean": batch / 16, "epoch": batch / 16}}
        sides["docker"] = {name: value * (1 + effect) for name, value in sides["bare"].items()}
        settings = {"workload.batch": batch, **({} if tenants is None else {"tenants": tenants})}
        made += trials(n, sides, settings=settings, seed=batch)
    return made


def test_what_a_figure_per_sample_hides_is_said_per_sample():
    """A mean step of half the work was given as the reason for a verdict on samples, with the opposite sign."""
    one, four = ({"bare": {"median": size, "mean": size * spread, "epoch": size * spread}}
                 for size, spread in ((1.0, 1.0), (4.0, 1.4)))  # fmt: skip
    records = trials(8, one, settings={"workload.batch": 16}) + trials(8, four, settings={"workload.batch": 64}, seed=1)

    (found,) = weigh(FakeStore(records), by="batch").comparisons

    (reason,) = [str(each) for each in found.withheld if each.code == "compare.mean-and-median"]
    mean, median = (float(text) for text in re.findall(r"step per sample (?:is )?([+-][0-9.]+) %", reason))
    assert mean == pytest.approx(40, abs=3)
    assert median == pytest.approx(0, abs=3)


def test_whole_epochs_of_fewer_steps_are_no_tail_of_an_epoch():
    """Four times the batch is a quarter of the steps: an epoch over a step differs, over its steps not."""
    one, four, late = (
        {"bare": {"median": size, "mean": size, "epoch": tail, "epoch_rest_s": 0.002 * (110 * tail - 105)}}
        for size, tail in ((1.0, 1.0), (4.0, 1.0), (4.0, 1.3))
    )
    small = trials(8, one, settings={"workload.batch": 16})

    def withheld(sides):
        records = small + trials(8, sides, settings={"workload.batch": 64}, seed=1)
        (found,) = weigh(FakeStore(records), by="batch").comparisons
        return [each for each in found.withheld if each.code == "compare.epoch-tail"]

    assert withheld(four) == []
    (reason,) = withheld(late)
    assert re.search(r"a whole epoch is \+(2[7-9]|3[0-4])[0-9.]* %.* and its steps [+-][0-3]\.", str(reason)), str(
        reason
    )


def test_batches_are_compared_per_sample():
    found = weigh(FakeStore(batches({16: 0.0, 64: 0.0})), by="batch")

    assert found.metric == "sample_mean_s"
    assert all(abs(each.effect) < 0.05 for each in found.comparisons)  # not +300 %
    assert "compare.per-sample" in [note.code for note in found.comparisons[0].notes]


def test_of_unlike_batches_no_other_metric_is_of_one_step():
    """The median step would be +300 % next to a sample that takes as long."""
    found = weigh(FakeStore(batches({16: 0.0, 64: 0.0})), by="batch")
    same = weigh(FakeStore(trials()))

    assert not [each.metric for each in (*found.others, *found.tested) if is_per_step(each.metric)]
    assert [each.metric for each in same.others if is_per_step(each.metric)]


@pytest.mark.parametrize(
    ("blocks", "docker", "first", "second"),
    [(8, 1.0, "Cannot tell whether mean step is lowest with bare or docker", "may be as good"),
     (8, 1.03, "Mean step is lowest with bare.", "next is docker, worse by less than 5 %, +"),
     (8, 1.2, "Mean step is lowest with bare.", "next is docker, +"),
     (3, 1.2, "Mean step is lowest by the medians, of too few trials to tell, with bare.", "too few trials")],
)  # fmt: skip
def test_the_best_is_only_claimed_where_the_trials_tell_it(blocks: int, docker: float, first: str, second: str):
    sides = {"bare": {}, "docker": {"median": docker, "mean": docker, "epoch": docker}}
    asked = {"study": "weigh", "compare": {"by": "platform"}, "question": {"form": "best"}}
    head, figures = weigh(FakeStore(trials(blocks, sides), asked)).headline

    assert head.startswith(first) and second in figures, (head, figures)


def test_a_front_without_its_first_metric_is_told_by_the_others() -> None:
    sides = {"bare": {}, "docker": {"median": 1.2, "mean": 1.2, "epoch": 1.2}}
    metrics = ["energy_step_j", "step_mean_s"]
    asked = {"study": "weigh", "compare": {"by": "platform"}, "question": {"form": "front", "metrics": metrics}}
    told = weigh(FakeStore(trials(sides=sides), asked)).headline

    assert told[0].startswith("Mean step is lowest with bare") and "Not measured here" in told[-1], told


def test_the_best_is_not_claimed_where_the_first_steps_of_turns_make_it() -> None:
    made = [
        replace(each, facts={**each.facts, "later_steps_s": each.metrics["step_mean_s"] * factor})
        for each in trials(sides={"bare": {}, "docker": {"median": 1.2, "mean": 1.2, "epoch": 1.2}})
        for factor in [1 / 1.2 if each.settings["platform"] == "docker" else 1.0]
    ]
    asked = {"study": "weigh", "compare": {"by": "platform"}, "question": {"form": "best"}}
    told = weigh(FakeStore(made, asked)).headline

    assert told[0].startswith("Cannot tell whether mean step is lowest with bare or docker"), told


@pytest.mark.parametrize(
    ("column", "values", "by_errors"),
    [("accuracy", (0.95, 0.99), True), ("val_accuracy", (0.95, 0.99), True), ("eval/top1", (95.0, 99.0), True),
     ("precision", (0.95, 0.99), True), ("precision", (16.0, 32.0), False), ("map", (37.0, 42.0), False),
     ("accuracy_gap", (0.01, 0.02), False), ("step_s", (0.1, 0.2), False)],
)  # fmt: skip
def test_a_share_of_right_answers_is_compared_by_its_errors(column: str, values: tuple[float, float], by_errors: bool):
    rows = [TrialRow.foreign({"side": str(value)}, {column: value}, f"row {value}") for value in values]

    assert with_error_rates(rows, column)[1] == (f"{column}_error" if by_errors else column)


@pytest.mark.parametrize(
    ("form", "said"),
    [("enough", ["1 worker is enough for LeNet-5", "0 workers to 4 workers were", "2 workers are enough"]),
     ("growth", ["LeNet-5 training, 4 workers and ResNet-18 training, 3 workers are faster than 0 workers"])],
)  # fmt: skip
def test_each_job_is_answered_by_the_levels_that_it_has(form: str, said: list[str]) -> None:
    """The second network was not run with one worker, nor with four: no step of it goes over these."""
    made = []
    for model, factors in (("lenet5", {0: 1.3, 1: 1.0, 4: 1.0}), ("resnet18", {0: 1.3, 2: 1.0, 3: 1.0})):
        for workers, scale in factors.items():
            its = {"workload.model": model, "workload.workers": workers}
            made += trials(sides={"bare": {"median": scale, "mean": scale, "epoch": scale}}, settings=its)
    asked = {"study": "weigh", "compare": {"by": "workers", "against": {"workers": 0}}, "question": {"form": form}}
    told = " ".join(weigh(FakeStore(made, asked)).headline)

    assert all(each in told for each in said), told


def test_another_resolution_is_not_compared_and_the_gate_says_why():
    records = [
        replace(each, settings={**each.settings, "workload.pixels": 32 if each.settings["platform"] == "bare" else 64})
        for each in trials()
    ]
    mixed = [replace(each, settings={**each.settings, "platform": "bare"}) for each in records]

    found = weigh(FakeStore(mixed), by="pixels")
    asked = {"study": "weigh", "compare": {"by": "pixels"}, "question": {"form": "best", "metrics": ["step_s"]}}

    assert not weigh(FakeStore(mixed, asked)).headline
    assert [(each.effect, each.verdict) for each in found.comparisons] == [(None, "cannot_tell")]
    assert "compare.unlike-work" in [note.code for note in found.comparisons[0].notes]
    (reason,) = gate(found, 0.05).reasons
    assert "differ in the work of a step" in reason.sentence


def test_a_metric_of_a_step_that_is_named_is_per_sample_too():
    found = weigh(FakeStore(batches({16: 0.0, 64: 0.0})), by="batch", metric="step_s")

    assert found.metric == "sample_s"
    assert found.comparisons[0].effect == pytest.approx(0.0, abs=0.05)  # not +300 %
    assert "compare.per-sample" in [note.code for note in found.comparisons[0].notes]


def test_the_stop_rule_is_told_of_a_declared_step_that_is_judged_per_sample():
    study = {"repeat": {"min": 6, "max": 20, "until": 0.3}, "compare": {"by": "workload.batch", "metric": "step_s"}}
    found = weigh(FakeStore(batches({16: 0.0, 64: 0.0}), study))

    assert found.metric == "sample_s" and any("It was met" in str(note) for note in found.notes)


@pytest.mark.parametrize(
    ("metric", "name"),
    [("step_s", "sample_s"), ("forward_s", "forward_sample_s"), ("step_ms", "step_ms_per_sample"),
     ("epoch_s", None), ("steps_at_once", None), ("sample_s", None), ("wall_s", None)],
)  # fmt: skip
def test_a_figure_of_a_step_has_a_name_for_one_sample(metric, name):
    assert per_sample(metric) == name


def test_a_named_step_of_several_tenants_is_compared_as_it_is_with_a_note():
    records = [
        replace(each, settings={**each.settings, "workload.tenants": 1 if each.settings["platform"] == "bare" else 4})
        for each in trials()
    ]
    mixed = [replace(each, settings={**each.settings, "platform": "bare"}) for each in records]
    (found,) = weigh(FakeStore(mixed), by="tenants", metric="step_s").comparisons

    assert found.metric == "step_s" and "compare.unlike-work" in codes(found)


def test_no_configuration_is_chosen_by_the_step_of_unlike_work():
    rows = [TrialRow.foreign({"batch": float(batch)}, {"step_s": 0.01}, "row") for batch in (16, 64)]

    with pytest.raises(StudyError, match=r"batch \(16.0, 64.0\).*--samples"):
        need_like_work(rows, ["step_s"], "mine.csv")
    need_like_work(rows, ["step_s"], "mine.csv", per_job=True)
    assert need_like_work(rows, ["epoch_s", "energy_sample_j"], "mine.csv") == []
    assert "is taken as of equal work" in need_like_work(rows, ["time_s"], "mine.csv")[0]
    need_like_work([replace(row, group=str(row.settings["batch"])) for row in rows], ["step_s"], "mine.csv")


COUNTED = """
batch batch_size bs minibatch batchSize train_bs per_device_train_batch_size global_batch_size micro_batch
micro_batch_size_per_gpu train_batch_size n_batch samples_per_gpu accumulate gradient_accumulation_steps
accumulate_grad_batches grad_accum tenants n_tenants workload.batch
"""
SIZED = """
length max_seq_len max_seq_length seqLen n_ctx num_ctx ctx_size context_length context max_model_len model_max_length
max_new_tokens block_size input_size image_px imgsz image_size train_crop_size input_resolution resolution pixels
"""
FRIENDS = """
batch_sampler batch_norm batch_first batch_time_s ms_per_batch batches_per_s batch_per_s drop_last dropout step_size
page_size size queue_length timer_resolution accumulation_dtype build_context image image_id docker_image_size abs
prompt_tokens_per_s max_memory tenant max_steps
"""


def test_settings_of_the_work_of_a_step_are_known_by_their_words():
    def is_work(name):
        return bool(unlike_work([{name: 16}, {name: 64}]))

    assert [name for name in [*COUNTED.split(), *SIZED.split()] if not is_work(name)] == []
    assert [name for name in FRIENDS.split() if is_work(name)] == []
    assert is_counted(COUNTED.split())
    assert [name for name in SIZED.split() if is_counted([name])] == []


@pytest.mark.parametrize("name", ["per_device_train_batch_size", "gradient_accumulation_steps", "n_ctx", "image_px"])
def test_the_smaller_work_is_not_recommended_under_any_of_its_names(name):
    rows = [TrialRow.foreign({name: float(value)}, {"step_s": value / 100}, "row") for value in (16, 64)]
    with pytest.raises(StudyError, match=rf"{name} \(16.0, 64.0\)"):
        need_like_work(rows, ["step_s"], "mine.csv")


@pytest.mark.parametrize(("name", "effect"), [("train_batch_size", 0.0), ("max_seq_length", None)])
def test_levels_that_are_unlike_work_themselves_are_per_sample_or_marked(tmp_path, name, effect):
    rows = [f"{block},{value},{value * (1 + block / 500 + value / 1e6)}" for block in range(8)
            for value in ((16, 64), (64, 16))[block % 2]]  # fmt: skip
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([f"run,{name},step_s", *rows]))
    (found,) = weigh_table(path, by=name, value="step_s", block="run").comparisons
    assert found.effect == (None if effect is None else pytest.approx(effect, abs=0.001))
    assert ("unlike work" in sentences.verdict_phrase(found)) == (effect is None)


@pytest.mark.parametrize(
    ("settings", "samples"),
    [({"batch": 16, "tenants": 2}, 32), ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}, 32),
     ({"batch_size": 8, "global_batch_size": 64}, None), ({"global_batch_size": 64, "accumulate": 4}, None),
     ({"lr": 1}, None)],
)  # fmt: skip
def test_samples_of_a_step_are_not_counted_twice(settings, samples):
    assert samples_of(settings) == samples


# 14: interactions


def test_whether_a_container_costs_more_with_small_batches_is_answered():
    found = weigh(FakeStore(batches({16: 0.12, 64: 0.0})))

    (one,) = found.interactions
    assert (one.level, one.against, one.here, one.there) == ("docker", "bare", "batch 64", "batch 16")
    assert one.found.effect == pytest.approx(1 / 1.12 - 1, abs=0.01)
    assert one.found.verdict == "faster"
    assert interaction_sentence(one).startswith("docker against bare costs less with batch 64 than with batch 16: ")
    assert weighing_json(found)["interactions"][0]["sentence"] == interaction_sentence(one)


def test_of_a_level_that_is_better_in_both_cells_the_gains_are_compared():
    (one,) = weigh(FakeStore(batches({16: -0.5, 64: -0.3}))).interactions
    assert interaction_sentence(one).startswith(
        "docker against bare gains less with batch 64 than with batch 16: ratio of the effects +4"
    )


def test_cells_are_named_by_the_factor_alone_and_compared_as_far_as_they_were_crossed():
    """ResNet-18 was trained only, ResNet-50 only ran inference, LeNet-5 did both; docker costs ResNet-50 alone."""
    cells = [("lenet5", "train", 0.0), ("lenet5", "infer", 0.0), ("resnet18", "train", 0.0), ("resnet50", "infer", 0.3)]
    made = []
    for model, workload, cost in cells:
        own = {"workload.model": model, "workload": workload}
        sides = {"bare": {}, "docker": {"median": 1 + cost, "mean": 1 + cost}}
        made += [
            replace(each, settings={**each.settings, **own}, trial=f"{each.trial}-{model}-{workload}")
            for each in trials(sides=sides)
        ]

    told = {(one.factor, one.here, one.there): one.found for one in weigh(FakeStore(made)).interactions}

    assert all("resnet" not in f"{here} {there}".lower() for factor, here, there in told if factor == "workload")
    by_model = {here: each.verdict for (factor, here, _), each in told.items() if factor == "workload.model"}
    assert sorted(by_model.values()) == ["equivalent", "slower"]
    assert "50" in next(here for here, word in by_model.items() if word == "slower")


def test_effects_that_are_the_same_within_the_margin_still_say_the_sure_sign():
    (one,) = weigh(FakeStore(batches({16: 0.08, 64: 0.04}))).interactions

    assert one.found.verdict == "equivalent"
    assert ", and less with batch 64: ratio of the effects -3." in interaction_sentence(one)


def test_a_cell_without_a_name_is_still_called_something():
    made = [
        replace(each, settings={**each.settings, "workload.name": name}, trial=f"{each.trial}-{name}")
        for name in (None, "bert")
        for each in trials()
    ]
    (one,) = weigh(FakeStore(made)).interactions

    assert "bert" in one.here + one.there
    assert one.here and one.there


def test_equal_effects_in_two_cells_cost_the_same_also_where_a_third_factor_varies():
    made = []
    for workers in (0, 4):
        made += [
            replace(each, settings={**each.settings, "workload.workers": workers}, trial=f"{each.trial}-{workers}")
            for each in batches({16: 0.1, 64: 0.1})
        ]

    found = weigh(FakeStore(made))

    assert {(one.factor, one.found.verdict) for one in found.interactions} == {
        ("workload.batch", "equivalent"),
        ("workload.workers", "equivalent"),
    }
    assert all("costs the same within 5 %" in interaction_sentence(one) for one in found.interactions)


def test_one_cell_has_no_interaction():
    assert weigh(FakeStore(trials())).interactions == ()


# 15: words


def test_equivalent_still_tells_the_sure_sign_and_never_below_the_noise_floor():
    found = only(trials(12, {"bare": {}, "docker": {"median": 1.03, "mean": 1.03, "epoch": 1.03}}))

    assert verdict_word(found) == "slower, by less than 5 %"
    assert verdict_word(replace(found, aa_floor=0.04)) == "equivalent within 5 %"
    assert verdict_word(replace(found, effect=-0.03, low=-0.04, high=-0.02)) == "faster, by less than 5 %"


def test_a_side_without_a_usable_trial_is_neither_the_same_nor_let_through():
    gone = [replace(each, state="failed") if each.settings["platform"] == "docker" else each for each in trials()]

    found = weigh(FakeStore(gone))

    told = weighing_json(found)["comparisons"][0]
    assert (told["verdict"], told["effect"]) == ("cannot_tell", None)
    assert "no usable trial of docker" in told["sentence"]
    assert [each.code for each in gate(found, 0.05).reasons] == ["gate.no-trial"]


def test_terminal_report_and_json_tell_the_same_sentences():
    from html_reading import read_page
    from tare.report.export import as_markdown
    from tare.report.html import page, render
    from tare.report.text.verdict import verdict_text

    sides = {"bare": {"start": 1.0}, "docker": {"start": 1.3, "cgroup_throttled_s": 0.2, "cgroup_nr_throttled": 9.0}}
    records = [
        each for batch in (16, 64) for each in trials(sides=sides, settings={"workload.batch": batch}, seed=batch)
    ]
    found = weigh(FakeStore(records))

    told = weighing_json(found)
    shown = " ".join(verdict_text(found, 10_000, verbose=True).split())
    text = read_page(render(found, records, "2026-11-16 16:00 UTC")).text()
    markdown = as_markdown(page(found, records, "2026-11-16 16:00 UTC", "", ())).replace("\\", "")
    for sentence in [
        told["interactions"][0]["sentence"],
        told["comparisons"][0]["withheld"][0]["sentence"].rstrip("."),
    ]:
        assert sentence in shown
        assert sentence in " ".join(text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-").split())
        assert sentence in markdown
    for each in told["comparisons"]:
        assert each["phrase"].replace(", and ", ", ") in shown
        assert each["verdict"] == "cannot_tell"


# Found by a second audit: tables and stores that were made to mislead


def made_table(tmp_path, column, value, *, blocks=8, header="platform,run", **columns):
    """Both sides in each run, in turn the one first and the other; `columns` are further ones, by side."""
    rng = np.random.default_rng(5)
    lines = [",".join([header, column, *columns])]
    for block in range(blocks):
        for side in (("bare", "docker"), ("docker", "bare"))[block % 2]:
            more = [str(cells[side]) for cells in columns.values()]
            lines.append(",".join([side, str(block), str(value(side) * float(np.exp(rng.normal(0, 0.004)))), *more]))
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines))
    return path


def of_table(path, metric, block="run", **asked):
    return weigh_table(path, by="platform", value=metric, block=block, **asked)


def codes(found):
    return [note.code for note in found.notes]


def test_rounded_values_are_not_equivalent_and_do_not_pass(tmp_path):
    """A fifth more is 0.1 and 0.1 where it is written in tenths."""
    rows = [f"{side},{block},0.1" for block in range(8) for side in (("bare", "docker"), ("docker", "bare"))[block % 2]]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["platform,run,epoch_s", *rows]))
    weighing = of_table(path, "epoch_s")
    (found,) = weighing.comparisons

    assert (found.verdict, found.mde) == ("cannot_tell", None)
    assert [each.code for each in found.withheld] == ["compare.coarse-values"]
    assert not gate(weighing, 0.05).passed
    assert "rounded away" in sentences.verdict_reading(found)
    path.write_text(path.read_text().replace("0.1", "0.1001"))
    assert of_table(path, "epoch_s").comparisons[0].verdict == "equivalent"


def test_copied_rows_are_no_trials(tmp_path):
    rng = np.random.default_rng(6)
    rows = [f"{side},{factor * float(np.exp(rng.normal(0, 0.01)))}" for _ in range(4)
            for side, factor in (("bare", 1.0), ("docker", 1.2))]  # fmt: skip
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["platform,step_s", *(rows[place] for place in rng.permutation([*range(8)] * 3))]))
    weighing = of_table(path, "step_s", block=None)
    (found,) = weighing.comparisons

    assert found.verdict == "cannot_tell" and "compare.copied-rows" in codes(found)
    assert "more than once" in sentences.verdict_reading(found)
    assert [reason.code for reason in gate(weighing, 0.05).reasons] == ["gate.doubtful"]


def test_a_table_whose_sides_differ_in_batch_is_compared_per_sample(tmp_path):
    path = made_table(tmp_path, "step_ms", lambda side: 3.0 if side == "docker" else 1.0,
                      batch={"bare": 16, "docker": 64})  # fmt: skip
    (found,) = of_table(path, "step_ms").comparisons

    assert (found.metric, found.verdict) == ("step_ms_per_sample", "faster")
    assert found.effect == pytest.approx(3 / 4 - 1, abs=0.05) and "compare.per-sample" in codes(found)


def test_a_table_whose_sides_differ_in_resolution_is_not_compared(tmp_path):
    path = made_table(tmp_path, "step_ms", lambda side: 3.0 if side == "docker" else 1.0,
                      pixels={"bare": 32, "docker": 64})  # fmt: skip
    (found,) = of_table(path, "step_ms").comparisons

    assert (found.effect, found.verdict) == (None, "cannot_tell") and "compare.unlike-work" in codes(found)
    assert "Compare within equal settings, or name a metric per sample" in sentences.refusal_of(found)
    assert not [note for note in found.notes if "as requested" in note.sentence]


@pytest.mark.parametrize(("metric", "said"), [("ms", "not known to be of equal work"), ("sample_s", None)])
def test_a_table_whose_sides_differ_in_batch_says_so(tmp_path, metric, said):
    path = made_table(tmp_path, metric, lambda side: 3.0 if side == "docker" else 1.0,
                      batch={"bare": 16, "docker": 64}, image={"bare": "-", "docker": "x:1"})  # fmt: skip
    (found,) = of_table(path, metric).comparisons

    assert ("unlike work" in sentences.verdict_phrase(found)) == (said is not None)
    assert said is None or any(said in str(note) for note in found.notes)


def test_batches_that_both_sides_share_are_not_unlike_work(tmp_path):
    path = made_table(tmp_path, "step_s", lambda side: 1.0, batch={"bare": 16, "docker": 16})
    assert "compare.unlike-work" not in codes(of_table(path, "step_s").comparisons[0])


@pytest.mark.parametrize("block", ["run", None])
@pytest.mark.parametrize(("column", "works"), [("train_batch_size", (16, 64)), ("model", ("lenet", "bert"))])
@pytest.mark.parametrize("cost", [1.0, 1.1])
def test_a_cost_in_one_of_several_works_of_a_side_is_not_averaged_away(tmp_path, column, works, cost, block):
    rng = np.random.default_rng(9)
    rows = []
    for run in range(10):
        cells = [(side, work) for side in ("bare", "docker") for work in works]
        for side, work in (cells[place] for place in rng.permutation(4)):
            step = (1.0 if work == works[0] else 4.0) * float(np.exp(rng.normal(0, 0.002)))
            rows.append(f"{run},{side},{work},{step * (cost if (side, work) == ('docker', works[0]) else 1.0)}")
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([f"run,platform,{column},step_s", *rows]))
    weighing = of_table(path, "step_s", block=block)
    (found,) = weighing.comparisons

    if cost == 1.0:
        assert (found.withheld, gate(weighing, 0.05).passed) == ((), True)
        assert found.verdict == "equivalent" or block is None
    else:
        (reason,) = found.withheld
        assert (found.verdict, reason.code) == ("cannot_tell", "compare.mixed-work")
        assert column in str(reason) and f"{works[0]}: +" in str(reason) and f"{works[1]}: +" not in str(reason)
        assert "gate.hidden" in [each.code for each in gate(weighing, 0.05).reasons]
        assert "unlike work is mixed" in sentences.verdict_phrase(found)


@pytest.mark.parametrize("column", ["model", "output_len"])
def test_works_that_are_too_noisy_by_themselves_contradict_nothing(tmp_path, column):
    """Four models in each run; or a length that was measured, another in every row."""
    rng = np.random.default_rng(3)
    rows = []
    for run in range(8):
        cells = [(side, work) for side in ("bare", "docker") for work in range(4)]
        for side, work in (cells[place] for place in rng.permutation(8)):
            value = work if column == "model" else 1000 + len(rows)
            rows.append(f"{run},{side},{value},{float(np.exp(rng.normal(0, 0.04)))}")
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([f"run,platform,{column},step_s", *rows]))

    (found,) = of_table(path, "step_s", block="run").comparisons

    assert "compare.mixed-work" not in [each.code for each in found.withheld]


def test_a_thousand_times_as_much_is_asked_for_its_unit(tmp_path):
    path = made_table(tmp_path, "step", lambda side: 1000.0 if side == "docker" else 1.0)
    assert "compare.units" in codes(of_table(path, "step").comparisons[0])


@pytest.mark.parametrize("metric", ["tokens_s", "imgs_sec", "it_s", "samples_sec", "requests_s"])
def test_a_rate_that_is_written_as_a_time_is_not_settled_by_its_name(metric):
    assert direction_of(metric).rises and not direction_of(metric).settled


def test_what_the_order_may_have_made_is_neither_claimed_nor_passed(tmp_path):
    path = tmp_path / "mine.csv"
    rows = [
        f"{side},{block},{value + block / 1000}" for block in range(8) for side, value in (("bare", 1), ("docker", 1.2))
    ]
    path.write_text("\n".join(["platform,run,step_s", *rows]))
    weighing = of_table(path, "step_s")
    (found,) = weighing.comparisons

    assert not found.sure
    assert "run first in 8 of 8 blocks" in sentences.verdict_reading(found)  # and not the A/A noise floor
    assert [reason.code for reason in gate(weighing, 0.05).reasons] == ["gate.doubtful"]
    assert gate(weighing, 0.25).passed


@pytest.mark.parametrize(("blocks", "said"), [(4, "too few trials"), (8, "its interval reaches")])
def test_a_gate_that_passes_without_an_answer_says_so(tmp_path, blocks, said):
    rng = np.random.default_rng(8)
    path = made_table(tmp_path, "step_s", lambda side: float(np.exp(rng.normal(0, 0.2))), blocks=blocks)
    passed = gate(of_table(path, "step_s"), 0.5 if blocks == 4 else 0.1)

    assert passed.passed and said in str(passed.remarks[0])
    assert not gate(of_table(made_table(tmp_path, "step_s", lambda side: 1.0), "step_s"), 0.05).remarks


@pytest.mark.parametrize(("slow", "expected"), [(0, "equivalent"), (1, "equivalent"), (2, "cannot_tell")])
@pytest.mark.parametrize("platform", ["bare", "docker"])
def test_trials_that_are_rare_and_slow_are_paid_for(slow, expected, platform):
    """Two of 20 trials take twice as long: ranks say +0.1 %, and all of them together took 10 % longer."""
    records = trials(20)
    chosen = [each.trial for each in records if each.settings["platform"] == platform][:slow]
    longer = {"step_mean_s", "step_s", "epoch_s"}
    records = [replace(each, metrics={name: 2 * v if name in longer else v for name, v in each.metrics.items()})
               if each.trial in chosen else each for each in records]  # fmt: skip
    found = only(records)

    assert abs(found.effect) < 0.01 and found.verdict == expected
    told = [*codes(found), *(each.code for each in found.withheld)]
    assert ("compare.rare-and-slow" in told) == (slow == 2)
    assert slow < 2 or f"2 of 20 trials of {platform!r} were worse" in sentences.verdict_reading(found)
    # what a level hides fails its gate; a baseline that stumbles is no fault of the level
    assert gate(weigh(FakeStore(records)), 0.05).passed == (slow < 2 or platform == "bare")


@pytest.mark.parametrize(("slow", "passes"), [(0, True), (1, True), (3, False), (4, False)])
def test_trials_that_make_the_interval_wide_all_by_themselves_do_not_pass_the_gate(slow, passes):
    """Four of 12 trials a thousand times slower: nothing could be told, and so a gate let them pass."""
    records = trials(12)
    chosen = [each.trial for each in records if each.settings["platform"] == "docker"][:slow]
    times = {"step_mean_s", "step_s", "epoch_s", "epoch_rest_s"}
    records = [replace(each, metrics={name: 1000 * v if name in times else v for name, v in each.metrics.items()})
               if each.trial in chosen else each for each in records]  # fmt: skip

    assert gate(weigh(FakeStore(records)), 0.05).passed == passes


# each takes 5 s
@pytest.mark.parametrize("noise", ["normal", "heavy"])
def test_noise_that_both_sides_have_seldom_looks_like_rare_slow_trials(noise):
    rng = np.random.default_rng(5)

    def value():
        return float(np.exp(0.15 * (rng.normal() if noise == "normal" else rng.standard_t(3))))

    alarms = 0
    for _ in range(200):
        made = [record(name, block, value()) for block in range(12) for name in ("bare", "docker")]
        (found,) = weigh(FakeStore(made)).comparisons
        alarms += any(each.code == "compare.rare-and-slow" for each in found.withheld)
    assert alarms <= 4


@pytest.mark.parametrize("paired", [True, False])
def test_of_noisy_sides_only_trials_beyond_their_noise_count_as_far_off(paired):
    ours, theirs = np.linspace(-0.03, 0.1, 12), np.linspace(0.04, -0.04, 12)
    # some of ours are above the bound of 5 %, and no more than noise
    assert more_far_off(ours, theirs, 0.05, paired=paired, is_noisy=False) > 0
    assert more_far_off(ours, theirs, 0.05, paired=paired, is_noisy=True) == 0
    ours[-2:] += 9.0
    assert more_far_off(ours, theirs, 0.05, paired=paired, is_noisy=True) == 2
    assert more_far_off(theirs, ours, 0.05, paired=paired, is_noisy=True) == -2
    # where the usual trials are apart as well, these two are not what makes the difference
    assert more_far_off(ours + 0.2, theirs, 0.05, paired=paired, is_noisy=True) == (0 if paired else 2)


def test_a_side_that_fails_in_a_third_of_its_trials_is_not_equivalent():
    records = [
        replace(each, state="oom", metrics={}) if each.settings["platform"] == "docker" and each.block < 4 else each
        for each in trials(12)
    ]
    weighing = weigh(FakeStore(records))
    (found,) = weighing.comparisons

    assert (found.n, found.verdict) == (8, "cannot_tell")
    assert "4 of 12 trials of 'docker' failed" in sentences.verdict_reading(found)
    assert not gate(weighing, 0.05).passed


def dropped(records: list[Record], side: str, blocks: int, **how: Any) -> list[Record]:
    """The trials of a side in the first blocks end otherwise."""
    return [
        replace(each, **how) if each.settings["platform"] == side and each.block < blocks else each for each in records
    ]


@pytest.mark.parametrize("state", ["invalid", "timeout"])
@pytest.mark.parametrize("side", ["bare", "docker"])
def test_where_more_than_a_tenth_of_a_sides_trials_were_dropped_nothing_is_equivalent(side, state):
    why = because("the machine slept 8 s.", code="clock.slept")
    accident = weigh(FakeStore(dropped(trials(12), side, 1, state=state, reasons=(why,), metrics={})))
    assert accident.comparisons[0].verdict == "equivalent"
    assert f"1 of 12 trials of '{side}' could not be used (clock.slept 1)." in accident.notes
    (found,) = weigh(FakeStore(dropped(trials(12), side, 2, state=state, reasons=(why,), metrics={}))).comparisons
    told = "compare.dropped-trials" if state == "invalid" else "compare.failed-trials"
    assert (found.verdict, [each.code for each in found.withheld]) == ("cannot_tell", [told])


@pytest.mark.parametrize("sides", [("docker",), ("bare", "docker")])
def test_a_throttled_trial_is_dropped_where_the_other_side_of_its_block_was_not_throttled(sides):
    hot = {"state": "suspect", "reasons": (because("core0 rose by 2.", "suspect", "heat.throttled"),)}
    records = trials(12)
    for side in sides:
        records = dropped(records, side, 3, **hot)
    weighing = weigh(FakeStore(records))
    (found,) = weighing.comparisons
    alone = len(sides) == 1
    assert (found.n, found.verdict) == ((9, "cannot_tell") if alone else (12, "equivalent"))
    assert {each.reasons[0].code for each in weighing.left_out} == ({"trial.throttled-alone"} if alone else set())
    assert ("3 of 12 trials of 'docker' could not be used (trial.throttled-alone 3)." in weighing.notes) == alone


# Found by a third audit


def test_a_baseline_that_fails_in_half_of_its_trials_makes_nothing_equivalent():
    records = [
        replace(each, state="failed", metrics={}) if each.settings["platform"] == "bare" and each.block % 2 else each
        for each in trials(16)
    ]
    weighing = weigh(FakeStore(records))
    (found,) = weighing.comparisons

    assert found.verdict == "cannot_tell" and [each.code for each in found.withheld] == ["compare.failed-trials"]
    assert "8 of 16 trials of 'bare' failed, and 0 of 'docker'" in sentences.verdict_reading(found)
    assert [reason.code for reason in gate(weighing, 0.05).reasons] == ["gate.hidden"]


@pytest.mark.parametrize(
    ("metric", "factor", "worse"),
    [("step_s", 8.0, True), ("samples/s", 1 / 8, True), ("step_s", 1 / 8, False), ("samples/s", 8.0, False)],
)
def test_of_a_rate_a_few_slow_trials_cost_as_much_as_of_a_time(tmp_path, metric, factor, worse):
    """Two of 20 at an eighth of the speed: the mean rate is 9 % less, and the same work takes 70 % longer."""
    made = iter(range(100))
    path = made_table(
        tmp_path, metric, lambda side: factor if side == "docker" and next(made) in (3, 11) else 1.0, blocks=20
    )
    weighing = of_table(path, metric, margin=0.1)
    (found,) = weighing.comparisons

    told = [*found.withheld, *found.notes]
    rare = [each.sentence for each in told if each.code == "compare.rare-and-slow"]
    assert bool(rare) == worse
    assert not worse or ("2 of 20 trials of 'docker' were worse" in rare[0] and ("+70" in rare[0] or "+69" in rare[0]))
    assert (found.verdict == "equivalent", gate(weighing, 0.1).passed) == (not worse, not worse)


@pytest.mark.parametrize("block", ["run", None])
def test_a_side_that_is_the_other_to_its_last_digit_was_not_measured(tmp_path, block):
    rng = np.random.default_rng(9)
    values = [float(np.exp(rng.normal(0, 0.03))) for _ in range(8)]
    rows = [(side, run) for run in range(8) for side in (("bare", "docker"), ("docker", "bare"))[run % 2]]
    path = tmp_path / "mine.csv"

    def written(metric, other=0.0):
        lines = [f"{side},{run},{values[run] + (side == 'docker' and run == 5) * other!r}" for side, run in rows]
        path.write_text("\n".join([f"platform,run,{metric}", *lines]))
        return of_table(path, metric, block=block)

    (found,) = (weighing := written("step_s")).comparisons
    assert (found.verdict, [each.code for each in found.withheld]) == ("cannot_tell", ["compare.copied-side"])
    assert block is None or "the same on both sides" in sentences.verdict_reading(found)
    assert [reason.code for reason in gate(weighing, 0.05).reasons] == ["gate.hidden"]
    assert not written("step_s", other=1e-6).comparisons[0].withheld
    assert not written("accuracy").comparisons[0].withheld  # of equal seeds it may be


@pytest.mark.parametrize(("column", "code"), [("model", "compare.unlike-work"), ("host", "compare.unlike-conditions")])
def test_another_model_or_machine_on_each_side_is_never_silent(tmp_path, column, code):
    apart = made_table(tmp_path, "sample_s", lambda side: 1.0, **{column: {"bare": "one", "docker": "two"}})
    (found,) = of_table(apart, "sample_s").comparisons
    (note,) = [note for note in found.notes if note.code == code]
    assert column in note.sentence and "one" in note.sentence and "two" in note.sentence

    by_it = weigh_table(apart, by=column, value="sample_s", block="run").comparisons[0]
    assert code not in codes(by_it)  # it is the question
    alike = made_table(tmp_path, "sample_s", lambda side: 1.0, **{column: {"bare": "one", "docker": "one"}})
    assert code not in codes(of_table(alike, "sample_s").comparisons[0])


@pytest.mark.parametrize(
    ("metric", "effect", "word"),
    [("step_s", 0.2, "slower"), ("samples/s", -0.2, "lower"), ("ms_per_token", 0.2, "slower"), ("fps", 0.2, "higher"),
     ("rss_mb", 0.2, "more"), ("train_loss", 0.2, "more"), ("cost_usd", -0.2, "less"), ("cache_misses", 0.2, "more"),
     ("energy_j", 0.2, "more"), ("joules_per_token", 0.2, "more"), ("images_per_joule", -0.2, "worse"),
     ("eval_psnr", -0.2, "worse"), ("peak_memory", 0.2, "more")],
)  # fmt: skip
def test_the_word_fits_the_metric(tmp_path, metric, effect, word):
    path = made_table(tmp_path, metric, lambda side: 1 + effect if side == "docker" else 1.0)
    assert verdict_word(of_table(path, metric).comparisons[0]) == word


@pytest.mark.parametrize(
    ("metric", "rises", "claim", "word"),
    [("samples_per_s", False, "docker reaches more than bare", "higher"),
     ("energy_j", True, "docker takes more than bare", "more"),
     ("step_s", True, "docker is higher than bare", "higher"),
     ("eval_accuracy", False, "docker is worse than bare", "worse")],
)  # fmt: skip
def test_more_is_more_whichever_way_is_requested_to_be_better(tmp_path, metric, rises, claim, word):
    path = made_table(tmp_path, metric, lambda side: 1.2 if side == "docker" else 1.0)
    found = replace(of_table(path, metric).comparisons[0], direction=direction_of(metric, rises))
    found = replace(found, verdict="faster" if rises else "slower")

    assert contrast_sentence(found).startswith(f"{claim}:")
    assert verdict_word(found) == word


def test_an_order_that_shows_nothing_does_not_pass_without_a_word(tmp_path):
    path = tmp_path / "mine.csv"
    rows = [f"{side},{block},{1 + block / 1000 + 0.0001 * (side == 'docker')}" for block in range(8)
            for side in ("bare", "docker")]  # fmt: skip
    path.write_text("\n".join(["platform,run,step_s", *rows]))
    passed = gate(of_table(path, "step_s"), 0.05)

    assert passed.passed and [remark.code for remark in passed.remarks] == ["gate.not-shown"]


def test_a_sure_sign_is_not_called_not_shown():
    sides = {"bare": {"start": 1.0}, "docker": {"start": 1.4, "median": 1.03, "mean": 1.03, "epoch": 1.03}}
    found = weigh(FakeStore(trials(12, sides)))

    told = sentences.what_costs(found.comparisons[0], found.tested[0])
    assert told.endswith("in the start-up to the first step; the steady state is slower, by less than 5 %.")


def test_each_name_of_a_wide_table_is_looked_at_once_and_not_in_each_row():
    rows = [{f"c{number}": row for number in range(5000)} for row in range(5)]
    before = _kind.cache_info().misses

    unlike_work(rows)

    assert _kind.cache_info().misses - before <= 5000
