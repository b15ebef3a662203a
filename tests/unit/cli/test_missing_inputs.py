"""What the command line names and is not there: one exit code, whatever the verb would have read from it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tare.base.errors import StoreError
from tare.cli import tare

# Every verb with an input, and what else it has to be told before it looks.
VERBS = {
    "plan": (), "run": (), "show trials": (), "compare": ("--metric", "x"), "report": (), "watch": (),
    "show energy": (), "show variability": ("--metric", "x"), "show pipeline": (), "show kernel": (),
    "show tenants": (), "show devices": (), "choose front": (), "choose recommend": (),
    "choose predict": ("--features", "a", "--columns", "time=t,energy=e"), "papers claims": (),
    "device baseload": (), "device fleet check": (), "device data check": (),
    "store check": (), "store pack": (), "store verify": (),
    "trace import": (), "trace simulate": (), "trace tegrastats": (),
}  # fmt: skip
# These make what they name, or name something that is no path of an input.
OTHERS = {"papers tables", "store merge", "device data make", "device fleet trial"}


def run(verb: str, path: Path) -> tuple[int, str]:
    done = CliRunner().invoke(tare, [*verb.split(), str(path), *VERBS[verb]], standalone_mode=False)
    assert done.exception is not None, done.output
    return int(getattr(done.exception, "exit_code", 1)), str(done.exception)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["gone/store", "gone.csv", "gone.yaml"])
def test_an_input_that_is_not_there_is_a_wrong_command_line(verb: str, name: str, tmp_path: Path):
    code, said = run(verb, tmp_path / name)
    assert code == 2, said
    assert "gone" in said


@pytest.mark.parametrize(
    "verb",
    ["show trials", "show energy", "show kernel", "show tenants", "show devices", "papers claims", "report"],
)
def test_a_folder_that_is_there_and_no_store_is_a_store_that_cannot_be_read(verb: str, tmp_path: Path):
    assert run(verb, tmp_path)[0] == StoreError.exit_code == 4


def test_no_verb_with_an_input_is_left_out():
    with_input = {
        " ".join(path)
        for path, command in _walk(tare)
        if any(isinstance(each, click.Argument) and isinstance(each.type, click.Path | click.File)
               for each in command.params)
    }  # fmt: skip
    assert with_input - OTHERS == VERBS.keys()


def _walk(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    inner = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [found for name, each in inner if each is not None for found in _walk(each, (*path, name))]
