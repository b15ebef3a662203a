"""`tare run --fleet`: how it ends, what it says then, and which devices a store may be gone on with.

`missing: leave_out` over a fleet: what one device lacks is asked of none, by the first run and by later ones.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pretended_fleet import PretendCluster, Scene
from stand_in_parts import stand_ins
from tare.api.running import refuse_silent_changes_on
from tare.base.errors import ObstacleError, StudyError
from tare.base.rulings import obstacle
from tare.cli import run as run_verb
from tare.cli.run import Came, Over, Wanted, run_over
from tare.fleet.inventory import Device, factors, planned_on
from tare.fleet.on_device import _the_trial, study_of
from tare.fleet.schedule import Outcome
from tare.plan.check import MissingParts, PartKey, parts_of
from tare.plan.matrix import cells
from tare.records.store import Store
from tare.studies.load import loads

DONE = Outcome(3, 0, "all planned trials are done")
STOPPED = Outcome(1, 2, "stopped by you", interrupted=True)
ONE, TWO, THREE = (Device(name=name, address=name) for name in ("one", "two", "three"))
LEAN = Device.model_validate({"name": "four", "address": "four", "tare": "none"})
OVER = Over(Path("devices.yaml"), None, (), 120.0, False)
STUDY = "study: s\nplatform: bare\nworkload: torch_train\nrepeat: {repeat}\n"


@pytest.fixture
def ends(monkeypatch, capsys):
    """The exit code of a run that came to this, and what it said."""

    def run(came: Any, verdict: int = 0, *, retried: bool = False) -> tuple[int, str]:
        def ended(*_: Any) -> Any:
            if isinstance(came, BaseException):
                raise came
            return came

        def finish(*_: Any) -> None:
            if verdict:
                raise SystemExit(verdict)

        monkeypatch.setattr(run_verb, "_run", ended)
        monkeypatch.setattr(run_verb, "finish", finish)
        code = 0
        try:
            wanted: Any = SimpleNamespace(folder=Path("out"), retry_failed=retried)
            run_over(wanted, OVER, False, "tare run s.yaml")
        except SystemExit as stop:
            code = int(str(stop.code))
        return code, capsys.readouterr().err

    return run


def test_a_run_that_did_all_ends_with_0_and_with_1_where_something_is_left(ends):
    assert ends(Came(DONE, {}, [], []))[0] == 0
    assert ends(Came(DONE, {}, [], []), verdict=1)[0] == 1
    assert ends(Came(DONE, {"one": "one: gone"}, [], []))[0] == 1


def test_a_device_that_was_not_restored_is_named_and_the_exit_code_is_70_whatever_else_there_is(ends):
    for came, verdict in ((DONE, 0), (DONE, 1), (STOPPED, 0)):
        code, said = ends(Came(came, {"one": "one: gone"}, [], [ONE]), verdict)
        assert code == 70
        assert "one: THIS DEVICE WAS NOT RESTORED. `tare device restore` on it restores it." in said
    assert "The next run there restores it" in ends(Came(DONE, {}, [], [LEAN]))[1]


def test_who_stops_a_run_is_told_what_goes_on_without_it(ends):
    code, said = ends(Came(STOPPED, {}, ["one", "two"], []))
    assert code == 130
    assert "still running a trial: one, two." in said
    assert "restores its settings itself" in said
    assert "as it was found" not in said
    assert "`tare run s.yaml` resumes" in said


def test_who_stops_a_run_that_tries_again_what_failed_is_told_how_to_go_on_with_that(ends):
    assert "`tare run s.yaml --retry-failed` resumes" in ends(Came(STOPPED, {}, [], []), retried=True)[1]


def test_who_stops_it_before_or_after_the_trials_is_not_told_that_the_device_is_as_it_was(ends):
    code, said = ends(KeyboardInterrupt())
    assert code == 130
    assert "restore their settings" in said


def test_a_second_ctrl_c_ends_the_run_with_an_outcome():
    class Fleet:
        def collect(self) -> None: ...
        def ready(self) -> None: ...

        def run(self) -> Outcome:
            raise KeyboardInterrupt

        def stopped(self) -> Outcome:
            return STOPPED

    assert run_verb._until_the_end(Fleet()) is STOPPED  # type: ignore[arg-type]


# Going on with a store


class Begun:
    """A store that a run over some devices has begun; runs over others go on with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def go_on(self, *devices: Device, repeat: int = 2, accept: bool = False) -> list[str]:
        with stand_ins():
            study = loads(STUDY.format(repeat=repeat), "s.yaml")
            planned = {device.name: planned_on(study, factors(device)) for device in devices}
            exists = (self.folder / "store.json").exists()
            made = Store.open(self.folder, write=True) if exists else Store.create(self.folder, study.as_plain(), "")
            with made as store:
                said = refuse_silent_changes_on(store, study, planned, accept)
                wanted = Wanted(study, "", "s.yaml", self.folder, accept, False, False)
                run_verb._note_plan(wanted, store, planned)
                return said

    def planned(self) -> set[str]:
        with Store.open(self.folder) as store:
            return {str(row["settings"]["device"]) for row in store.planned()}


