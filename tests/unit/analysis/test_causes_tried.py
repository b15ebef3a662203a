"""What becomes of a cause that was tried: by trials of both sides, of the slow one without it, the other with it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from analysis_figures import record
from tare.analysis.why.causes import QUICK, SLOW, added, answer, judged_metric, phases, without
from tare.base.errors import TareError


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
    found = answer(trials(times, **options), roles, margin=0.05)
    return {each.cause: each.outcome for each in found.tried}


def test_what_takes_the_whole_cost_with_it_is_the_cause_and_what_changes_nothing_is_not():
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.01, without("threads"): 2.0}

    assert outcomes(times) == {"cpu_quota": "the cause", "threads": "not it"}


def test_two_that_each_take_some_of_it_are_parts():
    times = {QUICK: 1.0, SLOW: 2.0, without("cpu_quota"): 1.5, without("threads"): 1.4}

    assert outcomes(times) == {"cpu_quota": "a part", "threads": "a part"}


def test_noise_as_large_as_the_change_is_no_answer():
    times = {QUICK: 1.0, SLOW: 1.5, without("cpu_quota"): 1.3, without("threads"): 1.4}

    assert set(outcomes(times, scatter=0.4, blocks=6).values()) <= {"cannot tell"}


def test_without_a_way_to_remove_it_the_other_side_tells():
    roles = {QUICK: ROLES[QUICK], SLOW: ROLES[SLOW], added("cpu_quota"): BARE_WITH_QUOTA}
    found = answer(trials({QUICK: 1.0, SLOW: 2.0, added("cpu_quota"): 1.9}), roles, margin=0.05)

    assert [each.outcome for each in found.tried] == ["a part"]


def test_a_side_that_never_ran_is_an_error_and_not_an_answer():
    with pytest.raises(TareError, match="no trial of the slow side"):
        answer(trials({QUICK: 1.0}), {QUICK: ROLES[QUICK], SLOW: ROLES[SLOW]}, margin=0.05)


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


def test_where_the_time_goes_adds_up_and_the_largest_comes_first():
    quick = {"wall_s": 10.0, "steps": 100.0, "step_mean_s": 0.05, "stall_mean_s": 0.01, "compute_mean_s": 0.04}
    slow = {"wall_s": 16.0, "steps": 100.0, "step_mean_s": 0.10, "stall_mean_s": 0.05, "compute_mean_s": 0.05}

    found = phases(slow, quick)

    assert [(each.name, round(each.share, 3)) for each in found] == [
        ("data", 0.667), ("start and end", 0.167), ("compute", 0.167),
    ]  # fmt: skip
    assert phases(quick, slow) == ()
