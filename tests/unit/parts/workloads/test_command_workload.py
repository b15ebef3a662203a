from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tare.base.host import Completed, LocalHost
from tare.base.secrets import mask
from tare.parts.find import find
from tare.parts.workloads.command import Command
from tare.testing import FakeHost


def command(*argv: str, **fields: Any) -> Command:
    return Command.model_validate({"argv": argv, **fields})


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Someone's folder with a script and data, and data of theirs elsewhere."""
    for name in ("work/train.py", "work/data/a.bin", "elsewhere/images/b.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path / "work"


def test_a_command_is_a_value_that_can_be_hashed_and_stored() -> None:
    one = command("python", "x.py", env={"B": "2", "A": 1})
    again = Command.model_validate(one.fields())

    assert find("workloads", "command") is Command
    assert one == again
    assert hash(one) == hash(again)
    assert len({one, again, command("python", "y.py")}) == 2
    assert one.fields()["env"] == {"B": "2", "A": "1"}


def test_secrets_reach_the_job_but_no_record() -> None:
    one = command("train", "--api-key=CANARY1", "--token", "CANARY2", env={"HF_TOKEN": "CANARY3", "A": "1"})
    other = command("train", "--api-key=CANARY1", "--token", "CANARY2", env={"HF_TOKEN": "CANARY4", "A": "1"})

    assert "CANARY" not in json.dumps(one.fields()) + one.title()
    assert one.fields()["env"] == {"HF_TOKEN": mask("CANARY3"), "A": "1"}
    assert one.fields() != other.fields()
    assert Command.model_validate(one.fields()).fields() == one.fields()  # masked twice is masked once
    job = one.job(FakeHost(), Path("/workdir"), 1)
    assert job.env["HF_TOKEN"] == "CANARY3"
    assert job.argv[-4:] == ("train", "--api-key=CANARY1", "--token", "CANARY2")


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp"])
def test_a_shared_folder_is_never_shown_whole(folder: str) -> None:
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".sh") as script:
        here = command("sh", Path(script.name).name, folder, f"--out={folder}", cwd=folder)

        assert here.inputs() == (Path(script.name),)
        assert here.job(FakeHost(), Path("/workdir"), 1).cwd == folder
        assert command("ls", cwd=folder, reads=[folder]).inputs() == (Path(folder),)


