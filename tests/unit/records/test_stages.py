"""The folder of a `tare why`: several stores, read as one by `tare show` and `tare compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from some_records import draft, ended
from tare.base.errors import NoSuchInput
from tare.cli import tare
from tare.records.schema import ANSWER_FILE
from tare.records.stages import opened_stages, stages_of
from tare.records.store import Store

BOTH = ("bare", "docker")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two waves of two blocks, and three planned ones that were not needed."""
    for stage, others in (("look", ()), ("tried-1", ("podman",)), ("tried-10", ()), ("tried-2", ())):
        with Store.create(tmp_path / stage, {"study": f"why-{stage}", "compare": {"by": "platform"}}, "") as store:
            begun = [
                draft(f"{stage}{block}{name}", block=block, study=f"why-{stage}", settings={"platform": name})
                for block in range(2)
                for name in (*BOTH, *others)
            ]
            unneeded = draft(f"{stage}9", block=9, study=f"why-{stage}", settings={"platform": "bare"})
            store.plan([*begun, unneeded])
            for each in begun:
                writer = store.begin(each)
                writer.seal(ended(each), [], f"of {each.trial}", "")
    (tmp_path / ANSWER_FILE).write_text("Slower: 5.3x slower\n")
    return tmp_path


def test_the_stores_come_in_the_order_in_which_they_were_made_and_their_blocks_are_apart(folder: Path) -> None:
    stores = stages_of(folder)
    assert [store.name for store in stores] == ["look", "tried-1", "tried-2", "tried-10"]
    with opened_stages(folder, stores) as several:
        records = several.records()
        assert len(records) == 18
        assert len({record.block for record in records}) == 8
        assert set(several.states()) == {record.trial for record in records}
        assert several.holding("tried-21").path == folder / "tried-2"
        with pytest.raises(NoSuchInput, match="no trial 'nobody'"):
            several.holding("nobody")


def test_a_store_and_any_other_folder_are_no_such_folder(folder: Path) -> None:
    assert stages_of(folder / "look") == []
    assert stages_of(folder.parent) == []


def test_show_has_the_answer_and_each_trial(folder: Path) -> None:
    shown = CliRunner().invoke(tare, ["show", str(folder), "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["answer"] == "Slower: 5.3x slower\n"
    assert len(found["trials"]) == 18 and found["waiting"] == 0

    one = CliRunner().invoke(tare, ["show", str(folder), "tried-11podman"])
    assert "of tried-11podman" in one.stdout


def test_compare_has_all_trials_of_both_sides(folder: Path) -> None:
    done = CliRunner().invoke(tare, ["compare", str(folder), "--against", "bare", "--metric", "step_s", "--json"])
    assert done.exit_code == 0, done.output
    (docker,) = [each for each in json.loads(done.stdout)["comparisons"] if each["level"] == "docker"]
    assert docker["n"] == 8
