"""Who takes part in a run over a fleet, and who comes later: a cluster and devices that are pretended.

What the devices of a fleet lack, put together, and kept with the store: a cluster and devices that are pretended.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lean_devices import a_host
from pretended_fleet import NEVER, PretendCluster, PretendDevice, Scene
from stand_in_parts import stand_ins
from tare.base.errors import ObstacleError, StoreError, StudyError
from tare.base.rulings import obstacle
from tare.fleet.cluster import WorkerLost
from tare.fleet.exchange import Questions
from tare.fleet.incoming import Ledger
from tare.fleet.inventory import Device, factors, planned_on
from tare.fleet.on_device import LeanObstacleCheck
from tare.fleet.readiness import MISSING_PARTS_FILE, ask_all_devices, merged, record_missing, recorded_missing
from tare.fleet.ssh import Unreachable
from tare.plan.check import NOTHING, MissingParts, PartKey, parts_of
from tare.plan.matrix import cells
from tare.records.store import Store
from tare.studies.load import loads

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


RAPL = PartKey("probe", "power_rapl", "{}")
QEMU = PartKey("platform", "qemu", "{}")
NO_RAPL = "there are no zones."


class PendingQuestion:
    """Two devices that are asked what they lack; `notes` is what was said meanwhile."""

    def __init__(self, tmp_path: Path) -> None:
        self.devices = {
            name: PretendDevice(Store.create(tmp_path / name, {"study": "s"}, "")) for name in ("one", "two")
        }
        self.cluster = PretendCluster(self.devices)
        self.notes: list[str] = []

    def lacks(self, device: str, *rows: tuple[PartKey, str]) -> None:
        self.devices[device].eligibility = {"lacking": [[*key, [sentence]] for key, sentence in rows]}

    def answer(self) -> MissingParts:
        inventory = [Device(name=name, address=name) for name in self.devices]
        return ask_all_devices(inventory, "study: s", "s.yaml", Questions(self.cluster, 1), self.notes.append)


def told(missing: MissingParts) -> dict[PartKey, list[str]]:
    return {key: [*map(str, rulings)] for key, rulings in missing.parts.items()}


@pytest.fixture
def fleet(tmp_path):
    return PendingQuestion(tmp_path)


def test_what_any_device_lacks_is_left_out_and_each_reason_says_whose_it_is(fleet):
    fleet.lacks("one", (RAPL, NO_RAPL))
    fleet.lacks("two", (RAPL, NO_RAPL), (QEMU, "it is not installed."))
    found = told(fleet.answer())
    assert found == {RAPL: ["one, two: there are no zones."], QEMU: ["two: it is not installed."]}
    assert fleet.notes == []


def test_reasons_that_differ_are_all_told(fleet):
    fleet.lacks("one", (RAPL, NO_RAPL))
    fleet.lacks("two", (RAPL, "root is needed."))
    assert told(fleet.answer()) == {RAPL: ["one: there are no zones.", "two: root is needed."]}


def test_a_thousand_devices_are_not_a_thousand_names_nor_a_thousand_sentences():
    alike = merged(
        {f"d{number}": MissingParts({RAPL: (obstacle("needs.hardware", NO_RAPL),)}) for number in range(1000)}
    )
    assert told(alike) == {RAPL: ["d0, d1, d2, d3, d4 and 995 more: there are no zones."]}
    named = merged(
        {
            f"d{number}": MissingParts({RAPL: (obstacle("needs.hardware", f"d{number} has no zones."),)})
            for number in range(1000)
        }
    )
    assert len(named.parts[RAPL]) == 6
    assert named.parts[RAPL][-1].code == "fleet.more-devices"
    assert told(named)[RAPL][-1] == "d5, d6, d7, d8, d9 and 990 more: it does not work there either."


def test_a_device_that_does_not_answer_has_no_say_and_that_is_said(fleet):
    fleet.lacks("one", (RAPL, NO_RAPL))
    fleet.devices["two"].says = {"engine": OSError(113, "No route to host")}
    assert told(fleet.answer()) == {RAPL: ["one: there are no zones."]}
    (note,) = fleet.notes
    assert note.startswith("two: it could not be asked")
    assert "What it lacks is not known" in note


@pytest.mark.parametrize(
    "said",
    [
        {"code": 0, "out": "Welcome to this board", "err": ""},
        {"code": 0, "out": json.dumps({"lacking": [["probe", "cpu"]]}), "err": ""},
        {"code": 0, "out": json.dumps({"lacking": 3}), "err": ""},
        {"code": 124, "out": "", "err": "no answer within 120 s"},
    ],
)
def test_an_answer_that_cannot_be_understood_is_none(fleet, said: dict[str, Any]):
    fleet.devices["two"].says = {"engine": said}
    assert fleet.answer() == NOTHING
    assert len(fleet.notes) == 1


def test_where_nobody_answers_nothing_is_settled(fleet):
    for device in fleet.devices.values():
        device.says = {"engine": OSError(113, "No route to host")}
    with pytest.raises(ObstacleError, match=r"(?s)no device can run it now.*- one: .*- two: "):
        fleet.answer()


def test_a_device_that_can_run_no_study_stops_all_of_them(fleet):
    fleet.devices["two"].eligibility = {"obstacles": ["tare 9.9 is here."]}
    with pytest.raises(ObstacleError, match=r"two: tare 9\.9 is here"):
        fleet.answer()


def test_a_device_whose_worker_died_is_asked_once_more(fleet, monkeypatch):
    two = fleet.devices["two"]
    fleet.lacks("two", (RAPL, NO_RAPL))
    two.says = {"engine": WorkerLost("killed")}
    monkeypatch.setattr(fleet.cluster, "replace", lambda asked: two.says.clear())
    assert told(fleet.answer()) == {RAPL: ["two: there are no zones."]}
    assert two.asked == ["engine", "engine"]
    two.says = {"engine": WorkerLost("killed")}
    monkeypatch.setattr(fleet.cluster, "replace", lambda asked: None)
    assert fleet.answer() == NOTHING
    assert "the worker that drove it died" in fleet.notes[0]


# With the store


def test_what_was_settled_first_stays(tmp_path):
    root = tmp_path / "store"
    assert recorded_missing(root) is None
    with Store.create(root, {"study": "s"}, "") as store:
        assert recorded_missing(root) is None
        record_missing(store, MissingParts({RAPL: (obstacle("needs.hardware", "one: there are no zones."),)}))
        record_missing(store, MissingParts({QEMU: (obstacle("needs.hardware", "two: it is not installed."),)}))
    assert recorded_missing(root) == MissingParts({RAPL: (obstacle("needs.hardware", "one: there are no zones."),)})


def test_a_store_of_a_run_that_asked_nobody_left_nothing_out(tmp_path):
    with Store.create(tmp_path / "store", {"study": "s"}, "") as store:
        store.plan([{"trial": "a", "study": "s", "block": 0, "position": 0, "twin": 0, "settings": {}}])
    assert recorded_missing(tmp_path / "store") == NOTHING


@pytest.mark.parametrize("text", ["", "{", "3", '[["probe"]]'])
def test_a_damaged_file_is_not_taken_for_nothing(tmp_path, text):
    (tmp_path / MISSING_PARTS_FILE).write_text(text)
    with pytest.raises(StoreError, match="cannot be read"):
        recorded_missing(tmp_path)


# Without tare there


def test_what_a_lean_device_lacks_is_asked_of_it_unless_only_tare_there_could_do_it(pretended_ssh):
    study = loads(
        "study: s\nplatform: [bare, docker]\nworkload: {command: {argv: ['true']}}\ncontrol: {dirty: {ratio: 5 %}}\n"
        "probes: [cpu, perf]\n",
        "s",
    )
    wanted = [each for cell in cells(study) for each in parts_of(cell)]
    with a_host() as host:
        checks = LeanObstacleCheck(host)
        for kind, part in wanted:
            checks.ask(kind, part)
        lacks = {(key.kind, key.name): said for key, said in checks.stopped.items()}
        assert set(lacks) == {("platform", "docker"), ("control", "dirty"), ("probe", "perf")}
        (perf,) = lacks["probe", "perf"]
        assert perf.code == "needs.full-device"
        assert str(perf).startswith("needs tare on the device (it is more than files to read)")

        missing = loads("study: s\nplatform: bare\nworkload: {command: {argv: [/no/such]}}\nprobes: [cpu]\n", "s")
        for kind, part in parts_of(cells(missing)[0]):
            checks.ask(kind, part)
        assert ("workload", "command") in {(key.kind, key.name) for key in checks.stopped}


def test_a_line_that_breaks_is_not_taken_for_all_that_a_device_lacks(pretended_ssh):
    study = loads("study: s\nplatform: bare\nworkload: {command: {argv: ['true']}}\nprobes: [cpu]\n", "s")
    with a_host() as host:
        host.gone = True
        with pytest.raises(Unreachable, match="d: the line to the device broke while it was asked"):
            LeanObstacleCheck(host).ask("probe", cells(study)[0].probes[0])
