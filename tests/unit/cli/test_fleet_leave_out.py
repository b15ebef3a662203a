"""`missing: leave_out` over a fleet: what one device lacks is asked of none, by the first run and by later ones."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import Any

import pytest

from pretended_fleet import PretendCluster, Scene
from stand_in_parts import stand_ins
from tare.base.errors import ObstacleError
from tare.base.rulings import obstacle
from tare.cli import run
from tare.cli.run import Came, Over, Wanted
from tare.fleet.inventory import Device
from tare.fleet.on_device import _the_trial, study_of
from tare.plan.check import MissingParts, PartKey, parts_of
from tare.plan.matrix import cells
from tare.records.store import Store
from tare.studies.load import loads

STUDY = (
    "study: s\nplatform: [bare, docker, qemu]\nworkload: 'null'\nprobes: [cpu, memory]\ncontrol: {page_cache: cold}\n"
    "repeat: 2\naa: false\nmissing: leave_out\n"
)
AWAY = {"collect": OSError(113, "No route to host")}
INVENTORY = [Device(name=name, address=name, type="board") for name in ("one", "two")]


class Heard(PretendCluster):
    """Keeps what the devices were asked."""

    def __init__(self, devices: Any) -> None:
        super().__init__(devices)
        self.questions: list[dict[str, Any]] = []

    def submit(self, name: str, key: str, function: Any, fields: Any, question: Any, patience_s: float) -> Any:
        self.questions.append({"to": name, **question})
        return super().submit(name, key, function, fields, question, patience_s)


class Fleet(Scene):
    """The pretended devices, run over by `tare run --fleet` itself."""

    def __init__(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(tmp_path)
        self.heard = self.cluster = Heard(self.devices)

        @contextmanager
        def cluster(over: Over) -> Any:
            yield self.cluster, INVENTORY

        monkeypatch.setattr(run, "_cluster", cluster)

    def lacks(self, device: str, *names: str, text: str = STUDY) -> None:
        """These parts do not work there, as the device says when it is asked."""
        every = {part.part_name(): (kind, part) for cell in cells(loads(text)) for kind, part in parts_of(cell)}
        rows = [[*PartKey.of(*every[name]), ["not here."]] for name in names]
        self.devices[device].eligibility = {"obstacles": [], "lacking": rows}

    def go(self, text: str = STUDY) -> Came:
        self.heard.questions.clear()
        wanted = Wanted(loads(text, "s.yaml"), text, "s.yaml", self.root / "store", False, False, False)
        return run._run(wanted, Over(None, "tls://pretended:1", (), 1.0, False))

    def planned(self) -> list[dict[str, Any]]:
        with Store.open(self.root / "store") as store:
            return store.planned()

    def asked_what_they_lack(self) -> list[str]:
        questions = [question for question in self.heard.questions if question["do"] == "engine"]
        return [question["to"] for question in questions if json.loads(question["stdin"]).get("leave_out")]


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.setattr("tare.fleet.readiness._GRACE_S", 0.0)
    with stand_ins():
        yield Fleet(tmp_path, monkeypatch)


def test_what_one_device_lacks_is_asked_of_none_and_said_with_whose_it_is(fleet, capsys):
    fleet.lacks("one", "memory")
    fleet.lacks("two", "memory", "qemu", "page_cache")
    assert fleet.go().outcome.done == 8  # two cells, in two blocks, on two devices

    settings = [row["settings"] for row in fleet.planned()]
    assert {row["platform"] for row in settings} == {"bare", "docker"}
    assert {row["probes"] for row in settings} == {"cpu"}
    assert not any("control.page_cache.state" in row for row in settings)
    said = ["probe memory: one, two: not here.", "control page_cache: two: not here.", "platform qemu: two: not here."]
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("not measured")] == [
        f"not measured here: {sentence}" for sentence in said
    ]
    with Store.open(fleet.root / "store") as store:
        assert [kept["sentence"] for kept in store.study["left_out"]] == said


def test_a_device_makes_the_plan_that_the_controller_made_and_leaves_out_nothing_else(fleet):
    fleet.lacks("two", "memory", "qemu")
    fleet.go()

    planned = {row["trial"]: row for row in fleet.planned()}
    told = [question for question in fleet.heard.questions if question["do"] == "run"]
    assert len(told) == len(planned) == 8
    for question in told:
        trial = _the_trial(question, study_of(question))
        row = planned[trial.id]
        assert (row["position"], row["block"], row["settings"]) == (trial.position, trial.block, dict(trial.settings))
    ready = [question["stdin"] for question in fleet.heard.questions if question["do"] == "engine"]
    left_out = [key.name for key in MissingParts.from_json(json.loads(ready[-1])["lacking"]).parts]
    assert left_out == ["memory", "qemu"]


def test_a_second_run_asks_for_the_same_although_the_device_that_lacks_something_is_away(fleet):
    fleet.lacks("one", "memory", "qemu")
    fleet.devices["one"].mishaps = {1: {"ended": "unreachable", "text": "no line", "broken": []}}
    assert fleet.go().outcome.done == 4
    assert fleet.asked_what_they_lack() == ["one", "two"]
    first = fleet.planned()

    fleet.devices["one"].says = AWAY
    fleet.devices["one"].eligibility = fleet.devices["two"].eligibility
    came = fleet.go()
    assert (came.outcome.done, list(came.given_up)) == (0, ["one"])
    assert fleet.planned() == first
    assert fleet.asked_what_they_lack() == []

    fleet.devices["one"].says = {}
    assert fleet.go().outcome.done == 4
    assert fleet.planned() == first


def test_a_device_that_lacks_more_when_the_store_is_begun_is_an_obstacle_and_changes_no_plan(fleet):
    fleet.lacks("one", "memory")
    fleet.go()
    first = fleet.planned()
    fleet.devices["two"].eligibility = {"obstacles": ["platform docker: not here."]}
    with pytest.raises(ObstacleError, match=r"(?s)two: platform docker: not here.*decided when the store was created"):
        fleet.go()
    assert fleet.planned() == first


def test_where_too_little_is_left_nothing_is_begun(fleet):
    fleet.lacks("one", "qemu")
    fleet.lacks("two", "docker")
    with pytest.raises(ObstacleError, match="of platform only bare is left") as refusal:
        fleet.go()
    assert tuple(map(str, refusal.value.obstacles)) == (
        "platform docker: two: not here.",
        "platform qemu: one: not here.",
    )
    assert not (fleet.root / "store").exists()


def test_where_nothing_is_left_nothing_is_begun(fleet):
    fleet.lacks("two", "null")
    with pytest.raises(ObstacleError, match=r"nothing of s can be measured here.*\n.*workload null: two: not here"):
        fleet.go()
    assert not (fleet.root / "store").exists()


def test_a_study_that_leaves_nothing_out_asks_nobody_and_is_refused_as_before(fleet):
    text = STUDY.replace("leave_out", "refuse")
    fleet.devices["two"].eligibility = {"obstacles": ["probe memory: not here."]}
    with pytest.raises(ObstacleError, match="two: probe memory: not here") as refusal:
        fleet.go(text)
    assert "decided" not in str(refusal.value)
    assert fleet.asked_what_they_lack() == []


def test_a_device_that_is_excluded_from_a_platform_is_not_asked_for_the_others_sake(fleet, capsys):
    text = STUDY + "exclude: {device: one, platform: docker}\n"
    fleet.lacks("two", "qemu")
    assert fleet.go(text).outcome.done == 6
    ran = sorted((row["settings"]["device"], row["settings"]["platform"]) for row in fleet.planned())
    assert ran == [("one", "bare")] * 2 + [("two", "bare")] * 2 + [("two", "docker")] * 2
    assert "not measured here: platform qemu: two: not here." in capsys.readouterr().err


def test_a_study_of_power_is_not_begun_where_no_probe_of_power_works_on_every_device():
    text = (
        "study: s\nplatform: [bare, docker]\nworkload: idle\nprobes: [cpu, power_rapl]\nmissing: leave_out\n"
        "compare: {metric: power_mean_w}\n"
    )
    study = loads(text, "s.yaml")
    (rapl,) = (part for kind, part in parts_of(cells(study)[0]) if part.part_name() == "power_rapl")
    missing = MissingParts({PartKey.of("probe", rapl): (obstacle("needs.hardware", "one: there are no zones."),)})
    with pytest.raises(
        ObstacleError, match=r"no power probe of .* works on every device.*\n.*power_rapl: one: there are no"
    ):
        run._left(study, missing, INVENTORY)
    time = loads(text.replace("power_mean_w", "wall_s"), "s.yaml")
    assert [choice.name for choice in run._left(time, missing, INVENTORY).probes] == ["cpu"]
