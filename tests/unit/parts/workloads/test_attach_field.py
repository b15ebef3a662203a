"""The `attach` field of a command: a name, and the truth values that older studies hold."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tare.parts.workloads.command import Command


@pytest.mark.parametrize(("written", "means"), [("torch", "torch"), ("none", "none"), (True, "torch"), (False, "none")])
def test_what_a_study_says_becomes_a_name(written: object, means: str) -> None:
    assert Command.model_validate({"argv": ["true"], "attach": written}).attach == means


@pytest.mark.parametrize("written", ["tensorflow", 1, None, "yes"])
def test_anything_else_is_refused(written: object) -> None:
    with pytest.raises(ValidationError, match="attach"):
        Command.model_validate({"argv": ["true"], "attach": written})
