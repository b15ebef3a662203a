"""What the devices of a fleet lack, put together, and kept with the store: a cluster and devices that are pretended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lean_devices import a_host
from pretended_fleet import PretendCluster, PretendDevice
from tare.base.errors import ObstacleError, StoreError
from tare.base.rulings import obstacle
from tare.fleet.cluster import WorkerLost
from tare.fleet.exchange import Questions
from tare.fleet.inventory import Device
from tare.fleet.lean_trial import LeanObstacleCheck
from tare.fleet.readiness import MISSING_PARTS_FILE, ask_all_devices, merged, record_missing, recorded_missing
from tare.fleet.ssh import Unreachable
from tare.plan.check import NOTHING, MissingParts, PartKey, parts_of
from tare.plan.matrix import cells
from tare.records.store import Store
from tare.studies.load import loads

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
