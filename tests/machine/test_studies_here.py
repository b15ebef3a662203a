"""Each of the papers' experiments runs here at its smallest scale, or says in words what this machine lacks for it.

Beside other tests most trials are disturbed, which would make them invalid and leave the verbs nothing to read: here it
makes them suspect. What is looked at is that each was run to its end and sealed, and that every verb that the study
names reads what was kept.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tare.cli import tare as verbs
from tare.cli.studies import built_in, load_study
from tare.errors import TareError
from tare.records.store import Store

RUNS_BESIDE_OTHERS = True

TARE = Path(__file__).with_name("undisturbed.py")
TAKES_CORES_AWAY = ("s3-power-modes",)
NAMES = [
    pytest.param(name, marks=[pytest.mark.alone] if name in TAKES_CORES_AWAY else [])
    for name in built_in()
    if name[0] == "s" and name[1].isdigit()
]
CANNOT = 3

pytestmark = pytest.mark.machine("root", "docker")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data sets of this worker's own: an emulated medium is mounted over their folder."""
    return tmp_path_factory.mktemp("data")


@contextmanager
def alone_with_the_kernels_knobs(name: str, shared: Path) -> Iterator[None]:
    """Two studies that turn the kernel's dirty knobs cannot run side by side, and tests have locks of their own."""
    if not name.startswith("s2-"):
        yield
        return
    with (shared / "turns-dirty.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(name: str, store: Path, data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TARE), "run", name, "--scale", "smoke", "-o", str(store)]
    env = {**os.environ, "TARE_DATA": str(data)}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=420, cwd=store.parent, env=env)


def read(store: Path, ending: str) -> int:
    """What a verb says of a store: its exit code. In this process, since there are a hundred of them."""
    verb, *options = shlex.split(ending)
    done = CliRunner().invoke(verbs, [verb, str(store), *options])
    if isinstance(done.exception, TareError):
        return done.exception.exit_code
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_runs_and_can_be_read(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, data: Path
) -> None:
    place = tmp_path / "store"
    with alone_with_the_kernels_knobs(name, tmp_path_factory.getbasetemp().parent):
        done = run(name, place, data)

    if done.returncode == CANNOT:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("  - ")]
        assert reasons and all(":" in line for line in reasons), done.stderr
        assert not place.exists()
        return
    assert done.returncode == 0, done.stderr
    with Store.open(place) as store:
        states = [store.states().get(str(row["trial"])) for row in store.planned()]
    assert states and set(states) <= {"ok", "suspect"}, done.stderr
    for ending in load_study(Path(name), scale="smoke").ends_in:
        assert read(place, ending) == 0, ending
    assert (place / "report.html").stat().st_size > 10_000