def test_a_line_is_split_into_words_and_no_shell_reads_it() -> None:
    assert Command.model_validate({"argv": "python 'my script.py' --lr 0.1"}).argv == (
        "python", "my script.py", "--lr", "0.1",
    )  # fmt: skip
    with pytest.raises(ValidationError, match="no shell runs the command, so '&&' means nothing"):
        Command.model_validate({"argv": "make data && python x.py"})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"argv": []}, "at least 1 item"),
        ({"argv": ["", "x"]}, "the first word names the program"),
        ({"argv": ["a\0b"]}, "zero byte"),
        ({"argv": ["x"], "cwd": "work"}, "depends on where tare is started"),
        ({"argv": ["x"], "reads": ["data"]}, "depends on where tare is started"),
        ({"argv": ["x"], "env": {"A": True}}, "put it in quotes"),
        ({"argv": ["x"], "shell": True}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_a_command_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Command.model_validate(fields)


def test_the_title_is_the_script_with_its_options_where_they_are_few() -> None:
    assert command("/opt/venv/bin/python", "-u", "src/train.py", "--epochs", "3").title() == "train.py --epochs 3"
    assert command("python", "train.py", *(f"--option-{n}={n}" for n in range(9))).title() == "train.py"
    assert command("torchrun", "--nproc_per_node", "2", "train.py").title() == "train.py"
    assert command("python3", "-c", "print(1)").title() == "python3 -c"
    assert command("python", "train.py", label="MNIST").title() == "MNIST"


def test_a_script_is_ended_at_a_step_by_what_its_hook_is_told() -> None:
    bounded = command("python", "train.py", steps=200, minutes=1.5).job(FakeHost(), Path("/workdir"), 1)
    assert json.loads(bounded.env["TARE_ATTACH"]) == {"stop_after_steps": 200, "stop_after_s": 90.0}
    assert "TARE_ATTACH" not in command("python", "train.py").job(FakeHost(), Path("/workdir"), 1).env


def test_a_script_that_is_not_there_is_an_obstacle_also_behind_options(work: Path) -> None:
    for words in (("python3", "-u", "gone.py"), ("bash", "gone.sh")):
        (found,) = command(*words, cwd=work).obstacles(LocalHost())
        assert (found.code, "gone." in str(found)) == ("needs.file", True)
    assert command("python3", "-m", "json.tool", "gone.py", cwd=work).obstacles(LocalHost()) == []


def test_the_job_runs_in_the_users_folder_with_their_words(work: Path) -> None:
    job = command("python", "train.py", cwd=work, env={"SEED": "7", "PATH": "/mine"}).job(
        FakeHost(), Path("/workdir"), 1
    )

    assert job.argv[-3:] == ("--", "python", "train.py")
    assert job.cwd == str(work)
    assert (job.env["SEED"], job.env["PATH"]) == ("7", "/mine")
    assert job.env["PYTHONPATH"].startswith("/workdir/inside/tare_inside/inside_site:/workdir/inside")


def test_without_a_folder_it_runs_where_tare_was_started(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)

    assert command("true").job(FakeHost(), Path("/workdir"), 1).cwd == str(work)


def test_inputs_are_the_folder_and_what_the_line_names(work: Path) -> None:
    outside = work.parent / "elsewhere" / "images"

    assert command("python", "train.py", "data", cwd=work).inputs() == (work,)
    assert command("python", "train.py", f"--data={outside}", cwd=work).inputs() == (work, outside)
    assert command("python", "train.py", "../elsewhere/images/b.bin", cwd=work).inputs() == (work, outside)
    assert command("python", "train.py", "no/such/file", "--lr", "0.1", "-", cwd=work).inputs() == (work,)


def test_folders_of_the_system_are_inputs_only_when_they_are_declared(work: Path) -> None:
    assert command("/usr/bin/env", "cat", "/etc/passwd", "/", cwd=work).inputs() == (work,)
    declared = command("cat", cwd=work, reads=["/etc/ssl", "/mnt/data"])
    assert declared.inputs() == (work, Path("/etc/ssl"), Path("/mnt/data"))


def test_a_file_in_tmp_is_shown_alone(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.parts.workloads.command._SHARED", (work.parent,))
    (work.parent / "one.py").write_text("")

    assert command("python", "../one.py", cwd=work).inputs() == (work, work.parent / "one.py")


def test_a_program_that_is_there_has_no_obstacle(work: Path) -> None:
    assert command(sys.executable, "train.py", cwd=work).obstacles(LocalHost()) == []
    assert command("sh", "-c", "true", cwd=work).obstacles(LocalHost()) == []


def test_a_program_that_is_not_there_gets_the_nearest_advice(work: Path) -> None:
    tool = work / "bin" / "trainit"
    tool.parent.mkdir()
    tool.write_text("")
    tool.chmod(0o755)
    env = {"PATH": str(tool.parent)}

    assert [*map(str, command("trianit", cwd=work, env=env).obstacles(LocalHost()))] == [
        "no program 'trianit' here; did you mean 'trainit'?"
    ]
    assert [*map(str, command("quite-another", cwd=work, env=env).obstacles(LocalHost()))] == [
        "no program 'quite-another' here; give its whole path, or put its folder on PATH."
    ]
    assert command("trainit", cwd=work, env=env).obstacles(LocalHost()) == []
    tool.chmod(0o644)
    (closed,) = map(str, command(str(tool), cwd=work, env=env).obstacles(LocalHost()))
    assert "may not be executed: `chmod +x` it" in closed


def test_a_program_beside_the_script_is_found_from_its_folder(work: Path) -> None:
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)

    assert command("./run.sh", cwd=work).obstacles(LocalHost()) == []
    assert command("./walk.sh", cwd=work).obstacles(LocalHost()) != []


def test_a_path_of_their_own_for_python_comes_after_ours() -> None:
    env = command("python", "x.py", env={"PYTHONPATH": "/mine:/other"}).job(FakeHost(), Path("/workdir"), 1).env

    assert env["PYTHONPATH"] == "/workdir/inside/tare_inside/inside_site:/workdir/inside:/mine:/other"


def test_a_missing_script_and_a_missing_folder_are_said_before_anything_runs(work: Path) -> None:
    assert [*map(str, command(sys.executable, "trian.py", cwd=work).obstacles(LocalHost()))] == [
        f"no file 'trian.py' in {work}; did you mean 'train.py'?"
    ]
    assert [*map(str, command(sys.executable, "no/other.py", cwd=work).obstacles(LocalHost()))] == [
        f"no file 'no/other.py' in {work}; give its whole path, or start tare in its folder (in a study: `cwd`)."
    ]
    assert [*map(str, command("true", cwd=work / "no").obstacles(LocalHost()))] == [
        f"no folder {work}/no to run the command in; set `cwd`."
    ]


def test_a_host_that_cannot_be_asked_is_an_obstacle() -> None:
    mute = FakeHost(answer=lambda argv: Completed(tuple(argv), 0, "not json", ""))

    assert str(command("true").obstacles(FakeHost())[0]).startswith("the host could not be asked for 'true'")
    assert str(command("true").obstacles(mute)[0]).startswith("the host could not be asked for 'true'")


@pytest.mark.parametrize(("written", "means"), [("torch", "torch"), ("none", "none"), (True, "torch"), (False, "none")])
def test_what_a_study_says_becomes_a_name(written: object, means: str) -> None:
    assert Command.model_validate({"argv": ["true"], "attach": written}).attach == means


@pytest.mark.parametrize("written", ["tensorflow", 1, None, "yes"])
def test_anything_else_is_refused(written: object) -> None:
    with pytest.raises(ValidationError, match="attach"):
        Command.model_validate({"argv": ["true"], "attach": written})
