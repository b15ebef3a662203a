"""A run over a fleet, decision by decision: a cluster and devices that are pretended, a store that is real."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from stand_in_parts import stand_ins
from tare.errors import ObstacleError, TareError
from tare.fleet import on_device
from tare.fleet.cluster import GONE, WorkerLost
from tare.fleet.inventory import Device
from tare.fleet.orders import Task, factors, planned_on
from tare.fleet.orders import on_device as stamped
from tare.fleet.running import FleetRun
from tare.fleet.signals import Interruption
from tare.plan.matrix import cells
from tare.plan.order import trials
from tare.records.model import Record
from tare.records.store import Store
from tare.study.load import loads
from tare.study.model import Study


@dataclass(eq=False)
class Answered:
    """A question that is over."""

    name: str
    value: Any


@dataclass
class PretendDevice:
    """Its store, and what happens to the nth trial that it is told to run."""

    store: Store
    mishaps: dict[int, Any] = field(default_factory=dict)
    claims: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)

    def answers(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["do"] == "engine":
            said = {"code": 0, "out": json.dumps({"obstacles": self.obstacles}), "err": ""}
            return {"ended": "answered", "said": said, "records": b"", "broken": []}
        if question["do"] == "collect":
            return self._with_records(question, {"endings": []})
        if question["claim"] not in self.claims:
            self.claims.append(question["claim"])
            mishap = self.mishaps.pop(len(self.claims), None)
            if isinstance(mishap, dict):
                return mishap
            self._run(question, mishap or "ok")
            if isinstance(mishap, Exception):
                raise mishap
        return self._with_records(question, {"code": 0, "text": ""})

    def _run(self, question: dict[str, Any], mishap: Any) -> None:
        self.ran.append(question["trial"])
        settings = {"platform": "bare", **dict(question["device"])}
        draft = Record(question["trial"], 0, "s", 0, 0, 0, settings, "running", start_ns=1, end_ns=2)
        state = mishap if isinstance(mishap, str) else "ok"
        ended = {**draft.as_json(), "state": state, "reasons": [] if state == "ok" else [f"it {state}."]}
        self.store.begin(draft).seal(Record.from_json(ended), [], "", "")

    def _with_records(self, question: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for path in sorted((self.store.root / "trials").iterdir()):
                if path.name not in question["have"]:
                    archive.add(path, arcname=path.name)
        return {"ended": "answered", "said": said, "records": made.getvalue(), "broken": []}


class PretendCluster:
    def __init__(self, devices: dict[str, PretendDevice]) -> None:
        self.devices = devices
        self.replaced: list[str] = []
        self.waiting: list[Answered] = []
        self.keys: list[str] = []

    def submit(self, name: str, key: str, function: Any, fields: Any, question: Any, patience_s: float) -> Answered:
        self.keys.append(key)
        try:
            answered = Answered(name, self.devices[name].answers(question))
        except TareError as error:
            answered = Answered(name, error)
        self.waiting.append(answered)
        return answered

    def over(self, within_s: float) -> list[Answered]:
        found, self.waiting = self.waiting, []
        return found

    def check(self) -> None: ...
    def close(self) -> None: ...

    def result(self, asked: Answered) -> Any:
        if isinstance(asked.value, Exception):
            raise asked.value
        return asked.value

    def replace(self, asked: Answered) -> None:
        self.replaced.append(asked.name)


@dataclass
class Told:
    notes: list[str] = field(default_factory=list)
    ended_: list[tuple[str, str]] = field(default_factory=list)

    def started(self, trials: int, devices: int) -> None: ...

    def ended(self, device: str, label: str, state: str, seconds: float) -> None:
        self.ended_.append((device, state))

    def note(self, text: str) -> None:
        self.notes.append(text)


class Scene:
    def __init__(self, tmp_path: Any) -> None:
        self.root = tmp_path
        self.told = Told()
        self.devices = {
            name: PretendDevice(Store.create(tmp_path / name, {"study": "s"}, "")) for name in ("one", "two")
        }
        self.cluster = PretendCluster(self.devices)

    def study(self, **changes: Any) -> Study:
        keys = {"study": "s", "platform": "bare", "workload": "null", "repeat": 3, "aa": False}
        return Study.model_validate(keys | changes)

    def run(self, *, retry_failed: bool = False, **changes: Any) -> tuple[Any, FleetRun]:
        study = self.study(**changes)
        root = self.root / "store"
        exists = (root / "store.json").exists()
        with Store.open(root, write=True) if exists else Store.create(root, study.as_plain(), "") as store:
            planned = trials(study, cells(study))
            inventory = [Device(name=name, address=name, type="board") for name in self.devices]
            plans = {device: stamped(planned, factors(device)) for device in inventory}
            task = Task("study: s", "s.yaml", "s-1", f"run{len(self.cluster.keys)}", retry_failed)
            fleet = FleetRun(
                study, task, plans, store, self.cluster, self.told, Interruption(self.told.note), patience_s=1
            )
            fleet.ready()
            fleet.collect()
            return fleet.run(), fleet

    def states(self) -> dict[str, list[str]]:
        with Store.open(self.root / "store") as store:
            found: dict[str, list[str]] = {}
            for record in store.records():
                found.setdefault(record.settings["device"], []).append(record.state)
            return found

    def ledger(self, device: str) -> list[str]:
        lines = [json.loads(line) for line in (self.root / "store" / "fleet.jsonl").read_text().splitlines()]
        return [line["what"] for line in lines if line["device"] == device]


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
    lost = {"ended": "unreachable", "text": "one: no line", "broken": ["one: no line"]}
    scene.devices["one"].mishaps = {2: lost}
    outcome, fleet = scene.run()
    assert (outcome.done, outcome.left) == (4, 2)
    assert fleet.drained == {"one": "one: no line"}
    assert scene.states() == {"one": ["ok"], "two": ["ok"] * 3}
    assert scene.run()[0].done == 2
    assert scene.states() == {"one": ["ok"] * 3, "two": ["ok"] * 3}


def test_a_trial_that_dies_on_its_device_is_tried_once_more_and_then_the_device_is_given_up(scene):
    died = {"ended": "answered", "said": {"code": None, "text": "killed."}, "records": b"", "broken": []}
    scene.devices["one"].mishaps = {1: died}
    assert scene.run()[0].done == 6
    assert scene.ledger("one")[:4] == ["try", "answered", "try", "answered"]
    scene.devices["two"].mishaps = {4: dict(died), 5: dict(died)}
    outcome, fleet = scene.run(repeat=4)
    assert outcome.done == 1
    assert "killed." in fleet.drained["two"]


@pytest.mark.parametrize("code", [4, 70, 75, 3])
def test_a_device_that_cannot_go_on_is_given_up_at_once_with_its_own_words(scene, code):
    full = {"ended": "answered", "said": {"code": code, "text": "no space left."}, "records": b"", "broken": []}
    scene.devices["one"].mishaps = {1: full}
    outcome, fleet = scene.run()
    assert (outcome.done, outcome.left) == (3, 3)
    assert fleet.drained == {"one": "one: no space left."}
    assert scene.devices["one"].ran == []


def test_the_same_failure_again_and_again_gives_up_that_device_only(scene):
    scene.devices["one"].mishaps = dict.fromkeys(range(1, 9), "failed")
    _, fleet = scene.run(repeat=8)
    assert "in a row failed in the same way" in fleet.drained["one"]
    assert len(scene.devices["one"].ran) < 8
    assert scene.states()["two"] == ["ok"] * 8


def test_one_device_that_cannot_run_the_study_keeps_all_from_running(scene):
    scene.devices["two"].obstacles = ["there is no docker here."]
    with pytest.raises(ObstacleError, match="two: there is no docker here"):
        scene.run()
    assert scene.devices["one"].ran == []


def test_what_a_device_finished_after_an_earlier_run_is_taken_in_and_not_run_again(scene):
    one = Device(name="one", address="one", type="board")
    trial = planned_on(scene.study(), factors(one))[0]
    scene.devices["one"]._run({"trial": trial.id, "device": [["device", "one"]]}, "ok")
    assert scene.run()[0].done == 5
    assert scene.states()["one"] == ["ok"] * 3
    assert scene.devices["one"].ran.count(trial.id) == 1


def test_a_scheduler_that_is_gone_ends_the_run_with_a_sentence(scene, monkeypatch):
    scene.devices["two"].mishaps = {2: TareError(GONE)}
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
    scene.devices["one"].mishaps = {1: "interrupted"}
    scene.run(repeat=1)
    # The device's store is a new one: its first attempt is called as the one that is here, so that it is not sent.
    scene.devices["one"].store = Store.create(scene.root / "one again", {"study": "s"}, "")
    outcome, fleet = scene.run(repeat=1)
    assert (outcome.done, outcome.left) == (0, 1)
    assert "without a record that is new here" in fleet.drained["one"]
    assert scene.states()["one"] == ["interrupted"]


def test_the_trial_that_a_device_is_given_up_after_is_done_and_not_left(scene):
    scene.devices["one"].mishaps = dict.fromkeys(range(1, 9), "failed")
    outcome, fleet = scene.run(repeat=8)
    ran = len(scene.devices["one"].ran)
    assert (outcome.done, outcome.left) == (8 + ran, 8 - ran)
    assert fleet.drained


def test_a_device_that_was_given_up_is_also_told_of_where_the_others_were_enough(scene, monkeypatch):
    monkeypatch.setattr("tare.fleet.running.is_enough", lambda store, until: True)
    scene.devices["one"].mishaps = {2: {"ended": "unreachable", "text": "one: no line", "broken": []}}
    outcome, _ = scene.run(repeat={"min": 6, "max": 9, "until": "1 %"})
    assert (outcome.done, outcome.left) == (7, 5)
    assert outcome.why.startswith("tight enough after 6 blocks")
    assert "1 of 2 devices were given up; 5 trials are left" in outcome.why


def test_whether_another_block_fits_is_told_by_the_blocks_of_this_run(scene, monkeypatch):
    scene.run(repeat={"min": 4, "max": 4})
    now_s = iter(float(second) for second in range(0, 10_000, 6))
    monkeypatch.setattr("tare.fleet.running.time", SimpleNamespace(monotonic=lambda: next(now_s)))
    outcome, _ = scene.run(repeat={"min": 4, "max": 12, "within": "20 s"})
    # Four blocks were there already. 12 s after the begin there is one more: with a second it would be 24 s.
    assert "would not fit" in outcome.why
    assert outcome.done == 2
