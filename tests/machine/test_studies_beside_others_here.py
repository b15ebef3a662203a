"""Every study that comes with tare ends with a table at its smallest scale, while two loops keep the cores busy.

The verdicts are tare's own here (STRICT): what others do makes a trial suspect, and no trial is run again for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm_tare

from tare.api.running import built_in
from tare.records.store import Store

pytestmark = [pytest.mark.machine("root", "docker"), pytest.mark.deep, pytest.mark.alone]
STUDIES = [name for name, path in built_in().items() if "\n  smoke:" in path.read_text("utf-8")]
CANNOT = 3
LOOPS = 2


@pytest.fixture(scope="module")
def busy_cores() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOOPS)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.usefixtures("busy_cores")
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_ends_with_a_table_on_a_busy_machine(name: str, tmp_path: Path) -> None:
    place = tmp_path / "store"
    env = {**os.environ, "TARE_DATA": str(tmp_path / "data"), "STRICT": "1", "WITHOUT_TORCH": "1"}
    done = warm_tare.run("run", name, "--scale", "smoke", "-o", place, cwd=tmp_path, env=env, timeout=900)
    if done.returncode == CANNOT:  # this machine lacks something
        assert not place.exists()
        return
    assert done.returncode == 0, done.stderr
    assert "all planned trials are done." in done.stderr
    assert "run again" not in done.stderr
    with Store.open(place) as store:
        states = {str(row["trial"]): store.states().get(str(row["trial"])) for row in store.planned()}
    usable = [trial for trial, state in states.items() if state in ("ok", "suspect")]
    assert len(usable) > 0.9 * len(states), done.stderr
    assert done.stdout.strip()
