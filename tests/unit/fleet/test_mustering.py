"""Who takes part in a run over a fleet, and who comes later: a cluster and devices that are pretended."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pretended_fleet import NEVER, Scene
from stand_in_parts import stand_ins
from tare.base.errors import ObstacleError, StudyError
from tare.fleet.exchange import factors, planned_on
from tare.fleet.incoming import Ledger
from tare.fleet.inventory import Device

FULL = "no space left on this device: 3 MiB free."


@pytest.fixture
def scene(tmp_path, monkeypatch):
    monkeypatch.setattr("tare.fleet.readiness._GRACE_S", 0.0)
    with stand_ins():
        yield Scene(tmp_path)


@pytest.fixture
def left(scene):
    """One trial is done on each; then the controller died, while the first device was at its second."""
    scene.run(repeat=1)
    scene.was_left_at_a_trial("one")
    scene.cluster.looks = 0
    for device in scene.devices.values():
        device.asked.clear()
        device.ran.clear()
    return scene


def test_one_device_that_cannot_run_the_study_keeps_all_from_running(scene):
    scene.devices["two"].eligibility = {"obstacles": ["no docker here."]}
    with pytest.raises(ObstacleError, match="two: no docker here"):
        scene.run()
    assert scene.devices["one"].ran == []


def test_what_a_device_finished_after_an_earlier_run_is_taken_in_and_not_run_again(scene):
    one = Device(name="one", address="one", type="board")
    trial = planned_on(scene.study(), factors(one))[0]
    scene.devices["one"].run({"trial": trial.id, "device": [["device", "one"]]}, "ok")
    assert scene.run()[0].done == 5
    assert scene.states()["one"] == ["ok"] * 3
    assert scene.devices["one"].ran.count(trial.id) == 1


def test_a_device_is_collected_from_before_anything_else_is_asked_of_it(scene):
    scene.run(repeat=1)
    assert scene.devices["one"].asked == ["collect", "engine", "run"]


def test_a_full_disk_is_its_devices_own_and_the_others_run(scene):
    scene.devices["one"].eligibility = {"obstacles": [], "own": [FULL]}
    outcome, fleet = scene.run()
    assert {name: str(why) for name, why in fleet.drained.items()} == {"one": f"one: {FULL}"}
    assert (outcome.done, outcome.left) == (3, 3)
    assert scene.states() == {"two": ["ok"] * 3}


def test_where_every_device_is_left_out_nothing_is_run_and_that_is_said(scene):
    for device in scene.devices.values():
        device.eligibility = {"obstacles": [], "own": [FULL]}
    with pytest.raises(ObstacleError, match="no device can run it now"):
        scene.run()


@pytest.mark.parametrize(
    "says",
    [
        {"collect": {}},
        {"collect": {"endings": [3]}},
        {"engine": {"code": 0, "out": "[]", "err": ""}},
        {"engine": {"code": 0, "out": "Welcome to this board", "err": ""}},
        {"engine": {"code": 0, "out": "[" * 100_000, "err": ""}},
        {"engine": {"code": 0, "out": '{"lacking": ' + "[" * 900 + "]" * 900 + "}", "err": ""}},
        {"engine": {"code": None, "out": "", "err": ""}},
        {"engine": {"code": 124, "out": "", "err": "no answer within 120 s"}},
        {"engine": OSError(12, "Cannot allocate memory")},
        {"collect": TypeError("the answer is no object")},
    ],
)
def test_a_device_whose_answer_makes_no_sense_or_never_came_is_left_out_alone(scene, says: dict[str, Any]):
    scene.devices["one"].says = says
    outcome, fleet = scene.run()
    assert list(fleet.drained) == ["one"]
    assert outcome.done == 3


def test_an_engine_that_is_not_there_is_an_obstacle(scene):
    scene.devices["one"].says = {"engine": {"code": 127, "out": "", "err": "no such file"}}
    with pytest.raises(ObstacleError, match=r"one: tare does not answer there \(code 127\)"):
        scene.run()


def test_a_device_that_is_still_at_a_trial_holds_up_no_other_and_joins_when_it_has_ended(left):
    one, two = left.devices["one"], left.devices["two"]
    one.looks = {"collect": 12}
    begun: list[int] = []
    left.cluster.at_looks = {12: lambda: begun.append(len(two.ran))}
    outcome, fleet = left.run()
    assert begun == [2]  # the other one has run all that it had to, and this one has not been asked anything else
    assert one.asked == ["collect", "engine", "run", "run"]
    assert (outcome.done, outcome.left, fleet.drained) == (4, 0, {})
    assert left.states() == {"one": ["ok"] * 3, "two": ["ok"] * 3}


def test_what_a_device_brings_that_comes_later_is_not_run_again(left):
    one = left.devices["one"]
    planned = planned_on(left.study(), factors(Device(name="one", address="one", type="board")))
    (trial, *_) = (trial for trial in planned if trial.block == 1)
    one.run({"trial": trial.id, "device": [["device", "one"]]}, "ok")
    one.looks = {"collect": 6}
    outcome, _ = left.run()
    assert (outcome.done, outcome.left) == (3, 0)
    assert one.ran.count(trial.id) == 1


def test_a_device_that_comes_later_and_cannot_run_the_study_is_given_up_alone(left):
    left.devices["one"].looks = {"collect": 6}
    left.devices["one"].eligibility = {"obstacles": ["no docker here."]}
    outcome, fleet = left.run()
    assert {name: str(why) for name, why in fleet.drained.items()} == {"one": "one: no docker here."}
    assert (outcome.done, outcome.left) == (2, 2)


def test_who_is_waited_for_before_its_first_trial_is_told_every_minute(left, monkeypatch):
    now_s = iter(range(0, 10**9, 7))
    monkeypatch.setattr("tare.fleet.exchange.time", SimpleNamespace(monotonic=lambda: next(now_s)))
    left.devices["one"].looks = {"collect": 40}
    left.run()
    told = [note for note in left.told.notes if note.startswith("still waited for: one (")]
    assert len(told) >= 2


def test_a_collect_that_is_never_answered_gives_up_its_device(left, monkeypatch):
    now_s = iter(range(0, 10**9, 600))
    monkeypatch.setattr("tare.fleet.exchange.time", SimpleNamespace(monotonic=lambda: next(now_s)))
    left.devices["one"].looks = {"collect": NEVER}
    outcome, fleet = left.run()
    assert "longer than its trial may take" in str(fleet.drained["one"])
    assert outcome.done == 2


def test_ctrl_c_does_not_wait_for_who_has_not_joined(left):
    left.devices["one"].looks = {"collect": NEVER}
    left.cluster.at_looks = {3: lambda: setattr(left.interruption, "asked", 1)}
    outcome, fleet = left.run()
    assert outcome.interrupted
    assert fleet.at_work == ["one"]


def test_another_kernel_on_one_device_is_refused_unless_it_is_accepted(scene):
    scene.run(repeat=1)
    scene.devices["one"].kernel = "5.15"
    with pytest.raises(StudyError, match=r"one: the kernel has changed since .*store was begun: 5\.10 then, 5\.15 now"):
        scene.run(repeat=2)
    assert scene.states() == {"one": ["ok"], "two": ["ok"]}
    assert scene.run(repeat=1)[0].done == 0  # nothing is to be run there, so nothing is mixed
    assert scene.run(repeat=2, accept=True)[0].done == 2


def test_another_tare_is_refused_too(scene):
    scene.run(repeat=1)
    scene.devices["one"].eligibility = {"tare": "9.9"}
    with pytest.raises(StudyError, match="one: tare has changed since"):
        scene.run(repeat=2)


def test_another_kernel_on_a_device_that_comes_later_gives_up_that_device(left):
    left.devices["one"].looks = {"collect": 6}
    left.devices["one"].kernel = "5.15"
    outcome, fleet = left.run()
    assert "the kernel has changed" in str(fleet.drained["one"])
    assert outcome.done == 2


def test_a_device_that_an_earlier_run_left_with_turned_knobs_is_named_if_nothing_is_run_there(scene):
    scene.run(repeat=1)
    scene.devices["one"].says = {"collect": {"endings": [{"claim": "c", "code": 70, "text": "it is still 5."}]}}
    assert [device.name for device in scene.run(repeat=1)[1].not_restored] == ["one"]
    assert scene.run(repeat=2)[1].not_restored == []


def test_the_ledger_tells_whose_trial_nobody_saw_the_end_of(tmp_path):
    lines = [
        ("one", "try"), ("one", "answered"), ("two", "try"), ("two", "unreachable"), ("two", "skipped"),
        ("three", "try"), ("four", "again"), ("four", "found"),
    ]  # fmt: skip
    text = "".join(json.dumps({"device": device, "what": what}) + "\n" for device, what in lines)
    assert Ledger(tmp_path).unseen() == set()
    (tmp_path / "fleet.jsonl").write_text(text + "no line of ours\n[]\n{}\n")
    assert Ledger(tmp_path).unseen() == {"two", "three"}


def test_a_device_whose_worker_waits_in_a_queue_holds_up_no_other_and_joins_when_it_has_come(scene):
    scene.cluster.in_queue.add("one")
    scene.devices["one"].looks["collect"] = 20
    done_before: list[int] = []

    def comes() -> None:
        done_before.append(len(scene.devices["two"].ran))
        scene.cluster.in_queue.clear()

    scene.cluster.at_looks[18] = comes

    outcome, _ = scene.run()

    assert done_before == [3]  # the other one had run all of its trials by then
    assert outcome.done == 6
    assert scene.states() == {"one": ["ok"] * 3, "two": ["ok"] * 3}


def test_whoever_stops_a_run_does_not_wait_for_a_queue(scene):
    scene.cluster.in_queue.add("one")
    scene.devices["one"].looks["collect"] = NEVER
    scene.cluster.at_looks[8] = lambda: setattr(scene.interruption, "asked", True)

    outcome, _ = scene.run()

    assert outcome.interrupted
    assert scene.devices["one"].ran == []


@pytest.mark.parametrize("queued", [True, False])
def test_the_time_in_a_queue_is_not_that_of_a_trial_that_hangs(scene, monkeypatch, queued):
    now_h = [0.0]
    monkeypatch.setattr("tare.fleet.exchange.time", SimpleNamespace(monotonic=lambda: now_h[0] * 3600))
    scene.cluster.in_queue |= {"one"} if queued else set()
    scene.devices["one"].looks["collect"] = 20
    for look in range(1, 18):
        scene.cluster.at_looks[look] = lambda: now_h.__setitem__(0, now_h[0] + 24)
    scene.cluster.at_looks[18] = scene.cluster.in_queue.clear

    _, fleet = scene.run()

    assert ("one" in fleet.drained) is not queued
