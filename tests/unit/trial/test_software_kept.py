"""The list of software is kept from one trial to the next only while nothing that decides it has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tare.base.host import Host, Job, LocalHost, Process
from tare.drivers.places import built_in_env, launched
from tare.parts.workloads.idle import Null
from tare.plan.matrix import Cell, Trial
from tare.records.store import Store
from tare.trial.engine import Bench, run_trial
from tare.trial.undo.journal import Journal


class Listed(Null):
    """A program that does nothing, with variables of its own."""

    variables: ClassVar[dict[str, str]] = {}

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        env = {**built_in_env(workdir, "default"), **self.variables}
        return Job(launched(place.python, workdir, ["true"]), env, str(workdir))


class Counting(LocalHost):
    """Counts how often the software was listed."""

    listed = 0

    def spawn(self, job: Job) -> Process:
        self.listed += job.argv[-1].endswith("fingerprint.py")
        return super().spawn(job)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(Listed, "variables", {"PYTHONPATH": str(folder)})
    return folder


@pytest.fixture
def host() -> Counting:
    return Counting()


@pytest.fixture
def inside(tmp_path: Path, packages: Path, host: Counting) -> Iterator[Callable[[], dict[str, Any]]]:
    with Store.create(tmp_path / "store", {"study": "s"}, "") as store:
        bench = Bench(host, store, Journal(tmp_path / "device"), tmp_path / "scratch", period_s=0.05)

        def run() -> dict[str, Any]:
            block = len(store.records())
            record = run_trial(Trial("s", Cell((), Listed()), block, 0, 1, 60.0), bench)
            assert record.state in ("ok", "suspect"), record.reasons
            found: dict[str, Any] = record.facts["inside"]
            return found

        yield run


def install(folder: Path, version: str) -> None:
    for name, text in (("torch/__init__.py", ""), ("torch/version.py", f"__version__ = '{version}'\n")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / f"torch-{version}.dist-info").mkdir()


def wait_until_old() -> None:
    """What is younger than a second might change once more without another time."""
    time.sleep(1.1)


def test_it_is_listed_once_and_what_is_around_the_job_is_read_each_time(inside, host) -> None:
    wait_until_old()
    first, again = inside(), inside()
    assert host.listed == 1
    assert again == first
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        pinned = inside()
    finally:
        os.sched_setaffinity(0, allowed)
    assert host.listed == 1
    assert pinned["process"]["Cpus_allowed_list"] == str(min(allowed))
    assert {**pinned, "process": first["process"]} == first


def test_software_that_comes_changes_and_goes_is_seen_by_the_next_trial(inside, host, packages) -> None:
    before = inside()
    wait_until_old()
    install(packages, "77.1")
    assert inside()["torch"] == {"version": "77.1"}
    wait_until_old()
    assert inside()["torch"] == {"version": "77.1"}
    listed = host.listed
    assert inside()["torch"] == {"version": "77.1"}
    assert host.listed == listed  # kept
    (packages / "torch" / "version.py").write_text("__version__ = '77.2'\n")  # in its place, and of the same size
    os.utime(packages / "torch" / "version.py", ns=(0, 0))
    assert inside()["torch"] == {"version": "77.2"}
    shutil.rmtree(packages / "torch")
    assert inside().get("torch") == before.get("torch")
    (packages / "torch-77.1.dist-info").rmdir()
    assert inside() == before


def test_what_has_just_changed_is_not_kept(inside, host, packages) -> None:
    for version in ("1.1", "1.2", "1.3"):
        shutil.rmtree(packages)
        packages.mkdir()
        install(packages, version)
        assert inside()["torch"] == {"version": version}
    assert host.listed == 3


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "PYTHONHASHSEED", "SOMETHING_ELSE"])
def test_with_another_variable_it_is_listed_again(inside, host, monkeypatch, name) -> None:
    wait_until_old()
    first = inside()
    monkeypatch.setitem(Listed.variables, name, "3")
    assert inside()["env"] == {**first["env"], **({} if name == "SOMETHING_ELSE" else {name: "3"})}
    assert host.listed == 2


def test_another_interpreter_and_a_new_folder_of_packages_are_seen(inside, host, tmp_path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    wait_until_old()
    inside()
    host.python = str(venv / "bin" / "python")
    other = inside()
    assert other["python"]["executable"] == host.python
    assert inside() == other
    assert host.listed == 2
    install(tmp_path, "77.3")
    packages = next(venv.glob("lib/python*/site-packages"))
    (packages / "more.pth").write_text(f"{tmp_path}\n")
    assert inside()["torch"] == {"version": "77.3"}
    assert host.listed == 3
    wait_until_old()
    inside()
    (packages / "more.pth").write_text(f"#{tmp_path}")  # the folder of packages stays as it is
    assert "torch" not in inside()


def test_what_something_else_printed_is_not_kept(inside, host, packages) -> None:
    forged = """import json, os, sys
if sys.argv[0].endswith("fingerprint.py"):
    print(json.dumps({"python": {"version": "9.9"}, "sources": {"/nowhere": None}}), flush=True)
    os._exit(0)
"""
    (packages / "sitecustomize.py").write_text(forged)
    wait_until_old()
    assert inside()["python"]["version"] == "9.9"
    (packages / "sitecustomize.py").unlink()
    assert inside()["python"]["version"] != "9.9"


def test_a_path_that_is_no_text_costs_only_the_keeping(inside, host, packages) -> None:
    (packages / "sitecustomize.py").write_text("import pathlib, sys; sys.path.append(pathlib.Path('/tmp'))\n")
    wait_until_old()
    assert inside()["python"]["version"] == inside()["python"]["version"]
    assert host.listed == 2


def test_what_changes_while_it_is_listed_is_not_kept(inside, packages) -> None:
    """A slow disk: the version was read, and changes more than a second before the states of the files are."""
    install(packages, "77.1")
    (packages / "sitecustomize.py").write_text(
        "import hashlib, pathlib, sys, time\nreal, calls = hashlib.sha256, []\n"
        "def slow(*given):\n    if not calls:\n        calls.append(1)\n"
        f"        path = pathlib.Path({str(packages)!r}, 'torch', 'version.py')\n"
        "        if '77.1' in path.read_text():\n"
        "            path.write_text(\"__version__ = '77.2'\\n\")\n            time.sleep(1.3)\n"
        "    return real(*given)\nhashlib.sha256 = slow\n"
    )
    wait_until_old()
    assert inside()["torch"] == {"version": "77.1"}
    assert inside()["torch"] == {"version": "77.2"}


def test_software_on_a_file_system_with_times_of_its_own_is_listed_each_time(inside, host, packages) -> None:
    (packages / "sitecustomize.py").write_text(
        "import sys\nif sys.argv[0].endswith('fingerprint.py'):\n"
        "    sys.path.insert(0, sys.argv[0].rsplit('/', 2)[0])\n    from tare_inside import launch\n"
        "    real = launch.file_systems\n"
        "    launch.file_systems = lambda *given: {**real(*given), 'one': 'squashfs'}\n"
    )
    wait_until_old()
    assert inside()["python"] == inside()["python"]
    assert host.listed == 2
