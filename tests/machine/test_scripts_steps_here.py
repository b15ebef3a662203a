"""Scripts as people write them, on all four platforms: their steps are found, and times agree with their own clocks."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_tare

from scripts_own_times import check_steps
from tare.records.store import Store
from tare_inside import marks

INSIDE = Path(__file__).parents[1] / "unit" / "inside"
NAMES = ("bare", "docker", "podman", "runc")
# The loops of the seven scripts in docs/how-to/my-script.md; others run on bare metal, in the unit tests.
KINDS = ("mnist", "word_language_model", "with_an_optimiser", "dcgan", "nanogpt", "closure")
pytestmark = pytest.mark.machine("root", *NAMES)


@pytest.fixture
def folder() -> Iterator[Path]:
    """On the disk, where users have theirs."""
    made = Path(tempfile.mkdtemp(prefix="tare-steps-", dir="/var/tmp"))
    yield made
    shutil.rmtree(made)


def run(folder: Path, store: str, line: str, platforms: tuple[str, ...], **fields: Any) -> dict[str, Path]:
    """One trial on each platform, by a shell script that calls Python; returns the folders of the trials."""
    work = {"argv": ["bash", "-c", line], "cwd": str(folder), "env": {"OMP_NUM_THREADS": "1"}, **fields}
    plain = {"study": "s", "platform": list(platforms), "workload": {"command": work}, "repeat": 1, "aa": False}
    (folder / "study.yaml").write_text(json.dumps({**plain, "probes": [], "rehearse": False, "limit": "300 s"}))
    done = warm_tare.run("run", "study.yaml", "-o", store, cwd=folder, timeout=500)
    with Store.open(folder / store) as opened:
        records = opened.records()
    assert [record.state for record in records if record.state not in ("ok", "suspect")] == [], done.stderr
    assert len(records) == len(platforms)
    return {record.settings["platform"]: folder / store / "trials" / f"{record.trial}.1" for record in records}


@pytest.mark.deep
def test_every_kind_of_loop_has_its_own_steps_and_times_on_every_platform(folder: Path, deep: bool) -> None:
    (folder / "lines").write_text(json.dumps([["own_times.py", kind] for kind in KINDS]))
    (folder / "ran").mkdir()
    python, path = shlex.quote(sys.executable), shlex.quote(str(Path(marks.__file__).parents[1]))
    line = (
        f"into=$(mktemp -d {folder}/ran/XXXXXX); echo $into;"
        f"PYTHONPATH={path} {python} {shlex.quote(str(INSIDE / 'forked_runs.py'))} $into attached < lines"
    )
    names = NAMES if deep else ("docker", "runc")
    trials = run(folder, "store", line, names, attach="none", writes=[str(folder / "ran")])
    for trial in trials.values():
        into = Path((trial / "out.txt").read_text().strip())
        for kind in KINDS:
            check_steps(into / f"own_times.py {kind}" / "attached", kind)


@pytest.mark.deep
def test_two_ranks_under_torchrun_find_each_other_in_a_container_and_the_first_is_marked(folder: Path) -> None:
    python = shlex.quote(sys.executable)
    line = f"{python} -m torch.distributed.run --standalone --nproc_per_node 2 -m own_times distributed\nexit $?"

    trials = run(folder, "store", f"cd {shlex.quote(str(INSIDE / 'scripts'))} && {line}", ("docker",))

    own = json.loads((trials["docker"] / "out.txt").read_text().splitlines()[-1])
    assert own["steps"] == 6
    assert json.loads((trials["docker"] / "record.json").read_text())["metrics"]["steps"] == 6
