"""The highest rate at which a server meets a goal: what is searched, and the study of the rates around it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tare.api.studies import weigh_study
from tare.base.errors import StudyError, TareError
from tare.base.text import heard_by
from tare.cli import ramp
from tare.cli.ramp import STEP, WITHIN, at_rates, ramp_goal, rate_text, rates_around, rates_to_try, search
from tare.plan.matrix import cells
from tare.studies.load import from_plain


@pytest.mark.parametrize("knee", [0.8, 9.0, 10.0, 437.0, 12_000.0])
def test_the_rate_is_found_from_below_or_above(knee: float) -> None:
    asked: list[float] = []

    def share_at(rate: float) -> float:
        asked.append(rate)
        return 0.999 if rate <= knee else 0.5

    found = search(share_at, 20.0, 0.99)

    assert found.met is not None and found.missed is not None
    assert found.met <= knee < found.missed <= found.met * (1 + WITHIN) * 1.001
    assert len(asked) == len(set(asked)) < 20
    assert rate_text("bare", found, "it is good").startswith(f"bare: up to {found.met:g}/s it is good (50 % at ")


def test_where_no_rate_meets_it_the_search_ends() -> None:
    found = search(lambda rate: 0.0, 64.0, 0.99)

    assert (found.met, found.missed) == (None, 1.0)
    assert rate_text("runc", found, "it is good") == ("runc: at no rate it is good (0 % at 1/s); not even 1/s meets it")


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
    assert ramp_goal(serving, 0.05) == pytest.approx(0.99)
    assert serving == {"goal": "300 ms", "count": 1000}
    assert ramp_goal({"goal": "p90<=0.5s", "count": 50}, 0.1) == pytest.approx(0.9)
    assert ramp_goal({"goal": "300ms"}, 0.01) is None and ramp_goal({}, 0.01) is None
    with pytest.raises(StudyError, match="5 % apart"):
        ramp_goal({"goal": "p99 < 300 ms"}, 0.02)


def test_sides_that_the_search_hardly_tells_apart_have_the_same_rates() -> None:
    rates = rates_around({"bare": 400.0, "runc": 412.0})

    assert rates["bare"] == rates["runc"] == [351.0, 387.0, 406.0, 426.0, 470.0]


def test_sides_far_apart_have_rates_of_their_own_and_the_lowest_in_common() -> None:
    rates = rates_around({"bare": 400.0, "runc": 200.0})

    assert min(rates["bare"]) == min(rates["runc"]) < 200 < max(rates["runc"]) < sorted(rates["bare"])[1]
    assert (len(rates["bare"]), len(rates["runc"])) == (6, 5)
    for own in rates.values():
        assert all(after > before * (1 + STEP) * 0.99 for before, after in pairwise(own))


@pytest.mark.parametrize("middles", [{"bare": 400.0, "runc": 400.0}, {"bare": 400.0, "runc": 200.0}])
def test_they_make_one_study_in_which_each_side_has_its_rates(middles: dict[str, float]) -> None:
    rates = rates_around(middles)
    server = {"argv": ["python3", "app.py"], "port": 8000, "goal": "300 ms", "count": 1000}

    work, more = at_rates({"server": server}, rates, 0.99)
    against = {"against": {"platform": "bare"}}
    study = weigh_study(
        work, ["bare", {"runc": {"network": "host"}}], against, blocks=None, margin=0.05, budget_s=140, more=more
    )

    planned: dict[str, list[float]] = {}
    for cell in cells(study):
        assert cell.settings["workload.goal_share"] == 0.99
        planned.setdefault(cell.settings["platform"], []).append(cell.settings["workload.rate"])
    assert planned == rates
    assert study.limit_s > 3 * 1000 / min(rates["bare"])
    assert from_plain(study.as_plain(), "again").as_plain() == study.as_plain()


def test_the_search_prints_one_line_for_each_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    knees, names = {"bare": 100.0, "runc": 60.0}, []

    def load(plain: dict[str, Any], folder: Path) -> dict[str, Any]:
        names.append(folder.name)
        level, rate = plain["platform"][0], plain["workload"]["server"].get("rate")
        side = level if isinstance(level, str) else next(iter(level))
        good = 1000 if rate is None or float(rate.removesuffix("/s")) <= knees[side] else 500
        return {"ok": 100, "seconds": 2.0, "good": good, "sent": 1000}

    monkeypatch.setattr(ramp, "_load", load)
    lines: list[str] = []
    with heard_by(lines.append):
        found = rates_to_try(["bare", {"runc": {}}], {"server": {"count": 1000}}, 0.99, tmp_path)

    assert all(min(rates) < knees[side] < max(rates) for side, rates in found.items())
    assert lines[0] == "  bare, 50/s: 100 % of the requests are good"
    assert len(lines) == len(set(lines)) == len(names) - 2 == len(set(names)) - 2


def test_where_a_side_meets_it_at_no_rate_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ramp, "_load", lambda *_: {"ok": 100, "seconds": 2.0, "good": 0, "sent": 1000})

    with heard_by(lambda text: None), pytest.raises(TareError, match="bare: at no rate 99 % of the requests are good"):
        rates_to_try(["bare"], {"server": {"count": 1000}}, 0.99, tmp_path)
