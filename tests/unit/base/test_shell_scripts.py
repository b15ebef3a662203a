"""Every shell script of this repository under shellcheck, also those that are an argument of another one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = [
    path
    for path in sorted((ROOT / "tools").iterdir())
    if path.is_file() and re.match(rb"#!.*\b(ba)?sh\b", path.read_bytes()[:80])
]
INNER = re.compile(r"bash -e?c '\n(.*?)\n'", re.DOTALL)


def test_there_are_scripts():
    assert {"setup", "test"} <= {path.name for path in SCRIPTS}
    assert INNER.search((ROOT / "tools/test").read_text())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path, tmp_path: Path):
    program = shutil.which("shellcheck")
    if program is None:
        if os.environ.get("TARE_REQUIRE"):
            pytest.fail("shellcheck is not installed; tools/setup test installs it as root")
        pytest.skip("shellcheck is not installed: `apt-get install shellcheck`")
    inner = [f"#!/bin/bash -e\n{body}\n" for body in INNER.findall(script.read_text())]
    for number, body in enumerate(inner):
        (tmp_path / f"inner-{number}").write_text(body)
    paths = [script, *tmp_path.iterdir()]
    done = subprocess.run([program, "-x", *paths], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("named", ["plain", "with space", "quo'te", 'dou"ble', "$(touch x)", "semi;rm"])
def test_the_folder_that_is_removed_is_the_one_that_was_made(named: str, tmp_path: Path):
    """The lines of tools/test that make and remove its folder, in a TMPDIR of any name."""
    body = INNER.search((ROOT / "tools/test").read_text())
    assert body is not None
    lines = re.search(r"^ *logs=\$\(mktemp -d.*?^ *trap cleanup EXIT$", body[1], re.MULTILINE | re.DOTALL)
    assert lines is not None
    parent, keep = tmp_path / named, tmp_path / named.split(" ")[0]
    parent.mkdir()
    keep.mkdir(exist_ok=True)
    (keep / "precious").write_text("")
    env = {**os.environ, "TMPDIR": str(parent)}
    subprocess.run(["bash", "-ec", lines[0]], env=env, check=True, cwd=tmp_path)
    assert (keep / "precious").exists()
    assert [path.name for path in parent.iterdir() if path.name != "precious"] == []


def test_actions_of_others_are_named_by_commit_and_not_by_a_tag_that_can_be_moved():
    used = [
        word
        for path in (ROOT / ".github/workflows").glob("*.yml")
        for word in re.findall(r"uses:\s*(\S+)", path.read_text())
    ]
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", word) for word in used), used
