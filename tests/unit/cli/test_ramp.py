"""The highest rate at which a server meets a goal: what is searched, and what is said."""

from __future__ import annotations

import pytest

from tare.base.errors import TareError
from tare.cli.ramp import WITHIN, ramp_goal, rate_text, search


@pytest.mark.parametrize("knee", [0.8, 9.0, 10.0, 437.0, 12_000.0])
def test_the_rate_is_found_to_within_five_percent_from_below_or_above(knee: float) -> None:
    asked: list[float] = []

    def share_at(rate: float) -> float:
        asked.append(rate)
        return 0.999 if rate <= knee else 0.5

    found = search(share_at, 20.0, 0.99)

    assert found.met is not None and found.missed is not None
    assert found.met <= knee < found.missed <= found.met * (1 + WITHIN) * 1.001
    assert len(asked) == len(set(asked)) < 20
    assert rate_text("bare", found, "it is good").startswith(f"bare: up to {found.met:g}/s it is good (50.0% at ")


def test_where_no_rate_meets_it_the_search_ends() -> None:
    found = search(lambda rate: 0.0, 64.0, 0.99)

    assert (found.met, found.missed) == (None, 1.0)
    assert rate_text("runc", found, "it is good") == (
        "runc: at no rate it is good (0.0% at 1/s); not even 1/s meets it"
    )


def test_a_rate_that_cannot_be_measured_ends_it_with_the_reason() -> None:
    def share_at(rate: float) -> float:
        if rate > 100:
            raise TareError("the load generator was the bottleneck.")
        return 1.0

    found = search(share_at, 30.0, 0.99)

    assert (found.met, found.missed) == (60.0, None)
    assert "120/s could not be measured: the load generator" in rate_text("bare", found, "")


def test_a_goal_with_a_percentile_is_one_that_is_searched_for() -> None:
    serving = {"goal": "p99 < 300 ms"}
    assert ramp_goal(serving) == pytest.approx(0.99)
    assert serving == {"goal": "300 ms", "count": 1000}
    assert ramp_goal({"goal": "p90<=0.5s", "count": 50}) == pytest.approx(0.9)
    assert ramp_goal({"goal": "300ms"}) is None and ramp_goal({}) is None
