"""`tare check STUDY` where nothing of the study can be run here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tare.base.errors import ObstacleError, cannot_run
from tare.base.rulings import obstacle
from tare.cli import tare

STUDY = """
study: nothing
platform: bare
workload: {command: {argv: [/no/such/program]}}
probes: [cpu]
repeat: 2
missing: leave_out
"""


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_keeps_it_from_running_is_said_and_that_nothing_was_run_is_not(tmp_path: Path, form: list[str]):
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)

    done = CliRunner().invoke(tare, ["check", str(study), *form])

    assert isinstance(done.exception, ObstacleError)
    said = str(done.exception)
    assert "/no/such/program" in said
    assert "nothing was run" not in said
    if form:
        told = json.loads(done.stdout)
        assert any("/no/such/program" in each["sentence"] for each in told["obstacles"])


def test_a_program_or_file_that_its_user_named_is_wrong_input_and_no_fault_of_the_device():
    wrong = [obstacle(code, "no 'pythn' here").about("workload server") for code in ("needs.program", "needs.file")]
    assert (cannot_run("it", wrong).exit_code, str(cannot_run("it", wrong)).count("pythn")) == (2, 2)
    for other in (obstacle("needs.root", "not root"), obstacle("needs.program", "no qemu").about("platform qemu")):
        assert cannot_run("it", [*wrong, other]).exit_code == 3
