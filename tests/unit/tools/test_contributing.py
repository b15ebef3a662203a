"""The loop of CONTRIBUTING.md: each of its commands works as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
(LOOP,) = re.findall(r"^## The loop\n.*?^```console\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
COMMANDS = [line.removeprefix("$ ") for line in LOOP.splitlines()]
RUN_ANYWAY = (ROOT / "tools" / "test").read_text()


def installed() -> bool:
    """Whether `make dev` finds everything as it should be: a test installs nothing."""
    stamps = [path.stat().st_mtime for path in (ROOT / ".venv").glob(".tare-*")]
    wanted = [(ROOT / name).stat().st_mtime for name in ("pyproject.toml", "constraints.txt")]
    return bool(stamps) and max(stamps) >= max(wanted)


def test_it_begins_with_the_environment_and_runs_the_tests_of_a_folder() -> None:
    assert COMMANDS[0] == "make dev"
    assert [each for each in COMMANDS if each.startswith(".venv/bin/pytest tests/unit/")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_loop_works(command: str, tmp_path: Path) -> None:
    if command.removeprefix(".venv/bin/") in RUN_ANYWAY:
        return  # by `make test`, beside this test
    if not installed():
        pytest.skip("this environment is older than pyproject.toml or constraints.txt: `make dev` would install")
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "TORCH") if name in os.environ}
    options = f" --basetemp={tmp_path / 'own'} -p no:cacheprovider" if "pytest" in command else ""
    done = subprocess.run(
        ["bash", "-ec", command + options], cwd=ROOT, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
