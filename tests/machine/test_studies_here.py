"""Each of the papers' experiments runs here at its smallest scale, or says in words what this machine lacks for it.

Beside other tests most trials are disturbed, and tare calls them invalid: what is looked at is that each was run to its
end and sealed, and that every verb that the study names reads what was kept.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tare.cli.studies import built_in, load_study
from tare.records.store import Store

RUNS_BESIDE_OTHERS = True

TARE = Path(__file__).with_name("without_reruns.py")
TAKES_CORES_AWAY = ("s3-power-modes",)
IN_EVERY_RUN = ("s0-syscalls", "s3-batch")  # the others, twenty minutes of them: `make deep`


def marked(name: str) -> ParameterSet:
    alone = [pytest.mark.alone] if name in TAKES_CORES_AWAY else []
    return pytest.param(name, marks=[*alone, *([] if name in IN_EVERY_RUN else [pytest.mark.deep])])


NAMES = [marked(name) for name in built_in() if name[0] == "s" and name[1].isdigit()]
CANNOT, NOTHING_USABLE = 3, (1, 2, 4)

pytestmark = pytest.mark.machine("root", "docker")


def tare(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TARE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=420, cwd=cwd)


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_runs_and_can_be_read(name: str, tmp_path: Path) -> None:
    done = tare("run", name, "--scale", "smoke", "-o", "store", cwd=tmp_path)

    if done.returncode == CANNOT:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("  - ")]
        assert reasons and all(":" in line for line in reasons), done.stderr
        assert not (tmp_path / "store").exists()
        return
    assert done.returncode in (0, *NOTHING_USABLE), done.stderr
    with Store.open(tmp_path / "store") as store:
        states = [store.states().get(str(row["trial"])) for row in store.planned()]
        assert states and set(states) <= {"ok", "suspect", "invalid"}, done.stderr
        all_usable = "invalid" not in states
    for ending in load_study(Path(name), scale="smoke").ends_in:
        verb, *options = shlex.split(ending)
        read = tare(verb, "store", *options, cwd=tmp_path)
        assert read.returncode == 0 or (not all_usable and read.returncode in NOTHING_USABLE), f"{verb}: {read.stderr}"
        assert "Traceback" not in read.stderr
    assert (tmp_path / "store" / "report.html").stat().st_size > 10_000
