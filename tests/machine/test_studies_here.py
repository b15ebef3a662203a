"""Each of the papers' experiments runs here at its smallest scale, or says in words what this machine lacks for it.

Beside other tests most trials are disturbed, which would make them invalid and leave the verbs nothing to read: here it
makes them suspect. What is looked at is that each was run to its end and sealed, and that every verb that the study
names reads what was kept.

Importing torch is most of a trial. Within four days run with it so many studies that together they have every platform
x workload that any study has, a quarter of them each day, and within eight also those few that have the other
combinations of platform x workload x probe. The rest run with programs that do not compute (program_without_torch.py),
on the same platforms, with the same controls, tenants and probes, an eighth of them each day; `make deep` has all of
them, with torch and without.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import warm_tare
from click.testing import CliRunner

import sweeps
from tare.api.running import built_in, load_study
from tare.base.errors import TareError
from tare.base.host import LocalHost
from tare.cli import tare as verbs
from tare.cli.report import endings
from tare.parts.find import find
from tare.plan.matrix import cells
from tare.records.store import Store
from tare.studies.model import Study

TAKES_CORES_AWAY = ("s3-power-modes",)
STUDIES = [name for name in built_in() if (name[0] == "s" and name[1].isdigit()) or name.startswith(("llm-", "serve-"))]
CANNOT = 3
QUARTERS = 4
HELD = {  # control or probe -> what no other test may use meanwhile
    "storage": "media", "dirty": "dirty", "ftrace": "tracing", "perf": "tracing", "syscalls": "tracing"
}  # fmt: skip


@cache
def smallest(name: str) -> Study:
    """A study at its smallest scale; every worker that collects reads all of them, hence once."""
    return load_study(Path(name), scale="smoke")


@cache
def combinations(name: str) -> frozenset[tuple[str, str, str]]:
    """Platform, workload and probe, where it works here, of every cell of a study at its smallest scale."""
    study = smallest(name)
    pairs = {(str(cell.settings["platform"]), str(cell.settings["workload"])) for cell in cells(study)}
    return frozenset((*pair, probe.name) for pair in pairs for probe in study.probes if works_here(probe.name))


@cache
def works_here(probe: str) -> bool:
    made: Any = find("probes", probe)()
    return not made.obstacles(LocalHost())


def held(name: str) -> set[str]:
    """What no other test may use while this study runs."""
    study = smallest(name)
    controls = {part.name for axis in study.controls for part in axis}
    return {HELD[each] for each in controls | {probe.name for probe in study.probes} if each in HELD}


def covering(parts: int = 3) -> list[str]:
    """Studies that have every combination of these first parts of platform, workload, probe; the largest first."""
    left = {name: {found[:parts] for found in combinations(name)} for name in STUDIES}
    chosen = []
    while new := set(left[most := max(left, key=lambda name: len(left[name]))]):
        chosen.append(most)
        left = {name: found - new for name, found in left.items()}
    return chosen


@cache
def with_torch_today() -> frozenset[str]:
    """A quarter of those with every pair, and an eighth of the other few."""
    pairs, day = covering(2), sweeps.chosen()
    others = [name for name in covering() if name not in pairs]
    return frozenset([*pairs[day % QUARTERS :: QUARTERS], *others[day :: sweeps.EIGHTHS]])


@cache
def without_torch_today() -> frozenset[str]:
    """An eighth of all, another one each day, but for those that run with torch today."""
    return frozenset(STUDIES[sweeps.chosen() :: sweeps.EIGHTHS]) - with_torch_today()


def params() -> list[Any]:
    """Each study once, with torch or without; those that are only without it also with it in `make deep`."""
    made = []
    for name in STUDIES:
        marks = [pytest.mark.holds(*held(name))]
        if name in TAKES_CORES_AWAY:
            marks.append(pytest.mark.alone)
        if name in with_torch_today():
            made.append(pytest.param(name, True, id=name, marks=marks))
            continue
        another_day = [] if name in without_torch_today() else [pytest.mark.deep]
        made.append(pytest.param(name, False, id=f"{name}-without-torch", marks=[*marks, *another_day]))
        made.append(pytest.param(name, True, id=name, marks=[*marks, pytest.mark.deep]))
    return made


pytestmark = pytest.mark.machine("root", "docker")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data sets of this worker's own: an emulated medium is mounted over their folder."""
    return tmp_path_factory.mktemp("data")


def run(name: str, store: Path, data: Path, with_torch: bool) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TARE_DATA": str(data), "WITHOUT_TORCH": "" if with_torch else "1"}
    return warm_tare.run("run", name, "--scale", "smoke", "-o", store, cwd=store.parent, env=env, timeout=420)


def read(*words: str) -> int:
    """What a verb says of a store: its exit code. In this process, since there are a hundred of them."""
    done = CliRunner().invoke(verbs, words)
    if isinstance(done.exception, TareError):
        return done.exception.exit_code
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code


def test_few_studies_have_every_combination() -> None:
    every = set().union(*map(combinations, STUDIES))
    assert set().union(*map(combinations, covering())) == every
    assert len(covering()) < len(STUDIES) / 2
    assert len(with_torch_today()) <= len(covering())


def test_in_four_days_every_platform_and_workload_runs_with_torch_and_in_eight_with_every_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days = []
    for day in range(sweeps.EIGHTHS):
        monkeypatch.setenv("TARE_SWEEP", str(day))
        days.append(with_torch_today.__wrapped__())
    every = {found[:2] for name in STUDIES for found in combinations(name)}
    for first in range(len(days) - QUARTERS + 1):
        four = frozenset.union(*days[first : first + QUARTERS])
        assert {found[:2] for name in four for found in combinations(name)} == every
    assert frozenset.union(*days) >= set(covering())


@pytest.mark.parametrize(("name", "with_torch"), params())
def test_an_experiment_runs_and_can_be_read(name: str, with_torch: bool, tmp_path: Path, data: Path) -> None:
    place = tmp_path / "store"
    done = run(name, place, data, with_torch)

    if done.returncode == CANNOT:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("  - ")]
        assert reasons and all(":" in line for line in reasons), done.stderr
        assert not place.exists()
        return
    assert done.returncode == 0, done.stderr
    with Store.open(place) as store:
        states = [store.states().get(str(row["trial"])) for row in store.planned()]
    assert states and set(states) <= {"ok", "suspect"}, done.stderr
    for command in endings({"ends_in": smallest(name).ends_in}, place):
        assert read(*shlex.split(command)[1:]) == 0, command
    assert read("report", str(place)) == 0  # as a run does at its end
    assert (place / "report.html").stat().st_size > 10_000
