from __future__ import annotations

import pytest

from tare.base.errors import TrialError
from tare.records.model import Record
from tare.trial.conditions import refuse_another

SETTINGS = {"platform": "docker", "platform.image": "pt:1", "workload": "null"}


def record(image: str, state: str = "ok", **settings: object) -> Record:
    place = {"root": "image", "image_id": image}
    return Record("t", 1, "s", 0, 0, 0, {**SETTINGS, **settings}, state, facts={"place": place})  # type: ignore[arg-type]


def test_a_tag_that_moved_between_two_repeats_is_refused():
    with pytest.raises(TrialError, match="sha256:a then, sha256:b now"):
        refuse_another(SETTINGS, {"root": "image", "image_id": "sha256:b"}, [record("sha256:a")])


def test_the_same_image_another_platform_and_failed_trials_are_no_reason():
    earlier = [record("sha256:b"), record("sha256:a", **{"platform.image": "pt:2"}), record("sha256:a", state="failed")]

    refuse_another(SETTINGS, {"root": "image", "image_id": "sha256:b"}, earlier)


def test_the_hosts_own_root_has_no_image_that_could_move():
    refuse_another(SETTINGS, {"root": "overlay", "image_id": "sha256:b"}, [record("sha256:a")])
