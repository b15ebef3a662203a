"""`--python`: the workloads' interpreter from the command line, for a study as it is; a store remembers it."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tare.api import running
from tare.base.errors import StudyError
from tare.cli import run, tare, weigh, why
from tare.cli.why import runs as why_runs
from tare.studies.model import Study

BOARD = "/usr/bin/python3"
TRAINING = "study: s\nplatform: bare\nworkload: {torch_train: {batch: 4}}\nrepeat: 1\naa: false\n"


class Stop(Exception):
    """In place of the run: what would have been run."""


def answer(*words: str) -> Result:
    done = CliRunner().invoke(tare, list(words))
    if done.exception is not None and not isinstance(done.exception, Stop | SystemExit):
        raise done.exception
    return done


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(TRAINING)
    return "s.yaml"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    """The studies that would have been run, one after the other; a store is begun for each, and no trial."""
    studies: list[Study] = []

    def begin(study: Study, text: str, folder: Path, *options: Any, **named: Any) -> None:
        studies.append(study)
        running.open_store(study, text, folder).close()
        raise Stop

    for verb in (run, weigh, why_runs):
        monkeypatch.setattr(verb, "run_into", begin)
    monkeypatch.setattr(run, "needs_of_study", lambda study: nullcontext())
    for verb in (weigh, why):
        monkeypatch.setattr(verb, "choose_platform", lambda asked, stack: "runc")
    monkeypatch.setattr(why_runs, "needs_of", lambda names: nullcontext())
    return studies


def interpreters(study: Study) -> list[Any]:
    return [part.fields().get("python") for choice in study.workloads for part in choice.parts()]


def test_a_ready_study_is_run_by_its_name_with_the_boards_python(file: str, ran: list[Study]) -> None:
    answer("run", "s0-container-tax", "--scale", "smoke", "--python", BOARD, "-o", "store")

    assert ran[0].study == "s0-container-tax"
    assert set(interpreters(ran[0])) == {BOARD}
    kept = json.loads(Path("store/study.yaml").read_text())
    assert all(fields["python"] == BOARD for workload in kept["workload"] for fields in workload.values())


@pytest.mark.parametrize("words", [("weigh",), ("why",), ("weigh", "--workload", "resnet50-infer")])
def test_built_in_workloads_take_it(file: str, ran: list[Study], words: tuple[str, ...]) -> None:
    answer(*words, "--set", f"workload.python={BOARD}", "-o", "store")

    assert interpreters(ran[0]) == [BOARD]


def test_who_goes_on_need_not_say_it_again_and_is_told(file: str, ran: list[Study]) -> None:
    answer("run", file, "--python", BOARD, "-o", "store")
    said = answer("run", file, "-o", "store").stderr

    assert [interpreters(study) for study in ran] == [[BOARD], [BOARD]]
    assert f"resuming with --python {BOARD}, as store was started." in said


def test_another_store_has_none_of_it(file: str, ran: list[Study]) -> None:
    answer("run", file, "--python", BOARD, "-o", "store")
    said = answer("run", file, "-o", "other").stderr

    assert interpreters(ran[1]) == [None]
    assert "going on with" not in said
    assert Path("other/study.yaml").read_text() == TRAINING  # as it was written, where nothing was added to it


def test_a_store_goes_on_by_the_study_that_lies_in_it(file: str, ran: list[Study]) -> None:
    answer("run", file, "--python", BOARD, "-o", "store")
    answer("run", "store/study.yaml", "-o", "store")
    answer("run", "store/study.yaml", "--python", BOARD, "-o", "store")

    assert [interpreters(study) for study in ran] == [[BOARD]] * 3


def test_a_path_holds_wherever_the_trial_starts_and_a_link_stays_a_link(file: str, ran: list[Study]) -> None:
    here = Path.cwd()
    (here / "venv").symlink_to(Path(sys.executable).parent)
    answer("run", file, "--python", "venv/python", "-o", "store")
    answer("run", file, "--python", "python3.8", "-o", "other")

    assert [interpreters(study) for study in ran] == [[f"{here}/venv/python"], ["python3.8"]]


def test_an_empty_one_and_one_for_other_devices_are_refused(file: str, ran: list[Study]) -> None:
    with pytest.raises(StudyError, match="--python is empty"):
        answer("run", file, "--python", "")
    with pytest.raises(StudyError, match=r"--python is for this device: for others set `python` in the inventory"):
        answer("run", file, "--python", BOARD, "--fleet", "devices.yaml")
    assert ran == []


def test_plan_asks_the_interpreter_that_will_run(file: str) -> None:
    without_torch = Path("without")
    without_torch.write_text("#!/bin/sh\nexit 3\n")
    without_torch.chmod(0o755)
    why_not = f"{without_torch.absolute()} has no PyTorch"

    planned = CliRunner().invoke(tare, ["plan", file, "--python", "./without", "--json"])

    settings = [trial["settings"] for trial in json.loads(planned.stdout)["trials"]]
    assert [each["workload.python"] for each in settings] == [str(without_torch.absolute())]
    assert why_not in str(planned.exception)
    assert "`--python PATH`" in str(planned.exception)
    assert CliRunner().invoke(tare, ["plan", file, "--python", sys.executable]).exception is None
