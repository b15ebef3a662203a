"""What becomes of a cause that was tried: by trials of both sides, of the slow one without it, the other with it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from analysis_figures import record
from tare.analysis.why.causes import (
    QUICK,
    SLOW,
    Wave,
    added,
    answer,
    facts_of,
    is_clear,
    judged_metric,
    phases,
    without,
)
from tare.base.errors import TareError
from tare.report.text.why import Told, answer_sentences, answer_text


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


def test_a_bundle_that_takes_the_cost_with_it_is_located_and_not_named():
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.01, without("threads"): 2.0}
    waves = [Wave(trials(times), {role: ROLES[role] for role in times})]
    found = answer(waves, margin=0.05, bundles={"cpu_quota", "threads"})

    assert {each.cause: each.outcome for each in found.tried} == {"cpu_quota": "located", "threads": "not it"}
    assert found.causes == () and not found.explained
    assert found.as_json()["located"] == ["cpu_quota"]


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


def test_further_blocks_of_the_same_sides_make_sure_what_the_first_left_open():
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.3}
    roles = {role: ROLES[role] for role in times}
    few, more = (Wave(trials(times, blocks=6, scatter=0.25, seed=seed), roles) for seed in (5, 105))

    first = answer([few], margin=0.05)
    both = answer([few.joined(more)], margin=0.05)

    assert [each.outcome for each in first.tried] == ["cannot tell"]
    assert first.open_for(["cpu_quota"]) == ["cpu_quota"] and not first.open_for(["threads"])
    assert both.total.n == 12
    assert [each.outcome for each in both.tried] == ["a part"] and not both.open_for(["cpu_quota"])


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


@pytest.mark.parametrize(
    ("slow_s", "second_quick_s", "clear"), [(3.0, 1.1, True), (1.3, 1.0, False), (3.0, 2.5, False)]
)
def test_a_first_look_is_clear_where_every_trial_of_the_slow_side_takes_much_longer(slow_s, second_quick_s, clear):
    first, second = (trials({QUICK: quick_s, SLOW: slow_s}, blocks=2, scatter=0.0) for quick_s in (1.0, second_quick_s))
    look = Wave([*first[:2], *second[2:]], {role: ROLES[role] for role in (QUICK, SLOW)})

    assert is_clear(look, "step_mean_s", 0.05) is clear
    assert not is_clear(look, "not_recorded_s", 0.05)


def test_a_first_look_with_a_side_that_failed_once_is_not_clear():
    records = trials({QUICK: 1.0, SLOW: 3.0}, blocks=2)
    assert not is_clear(Wave(records[:-1], {role: ROLES[role] for role in (QUICK, SLOW)}), "step_mean_s", 0.05)


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

    sentences = " ".join(answer_sentences(found, told))

    assert not found.explained
    assert "A part" in sentences and "`--cpus 2` gives 1.58x" in sentences
    assert "The rest is not explained: 1.6x slower than bare metal is left." in sentences


def test_the_answer_is_a_sentence_with_the_cure_and_what_it_gives():
    times = {QUICK: 1.0, SLOW: 2.1, without("cpu_quota"): 1.02}
    found = answer([Wave(trials(times), {role: ROLES[role] for role in times})], margin=0.05)
    told = Told(
        {"cpu_quota": "the CPU quota"}, {"cpu_quota": "a quota of 0.5 cores."}, {"cpu_quota": "--cpus 2"}, {}, {}
    )

    (sentence,) = answer_sentences(found, told)

    assert sentence.startswith("2.1x slower: it is the CPU quota: a quota of 0.5 cores. `--cpus 2` gives 1.01x [")


def test_what_was_not_looked_at_is_said_apart_from_who_was_ruled_out():
    times = {QUICK: 1.0, SLOW: 2.1, without("cpu_quota"): 1.02}
    found = answer([Wave(trials(times), {role: ROLES[role] for role in times})], margin=0.05)
    words = {"cpu_quota": "the CPU quota"}, {"cpu_quota": "a quota."}, {"cpu_quota": "--cpus 2"}
    told = Told(*words, {}, {"shm": "seen."}, (), {"ulimits": "nothing was recorded inside docker."})

    text = answer_text(found, told, 100)
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

    told = answer_text(found, Told({"threads": "threads"}, {"threads": "seen."}, {"threads": "cure"}, {}, {}), 100)
    assert "0.0015x [0.0015, 0.0015]" in told
    assert "1.48x" in told
