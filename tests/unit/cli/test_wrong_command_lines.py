"""Command lines that cannot be run are refused in words, with what was probably meant, before anything runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tare.base.errors import TareError
from tare.cli import tare
from tare.cli.command_line import CommandVerb


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a newcomer: a script, a table and a study; no engine and no platform can be asked for anything."""
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "mine.csv").write_text("side,seconds\na,1\nb,2\n")
    (tmp_path / "my.yaml").write_text("study: my\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tare.cli.weigh.choose_platform", _never)
    monkeypatch.setattr("tare.cli.why.choose_platform", _never)
    return tmp_path


def _never(*given: object) -> None:
    raise AssertionError(f"a platform was looked for: {given}")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("weigh train.py", "Did you mean `tare weigh -- python train.py`?"),
        ("why train.py", "Did you mean `tare why -- python train.py`?"),
        (
            "why --layers always -- docker run --cpus 1 app python train.py",
            "--layers takes a container of tare's own apart, and not yours.",
        ),
        ("weigh --seconds 60 -- python train.py", "--seconds of `tare weigh` is now `--budget 5min`."),
        ("weigh --in runc --limit cpus=1 -- podman run app", "--in is for a container that tare makes"),
        ("weigh --set platform.allow_netwrok=true -- podman run app", "Did you mean 'allow_network'?"),
        ("weigh --in runc -- podman run app", "--in is for a container that tare makes: write it into your line"),
        ("weigh -- trian.py", "Did you mean `tare weigh -- python train.py`?"),
        ("weigh train.py --in docker --epochs 3", "`tare weigh --in docker -- python train.py --epochs 3`"),
        ("weigh gone.py", "gone.py: there is no such file in "),
        ("weigh --in docker python train.py --device=cpu", "`tare weigh --in docker -- python train.py --device=cpu`"),
        (
            "weigh --in docker python train.py --trial-limit 3steps",
            "`tare weigh --in docker --trial-limit 3steps -- python train.py`",
        ),
        ("why --limit cpus=1 python train.py --lr 3", "`tare why --limit cpus=1 -- python train.py --lr 3`"),
        ("weigh my.yaml", "`tare run my.yaml`"),
        ("weigh -- pyhton train.py", "no program 'pyhton' here"),
        ("weigh -- python trian.py", "did you mean 'train.py'?"),
        ("why -- python trian.py", "did you mean 'train.py'?"),
        ("weigh -- '' x", "the first word names the program, and it is empty."),
        ("weigh --server 'python train.py' --port 8000 --slo 'first_token 300ms'", "only streamed answers"),
        ("weigh --image ./gone.tar -- python train.py", "no image ./gone.tar: there is no such file or folder."),
        ("why --image ./gone.tar -- python train.py", "/gone.tar: there is no such file or folder."),
        ("weigh --set workload.python=/gone/python", "workload.python=/gone/python: there is no such file."),
        ("run train.py", "`tare weigh -- COMMAND` runs a command."),
        ("run -- python train.py", "Did you mean `tare weigh -- python train.py`?"),
        ("plan train.py", "`tare weigh -- COMMAND` runs a command."),
        ("train.py", "Did you mean `tare weigh -- python train.py`?"),
        ("compare gone", "gone: there is no such file or folder."),
        ("compare mine.csv", "Columns: side, seconds."),
        ("compare mine.csv --metric seconds", "No column 'platform'. Available: side, seconds. --by names"),
        ("watch mine.csv", "mine.csv: this is a file"),
    ],
)
def test_it_is_said_what_was_meant_and_nothing_is_run(words: str, says: str):
    done = CliRunner().invoke(tare, shlex.split(words), standalone_mode=False)

    assert isinstance(done.exception, TareError | click.ClickException), done.exception
    error = done.exception
    assert says in (error.format_message() if isinstance(error, click.ClickException) else str(error))
    assert not Path("out").exists()


def test_what_stands_after_the_dashes_is_left_alone():
    words = ["weigh", "--", "python", "train.py", "--in", "docker", "--help"]
    done = CliRunner().invoke(tare, words, standalone_mode=False)

    assert isinstance(done.exception, AssertionError)  # it went as far as to look for a platform


@pytest.mark.parametrize("words", ["--image app:1 -- /app/run.sh", "--image=app:1 -- serve.py --epochs 3"])
def test_a_script_that_is_not_here_may_be_in_the_image(words: str):
    done = CliRunner().invoke(tare, ["weigh", *words.split()], standalone_mode=False)

    assert isinstance(done.exception, AssertionError), done.exception  # it went as far as to look for a platform


def test_an_argument_without_words_yet_is_no_command():
    """Before the first word click 8.1 has an empty tuple, and a later click a mark."""

    class OfOldClick(CommandVerb):
        def make_parser(self, ctx: click.Context) -> Any:
            parse_args = super().make_parser(ctx).parse_args

            def parsed(args: list[str]) -> Any:
                given, left, order = parse_args(args)
                words = given.get("command_line")
                return {**given, "command_line": words if isinstance(words, tuple) else ()}, left, order

            return SimpleNamespace(parse_args=parsed)

    verb = OfOldClick("weigh", params=[click.Option(["--in"]), click.Argument(["command_line"], nargs=-1)])
    given = ["--in", "docker", "--", "python", "train.py", "--epochs", "3"]

    assert verb._first_word(click.Context(verb), given) == 3
