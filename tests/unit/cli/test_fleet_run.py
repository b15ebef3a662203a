"""`tare run --fleet`: how it ends, what it says then, and which devices a store may be gone on with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stand_in_parts import stand_ins
from tare.api.running import refuse_silent_changes_on
from tare.base.errors import StudyError
from tare.cli import run
from tare.cli.run import Came, Over, Wanted, run_over
from tare.fleet.exchange import factors, planned_on
from tare.fleet.inventory import Device
from tare.fleet.local import Outcome
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

        monkeypatch.setattr(run, "_run", ended)
        monkeypatch.setattr(run, "finish", finish)
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

    assert run._until_the_end(Fleet()) is STOPPED  # type: ignore[arg-type]


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
                run._note_plan(wanted, store, planned)
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
            store.plan([run.row(trial) for trial in planned_on(study, ())])
    with pytest.raises(StudyError, match="the study has changed"):
        Begun(tmp_path / "store").go_on(ONE)
