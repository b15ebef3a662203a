"""From a store, or a table, to everything that a report says."""

import json
import math
from collections import Counter
from dataclasses import replace

import pytest

from analysis_figures import FakeStore, noisy, record, weighed_records
from some_records import because
from tare.analysis import hidden, selection
from tare.analysis.cells import Cells
from tare.analysis.estimators import _several_in_a_block
from tare.analysis.weighing import is_enough, weigh, weigh_table
from tare.base.errors import StudyError
from tare.base.rulings import Ruling
from tare.report.text.verdict import verdict_text

UNTIL = {
    "study": "weigh",
    "repeat": {"min": 6, "max": 20, "until": 0.025},
    "compare": {"against": {"platform": "bare"}},
}


def test_a_store_is_weighed_by_platform_against_bare_on_step_time():
    found = weigh(FakeStore(weighed_records()))

    (comparison,) = found.comparisons
    assert (found.by, found.against, found.metric) == ("platform", "bare", "step_s")
    assert (comparison.level, comparison.verdict, comparison.n) == ("docker", "slower", 8)
    assert found.question == "container (docker) vs bare metal, training (lenet5, batch 16)"
    assert comparison.aa_floor is not None and comparison.aa_floor < 0.03
    assert found.counts == {"planned": 24, "ok": 24}
    assert len(found.measurements) == 24
    assert found.medians["bare"]["step_s"].n == 8


def test_the_title_that_a_trial_stored_is_used_in_the_question():
    found = weigh(FakeStore(weighed_records(facts={"title": "LeNet-5 training, batch 16"})))

    assert found.question == "container (docker) vs bare metal, LeNet-5 training, batch 16"


def test_other_metrics_stand_beside_the_headline_and_epoch_0_stays_apart():
    records = weighed_records(metrics={"epoch0_step_s": 0.01, "compute_s": 0.001})

    found = weigh(FakeStore(records))

    assert [each.metric for each in found.others] == ["compute_s", "cpu_s", "wall_s"]
    assert found.medians["docker"]["epoch0_step_s"].value == 0.01
    with pytest.raises(StudyError, match="epoch 0"):
        weigh(FakeStore(records), metric="epoch0_step_s")


@pytest.mark.parametrize("state", ["ok", "invalid"])
def test_a_metric_that_there_is_not_is_refused_with_those_that_there_are_whether_trials_are_usable_or_not(state):
    store = FakeStore([replace(each, state=state) for each in weighed_records()])
    with pytest.raises(StudyError, match=r"No metric 'foo'. Available: .*step_s, wall_s"):
        weigh(store, metric="foo")
    assert weigh(store, metric="wall_s").metric == "wall_s"


def test_what_the_study_declares_is_no_mistake_while_there_is_nothing_usable():
    store = FakeStore([replace(each, state="invalid") for each in weighed_records()])
    store.study = {"study": "s", "compare": {"metric": "energy_gpu_j"}}
    assert weigh(store).metric == "energy_gpu_j"
    with pytest.raises(StudyError, match="No metric 'energy_cpu_j'"):
        weigh(store, metric="energy_cpu_j")


@pytest.mark.parametrize("change", [{"tare_version": "0.9"}, {"facts": {"device": {"kernel": "6.6"}}}])
def test_trials_of_two_kernels_or_two_versions_of_tare_taint_what_they_are_compared_in(change):
    facts = {"device": {"kernel": "6.18"}}
    records = [replace(each, facts=facts, tare_version="1.0") for each in weighed_records()]
    assert weigh(FakeStore(records)).comparisons[0].tainted == ()
    mixed = [replace(each, **change) if each.block > 3 else each for each in records]
    (words, *_) = weigh(FakeStore(mixed)).comparisons[0].tainted
    assert "its trials do not share one" in words


def test_a_script_whose_temporary_folder_is_memory_on_one_side_only_is_told_so():
    kinds = {"docker": "tmpfs", "bare": "ext4"}
    records = [
        replace(each, settings={**each.settings, "workload": "command"},
                facts={"inside": {"file_system": {"tmp": kinds[each.settings["platform"]], "work": "ext4"}}})
        for each in weighed_records()
    ]  # fmt: skip
    found = weigh(FakeStore(records))
    assert any(note.startswith("/tmp is memory (tmpfs) for docker, and ext4 for bare") for note in found.notes)
    assert [(each.key, each.matters) for each in found.differences] == [("file_system.tmp", False)]
    assert found.comparisons[0].tainted == ()


