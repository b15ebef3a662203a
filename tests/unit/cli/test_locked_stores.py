"""A store that this user may not read cannot be read, whatever the verb: exit code 4, and a sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from some_records import run_one
from tare.base.errors import StoreError, StudyError
from tare.cli import tare
from tare.records.pack import pack
from tare.records.store import Store

VERBS = (
    "show devices", "show energy", "show kernel", "show pipeline", "show tenants", "show variability",
    "choose front", "choose recommend", "compare", "device baseload", "papers claims", "report", "show trials",
    "store check", "store pack", "store verify",
)  # fmt: skip
# Run by another process, since a user that was given up is not had back. What verbs import is loaded before: it may
# lie where only the first user can read.
PROGRAM = """
import json, os, sys
from click.testing import CliRunner
from tare.cli import tare

def said(verb, path):
    done = CliRunner().invoke(tare, [*verb.split(), path], standalone_mode=False)
    return [getattr(done.exception, "exit_code", repr(done.exception)), str(done.exception)]

verbs, empty, paths = json.loads(sys.argv[1])
for verb in verbs:
    said(verb, empty)
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
print(json.dumps([[name, verb, *said(verb, path)] for name, path in paths.items() for verb in verbs]))
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that others can enter, with a store, a pack and a folder of stores that they cannot read."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    with Store.create(root / "store", {"study": "s"}, "study: s\n") as store:
        run_one(store)
        pack(store, root / "locked.tare")
    shutil.copytree(root / "store", root / "inner" / "store")
    (root / "empty").mkdir()
    for name in ("store", "inner", "locked.tare"):
        (root / name).chmod(0)
    yield root
    for name in ("store", "inner"):
        (root / name).chmod(0o700)
    shutil.rmtree(root)


def test_every_verb_says_that_the_store_may_not_be_read(place: Path):
    paths = {name: str(place / name) for name in ("store", "inner/store", "locked.tare")}
    asked = json.dumps([VERBS, str(place / "empty"), paths])
    done = subprocess.run([sys.executable, "-c", PROGRAM, asked], check=True, capture_output=True, text=True, cwd="/")
    found = json.loads(done.stdout)
    assert len(found) == len(VERBS) * len(paths)
    wrong = [each for each in found if each[2] != StoreError.exit_code or "no permission" not in each[3]]
    assert wrong == []
    assert all(paths[name] in text for name, _, _, text in found)


def test_a_trace_that_may_not_be_read_is_a_wrong_command_line_of_simulate(tmp_path: Path, monkeypatch):
    (tmp_path / "trace.csv").write_text("t_s,page\n")
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    done = CliRunner().invoke(tare, ["trace", "simulate", str(tmp_path / "trace.csv")], standalone_mode=False)
    assert isinstance(done.exception, StudyError)
    assert "trace.csv: no permission to read it" in str(done.exception)


@pytest.mark.parametrize("verb", [*VERBS, "papers tables", "choose predict", "trace simulate", "watch", "store merge"])
def test_whether_a_store_may_be_read_is_not_for_the_command_line_to_say(verb: str, tmp_path: Path, monkeypatch):
    """As click looks: it would end with its own words, and 2."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    command: click.Command = tare
    for name in verb.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    paths = [each for each in command.params if isinstance(each, click.Argument) and isinstance(each.type, click.Path)]
    for path in paths:
        path.type_cast_value(click.Context(command), (str(tmp_path),) if path.nargs == -1 else str(tmp_path))
    assert paths
