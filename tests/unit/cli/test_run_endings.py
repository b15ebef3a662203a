"""How `tare run` ends: its exit code says whether there is something to believe."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from metered import BARE, kept, trials
from some_records import because
from tare.api.running import new_store_goes_if_refused, open_store
from tare.base.errors import BusyError, StudyError
from tare.base.files import state_dir
from tare.base.host import LocalHost
from tare.cli import tare
from tare.cli.report import finish
from tare.drivers.containers import engine
from tare.fleet.schedule import Outcome
from tare.plan.matrix import cells
from tare.records.model import Record
from tare.studies.load import from_plain
from tare.trial.device import DeviceLock, device_id

DONE = Outcome(done=2, left=0, why="all trials are done")
STUDY = {"study": "one-level", "compare": {"by": "platform"}}


def ended(root: Path, records: list[Record]) -> int:
    try:
        finish(kept(root, records, STUDY), DONE, True, "tare run one-level.yaml")
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_a_study_of_one_level_that_has_only_invalid_trials_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture):
    invalid = [replace(each, state="invalid", reasons=[because("throttled.")]) for each in trials(BARE, n=2)]
    assert ended(tmp_path / "store", invalid) == 1
    assert "1 cell without a usable trial" in capsys.readouterr().err


def test_one_trial_that_may_be_believed_is_enough_for_its_cell_and_the_last_line_counts_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    first, *others = trials(BARE, n=3)
    assert ended(tmp_path / "store", [first, *(replace(each, state="invalid") for each in others)]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("2 of 3 trials excluded as invalid: see `tare show ")
    assert last.endswith("`tare run one-level.yaml --retry-failed` repeats them.")


def test_where_every_trial_could_be_used_nothing_is_said_of_it(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert ended(tmp_path / "store", list(trials(BARE, n=3))) == 0
    assert "excluded" not in capsys.readouterr().err


def test_energy_is_offered_next_only_where_a_trial_has_some(tmp_path: Path, capsys: pytest.CaptureFixture):
    study = {**STUDY, "ends_in": ["show energy", "papers claims"]}
    metered = list(trials(BARE, n=2))
    bare = [replace(each, metrics={"step_s": 0.1}, facts={}) for each in metered]
    for name, records, offered in (("with", metered, 2), ("without", bare, 1)):
        finish(kept(tmp_path / name, records, study), DONE, True, "tare run one-level.yaml")
        assert len(json.loads(capsys.readouterr().out)["next"]) == offered


@pytest.mark.parametrize(
    ("outcome", "retried", "says"),
    [
        (Outcome(1, 2, "stopped by you", True), False, "2 trials left; `tare run s.yaml` resumes."),
        (
            Outcome(0, 0, "stopped by you", True, skipped=6),
            False,
            "6 trials skipped, and none left; `tare run s.yaml --",
        ),
        (Outcome(1, 2, "stopped by you", True), True, "2 trials left; `tare run s.yaml --retry-failed` resumes."),
        (Outcome(1, 1, "stopped by you", True, 6), False, "1 trial left, and at most 6 more by the stop rule; `tare"),
    ],
)
def test_an_interrupted_run_says_what_is_left_and_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture, outcome: Outcome, retried: bool, says: str
):
    with pytest.raises(SystemExit) as stop:
        finish(
            kept(tmp_path / "store", list(trials(BARE, n=1)), STUDY), outcome, True, "tare run s.yaml", retried=retried
        )
    assert stop.value.code == 130
    *_, left, device = capsys.readouterr().err.splitlines()
    assert says in left
    assert device == "The device is as it was found."


@pytest.mark.parametrize("mode", ["MAXN", {"cores": 1}])
def test_two_controls_that_both_set_the_cores_are_refused_before_anything_runs(mode: object):
    control = {"cpu": {"online": "0"}, "power_mode": mode}
    study = from_plain({"study": "s", "platform": "bare", "workload": "null", "control": control})
    with pytest.raises(StudyError, match="`cpu` and `power_mode` would both set cores"):
        cells(study)


def test_controls_that_set_different_things_stand_side_by_side():
    control = {"cpu": {"online": "0"}, "power_mode": {"gpu_mhz": 990}, "dvfs": "off"}
    assert len(cells(from_plain({"study": "s", "platform": "bare", "workload": "null", "control": control}))) == 1


MODES = [{"cores": 2}, {"cores": 4, "cpu_mhz": 1200}, "MAXN"]


@pytest.mark.parametrize(
    ("mode", "left"),
    [
        ("2 cores", ["4 cores, CPU 1200 MHz", "MAXN"]),
        ("4 cores, CPU 1200 MHz", ["2 cores", "MAXN"]),
        (["4 cores, CPU 1200 MHz", "2 cores"], ["MAXN"]),
        ("MAXN", ["2 cores", "4 cores, CPU 1200 MHz"]),
    ],
)
def test_a_power_mode_is_picked_by_its_label_and_no_other_with_it(mode: object, left: list[str]):
    plain = {"study": "s", "platform": "bare", "workload": "null", "control": {"power_mode": MODES}}
    against = {"against": {"control.power_mode.mode": left[0]}}
    study = from_plain({**plain, "exclude": [{"control.power_mode.mode": mode}], "compare": against})
    assert [cell.settings["control.power_mode.mode"] for cell in cells(study)] == left


def test_a_label_that_no_mode_has_is_refused_with_those_that_there_are():
    plain = {"study": "s", "platform": "bare", "workload": "null", "control": {"power_mode": MODES}}
    with pytest.raises(StudyError, match=r"3 cores(.|\n)*4 cores, CPU 1200 MHz"):
        from_plain({**plain, "exclude": [{"control.power_mode.mode": "3 cores"}]})


def test_a_label_that_the_fields_belie_is_refused():
    with pytest.raises(StudyError, match="not what the other fields say"):
        control = {"power_mode": {"mode": "2 cores", "cores": 4}}
        from_plain({"study": "s", "platform": "bare", "workload": "null", "control": control})


def test_a_run_that_is_refused_before_its_first_trial_leaves_no_store_behind(tmp_path: Path):
    study = from_plain({"study": "s", "platform": "bare", "workload": "null"})
    for folder in (tmp_path / "new", tmp_path / "empty"):
        if folder.name == "empty":
            folder.mkdir()
        with pytest.raises(BusyError), new_store_goes_if_refused(folder), open_store(study, "", folder) as store:
            store.plan([])
            raise BusyError("another run owns this device.")
        assert not (folder / "store.json").exists()
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "empty").is_dir()


def test_a_file_where_the_store_should_be_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(StudyError, match="is a file, and a store is a folder"),
        new_store_goes_if_refused(tmp_path / "file"),
    ):
        pass
    assert (tmp_path / "file").read_text() == "mine"


def test_a_store_that_holds_something_stays_when_a_run_is_refused(tmp_path: Path):
    folder = kept(tmp_path / "store", list(trials(BARE, n=1)), STUDY)
    study = from_plain({"study": "s", "platform": "bare", "workload": "null"})
    with pytest.raises(BusyError), new_store_goes_if_refused(folder), open_store(study, "", folder):
        raise BusyError("another run owns this device.")
    assert (folder / "store.json").exists()


def test_a_side_that_never_ran_is_the_answer_and_the_exit_code_is_1(tmp_path: Path, capsys: pytest.CaptureFixture):
    failed = [replace(each, state="failed", reasons=[because("no data.")], metrics={}) for each in trials(BARE, n=2)]
    assert ended(tmp_path / "store", failed) == 1
    out = json.loads((told := capsys.readouterr()).out)
    assert [ruling["code"] for ruling in out["never_ran"]] == ["side.never-ran"]
    assert out["never_ran"][0]["sentence"].endswith("never ran: no data.")
    assert "--retry-failed` tries again what never ran." in told.err


@pytest.mark.parametrize(
    "words",
    [
        ["weigh", "--in", "docker", "--", "true"],
        ["run", "s0-container-tax", "--scale", "smoke", "--wait", "1 s"],
        ["run", "container-tax"],
        ["why", "--in", "docker", "--", "true"],
    ],
)
def test_a_device_in_use_is_told_before_an_engine_is_started(words: list[str], tmp_path: Path):
    with DeviceLock(state_dir(), device_id(LocalHost()), "the other"):
        done = CliRunner().invoke(tare, words)
    assert isinstance(done.exception, BusyError)
    assert "the other" in str(done.exception)
    assert ("Waiting until it ends" in done.stderr) == ("--wait" in words)
    assert not engine.folder().exists()
