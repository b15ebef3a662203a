"""Each of the papers' experiments runs here at its smallest scale, or says in words what this machine lacks for it.

Beside other tests most trials are disturbed, which would make them invalid and leave the verbs nothing to read: here it
makes them suspect. What is looked at is that each was run to its end and sealed, and that every verb that the study
names reads what was kept.

Importing torch is most of a trial. A few studies that together have every platform and every workload run with it. A
few more, which have the other controls, probes, tenants and verbs, run with programs that do not compute
(program_without_torch.py).
`make deep` has all of them, with torch and without.
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
HELD = {  # control or probe -> what no other test may use meanwhile
    "storage": "media", "dirty": "dirty", "ftrace": "tracing", "perf": "tracing", "syscalls": "tracing"
}  # fmt: skip
# Parts with tests of their own. An emulated medium misses its rate where others use the disk below it; a microvm boots
# in the contract of platforms.
TESTED_ELSEWHERE = {("control", "storage"), ("platform", "microvm")}
ALL_KINDS = ("platform", "workload", "control", "probe", "tenants", "verb")


@cache
def smallest(name: str) -> Study:
    """A study at its smallest scale; every worker that collects reads all of them, hence once."""
    return load_study(Path(name), scale="smoke")


@cache
def parts_of(name: str) -> frozenset[tuple[str, str]]:
    """What a study has at its smallest scale: platforms, workloads, controls, tenants, verbs at its end, and the probes
    that work here."""
    study = smallest(name)
    return frozenset(
        {(kind, str(cell.settings[kind])) for cell in cells(study) for kind in ("platform", "workload")}
        | {("tenants", str(tenancy.count)) for tenancy in study.tenancies}
        | {("verb", " ".join(command.split()[:2])) for command in study.ends_in}
        | {("control", part.name) for axis in study.controls for part in axis}
        | {("probe", probe.name) for probe in study.probes if works_here(probe.name)}
    )


@cache
def works_here(probe: str) -> bool:
    made: Any = find("probes", probe)()
    return not made.obstacles(LocalHost())


def held(name: str) -> set[str]:
    """What no other test may use while this study runs."""
    study = smallest(name)
    controls = {part.name for axis in study.controls for part in axis}
    return {HELD[each] for each in controls | {probe.name for probe in study.probes} if each in HELD}


def candidates() -> list[str]:
    """Those that `make test` may run."""
    return [name for name in STUDIES if not parts_of(name) & TESTED_ELSEWHERE]


@cache
def covering(*kinds: str) -> tuple[str, ...]:
    """Studies that together have every part of these kinds; those that add most come first."""
    left = {name: {part for part in parts_of(name) if part[0] in kinds} for name in candidates()}
    chosen = []
    while new := set(left[most := max(left, key=lambda name: len(left[name]))]):
        chosen.append(most)
        left = {name: parts - new for name, parts in left.items()}
    return tuple(chosen)


def params() -> list[Any]:
    """Each study once, with torch or without; those that are only without it also with it in `make deep`."""
    made = []
    for name in STUDIES:
        marks = [pytest.mark.holds(*held(name))]
        if name in TAKES_CORES_AWAY:
            marks.append(pytest.mark.alone)
        if name in covering("platform", "workload"):
            made.append(pytest.param(name, True, id=name, marks=marks))
            continue
        unless_needed = [] if name in covering(*ALL_KINDS) else [pytest.mark.deep]
        made.append(pytest.param(name, False, id=f"{name}-without-torch", marks=[*marks, *unless_needed]))
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


def test_few_studies_have_every_part() -> None:
    chosen = {*covering("platform", "workload"), *covering(*ALL_KINDS)}
    assert set().union(*map(parts_of, chosen)) == set().union(*map(parts_of, candidates()))
    assert len(chosen) < len(STUDIES) / 2


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
