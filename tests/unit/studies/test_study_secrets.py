"""What a study says of secrets once it is stored; with the parts as they are, for they say what a secret is."""

from __future__ import annotations

import json
from typing import Any

from tare.studies.model import Study


def study(workload: Any) -> Study:
    return Study.model_validate({"study": "s", "platform": ["bare", "runc"], "workload": workload})


def test_a_study_as_plain_data_shows_no_secret() -> None:
    keys = {"argv": ["train", "--token", "CANARY1"], "env": {"HF_TOKEN": "CANARY2"}}
    made = study({"command": keys})
    again = Study.model_validate(made.as_plain())

    assert "CANARY" not in json.dumps(made.as_plain())
    assert made.workloads[0].hides
    assert again.as_plain() == made.as_plain()
    assert [part.fields() for part in again.workloads[0].parts()] == [
        part.fields() for part in made.workloads[0].parts()
    ]
    (part,) = made.workloads[0].parts()
    assert part.env == {"HF_TOKEN": "CANARY2"}  # type: ignore[attr-defined]
    assert not study({"command": {"argv": "train --lr 1"}}).workloads[0].hides