def test_a_metric_that_is_zero_somewhere_is_said_and_not_compared():
    records = weighed_records(metrics={"stall_s": 0.0})

    found = weigh(FakeStore(records))

    assert "stall_s" not in [each.metric for each in found.others]
    assert any(note.startswith("stall_s is zero in 24 trials") for note in found.notes)


def test_a_time_next_to_a_tracer_is_not_said_to_be_zero():
    records = [replace(each, facts={**each.facts, "traced": {"probes": ["ftrace"]}}) for each in weighed_records()]

    found = weigh(FakeStore(records))

    assert not any("is zero in" in note for note in found.notes)


def test_without_marked_steps_the_whole_run_is_compared():
    records = [
        record(each.settings["platform"], each.block, None, twin=each.twin, metrics={"wall_s": 1000 * step})
        for each in weighed_records()
        for step in [each.metrics["step_s"]]
    ]

    assert weigh(FakeStore(records)).metric == "wall_s"


def test_one_trial_without_marked_steps_is_left_out_and_does_not_change_the_metric_of_all():
    records = weighed_records()
    records[3] = record("bare", 1, None, metrics={"wall_s": 3.0})

    found = weigh(FakeStore(records))

    assert (found.metric, found.comparisons[0].n) == ("step_s", 8)  # its A/A repeat has the figure
    assert [(left.trial, [*map(str, left.reasons)]) for left in found.left_out] == [
        (records[3].trial, ["it has no step_s."])
    ]


