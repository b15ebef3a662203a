"""What becomes of a cause that was tried: by trials of both sides, of the slow one without it, the other with it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from analysis_figures import record
from tare.analysis.why.causes import (
    QUICK,
    SLOW,
    Wave,
    added,
    answer,
    disturbed,
    facts_of,
    judged_metric,
    phases,
    without,
)
from tare.analysis.why.proof import level_of
from tare.base.errors import TareError
from tare.base.rulings import Ruling
from tare.report.text.why import Told, answer_lines, answer_text


def settings(**fields: Any) -> dict[str, Any]:
    return {"platform": "runc", **{f"platform.{name}": value for name, value in fields.items()}}


ROLES = {
    QUICK: {"platform": "bare", "platform.quota": None},
    SLOW: settings(quota=0.5, env=None),
    without("cpu_quota"): settings(quota=None, env=None),
    without("threads"): settings(quota=0.5, env={"OMP_NUM_THREADS": "1"}),
}
BARE_WITH_QUOTA = {"platform": "bare", "platform.quota": 0.5}


def trials(times: dict[str, float], blocks: int = 8, scatter: float = 0.01, seed: int = 0) -> list[Any]:
    """Blocks in which each role takes its time, with some noise."""
    noise = random.Random(seed)
    roles = {**ROLES, added("cpu_quota"): BARE_WITH_QUOTA}
    return [
        record(
            block=block,
            step_s=None,
            settings=roles[role],
            metrics={"step_mean_s": seconds * (1 + noise.gauss(0, scatter)), "wall_s": 100 * seconds},
        )
        for block in range(blocks)
        for role, seconds in times.items()
    ]


def outcomes(times: dict[str, float], **options: Any) -> dict[str, str]:
    roles = {role: fields for role, fields in {**ROLES, added("cpu_quota"): BARE_WITH_QUOTA}.items() if role in times}
    found = answer([Wave(trials(times, **options), roles)], margin=0.05)
    return {each.cause: each.outcome for each in found.tried}


def test_what_takes_the_whole_cost_with_it_is_the_cause_and_what_changes_nothing_is_not():
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.01, without("threads"): 2.0}

    assert outcomes(times) == {"cpu_quota": "the cause", "threads": "not it"}


def test_a_trial_that_alone_in_its_block_was_throttled_is_left_out():
    times = {QUICK: 1.0, SLOW: 2.0}
    hot = Ruling("heat.throttled", "suspect", "cpu_throttled", "core0 rose by 2.")
    made = trials(times)
    made[1] = replace(made[1], state="suspect", reasons=(hot,), metrics={"step_mean_s": 9.0, "wall_s": 900.0})
    made[2:4] = [replace(each, state="suspect", reasons=(hot,)) for each in made[2:4]]  # the whole block
    wave = Wave(made, {role: ROLES[role] for role in times})

    assert answer([wave], margin=0.05).total.n == 7
    assert answer([wave], margin=0.05).total.effect == pytest.approx(1.0, abs=0.05)


def test_a_bundle_that_takes_the_cost_with_it_is_located_and_not_named():
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.01, without("threads"): 2.0}
    waves = [Wave(trials(times), {role: ROLES[role] for role in times})]
    found = answer(waves, margin=0.05, bundles={"cpu_quota", "threads"})

    assert {each.cause: each.outcome for each in found.tried} == {"cpu_quota": "located", "threads": "not it"}
    assert found.causes == () and not found.explained
    assert found.as_json()["located"] == ["cpu_quota"]
    said = dict(answer_lines(found, QUOTA))
    assert said["Cause"] == "it is in the CPU quota: a quota of 0.5 cores."
    assert said["Proof"].startswith("without it 99 %") and said["Left"] == "what of it costs is not known."
    assert "Change" not in said


def test_two_that_each_take_some_of_it_are_parts():
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.5, without("threads"): 1.4}

    assert outcomes(times) == {"cpu_quota": "a part", "threads": "a part"}


def test_noise_as_large_as_the_change_is_no_answer():
    times = {QUICK: 1.0, SLOW: 1.5, without("cpu_quota"): 1.3, without("threads"): 1.4}

    assert set(outcomes(times, scatter=0.4, blocks=6).values()) <= {"cannot tell"}


def test_without_a_way_to_remove_it_the_other_side_tells():
    roles = {QUICK: ROLES[QUICK], SLOW: ROLES[SLOW], added("cpu_quota"): BARE_WITH_QUOTA}
    found = answer([Wave(trials({QUICK: 1.0, SLOW: 2.0, added("cpu_quota"): 1.9}), roles)], margin=0.05)

    assert [each.outcome for each in found.tried] == ["a part"]


def test_what_few_blocks_leave_open_more_of_them_make_sure():
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.3}
    roles = {role: ROLES[role] for role in times}
    few, more = (Wave(trials(times, blocks=blocks, scatter=0.2, seed=5), roles) for blocks in (3, 12))

    first, both = answer([few], margin=0.05), answer([more], margin=0.05)

    assert [each.outcome for each in first.tried] == ["cannot tell"]
    assert first.open_for(["cpu_quota"]) == ["cpu_quota"] and not first.open_for(["threads"])
    assert both.total.n == 12
    assert [each.outcome for each in both.tried] == ["a part"] and not both.open_for(["cpu_quota"])


def test_a_difference_larger_than_all_scatter_is_sure_after_two_blocks():
    """An 8x slow-down, 98 against 12 ms in 5 of 5 blocks, was `cannot tell`."""
    times = {QUICK: 0.012, SLOW: 0.098, without("cpu_quota"): 0.0121}
    found = answer([Wave(trials(times, blocks=2, scatter=0.02), {role: ROLES[role] for role in times})], margin=0.05)

    assert found.total.verdict == "slower" and found.total.low is not None and found.total.low > 5
    assert [each.outcome for each in found.tried] == ["the cause"] and not found.open_for(["cpu_quota"])
    (tried,) = found.tried
    assert tried.share == pytest.approx(1.0, abs=0.05)
    assert tried.share_low is not None and tried.share_high is not None and tried.share_low < 1 < tried.share_high + 0.1


@pytest.mark.parametrize("lost", [0, 5, 9])
def test_a_lost_trial_is_a_hole_and_not_the_loss_of_the_answer(lost):
    """One bare trial of block 5 lost to foreign load made six blocks five, which were `too small for 95 %`."""
    times = {QUICK: 1.0, SLOW: 5.3, without("cpu_quota"): 1.02}
    records = trials(times, blocks=5, scatter=0.03)
    del records[lost]
    found = answer([Wave(records, {role: ROLES[role] for role in times})], margin=0.05)

    assert found.total.verdict == "slower"
    assert [each.outcome for each in found.tried] == ["the cause"]


@pytest.mark.parametrize(("brought", "outcome"), [(None, "does not run"), (1.9, "a part")])
def test_where_the_program_fails_without_it_the_other_side_tells_or_nobody(brought, outcome):
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.0, **({} if brought is None else {added("cpu_quota"): 1.9})}
    broken = (Ruling("workload.exit", "failed", "workload", "the workload ended with code 127."),)
    roles = {**{role: ROLES.get(role, BARE_WITH_QUOTA) for role in times}}
    records = [
        replace(each, state="failed", reasons=broken, metrics={})
        if each.settings.items() >= ROLES[without("cpu_quota")].items()
        else each
        for each in trials(times, blocks=4)
    ]
    found = answer([Wave(records, roles)], margin=0.05)

    assert [each.outcome for each in found.tried] == [outcome]
    assert not found.open_for(["cpu_quota"]) or outcome == "a part"


def test_a_side_that_other_processes_disturbed_each_time_still_counts():
    times = {QUICK: 1.0, SLOW: 5.3}
    why = (Ruling("cpu.foreign", "invalid", "cpu", "other processes used 40.0% of the device's CPU time."),)
    broken = (Ruling("work.incomplete", "invalid", "workload", "3 of 4 steps were done."),)
    good = trials(times, blocks=3)
    load, wrong = ([replace(each, state="invalid", reasons=reason) for each in good] for reason in (why, broken))
    roles = {role: ROLES[role] for role in times}

    assert answer([Wave(load, roles)], margin=0.05).total.verdict == "slower"
    assert (disturbed(load), disturbed(good)) == (6, 0)
    with pytest.raises(TareError, match="could be used"):
        answer([Wave(wrong, roles)], margin=0.05)


def test_a_side_that_two_waves_have_is_one_side():
    times = {QUICK: 1.0, SLOW: 2.0}
    waves = [Wave(trials(times, blocks=2, seed=seed), {role: ROLES[role] for role in times}) for seed in (1, 2)]

    assert answer(waves, margin=0.05).total.n == 4


def test_whoever_is_called_a_part_beside_one_that_explains_it_all_is_looked_at_again():
    """At a load of ten the network was accused beside a cold page cache, which alone was planted."""
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.01, without("threads"): 1.5}
    found = answer([Wave(trials(times), {role: ROLES[role] for role in times})], margin=0.05)

    assert [each.outcome for each in found.tried] == ["the cause", "a part"]
    assert found.open_for(["cpu_quota", "threads"]) == ["threads"]


@pytest.mark.parametrize(("left_s", "again"), [(1.8, ["cpu_quota"]), (1.4, [])])
def test_a_small_part_of_the_cost_is_looked_at_again_before_it_is_accused(left_s, again):
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): left_s}
    found = answer([Wave(trials(times), {role: ROLES[role] for role in times})], margin=0.05)

    assert [each.outcome for each in found.tried] == ["a part"]
    assert found.open_for(["cpu_quota"]) == again


def test_a_side_that_never_ran_is_an_error_and_not_an_answer():
    with pytest.raises(TareError, match="no trial of the slow side"):
        answer([Wave(trials({QUICK: 1.0}), {QUICK: ROLES[QUICK], SLOW: ROLES[SLOW]})], margin=0.05)


def test_a_few_wrong_accusations_at_most_where_nothing_costs():
    """Three hundred sets in which every role takes the same time: at most 5 % may be blamed, here and there."""
    times = dict.fromkeys((QUICK, SLOW, without("cpu_quota"), without("threads")), 1.0)
    blamed = [
        word in ("the cause", "a part")
        for seed in range(150)
        for word in outcomes(times, seed=seed, blocks=6, scatter=0.1).values()
    ]

    assert sum(blamed) <= 0.05 * len(blamed)


def test_the_step_is_judged_where_all_have_one_else_the_whole_run():
    with_steps = trials({QUICK: 1.0, SLOW: 2.0}, blocks=1)

    assert judged_metric(with_steps) == "step_mean_s"
    whole = record(step_s=None, metrics={"wall_s": 1.0})
    assert judged_metric([*with_steps, whole]) == "wall_s"


def test_two_costs_are_told_apart_when_the_second_is_tried_without_the_first():
    """Beside a cost of 10x one of 1.5x changes the whole by little; on what is left it is plain."""
    first = {QUICK: 1.0, SLOW: 10.5, without("cpu_quota"): 1.5}
    second = {QUICK: 1.0, without("cpu_quota"): 1.5, without("threads"): 1.0}
    on_top = {QUICK: ROLES[QUICK], SLOW: ROLES[without("cpu_quota")], without("threads"): ROLES[without("threads")]}
    waves = [
        Wave(trials(first), {role: ROLES[role] for role in first}),
        Wave(trials(second, seed=1), on_top, is_whole=False),
    ]

    before, after = answer(waves[:1], margin=0.05), answer(waves, margin=0.05)

    assert [(each.cause, each.outcome) for each in before.tried] == [("cpu_quota", "a part")]
    assert not before.explained
    assert {each.cause: each.outcome for each in after.tried} == {"cpu_quota": "a part", "threads": "a part"}
    assert after.explained
    assert [each.alone for each in after.tried] == [True, False]
    assert after.cured is not None and after.cured.effect == pytest.approx(0.0, abs=0.05)  # without both of them


def test_a_remainder_beyond_the_margin_is_not_explained_and_said():
    times = {QUICK: 1.0, SLOW: 3.0, without("cpu_quota"): 1.6}
    found = answer([Wave(trials(times), {role: ROLES[role] for role in times})], margin=0.05)
    told = Told(
        {"cpu_quota": "the CPU quota"}, {"cpu_quota": "a quota of 0.5 cores."}, {"cpu_quota": "--cpus 2"}, {}, {}
    )

    said = dict(answer_lines(found, told))

    assert not found.explained
    assert said["Part"] == "the CPU quota: a quota of 0.5 cores."
    assert said["Proof"].startswith("without it 58 % [56, 60] of the cost goes, in 8 blocks; 1.58x [")
    assert said["Left"] == "not all is explained: 1.6x slower than bare metal."


QUOTA = Told(
    {"cpu_quota": "the CPU quota", "seccomp": "the seccomp filter", "threads": "the number of threads"},
    {"cpu_quota": "a quota of 0.5 cores.", "seccomp": "Docker's filter.", "threads": "16 threads."},
    {"cpu_quota": "--cpus 2", "seccomp": "--security-opt seccomp=unconfined", "threads": "-e OMP_NUM_THREADS=2"},
    {"seccomp": "the cost was explained before."},
    {"network": "no time was spent waiting."},
    offered=("cpu_quota", "threads"),
)


def test_the_answer_is_five_lines_and_what_was_ruled_out_is_only_told_on_demand():
    times = {QUICK: 1.0, SLOW: 2.1, without("cpu_quota"): 1.02}
    found = answer([Wave(trials(times), {role: ROLES[role] for role in times})], margin=0.05)

    said = dict(answer_lines(found, QUOTA))
    assert list(said) == ["Slower", "Cause", "Proof", "Change", "Left"]
    assert said["Slower"].startswith("2.1x slower [2.0")
    assert said["Cause"] == "the CPU quota: a quota of 0.5 cores."
    assert said["Proof"].startswith("without it 99 % [9") and "1.01x [" in said["Proof"]
    assert said["Change"] == "--cpus 2"
    assert "no time was spent" not in answer_text(found, QUOTA, 80)
    in_full = answer_text(found, QUOTA, 80, verbose=True)
    assert "network: no time was spent waiting." in in_full
    assert "seccomp: Docker's filter." in in_full and "unconfined" not in in_full


def test_what_is_sure_and_what_is_not_is_marked_and_the_best_suspect_has_its_change():
    """Stopped after four minutes, it printed neither the cause nor the change that it had found after one."""
    times = {QUICK: 1.0, SLOW: 5.3}
    found = answer([Wave(trials(times, blocks=3), {role: ROLES[role] for role in times})], margin=0.05)

    said = dict(answer_lines(found, QUOTA, marked=True))
    assert said["Slower (sure)"].startswith("5.3x slower")
    assert said["Suspect (not yet proved)"] == "the CPU quota: a quota of 0.5 cores."
    assert said["Try"] == "--cpus 2"


def test_a_change_that_takes_a_protection_away_is_not_offered_before_it_is_proved():
    times = {QUICK: 1.0, SLOW: 5.3}
    found = answer([Wave(trials(times, blocks=3), {role: ROLES[role] for role in times})], margin=0.05)
    only = replace(QUOTA, evidence={"seccomp": "Docker's filter."})

    assert "Suspect (not proved): the seccomp filter" in answer_text(found, only, 80, verbose=True)
    assert "unconfined" not in answer_text(found, only, 80, verbose=True)


def test_what_was_not_looked_at_is_said_apart_from_who_was_ruled_out():
    times = {QUICK: 1.0, SLOW: 2.1, without("cpu_quota"): 1.02}
    found = answer([Wave(trials(times), {role: ROLES[role] for role in times})], margin=0.05)
    words = {"cpu_quota": "the CPU quota"}, {"cpu_quota": "a quota."}, {"cpu_quota": "--cpus 2"}
    told = Told(*words, {}, {"shm": "seen."}, (), {"ulimits": "nothing was recorded inside docker."})

    text = answer_text(found, told, 100, verbose=True)
    assert text.endswith("ruled out:\n  shm: seen.\n\nnot looked at:\n  ulimits: nothing was recorded inside docker.")


def test_where_the_time_goes_adds_up_and_the_largest_comes_first():
    quick = {"wall_s": 10.0, "steps": 100.0, "step_mean_s": 0.05, "stall_mean_s": 0.01, "compute_mean_s": 0.04}
    slow = {"wall_s": 16.0, "steps": 100.0, "step_mean_s": 0.10, "stall_mean_s": 0.05, "compute_mean_s": 0.05}

    assert [(each.name, round(each.share, 3)) for each in phases(slow, quick)] == [
        ("data", 0.667), ("compute", 0.167), ("start-up", 0.167),
    ]  # fmt: skip
    assert [each.name for each in phases(slow, quick, "step_mean_s")] == ["data", "compute"]
    assert phases(quick, slow) == ()


def test_rare_long_steps_are_the_tail():
    quick = {"steps": 100.0, "step_mean_s": 0.011, "step_s": 0.010}
    slow = {"steps": 100.0, "step_mean_s": 0.020, "step_s": 0.010}

    assert [each.name for each in phases(slow, quick, "step_mean_s")] == ["tail"]


@pytest.mark.parametrize("argv", ['["app", "--threads", "4"]', ["app", "--threads", "4"], "app --threads 4"])
def test_the_command_line_and_what_a_server_had_are_among_the_facts_of_a_side(argv: Any):
    one = record(settings={"platform": "runc", "workload.argv": argv}, facts={"served": {"cores": 1, "threads": 9}})

    found = facts_of([one])
    assert found["command.words"] == ["app", "--threads", "4"]
    assert (found["served.cores"], found["served.threads"]) == (1, 9)
    assert facts_of([record(settings={"platform": "runc"})])["command.words"] == []


def test_ratios_far_from_one_are_written_with_the_digits_that_they_have():
    times = {QUICK: 1.0, SLOW: 1000.0, without("threads"): 1.5}
    roles = {role: fields for role, fields in ROLES.items() if role in times}
    found = answer([Wave(trials(times), roles)], margin=0.05)

    told = answer_text(found, QUOTA, 100, verbose=True)
    assert "0.0015x [0.0015, 0.0015]" in told
    assert "1.48x" in told


def test_of_a_rate_the_lower_side_is_the_slower_one_and_what_restores_it_is_the_cause():
    roles = {role: ROLES[role] for role in (QUICK, SLOW, without("cpu_quota"), without("threads"))}
    rates = {QUICK: 100.0, SLOW: 50.0, without("cpu_quota"): 99.0, without("threads"): 50.0}
    noise = random.Random(1)
    made = [
        record(
            block=block, step_s=None, settings=roles[role], metrics={"throughput": rate * (1 + noise.gauss(0, 0.01))}
        )
        for block in range(6)
        for role, rate in rates.items()
    ]
    found = answer([Wave(made, roles)], margin=0.05, metric="throughput")

    assert found.total.verdict == "slower" and found.total.effect == pytest.approx(-0.5, abs=0.02)
    assert {each.cause: each.outcome for each in found.tried} == {"cpu_quota": "the cause", "threads": "not it"}
    assert round(found.total.ours.value) == 50 and round(found.total.theirs.value) == 100


def test_a_suspect_that_is_tried_twice_is_judged_more_strictly_the_second_time():
    times = {QUICK: 1.0, SLOW: 2.0, without("threads"): 2.0}
    wave = Wave(trials(times), {role: ROLES[role] for role in times})
    once, twice = (answer([wave] * count, margin=0.05).tried[0].removed.confidence for count in (1, 2))

    assert 1 - twice == pytest.approx((1 - once) / 3)


def test_where_two_figures_are_judged_they_share_what_may_be_wrong():
    times = {QUICK: 1.0, SLOW: 2.0}
    wave = Wave(trials(times), {role: ROLES[role] for role in times})
    step, whole = (
        answer([wave], margin=0.05, metric=name, share=share).total.confidence
        for name, share in (("step_mean_s", 0.75), ("wall_s", 0.25))
    )

    assert (1 - step) + (1 - whole) == pytest.approx(level_of(12))
