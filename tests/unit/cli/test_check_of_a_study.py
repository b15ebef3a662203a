"""`tare plan STUDY` where nothing of the study can be run here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tare.base.errors import ObstacleError, cannot_run
from tare.base.rulings import obstacle
from tare.cli import tare
from tare.cli.doctor import _tell_suspects
from tare.parts.protocols import Suspicion
from tare.plan.why import Suspects

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

    done = CliRunner().invoke(tare, ["plan", str(study), *form])

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


def test_the_suspects_of_an_image_are_plain_data(capsys: pytest.CaptureFixture[str]):
    suspect = Suspicion(
        weight=0.9, evidence="LD_DEBUG=all.", without={"env": {"LD_DEBUG": None}}, cure="env -u LD_DEBUG"
    )
    _tell_suspects("app", Suspects({"debug_variables": suspect}, {"ulimits": "the same."}), as_json=True)

    told = json.loads(capsys.readouterr().out)
    assert told["suspects"]["debug_variables"]["cure"] == "env -u LD_DEBUG"
    assert (told["image"], told["ruled_out"], told["not_looked_at"]) == ("app", {"ulimits": "the same."}, {})
