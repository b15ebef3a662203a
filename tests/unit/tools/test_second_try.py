"""tools/second-try after a first run of a small folder of tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "second-try"

FLAKY = """
from pathlib import Path

def test_passes_the_second_time():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_passes():
    Path(__file__).with_suffix(".runs").open("a").write("x")
"""
BROKEN = "def test_fails():\n    assert False\n"
MANY = "import pytest\n\n@pytest.mark.parametrize('x', range(9))\ndef test_fails(x):\n    assert False\n"


class Tries:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = folder / "names"
        self.environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # which takes longer than these tests
        }

    def first(self) -> int:
        return self._run("pytest", "-o", "cache_dir=cache", ".").returncode

    def second(self, status: int) -> subprocess.CompletedProcess[str]:
        return self._run(str(SCRIPT), str(status), "cache", str(self.names), ".")

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def tries(tmp_path: Path) -> Tries:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:xdist\n")
    return Tries(tmp_path)


def test_what_passes_then_is_named_and_nothing_else_is_run_again(tries: Tries) -> None:
    (tries.folder / "test_flaky.py").write_text(FLAKY)

    second = tries.second(tries.first())

    assert second.returncode == 0, second.stdout
    assert tries.names.read_text() == "test_flaky.py::test_passes_the_second_time\n"
    assert (tries.folder / "test_flaky.runs").read_text() == "x"


def test_a_real_failure_fails_again_and_nothing_is_called_flaky(tries: Tries) -> None:
    (tries.folder / "test_flaky.py").write_text(FLAKY)
    (tries.folder / "test_broken.py").write_text(BROKEN)

    second = tries.second(tries.first())

    assert second.returncode == 1
    assert "test_broken.py::test_fails" in second.stdout
    assert not tries.names.exists()


def test_many_failures_are_not_tried_again(tries: Tries) -> None:
    (tries.folder / "test_many.py").write_text(MANY)

    second = tries.second(tries.first())

    assert (second.returncode, second.stdout) == (1, "")


@pytest.mark.parametrize("status", [0, 2, 5])
def test_a_run_that_passed_or_did_not_come_to_its_end_is_left_as_it_is(tries: Tries, status: int) -> None:
    assert tries.second(status).returncode == status
