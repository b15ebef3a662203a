"""How `tare run` ends: its exit code says whether there is something to believe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from metered import BARE, kept, trials
from tare.cli.run import finish
from tare.errors import StudyError
from tare.fleet.local import Outcome
from tare.plan.matrix import cells
from tare.records.model import Record
from tare.study.load import from_plain

DONE = Outcome(done=2, left=0, why="all trials are done")
STUDY = {"study": "one-level", "compare": {"by": "platform"}}


def ended(root: Path, records: list[Record]) -> int:
    try:
        finish(kept(root, records, STUDY), DONE, True, "tare run one-level.yaml")
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_a_study_of_one_level_that_has_only_invalid_trials_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture):
    invalid = [replace(each, state="invalid", reasons=["throttled."]) for each in trials(BARE, n=2)]
    assert ended(tmp_path / "store", invalid) == 1
    assert "of 1 cell no trial could be used" in capsys.readouterr().err


def test_one_trial_that_may_be_believed_is_enough_for_its_cell(tmp_path: Path):
    first, *others = trials(BARE, n=3)
    assert ended(tmp_path / "store", [first, *(replace(each, state="invalid") for each in others)]) == 0


@pytest.mark.parametrize("mode", ["MAXN", {"cores": 1}])
def test_two_controls_that_both_set_the_cores_are_refused_before_anything_runs(mode: object):
    control = {"cpu": {"online": "0"}, "power_mode": mode}
    study = from_plain({"study": "s", "platform": "bare", "workload": "null", "control": control})
    with pytest.raises(StudyError, match="`cpu` and `power_mode` would both set cores"):
        cells(study)


def test_controls_that_set_different_things_stand_side_by_side():
    control = {"cpu": {"online": "0"}, "power_mode": {"gpu_mhz": 990}, "dvfs": "off"}
    assert len(cells(from_plain({"study": "s", "platform": "bare", "workload": "null", "control": control}))) == 1
