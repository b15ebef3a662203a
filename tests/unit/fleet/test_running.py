"""A run over a fleet, decision by decision: a cluster and devices that are pretended, a store that is real."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pretended_fleet import NEVER, Scene
from stand_in_parts import stand_ins
from tare.base.errors import TareError
from tare.fleet import on_device, schedule
from tare.fleet.cluster import SchedulerGone, WorkerLost
from tare.fleet.inventory import Device, factors, planned_on
from tare.plan.matrix import cells, trials
from tare.records.store import Store
from tare.studies.load import loads


@pytest.fixture
def scene(tmp_path):
    with stand_ins():
        yield Scene(tmp_path)


def test_every_device_runs_the_whole_plan_once_and_a_second_run_runs_nothing(scene):
    outcome, _ = scene.run()
    assert (outcome.done, outcome.left, outcome.why) == (6, 0, "all planned trials are done")
    assert scene.states() == {"one": ["ok"] * 3, "two": ["ok"] * 3}
    assert not set(scene.devices["one"].ran) & set(scene.devices["two"].ran)
    assert scene.run()[0].done == 0
    assert len(scene.devices["one"].ran) == 3
    assert len(set(scene.cluster.keys)) == len(scene.cluster.keys)


def test_a_worker_that_dies_is_replaced_and_the_device_is_asked_about_the_same_claim(scene):
    scene.devices["one"].mishaps = {2: WorkerLost("killed")}
    outcome, _ = scene.run()
    assert outcome.done == 6
    assert scene.cluster.replaced == ["one"]
    assert len(scene.devices["one"].ran) == 3
    assert scene.ledger("one") == ["try", "answered", "try", "worker lost", "again", "answered", "try", "answered"]


def test_a_device_that_is_out_of_reach_is_given_up_and_the_next_run_goes_on_with_it(scene):
    lost = {"ended": "unreachable", "text": "no line", "broken": ["no line"]}
    scene.devices["one"].mishaps = {2: lost}
    outcome, fleet = scene.run()
    assert (outcome.done, outcome.left) == (4, 2)
    assert {name: str(why) for name, why in fleet.drained.items()} == {"one": "one: no line"}
    assert scene.states() == {"one": ["ok"], "two": ["ok"] * 3}
    assert scene.run()[0].done == 2
    assert scene.states() == {"one": ["ok"] * 3, "two": ["ok"] * 3}


@pytest.mark.parametrize(("away_s", "again"), [(30, 1), (3600, 2)])
def test_a_block_that_a_device_left_half_done_long_ago_is_run_again_whole_on_it_alone(
    scene, monkeypatch, away_s, again
):
    """Both sides of a block on one device are a pair; an hour later the one that ran is run again with the other."""
    lost = {"ended": "unreachable", "text": "no line", "broken": ["no line"]}
    sides = {"platform": ["bare", "docker"], "repeat": 2}
    scene.devices["one"].mishaps = {4: lost}  # the second trial of its second block
    assert scene.run(**sides)[0].left == 1
    began = time.time()
    monkeypatch.setattr(schedule.time, "time", lambda: began + away_s)
    before = {name: list(device.ran) for name, device in scene.devices.items()}
    assert scene.run(**sides)[0].done == again
    ran = {name: device.ran[len(before[name]) :] for name, device in scene.devices.items()}
    assert (len(ran["one"]), ran["two"]) == (again, [])
    assert (before["one"][-1] in ran["one"]) == (again == 2)  # the one that was done is of the same block
    assert len(scene.states()["one"]) == 3 + again  # both attempts are kept
    assert ("one: block 1: the rest of it ran 1 h" in str(scene.told.notes)) == (again == 2)
    assert scene.run(**sides)[0].done == 0


def test_a_device_runs_a_trial_again_only_if_it_is_told_to(tmp_path, monkeypatch):
    with stand_ins():
        study = loads("study: s\nplatform: bare\nworkload: 'null'\nrepeat: 1\naa: false\n", "s.yaml")
        device = factors(Device(name="one", address="one"))
        (trial,) = planned_on(study, device)
        asked = {"trial": trial.id, "device": device, "store": "s-1", "python": None}
        wanted = []
        monkeypatch.setattr(on_device, "state_dir", lambda: tmp_path)
        monkeypatch.setattr(on_device, "run_study", lambda *_, again, **__: wanted.append(again))
        for told in ({}, {"again": True}):
            on_device.run_here({**asked, **told}, study)
    assert wanted == [False, True]


def test_a_trial_that_dies_on_its_device_is_tried_once_more_and_then_the_device_is_given_up(scene):
    died = {"ended": "answered", "said": {"code": None, "text": "killed."}, "records": b"", "broken": []}
    scene.devices["one"].mishaps = {1: died}
    assert scene.run()[0].done == 6
    assert scene.ledger("one")[:4] == ["try", "answered", "try", "answered"]
    scene.devices["two"].mishaps = {4: dict(died), 5: dict(died)}
    outcome, fleet = scene.run(repeat=4)
    assert outcome.done == 1
    assert "killed." in str(fleet.drained["two"])


@pytest.mark.parametrize("code", [4, 70, 75, 3])
def test_a_device_that_cannot_go_on_is_given_up_at_once_with_its_own_words(scene, code):
    full = {"ended": "answered", "said": {"code": code, "text": "no space left."}, "records": b"", "broken": []}
    scene.devices["one"].mishaps = {1: full}
    outcome, fleet = scene.run()
    assert (outcome.done, outcome.left) == (3, 3)
    assert {name: str(why) for name, why in fleet.drained.items()} == {"one": "one: no space left."}
    assert scene.devices["one"].ran == []


def test_the_same_failure_again_and_again_gives_up_that_device_only(scene):
    scene.devices["one"].mishaps = dict.fromkeys(range(1, 9), "failed")
    _, fleet = scene.run(repeat=8)
    assert "in a row failed in the same way" in str(fleet.drained["one"])
    assert len(scene.devices["one"].ran) < 8
    assert scene.states()["two"] == ["ok"] * 8


def test_a_scheduler_that_is_gone_ends_the_run_with_a_sentence(scene):
    scene.devices["two"].mishaps = {2: SchedulerGone()}
    with pytest.raises(TareError, match="the same command collects them"):
        scene.run()


def test_the_device_is_a_factor_and_part_of_the_trials_id(scene):
    study = scene.study()
    plain = trials(study, cells(study))
    one = planned_on(study, factors(Device(name="one", address="x", type="board")))
    assert one[0].settings["device"] == "one"
    assert one[0].settings["device.type"] == "board"
    assert "device" not in plain[0].settings
    assert not {trial.id for trial in plain} & {trial.id for trial in one}
    assert loads(json.dumps(study.as_plain())) == study  # the plan that a device makes of what it is sent


def test_a_device_with_another_plan_says_so(scene):
    request = {"device": [["device", "one"]], "trial": "nope"}
    with pytest.raises(TareError, match="another plan on this device"):
        on_device._the_trial(request, scene.study())


def test_an_old_record_is_not_taken_for_the_answer_to_a_new_question(scene):
    scene.devices["one"].mishaps = {1: "interrupted", 2: "interrupted"}
    assert "died there 2 times" in str(scene.run(repeat=1)[1].drained["one"])
    # The device's store is a new one: its first attempt is called as the one that is here, so that it is not sent.
    scene.devices["one"].store = Store.create(scene.root / "one again", {"study": "s"}, "")
    outcome, fleet = scene.run(repeat=1)
    assert (outcome.done, outcome.left) == (0, 1)
    assert "without a record that is new here" in str(fleet.drained["one"])
    assert scene.states()["one"] == ["interrupted", "interrupted"]


def test_a_trial_that_was_asked_to_stop_is_not_done_whatever_the_device_says_of_it(scene):
    scene.devices["one"].mishaps = {1: "interrupted"}  # a device that is shut down in order: with a record, and code 0
    outcome, _ = scene.run(repeat=1)
    assert (outcome.done, outcome.left) == (2, 0)
    assert scene.states() == {"one": ["interrupted", "ok"], "two": ["ok"]}
    assert scene.ledger("one") == ["try", "answered", "try", "answered"]
    assert ("one", "interrupted") not in scene.told.ended_


def test_a_trial_that_fails_again_is_done_though_failed_ones_were_asked_for_again(scene):
    scene.devices["one"].mishaps = {1: "failed", 2: "failed"}
    scene.run(repeat=1)
    outcome, fleet = scene.run(repeat=1, retry_failed=True)
    assert (outcome.done, outcome.left, fleet.drained) == (1, 0, {})
    assert scene.states()["one"] == ["failed", "failed"]


def test_a_trial_that_dies_after_ctrl_c_is_left_and_not_begun_again(scene):
    def dies() -> dict[str, Any]:
        scene.interruption.asked = 1
        return {"ended": "answered", "said": {"code": None, "text": "killed."}, "records": b"", "broken": []}

    scene.devices["one"].mishaps = {2: dies}
    outcome, fleet = scene.run()
    assert outcome.interrupted
    assert fleet.drained == {}
    assert len(scene.devices["one"].claims) == 2
    assert outcome.left == 6 - outcome.done


@pytest.mark.parametrize("error", [OSError(11, "Try again"), ValueError("no JSON"), TimeoutError()])
def test_whatever_goes_wrong_with_one_device_is_its_own_and_the_others_go_on(scene, error):
    scene.devices["one"].mishaps = {2: error}
    outcome, fleet = scene.run()
    assert (outcome.done, outcome.left) == (4, 2)
    assert type(error).__name__ in str(fleet.drained["one"])
    assert scene.states()["two"] == ["ok"] * 3


def test_a_device_that_says_it_was_not_restored_is_named_until_a_trial_has_ended_there(scene):
    said = {"code": 70, "text": "dirty.ratio is still 5."}
    scene.devices["one"].mishaps = {2: {"ended": "answered", "said": said, "records": b"", "broken": []}}
    _, fleet = scene.run()
    assert [device.name for device in fleet.not_restored] == ["one"]
    assert scene.run()[1].not_restored == []


def test_a_trial_that_never_ends_gives_up_its_device_without_a_second_try(scene, monkeypatch):
    now_s = iter(range(0, 10**9, 600))
    monkeypatch.setattr("tare.fleet.exchange.time", SimpleNamespace(monotonic=lambda: next(now_s)))
    scene.devices["one"].looks = {"run": NEVER}
    outcome, fleet = scene.run(limit="10 min")
    assert "longer than its trial may take" in str(fleet.drained["one"])
    assert scene.ledger("one") == ["try", "skipped"]
    assert (outcome.done, outcome.left) == (3, 3)


def test_the_trial_that_a_device_is_given_up_after_is_done_and_not_left(scene):
    scene.devices["one"].mishaps = dict.fromkeys(range(1, 9), "failed")
    outcome, fleet = scene.run(repeat=8)
    ran = len(scene.devices["one"].ran)
    assert (outcome.done, outcome.left) == (8 + ran, 8 - ran)
    assert fleet.drained


def test_a_device_that_was_given_up_is_also_told_of_where_the_others_were_enough(scene, monkeypatch):
    monkeypatch.setattr("tare.fleet.schedule.is_enough", lambda store, until: True)
    scene.devices["one"].mishaps = {2: {"ended": "unreachable", "text": "no line", "broken": []}}
    outcome, _ = scene.run(repeat={"min": 6, "max": 9, "until": "1 %"})
    assert (outcome.done, outcome.left) == (7, 5)
    assert outcome.why.startswith("tight enough after 6 blocks")
    assert "1 of 2 devices were skipped; 5 trials are left" in outcome.why


def test_whether_another_block_fits_is_told_by_the_blocks_of_this_run(scene, monkeypatch):
    scene.run(repeat={"min": 4, "max": 4})
    now_s = iter(float(second) for second in range(0, 10_000, 6))
    monkeypatch.setattr("tare.fleet.run.time", SimpleNamespace(monotonic=lambda: next(now_s)))
    outcome, _ = scene.run(repeat={"min": 4, "max": 12, "within": "20 s"})
    # Four blocks were there already. 12 s after the begin there is one more: with a second it would be 24 s.
    assert "would not fit" in outcome.why
    assert outcome.done == 2