def test_the_study_declares_metric_margin_and_baseline_and_the_caller_overrides():
    store = FakeStore(weighed_records())
    store.study = {"study": "s", "compare": {"against": {"platform": "docker"}, "margin": "20 %", "metric": "wall_s"}}

    declared, overridden = weigh(store), weigh(store, against="bare", margin=0.01, metric="step_s")

    assert (declared.against, declared.metric, declared.comparisons[0].margin) == ("docker", "wall_s", 0.2)
    assert (overridden.against, overridden.metric, overridden.comparisons[0].margin) == ("bare", "step_s", 0.01)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metric": "stepp_s"}, r"No metric 'stepp_s'.*Did you mean 'step_s'\?"),
        ({"against": "baer"}, r"No level 'baer'.*Did you mean 'bare'\?"),
        ({"by": "plattform"}, r"No factor 'plattform'.*Did you mean 'platform'\?"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest(options, said):
    with pytest.raises(StudyError, match=said):
        weigh(FakeStore(weighed_records()), **options)


def test_trials_that_are_not_usable_are_left_out_with_their_reasons():
    records = [*weighed_records(), record("docker", 8, state="invalid", reasons=(because("the machine swapped."),))]

    found = weigh(FakeStore(records))

    (left,) = found.left_out
    assert (left.state, left.label, left.block) == ("invalid", "docker", 8)
    assert left.reasons == (because("the machine swapped."),)
    assert found.counts == {"planned": 25, "ok": 24, "invalid": 1}
    assert found.comparisons[0].n == 8


def test_a_suspect_trial_is_used_and_said():
    records = weighed_records()
    records[0] = record("bare", 0, 0.002, state="suspect", reasons=(because("others worked."),))

    found = weigh(FakeStore(records))

    assert found.left_out == ()
    assert any(note.startswith("suspect trials, included: 1 of 8 of bare;") for note in found.notes)


def test_a_verdict_on_the_whole_run_says_why_there_are_no_steps():
    why = Ruling("script.no-torch", "note", "workload", "no steps were found: the script never imported torch.")
    with_steps = weighed_records(notes=(why,))
    whole = [replace(each, metrics={"wall_s": each.metrics["wall_s"]}) for each in with_steps]

    found = weigh(FakeStore(whole))

    assert found.metric == "wall_s"
    assert found.notes.count(why.sentence) == 1
    assert why.sentence not in weigh(FakeStore(with_steps)).notes


def test_a_verdict_says_which_side_was_root_in_its_container():
    root = Ruling("container.root", "note", "workload", "the workload was root in its container.")
    records = [
        replace(each, notes=(root,)) if each.settings["platform"] == "docker" else each for each in weighed_records()
    ]

    (note,) = [each for each in weigh(FakeStore(records)).notes if "was root in its container" in each]

    assert note.startswith("docker: ")
    assert "`user: caller`" in note


def test_a_rerun_replaces_nothing_but_only_one_attempt_counts():
    records = weighed_records()
    records.insert(0, record("bare", 0, 9.0, state="invalid", attempt=0))

    found = weigh(FakeStore(records))

    assert found.comparisons[0].theirs.n == 8
    assert found.left_out == ()
    assert "1 attempt was invalid and repeated; all are kept." in found.notes


def test_a_trial_without_the_figure_is_left_out_with_why():
    records = [*weighed_records(), record("docker", 8, 0.0), record("docker", 9, None), record("docker", 10, math.nan)]

    reasons = [str(left.reasons[0]) for left in weigh(FakeStore(records), metric="step_s").left_out]

    assert reasons[0].startswith("its step_s is 0.0")
    assert reasons[1] == "it has no step_s."
    assert reasons[2].startswith("its step_s is nan")


def two_batches(effects=(0.2, 0.0)):
    made = []
    for batch, effect in zip((16, 64), effects, strict=True):
        for each in weighed_records(10, effect, seed=batch):
            scale = batch / 16
            settings = {"workload.batch": batch}
            made.append(
                record(
                    each.settings["platform"],
                    each.block,
                    each.metrics["step_s"] * scale,
                    twin=each.twin,
                    settings=settings,
                )
            )
    return made


def test_the_first_token_stands_beside_a_declared_metric_and_is_not_told_twice():
    figures = {"step_mean_s": 0.004, "first_token_s": 0.03}
    records = [
        record(side, block, 0.004, settings={"workload": "generate"}, metrics=figures)
        for side in ("bare", "runc")
        for block in range(6)
    ]
    for declared in (True, False):
        found = weigh(FakeStore(records, {"study": "s", "compare": {"metric": "step_mean_s"} if declared else {}}))
        assert ("first_token_s" in [each.metric for each in found.others]) == declared
        assert ("first_token_s" in [each.metric for each in found.tested]) != declared


def test_levels_are_only_compared_within_the_same_other_settings():
    found = weigh(FakeStore(two_batches()))

    first, second = found.comparisons
    assert (first.level, first.against) == ("docker, batch 16", "bare, batch 16")
    assert (second.level, second.against) == ("docker, batch 64", "bare, batch 64")
    assert (first.verdict, second.verdict) == ("slower", "equivalent")
    assert any("2 comparisons are judged together" in note for note in map(str, first.notes))
    assert found.against == "bare"


def test_another_factor_may_be_asked_about():
    found = weigh(FakeStore(two_batches((0.0, 0.0))), by="batch")

    assert found.by == "workload.batch"
    assert [each.level for each in found.comparisons] == ["bare, batch 64", "docker, batch 64"]
    assert found.comparisons[0].effect == pytest.approx(0.0, abs=0.1)  # per sample: a batch of 64 is more work
    assert found.question.startswith("batch 64 vs batch 16")


BY_BATCH = {
    "study": "s",
    "compare": {"by": "workload.batch", "against": {"workload.batch": 64}},
    "repeat": {"min": 6, "max": 20, "until": 0.1},
}


@pytest.mark.parametrize("by", [None, "workload.batch", "batch"])
def test_the_declared_baseline_holds_however_its_factor_is_named(by):
    found = weigh(FakeStore(two_batches(), BY_BATCH), by=by)

    assert (found.by, found.against) == ("workload.batch", "batch 64")
    assert any(note.startswith("Stop rule") for note in found.notes)


def test_a_study_may_declare_its_factor_by_the_short_name_too():
    study = {"compare": {"by": "batch", "against": 64}}

    assert weigh(FakeStore(two_batches(), study), by="workload.batch").against == "batch 64"
    assert weigh(FakeStore(two_batches(), study)).against == "batch 64"


def test_asking_for_what_would_be_asked_anyway_is_the_declared_question():
    store = FakeStore(weighed_records(8), UNTIL)

    same = weigh(store, by="platform", against="bare", metric="step_s")
    other = weigh(store, metric="wall_s")

    assert any(note.startswith("Stop rule") for note in same.notes)
    assert not any(note.startswith("Stop rule") for note in other.notes)


def test_a_baseline_named_as_text_is_the_number_that_the_study_declares():
    found = weigh(FakeStore(two_batches(), BY_BATCH), against="64")

    assert any(note.startswith("Stop rule") for note in found.notes)


def test_a_level_whose_trials_all_failed_does_not_vanish():
    records = [each for each in weighed_records() if each.settings["platform"] == "bare"]
    records += [
        record("docker", block, None, state="failed", reasons=(because("no such image."),)) for block in range(8)
    ]

    found = weigh(FakeStore(records))

    (comparison,) = found.comparisons
    assert (comparison.level, comparison.effect, comparison.verdict) == ("docker", None, "cannot_tell")
    assert "No usable trial of 'docker'." in [*map(str, comparison.notes)]
    assert len(found.left_out) == 8


def test_a_baseline_whose_trials_all_failed_does_not_vanish_either():
    records = [each for each in weighed_records() if each.settings["platform"] == "docker"]
    records += [record("bare", block, None, state="failed") for block in range(8)]

    (comparison,) = weigh(FakeStore(records)).comparisons

    assert (comparison.effect, comparison.theirs) == (None, None)
    assert comparison.ours is not None


def test_an_empty_store_and_one_level_are_no_error():
    empty = weigh(FakeStore([], planned=12))
    alone = weigh(FakeStore([record("bare", block) for block in range(6)]))

    assert (empty.comparisons, empty.counts) == ((), {"planned": 12})
    assert alone.comparisons == ()
    assert any("only one level of platform ('bare')" in note for note in alone.notes)
    assert alone.question == "bare metal, training (lenet5, batch 16)"


def test_a_platform_run_in_two_ways_must_be_named_in_full_as_a_baseline():
    records = [
        record("docker", block, 0.002, settings={"platform.seccomp": seccomp})
        for block in range(6)
        for seccomp in (True, False)
    ]

    with pytest.raises(StudyError, match=r"several ways; name one of them: docker, seccomp on"):
        weigh(FakeStore(records), against="docker")
    assert weigh(FakeStore(records), against="docker, platform.seccomp=true").comparisons[0].n == 6


def test_a_run_of_one_part_in_several_ways_ends_in_a_table_and_not_in_an_error():
    """A study without `compare:` has its first level as the baseline: of several ways no one is meant."""
    ways = [("torch_infer", "lenet5"), ("torch_infer", "mobilenet_v2"), ("application", None)]
    records = [
        record("bare", block, 0.002 * (1 + way), settings={"workload": name, "workload.model": model or name})
        for block in range(6)
        for way, (name, model) in enumerate(ways)
    ]
    study = {"study": "cells", "compare": {"by": "workload", "against": {"workload": "torch_infer"}}}

    found = weigh(FakeStore(records, study))

    assert (found.comparisons, len(found.medians)) == ((), 3)
    assert any("which of the 3 levels of workload" in note and "--against" in note for note in found.notes)
    said = verdict_text(found, 500)
    assert all(f"{value} ms" in said for value in ("2.00", "4.00", "6.00"))
    assert "18 of 18 trials" in said
    with pytest.raises(StudyError, match="several ways"):
        weigh(FakeStore(records, study), against="torch_infer")


@pytest.mark.parametrize(
    ("against", "expected"),
    [
        ({"platform": {"docker": {"seccomp": False}}}, "docker, seccomp off"),
        ({"platform": "docker, platform.seccomp=true"}, "docker, seccomp on"),
    ],
)
def test_a_study_may_name_its_baseline_with_the_fields_that_tell_it_apart(against, expected):
    records = [
        record("docker", block, 0.002, settings={"platform.seccomp": seccomp})
        for block in range(6)
        for seccomp in (True, False)
    ]

    assert weigh(FakeStore(records, {"compare": {"against": against}})).against == expected


def test_a_server_of_an_older_store_is_called_by_its_program_too():
    argv = ["python3", "-m", "tare_inside.programs.small_server", "18474", "2"]
    stored = {"title": "tare_inside.programs.small_server 18474 2, 100 requests/s"}
    settings = {"workload": "server", "workload.argv": argv}
    records = [
        record(name, block, 0.002, settings=settings, facts=stored) for block in range(6) for name in ("bare", "runc")
    ]
    assert weigh(FakeStore(records)).question == "container (runc) vs bare metal, small_server, 100 requests/s"


def test_a_baseline_that_has_not_run_yet_is_called_as_it_will_be():
    beside = "beside finetune in bare"
    batches = [record("bare", block, 0.002, settings={"workload.batch": n}) for block in range(6) for n in (16, 32)]
    shared = [record("bare", block, 0.002, settings={"tenants": beside}) for block in range(6)]

    by_batch = {"compare": {"by": "workload.batch", "against": {"workload.batch": 64}}}
    assert weigh(FakeStore(batches, by_batch)).against == "batch 64"
    assert weigh(FakeStore(shared, {"compare": {"by": "tenants", "against": 1}})).against == "alone"


def test_a_study_may_name_a_number_or_a_stack_as_its_baseline():
    batches = [record("bare", block, 0.002, settings={"workload.batch": n}) for block in range(6) for n in (16, 64)]
    stacks = [record(name, block, 0.002) for block in range(6) for name in ("bare", "qemu+docker")]

    by_number = weigh(FakeStore(batches, {"compare": {"by": "workload.batch", "against": {"workload.batch": 64}}}))
    by_stack = weigh(FakeStore(stacks, {"compare": {"against": {"platform": [["qemu", {"docker": {}}]]}}}))

    assert (by_number.against, by_stack.against) == ("batch 64", "qemu+docker")


def test_a_declared_baseline_that_has_not_run_yet_is_no_error_but_a_named_one_is():
    records = [each for each in weighed_records() if each.settings["platform"] == "docker"]

    (comparison,) = weigh(FakeStore(records, UNTIL)).comparisons

    assert (comparison.effect, comparison.against) == (None, "bare")
    assert "No usable trial of 'bare'." in [*map(str, comparison.notes)]
    with pytest.raises(StudyError, match="No level 'bare'"):
        weigh(FakeStore(records, UNTIL), against="bare")


def test_the_noise_floor_of_one_cell_stands_for_those_that_were_not_run_twice():
    without = [each for each in two_batches() if not (each.twin and each.settings["workload.batch"] == 64)]

    first, second = weigh(FakeStore(without)).comparisons

    assert first.aa_floor == second.aa_floor is not None


def test_a_difference_in_software_taints_the_verdict_in_words():
    records = [
        record(
            each.settings["platform"],
            each.block,
            each.metrics["step_s"],
            twin=each.twin,
            facts={"inside": {"torch": {"version": "2.13" if each.settings["platform"] == "bare" else "2.12"}}},
        )
        for each in weighed_records()
    ]

    found = weigh(FakeStore(records))

    assert found.differences[0].key == "torch.version"
    (sentence,) = found.comparisons[0].tainted
    assert sentence == "torch.version differs (another build of torch): docker has 2.12, bare has 2.13."


def test_another_loss_taints_the_verdict_but_not_where_the_workload_is_what_is_compared():
    records = [
        record(
            each.settings["platform"],
            each.block,
            each.metrics["step_s"],
            facts={"outcome": {"loss_digest": each.settings["platform"]}},
        )
        for each in weighed_records()
        if not each.twin
    ]
    batches = [
        record("bare", block, 0.002, settings={"workload.batch": batch}, facts={"outcome": {"loss_digest": str(batch)}})
        for block in range(6)
        for batch in (16, 64)
    ]

    assert "Not the same computation" in weigh(FakeStore(records)).comparisons[0].tainted[0]
    assert weigh(FakeStore(batches), by="workload.batch").comparisons[0].tainted == ()


def with_facts(make):
    """The usual records, each with the facts that `make` gives for its platform, block and twin."""
    return [
        record(
            each.settings["platform"],
            each.block,
            each.metrics["step_s"],
            twin=each.twin,
            facts=make(each.settings["platform"], each.block, each.twin),
        )
        for each in weighed_records()
    ]


def test_a_twin_with_another_loss_taints_no_level_and_is_said_of_the_baseline():
    records = with_facts(lambda platform, block, twin: {"outcome": {"loss_digest": "B" if twin else "A"}})

    found = weigh(FakeStore(records))

    assert found.comparisons[0].tainted == ()
    assert any(note.startswith("bare is not deterministic: its A/A repeat") for note in found.notes)


def test_a_twin_with_other_software_taints_no_level():
    records = with_facts(lambda platform, block, twin: {"inside": {"torch": {"version": "1" if twin else "2"}}})

    found = weigh(FakeStore(records))

    assert (found.comparisons[0].tainted, found.differences) == ((), ())


@pytest.mark.parametrize(
    ("facts", "key"),
    [({"device": {"kernel": "{}"}}, "kernel"), ({"inside": {"torch": {"version": "{}"}}}, "inside torch.version")],
)
def test_two_kernels_or_builds_of_torch_in_one_level_taint_its_comparison(facts, key):
    def make(platform, block, twin):
        return json.loads(json.dumps(facts).replace("{}", "old" if block < 4 else "new"))

    found = weigh(FakeStore(with_facts(make)))

    tainted = found.comparisons[0].tainted
    assert [sentence.partition(";")[0] for sentence in tainted] == [
        f"docker: its trials do not share one {key} (old, new)",
        f"bare: its trials do not share one {key} (old, new)",
    ]


def test_two_kernels_in_the_only_level_are_said_of_the_run():
    records = [record("bare", block, facts={"device": {"kernel": str(block % 2)}}) for block in range(6)]

    assert any("do not share one kernel" in note for note in weigh(FakeStore(records)).notes)


def test_outliers_are_marked_and_used():
    records = weighed_records(12, seed=3)
    far = records[5]
    records[5] = record(far.settings["platform"], far.block, far.metrics["step_s"] * 30, twin=far.twin)

    found = weigh(FakeStore(records))

    assert [left.trial for left in found.outliers] == [records[5].trial]
    assert found.comparisons[0].n == 12
    assert found.left_out == ()


def test_a_run_with_a_stop_rule_pays_for_looking_and_says_whether_it_was_met():
    met = weigh(FakeStore(weighed_records(8), UNTIL, planned=36))
    unmet = weigh(FakeStore(weighed_records(6), {**UNTIL, "repeat": {"min": 6, "max": 20, "until": 0.001}}, planned=42))

    assert met.comparisons[0].confidence == pytest.approx(0.965)
    assert any("96.5 %" in note for note in met.notes)
    assert any("It was met after 8 blocks" in note and "at most 20 blocks" in note for note in met.notes)
    assert any("It was not met after 6 blocks" in note for note in unmet.notes)
    assert met.counts["planned"] == 24
    assert unmet.counts["planned"] == 60


def test_a_stop_rule_that_was_not_met_says_of_how_many_blocks_it_had_to_be():
    records = [each if each.block == 0 else replace(each, state="invalid") for each in weighed_records(6)]

    found = weigh(FakeStore(records, UNTIL, planned=42))

    assert any("It was not met after 1 block usable, of 6." in note for note in found.notes)


def test_the_runner_asks_the_same_rule():
    assert is_enough(FakeStore(weighed_records(8), UNTIL), until=0.025)
    assert not is_enough(FakeStore(weighed_records(8), UNTIL), until=0.001)
    assert not is_enough(FakeStore(weighed_records(5), UNTIL), until=0.5)
    assert not is_enough(FakeStore([], UNTIL), until=0.5)


def test_phases_and_facts_are_passed_on():
    records = weighed_records(phases={"open": 0.3, "run": 4.0}, facts={"device": {"kernel": "6.18"}})

    found = weigh(FakeStore(records))

    assert found.phases["docker"] == {"open": 0.3, "run": 4.0}
    assert found.facts == {"kernel": "6.18"}


def table(folder, rows, header="platform,step_s,block"):
    path = folder / "mine.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_a_table_is_weighed_without_a_store(tmp_path):
    rows = [
        f"{m},{v * (1 + 0.001 * b)},{b}" for b in range(8) for m, v in (("host", 1.0), ("vm", 1.2 + 0.01 * (b % 3)))
    ]

    found = weigh_table(table(tmp_path, rows), by="platform", value="step_s", block="block", order="shuffled")

    (comparison,) = found.comparisons
    assert (comparison.verdict, comparison.against, comparison.margin) == ("slower", "host", 0.05)
    assert any("'host'" in note for note in map(str, comparison.notes))
    assert found.medians["vm"]["step_s"].n == 8
    assert found.question == "vm vs host"
    assert found.counts == {"planned": 16, "ok": 16}


def ordered_row(level, block):
    return f"{level},{1 + 0.2 * (level == 'vm') + 0.001 * block},{block}"


ONE_AFTER_ANOTHER = [ordered_row(level, block) for level in ("host", "vm") for block in range(8)]
IN_EVERY_BLOCK = [ordered_row(level, block) for block in range(8) for level in ("host", "vm")]


@pytest.mark.parametrize(
    ("rows", "block", "code"),
    [
        (ONE_AFTER_ANOTHER, None, "compare.run-one-after-another"),
        (IN_EVERY_BLOCK, "block", "compare.fixed-order"),
        (ONE_AFTER_ANOTHER, "block", "compare.fixed-order"),
    ],
)
def test_levels_in_one_order_get_no_sure_word_as_a_drift_would_look_the_same(tmp_path, rows, block, code):
    (found,) = weigh_table(table(tmp_path, rows), by="platform", value="step_s", block=block).comparisons

    assert found.verdict == "cannot_tell" and found.low > 0.1
    assert code in [note.code for note in found.notes]


def test_another_order_of_running_can_be_named(tmp_path):
    rows = [f"{row},{place * 5 % 16:02}" for place, row in enumerate(ONE_AFTER_ANOTHER)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["platform,step_s,block,when", *rows]), encoding="utf-8")

    for order in ("when", "shuffled"):
        (found,) = weigh_table(path, by="platform", value="step_s", order=order).comparisons
        assert found.verdict == "slower", order


