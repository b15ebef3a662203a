"""The first weighing of someone who is not root: in whatever an ordinary user can run here, within seconds."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

import as_nobody

pytestmark = pytest.mark.machine("root")  # to become another user

TARE = (sys.executable, str(Path(__file__).with_name("undisturbed.py")))
SCRIPT = """
import os, pathlib
print(os.getuid(), sum(i * i for i in range(200_000)))
pathlib.Path("written.txt").write_text("by a trial")
"""


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(mkdtemp(prefix="tare-home-", dir="/var/tmp"))
    folder.chmod(0o755)
    (folder / "work").mkdir()
    os.chown(folder / "work", as_nobody.UID, as_nobody.UID)
    (folder / "work" / "script.py").write_text(SCRIPT)
    yield folder
    for pause in folder.rglob("pause.pid"):  # what rootless Podman leaves for its next call
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(pause.read_text()), signal.SIGTERM)
    shutil.rmtree(folder)


def tare(home: Path, *words: str) -> tuple[int, str]:
    env = {"TARE_LOCK_DIR": str(home / "locks")}
    done = as_nobody.run(["env", "-C", f"{home}/work", *TARE, *words], home, env=env, new_privileges=True)
    return done.returncode, done.stdout + done.stderr


def records(store: Path) -> list[dict[str, dict[str, object]]]:
    return [json.loads(path.read_text()) for path in sorted((store / "trials").glob("*/record.json"))]


def test_check_says_what_an_ordinary_user_goes_without_and_what_would_bring_it(home):
    code, text = tare(home, "doctor")

    flat = " ".join(text.split())
    assert code == 0, text
    assert "yes platform bare: works here." in flat
    assert "no root: tare does not run as root" in flat
    assert "run tare as root, or leave this probe away" in flat


def test_bare_metal_runs_without_a_control_group_and_leaves_the_folder_alone(home):
    study = {
        "study": "mine", "platform": "bare", "repeat": 1,
        "workload": {"command": {"argv": [sys.executable, "script.py"]}},
    }  # fmt: skip
    (home / "work" / "study.yaml").write_text(json.dumps(study))

    code, text = tare(home, "run", "study.yaml", "-o", "store")

    (record,) = records(home / "work" / "store")
    assert code == 0, text
    assert record["metrics"]["wall_s"] > 0
    assert not (home / "work" / "written.txt").exists()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.machine(name)) for name in ("apptainer", "podman")]
)
def test_a_container_without_root_is_weighed_against_bare_metal(name, home):
    code, text = tare(home, "weigh", "--in", name, "--blocks", "1", "-o", "store", "--", sys.executable, "script.py")

    found = {record["settings"]["platform"]: record for record in records(home / "work" / "store")}
    assert code == 0, text
    assert set(found) == {"bare", name}, text
    assert all(record["metrics"]["wall_s"] > 0 for record in found.values())
    assert not (home / "work" / "written.txt").exists()
