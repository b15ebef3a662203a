"""Going on with a store on another kernel, or with another tare, is asked for or refused.

A folder with another study's store is said to be that, before its trials are compared with these.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from some_records import draft
from tare import __version__
from tare.api.running import (
    refuse_masks,
    refuse_mixing,
    refuse_moved_images,
    refuse_silent_changes,
    run_into,
    with_blocks,
)
from tare.base.errors import StudyError, TrialError
from tare.base.secrets import digest
from tare.plan.matrix import cells, trials
from tare.records.model import Record
from tare.records.store import Store
from tare.studies.load import from_plain
from tare.testing import FakeHost
from tare.trial.facts import device_facts

PLANNED: Any = [SimpleNamespace(id="a"), SimpleNamespace(id="b")]
HERE = {"device": {"kernel": device_facts(FakeHost())["kernel"]}}


@dataclass
class Begun:
    """A store with one trial done, and one to come."""

    record: Record
    left: str = "planned"
    root: Path = field(default=Path("out/study"))

    def records(self) -> list[Record]:
        return [self.record]

    def states(self) -> dict[str, str]:
        return {"a": self.record.state, "b": self.left}


def begun(**changes: Any) -> Any:
    return Begun(replace(draft("a", state="ok", facts=HERE, tare_version=__version__), **changes))


def test_the_same_kernel_and_the_same_tare_go_on():
    refuse_mixing(begun(), FakeHost(), PLANNED, accept=False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"facts": {"device": {"kernel": "4.9.140-tegra"}}},
            "the kernel has changed since out/study was begun: 4.9.140",
        ),
        ({"tare_version": "0.0.1"}, f"tare has changed since out/study was begun: 0.0.1 then, {__version__} now"),
    ],
)
def test_another_kernel_or_another_tare_is_refused_unless_it_is_accepted(change: dict[str, Any], says: str):
    with pytest.raises(StudyError, match=says) as refused:
        refuse_mixing(begun(**change), FakeHost(), PLANNED, accept=False)
    assert "--accept-changes" in str(refused.value)
    refuse_mixing(begun(**change), FakeHost(), PLANNED, accept=True)


def test_what_cannot_be_used_and_what_is_complete_is_no_reason_to_refuse():
    refuse_mixing(begun(tare_version="0.0.1", state="invalid"), FakeHost(), PLANNED, accept=False)
    whole = begun(tare_version="0.0.1")
    whole.left = "ok"
    refuse_mixing(whole, FakeHost(), PLANNED, accept=False)


@dataclass(frozen=True)
class InImage:
    """A platform whose image's name stands for this id now."""

    now: str | None

    def image_now(self, host: Any) -> str | None:
        return self.now


def in_image(now: str | None) -> list[Any]:
    """One trial in the image `app:new`."""
    cell = SimpleNamespace(platforms=(InImage(now),))
    return [SimpleNamespace(id="a", cell=cell, settings={"platform.image": "app:new"})]


def test_a_tag_that_has_moved_is_refused_though_every_trial_is_done():
    place = {"root": "image", "image_id": "sha256:a"}
    whole = begun(settings={"platform.image": "app:new"}, facts={**HERE, "place": place})
    whole.left = "ok"

    refuse_moved_images(whole, FakeHost(), in_image("sha256:a"))
    refuse_moved_images(whole, FakeHost(), in_image(None))
    with pytest.raises(TrialError, match=r"app:new is another one .*sha256:a then, sha256:b now"):
        refuse_moved_images(whole, FakeHost(), in_image("sha256:b"))


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


def test_a_study_with_a_secret_goes_on_where_the_machine_has_another_key(tmp_path, monkeypatch):
    command = {"argv": ["true"], "env": [{"HF_TOKEN": "first value"}, {"HF_TOKEN": "second value"}]}
    plain = PLAIN | {"workload": {"command": command}, "compare": {"against": {"platform": "bare"}}}

    def planned(state: str) -> tuple[Any, list[Any]]:
        monkeypatch.setenv("TARE_STATE", str(tmp_path / state))
        study = from_plain(plain)
        return study, trials(study, cells(study))

    study, before = planned("one")
    with Store.create(tmp_path / "store", study.as_plain(), "") as made:
        made.plan({"trial": trial.id, "settings": dict(trial.settings)} for trial in before)
    study, after = planned("two")

    assert [trial.settings for trial in before] != [trial.settings for trial in after]
    assert len({trial.id for trial in after}) == len(after)
    with Store.open(tmp_path / "store") as opened:
        refuse_silent_changes(opened, study, after, accept=False)


MASK = "hmac:0a1b:0123456789abcdef"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"workload": {"command": {"argv": ["true"], "env": {"HF_TOKEN": MASK}}}}, "^HF_TOKEN: "),
        ({"workload": {"command": {"argv": [["app", f"--key={MASK}"]]}}}, f"^the word --key={MASK}: "),
        ({"platform": ["bare", {"docker": {"image": "app", "env": {"API_KEY": MASK}}}]}, "^API_KEY: "),
    ],
)
def test_a_mask_is_not_given_to_a_job_in_place_of_the_secret(changed, says, tmp_path):
    study = from_plain(PLAIN | changed)
    with pytest.raises(StudyError, match=f"{says}.*Run it again from the study file or the command"):
        run_into(study, "", tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_variable_of_a_side_may_stand_there_as_a_digest_whose_value_is_known():
    study = from_plain(PLAIN | {"platform": ["bare", {"runc": {"env": {"APP": digest("some words")}}}]})

    refuse_masks(cells(study))


@pytest.mark.parametrize("ran", [14, 20])
def test_whoever_asks_again_for_as_many_blocks_as_the_store_is_run_for_resumes_it(tmp_path: Path, ran: int):
    keys = {"study": "s", "platform": ["bare", "docker"], "workload": "null"}
    begun_with = from_plain({**keys, "repeat": {"min": 20, "max": 20, "seen": [6]}})
    with Store.create(tmp_path / "store", begun_with.as_plain(), "") as store:
        for block in range(ran):
            first = replace(draft(f"trial-{block}"), block=block)
            writer = store.begin(first)
            writer.seal(replace(first, attempt=writer.attempt, state="ok"), [], "", "")

    assert with_blocks(from_plain(keys), tmp_path / "store", 20).repeat == begun_with.repeat
    assert with_blocks(from_plain(keys), tmp_path / "store", 30).repeat.seen == (6, ran)