def test_a_table_marks_its_outliers_by_row(tmp_path):
    rows = [f"{level},{1 + 0.01 * (n % 4)},{n}" for n in range(12) for level in ("bare", "docker")]
    rows[5] = "docker,90,2"

    (left,) = weigh_table(table(tmp_path, rows), by="platform", value="step_s", block="block").outliers

    assert (left.trial, left.label, left.block) == ("row 6", "docker", 2)


def test_a_wrong_level_of_a_table_is_refused_with_file_and_column(tmp_path):
    path = table(tmp_path, [f"{level},1,{n}" for n in range(6) for level in ("bare", "docker")])

    with pytest.raises(StudyError, match=r"mine\.csv, column 'platform': No level 'dokcer'.*'docker'\?"):
        weigh_table(path, by="platform", value="step_s", against="dokcer")


OUTSIDE = {"evaluation_s": 0.5, "exit_s": 0.1}


@pytest.mark.parametrize("factor", ["platform", "workload.batch"])
def test_twice_as_many_cells_take_twice_the_looks_at_trials(factor, monkeypatch):
    """One factor within many others, or one with many levels: no comparison looks at all trials anew."""
    looks = Counter()

    def counted(owner, name):
        plain = getattr(owner, name)

        def told(*args, **named):
            looks[name] += 1
            return plain(*args, **named)

        monkeypatch.setattr(owner, name, told)

    counted(Cells, "level")
    counted(hidden, "_compared")
    counted(hidden, "block_of")
    counted(selection, "unit_of")
    found = []
    for cells in (12, 24):
        batches = [{"workload.batch": 1 + batch} for batch in range(cells)]
        records = [
            record(platform, block, 0.002 + 1e-5 * block, settings=batch, metrics=OUTSIDE)
            for block in range(6)
            for batch in batches
            for platform in ("bare", "docker")
        ]
        looks.clear()
        weighing = weigh(FakeStore(records), by=factor, against="bare" if factor == "platform" else "1")
        assert len(weighing.comparisons) >= cells - 1
        found.append(dict(looks))
    assert all(found[1][name] <= 2.3 * found[0][name] for name in looks), found
    for name in ("unit_of", "_compared"):  # each looks at every trial
        assert found[1][name] == found[0][name]


def test_blocks_are_gone_through_once_however_many_there_are():
    class Blocks(list[str]):
        times = 0

        def __iter__(self):
            self.times += 1
            return super().__iter__()

    trials = noisy(40)
    bare, docker = trials[:40], trials[40:]
    blocks = Blocks(map(str, range(40)))
    assert not _several_in_a_block(bare, docker, blocks)
    assert _several_in_a_block([*bare, bare[0]], docker, blocks)
    assert blocks.times == 2