@pytest.fixture
def begun(tmp_path):
    made = Begun(tmp_path / "store")
    assert made.go_on(ONE, TWO) == []
    return made


def test_some_of_the_devices_are_gone_on_with_and_the_others_stay_planned(begun):
    assert begun.go_on(ONE) == ["not in this run, and left as it is: two."]
    assert begun.planned() == {"one", "two"}
    assert begun.go_on(ONE, TWO) == []


def test_a_new_device_is_said_and_is_no_change_of_the_study(begun):
    assert begun.go_on(ONE, TWO, THREE) == [f"new in {begun.folder}: three."]
    assert begun.planned() == {"one", "two", "three"}


def test_what_has_changed_on_a_device_of_the_run_is_refused_unless_it_is_accepted(begun):
    other = ONE.model_copy(update={"type": "board"})
    with pytest.raises(StudyError, match=r"(\d+) new trials, \1 gone, \1 unchanged"):
        begun.go_on(other, TWO)
    assert begun.go_on(other, TWO, accept=True) == []


def test_how_a_run_is_judged_is_declared_for_all_devices(begun):
    with pytest.raises(StudyError, match="repeat in the study differs"):
        begun.go_on(THREE, repeat=3)


def test_a_store_that_was_begun_without_a_fleet_is_not_gone_on_with_by_one(tmp_path):
    with stand_ins():
        study = loads(STUDY.format(repeat=2), "s.yaml")
        with Store.create(tmp_path / "store", study.as_plain(), "") as store:
            store.plan([run_verb.row(trial) for trial in planned_on(study, ())])
    with pytest.raises(StudyError, match="the study has changed"):
        Begun(tmp_path / "store").go_on(ONE)


LEAVING_OUT = (
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

        monkeypatch.setattr(run_verb, "_cluster", cluster)

    def lacks(self, device: str, *names: str, text: str = LEAVING_OUT) -> None:
        """These parts do not work there, as the device says when it is asked."""
        every = {part.part_name(): (kind, part) for cell in cells(loads(text)) for kind, part in parts_of(cell)}
        rows = [[*PartKey.of(*every[name]), ["not here."]] for name in names]
        self.devices[device].eligibility = {"obstacles": [], "lacking": rows}

    def go(self, text: str = LEAVING_OUT) -> Came:
        self.heard.questions.clear()
        wanted = Wanted(loads(text, "s.yaml"), text, "s.yaml", self.root / "store", False, False, False)
        return run_verb._run(wanted, Over(None, "tls://pretended:1", (), 1.0, False))

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
    text = LEAVING_OUT.replace("leave_out", "refuse")
    fleet.devices["two"].eligibility = {"obstacles": ["probe memory: not here."]}
    with pytest.raises(ObstacleError, match="two: probe memory: not here") as refusal:
        fleet.go(text)
    assert "decided" not in str(refusal.value)
    assert fleet.asked_what_they_lack() == []


def test_a_device_that_is_excluded_from_a_platform_is_not_asked_for_the_others_sake(fleet, capsys):
    text = LEAVING_OUT + "exclude: {device: one, platform: docker}\n"
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
        run_verb._left(study, missing, INVENTORY)
    time = loads(text.replace("power_mean_w", "wall_s"), "s.yaml")
    assert [choice.name for choice in run_verb._left(time, missing, INVENTORY).probes] == ["cpu"]
