"""Stores put together: what is copied, what is there already, and what is refused."""

from __future__ import annotations

import json

import pytest

from tare.base.errors import StoreError
from tare.records.merging import merge, take_in
from tare.records.model import Record
from tare.records.store import Store


def made(root, *trials, study="s", out="said"):
    store = Store.create(root, {"study": study}, "")
    for number, trial in enumerate(trials):
        draft = Record(trial, 0, study, 0, number, 0, {"platform": "bare", "device": root.name}, "running")
        writer = store.begin(draft)
        writer.seal(Record.from_json({**draft.as_json(), "state": "ok", "metrics": {"wall_s": 1.0}}), [], out, "")
    return store


@pytest.fixture
def into(tmp_path):
    with made(tmp_path / "into", "aaa") as store:
        yield store


def test_what_another_store_has_is_copied_and_noted(into, tmp_path):
    made(tmp_path / "other", "bbb", "ccc").close()
    found = merge(into, [tmp_path / "other"])
    assert found.copied == ("bbb.1", "ccc.1")
    assert into.states() == {"aaa": "ok", "bbb": "ok", "ccc": "ok"}
    assert into.verify() == []
    into.close()
    with Store.open(into.root) as again:
        assert again.problems == []
        assert [record.trial for record in again.records()] == ["aaa", "bbb", "ccc"]


def test_merging_twice_is_as_merging_once(into, tmp_path):
    made(tmp_path / "other", "bbb").close()
    merge(into, [tmp_path / "other"])
    before = {path: path.read_bytes() for path in sorted((into.root / "trials").rglob("*.*")) if path.is_file()}
    found = merge(into, [tmp_path / "other", tmp_path / "other"])
    assert (found.copied, found.there, found.refused) == ((), ("bbb.1", "bbb.1"), ())
    assert {path: path.read_bytes() for path in before} == before


def test_the_same_attempt_with_other_content_is_refused_and_the_first_one_stays(into, tmp_path):
    made(tmp_path / "other", "aaa", "bbb", out="said otherwise").close()
    found = merge(into, [tmp_path / "other"])
    assert found.copied == ("bbb.1",)
    assert len(found.refused) == 1
    assert "says otherwise" in found.refused[0]
    assert into.output("aaa", 1) == ("said", "")


def test_a_damaged_trial_is_not_merged(into, tmp_path):
    made(tmp_path / "other", "bbb").close()
    path = tmp_path / "other" / "trials" / "bbb.1" / "out.txt"
    path.chmod(0o600)
    path.write_text("tiad")
    found = merge(into, [tmp_path / "other"])
    assert found.copied == ()
    assert "checksum differs" in found.refused[0]
    assert "bbb" not in into.states()


def test_a_store_of_another_study_and_the_store_itself_are_refused(into, tmp_path):
    made(tmp_path / "other", "bbb", study="t").close()
    with pytest.raises(StoreError, match="study 't'"):
        merge(into, [tmp_path / "other"])
    with pytest.raises(StoreError, match="into itself"):
        merge(into, [into.root])
    assert into.states() == {"aaa": "ok"}


def test_an_attempt_that_still_runs_elsewhere_is_said(into, tmp_path):
    other = made(tmp_path / "other", "bbb")
    other.begin(Record("ccc", 0, "s", 0, 1, 0, {"platform": "bare"}, "running"))
    other.close()
    found = merge(into, [tmp_path / "other"])
    assert found.copied == ("bbb.1",)
    assert "cut off" in found.notes[0]


def test_files_that_are_not_of_the_trial_are_left_behind(into, tmp_path):
    made(tmp_path / "other", "bbb").close()
    (tmp_path / "other" / "trials" / "bbb.1" / "stranger").write_text("x")
    take_in(into, tmp_path / "other" / "trials")
    assert not (into.root / "trials" / "bbb.1" / "stranger").exists()
    assert into.verify() == []


def test_the_verb_says_what_it_did_and_fails_on_what_it_refused(into, tmp_path):
    from click.testing import CliRunner

    from tare.cli.store import command

    into.close()
    made(tmp_path / "other", "bbb").close()
    said = CliRunner().invoke(command, ["merge", str(into.root), str(tmp_path / "other"), "--json"])
    assert said.exit_code == 0
    assert json.loads(said.stdout)["copied"] == ["bbb.1"]
    made(tmp_path / "third", "aaa", out="else").close()
    said = CliRunner().invoke(command, ["merge", str(into.root), str(tmp_path / "third")])
    assert isinstance(said.exception, StoreError)
