"""The probe that CONTRIBUTING.md prints is one file, here or in a package of its own; nothing else is touched."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tare.base.declare import learnt

REPOSITORY = Path(__file__).parents[2]
PROBE = re.compile(r"^```python\n# src/tare/parts/probes/load\.py.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
STUDY = """study: two-waits
platform: bare
workload:
  command:
    argv: [python3, -c, "import time; time.sleep({wait})"]
    vary: {wait: [0.3, 0.4]}
probes: [cpu, load]
compare: {by: workload.wait}
rehearse: false
repeat: 3
aa: false
"""
PROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "tare-load"
version = "1.0"
[project.entry-points."tare.probes"]
load = "tare_load:Load"
[tool.setuptools]
py-modules = ["tare_load"]
"""


def printed_probe() -> str:
    found = PROBE.search((REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def in_the_tree(folder: Path) -> str:
    """A copy of the tree with the file in it."""
    for package in ("tare", "tare_inside"):
        shutil.copytree(REPOSITORY / "src" / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tare" / "parts" / "probes" / "load.py").write_text(printed_probe(), encoding="utf-8")
    return str(folder)


def as_a_wheel(folder: Path) -> str:
    """A package of its own, built and installed beside this tree, which stays as it is."""
    if importlib.util.find_spec("setuptools") is None or importlib.util.find_spec("pip") is None:
        pytest.skip("no pip with setuptools in this environment: a wheel cannot be built without the network.")
    source, site = folder / "source", folder / "site"
    source.mkdir(parents=True)
    (source / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (source / "tare_load.py").write_text(printed_probe(), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index"]
    built = [*pip, "wheel", *alone, "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run(built, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", *alone, "--target", str(site), str(wheel)], check=True, capture_output=True)
    return os.pathsep.join([str(site), str(REPOSITORY / "src")])


@pytest.fixture
def busy() -> Iterator[None]:
    """A process that computes: on an idle machine the load average is 0.00, and the kernel updates it every 5 s."""
    compute = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    with subprocess.Popen([sys.executable, "-c", compute]) as computing:
        try:
            until = time.monotonic() + 30
            while os.getloadavg()[0] < 0.02:
                if time.monotonic() > until:
                    pytest.skip("the load average stays zero here, with a process that computes")
                time.sleep(0.2)
            yield
        finally:
            computing.kill()


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("way", [pytest.param(in_the_tree, marks=pytest.mark.deep), as_a_wheel])
def test_a_probe_is_shown_compared_and_documented_with_no_other_file_touched(way, tmp_path: Path) -> None:
    own = {**os.environ, "PYTHONPATH": way(tmp_path / "own"), "TARE_STATE": str(tmp_path / "state")}
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")

    def tare(*words: str, env: Mapping[str, str] = own) -> str:
        called = [sys.executable, "-P", "-m", "tare", *words]
        done = subprocess.run(called, capture_output=True, text=True, env=env, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    tare("run", "study.yaml", "-o", "store", "--json")
    # Whoever reads the store does not have the probe.
    here = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    (record, *_) = json.loads(tare("show", "store", "--json", env=here))["trials"]
    assert record["metrics"]["load.average"] > 0
    assert "mean load average" in tare("show", "store", record["trial"], env=here)
    compared = json.loads(tare("compare", "store", "--metric", "load.average", "--json", env=here))
    assert [each["metric"] for each in compared["comparisons"]] == ["load.average"]
    assert "mean load average" in tare("compare", "store", "--metric", "load.average", env=here)
    page = tare("report", "store", "--format", "html", "-o", "page.html", env=here) or ""
    page += (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Load of the device, over time" in page and 'data-chart="over-time-load-of-the-device"' in page
    assert 'data-chart="spread-load-of-the-device"' in page
    looked = subprocess.run(
        [sys.executable, "-P", "-c", LIVE, "store", record["trial"]],
        capture_output=True, text=True, env=here, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert "Load of the device" in json.loads(looked.stdout)
    described = json.loads(tare("list", "parts", "load", "--json"))["parts"]
    assert described[0]["channels"][0]["name"] == "load.average"
    page = "import runpy; print(runpy.run_path('tools/reference.py')['parts']())"
    made = subprocess.run(
        [sys.executable, "-P", "-c", page], capture_output=True, text=True, env=own, cwd=REPOSITORY, check=True
    )
    assert "### load\n\nRecords the load average" in made.stdout and "| `load.average` | `1` |" in made.stdout
    assert learnt("load.average") is None  # not of this process


def test_the_printed_probe_passes_the_checks_of_the_tree_and_the_contract_of_probes(tmp_path: Path) -> None:
    own = {**os.environ, "PYTHONPATH": in_the_tree(tmp_path / "own")}
    probe = tmp_path / "own" / "tare" / "parts" / "probes" / "load.py"
    checks = (
        ["ruff", "check", "--no-cache", "--config", "pyproject.toml", str(probe)],
        ["pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "b"), "tests/contract", "-k", "load"],
    )
    for check in checks:
        done = subprocess.run(
            [sys.executable, "-m", *check], capture_output=True, text=True, env=own, cwd=REPOSITORY, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


LIVE = """import json, sys
from pathlib import Path
from tare.records.store import Store
from tare.report.live.running import live_series
with Store.open(Path(sys.argv[1])) as store:
    held = store.readings(sys.argv[2], 1)
    print(json.dumps([each["title"] for each in live_series(held, store.channels(sys.argv[2], 1))]))
"""
