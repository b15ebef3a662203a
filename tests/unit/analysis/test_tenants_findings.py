"""What sharing cost, from records made to order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis_figures import record
from metered import Held
from some_records import because
from tare.analysis.resources.tenants import Tenants, jain, sharing
from tare.analysis.selection import request
from tare.analysis.weighing import contrasts
from tare.base.errors import StudyError
from tare.records.model import Record
from tare.report.sections import answer_text


def text(records: list[Record], width: int = 80) -> str:
    return answer_text(Tenants().answer(Held(records)), width)


def blocks(tenants: object, factors: tuple[float, ...], n: int = 8, platform: str = "bare") -> list[Record]:
    """Trials in which tenant i takes 2 ms x its factor, with 1 % of noise."""
    rng = np.random.default_rng(len(factors))
    made = []
    for block in range(n):
        times = [0.002 * factor * float(np.exp(rng.normal(0, 0.01))) for factor in factors]
        metrics = {f"tenant{number}_step_s": time for number, time in enumerate(times)} | {"overlap_s": 5.0}
        more = {} if tenants == 1 else metrics
        made.append(record(platform, block, times[0], settings={"tenants": tenants}, metrics=more))
    return made


def test_each_tenant_is_compared_with_the_workload_alone() -> None:
    (found,) = sharing([*blocks(1, (1.0,)), *blocks(2, (1.5, 2.0))])

    assert found.tenants == "2"
    assert [one.level for one in found.slowdowns] == ["tenant 0", "tenant 1"]
    assert [one.effect for one in found.slowdowns] == pytest.approx([0.5, 1.0], abs=0.05)
    assert {one.verdict for one in found.slowdowns} == {"slower"}


def test_fairness_is_one_for_equals_and_falls_with_inequality() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    (found,) = sharing([*blocks(1, (1.0,)), *blocks(2, (1.0, 3.0))])

    assert found.fairness is not None
    assert found.fairness.value == pytest.approx(0.8, abs=0.02)


def test_of_different_workloads_only_the_measured_one_is_compared_with_itself() -> None:
    (found,) = sharing([*blocks(1, (1.0,)), *blocks("beside torch_infer", (1.2, 9.0))])

    assert [one.level for one in found.slowdowns] == ["tenant 0"]
    assert found.fairness is None


def test_platforms_are_kept_apart() -> None:
    both = [
        each
        for name in ("bare", "docker")
        for each in (*blocks(1, (1.0,), platform=name), *blocks(2, (2, 2), platform=name))
    ]

    assert [one.where for one in sharing(both)] == ["bare", "docker"]


def test_without_the_workload_alone_nothing_is_compared_and_that_is_said() -> None:
    records = blocks(4, (2.0, 2.0, 2.0, 2.0))

    assert sharing(records)[0].slowdowns == ()
    assert text(records).startswith("4 tenants\n\nNo usable trial of one tenant alone")


def test_a_store_without_tenants_is_told_how_to_ask_for_them() -> None:
    with pytest.raises(StudyError, match="more than one tenant"):
        sharing(blocks(1, (1.0,)))


def test_the_text_fits_the_terminal_and_names_every_tenant() -> None:
    told = text([*blocks(1, (1.0,)), *blocks(2, (1.5, 2.0))])

    assert max(map(len, told.splitlines())) <= 80
    assert "tenant 1" in told
    assert "Fairness" in told


def test_names_of_levels_are_words_that_are_never_cut_and_name_only_what_differs() -> None:
    limited = "beside finetune in bare (cpu_shares 2)"
    own = {
        "bare": {"platform.direct": False},
        "runc": {"platform.isolation": ["pid", "ipc"], "platform.network": "none"},
    }
    trials = [
        replace(each, settings={**each.settings, **own[name]})
        for name in ("bare", "runc")
        for level, factor in ((1, 1.0), ("beside finetune in bare", 2.0), (limited, 1.5))
        for each in blocks(level, (factor,), platform=name)
    ]

    lines = text(trials).splitlines()

    assert "runc, beside fine-tuning on bare metal" in lines
    assert "bare, beside fine-tuning on bare metal (cpu shares 2)" in lines
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    narrow = text(trials, 50)
    assert narrow.count("slower") == 4


def test_a_twin_counts_as_it_does_for_compare_and_is_no_further_speed() -> None:
    alone, shared = blocks(1, (1.0,)), blocks(2, (1.5, 2.0))
    twins = [
        replace(one, trial=f"{one.trial}-twin", twin=1, metrics={k: 1.1 * v for k, v in one.metrics.items()})
        for one in shared[::2]
    ]

    records = [*alone, *shared, *twins]
    (found,) = sharing(records)

    (asked,) = contrasts(records, request({}, records, by="tenants", against="1", metric="step_s")).headline
    assert found.slowdowns[0].effect == pytest.approx(asked.effect)
    assert found.fairness is not None and found.fairness.n == len(shared)


def test_trials_with_several_tenants_that_all_failed_are_counted_with_the_first_reason() -> None:
    failed = [
        replace(each, state="failed", reasons=(because("tenant 1 ran out of memory."),))
        for each in blocks(2, (1, 1), n=3)
    ]

    with pytest.raises(
        StudyError, match=r"none of this store's 3 trials with several .* tenant 1 ran out of memory\. "
    ):
        sharing([*blocks(1, (1.0,)), *failed])


def test_a_trial_without_a_step_time_says_so() -> None:
    (trial,) = blocks(2, (1, 1), n=1)

    with pytest.raises(StudyError, match=r"none of this store's 1 trial with several .* it has no step_s"):
        sharing([replace(trial, metrics={})])
