"""A folder with another study's store is said to be that, before its trials are compared with these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tare.api.running import refuse_silent_changes
from tare.base.errors import StudyError
from tare.plan.matrix import cells, trials
from tare.records.store import Store
from tare.studies.load import from_plain

PLAIN = {"study": "first", "platform": ["bare", "docker"], "workload": "torch_train", "repeat": 6}


@pytest.fixture
def store(tmp_path) -> Path:
    """A store that was begun with the study above."""
    study = from_plain(PLAIN)
    with Store.create(tmp_path / "store", study.as_plain(), "") as made:
        made.plan({"trial": trial.id, "settings": {}} for trial in trials(study, cells(study)))
    return tmp_path / "store"


def go_on(store: Path, accept: bool = False, **changed: Any) -> None:
    study = from_plain(PLAIN | changed)
    with Store.open(store) as opened:
        refuse_silent_changes(opened, study, trials(study, cells(study)), accept)


@pytest.mark.parametrize("changed", [{"repeat": 7}, {"workload": "idle"}, {"repeat": 7, "workload": "idle"}])
@pytest.mark.parametrize("accept", [False, True])
def test_another_study_in_the_folder_is_named_and_another_folder_advised(store, changed, accept):
    if accept and "repeat" not in changed:
        go_on(store, accept=True, study="second", **changed)  # whoever says so has his way, as before
        return
    with pytest.raises(StudyError) as refused:
        go_on(store, accept, study="second", **changed)
    assert str(refused.value).startswith(f"{store} holds another study: 'first', and this is 'second'.")
    assert "Give another folder with -o." in str(refused.value)
    assert ("--accept-changes" in str(refused.value)) == ("repeat" not in changed)


def test_a_study_of_the_same_name_is_told_what_has_changed_in_it(store):
    go_on(store)
    with pytest.raises(StudyError, match=r"^repeat in the study differs from what .* was begun with"):
        go_on(store, repeat=7)
    with pytest.raises(StudyError, match=r"^the study has changed since .* was begun: 18 new trials, 18 gone"):
        go_on(store, workload="idle")


def test_a_store_of_an_earlier_tare_is_not_called_an_edited_study(tmp_path):
    study = from_plain(PLAIN)
    with Store.create(tmp_path / "old", study.as_plain(), "") as made:
        rows = [
            {"trial": f"old-{trial.id}", "settings": {**trial.settings, "platform.writable": "then"}}
            for trial in trials(study, cells(study))
        ]
        made.plan(rows)

    with pytest.raises(StudyError) as refused:
        go_on(tmp_path / "old")

    said = str(refused.value)
    assert said.startswith(f"{tmp_path / 'old'} was begun by another version of tare, ")
    assert '(platform.writable: "then" then, ' in said
    assert f"`tare show {tmp_path / 'old'}`" in said
    assert "--accept-changes" not in said
