"""What runs inside a platform runs on the Pythons of old boards and images: 3.6 and everything since."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CANDIDATES = [
    *sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3")),
    *(Path(folder) / f"python3.{minor}" for folder in ("/usr/bin", "/usr/local/bin") for minor in range(6, 15)),
]


def version(python: Path) -> tuple[int, ...] | None:
    try:
        said = subprocess.run(
            [python, "-c", "import sys; print(*sys.version_info[:2])"], check=False, capture_output=True, text=True
        )
    except OSError:
        return None
    found = tuple(map(int, said.stdout.split()))
    return found if said.returncode == 0 and found >= (3, 6) else None


def interpreters() -> dict[tuple[int, ...], str]:
    """One interpreter of each version that is here; this one at the least."""
    found = {version(python): str(python) for python in CANDIDATES if os.access(python, os.X_OK)}
    return {known: path for known, path in found.items() if known} | {tuple(sys.version_info[:2]): sys.executable}


PYTHONS = interpreters()
every_python = pytest.mark.parametrize("python", PYTHONS.values(), ids=[".".join(map(str, v)) for v in PYTHONS])

MARKING = """
import os, sys
from tare_inside import marks
marks.open_marks(sys.argv[1], 1000)
write = marks.group(("fetch", "step"), 10)
marks.point("ready")
write(0, 5, 6, 5, 7)
marks.interval("epoch", 0, 5, 7)
child = os.fork()
if child == 0:
    marks.point("child")
    marks.interval("child", 0, 1, 2)
    write(1, 5, 6, 5, 7)
    os._exit(0)
os.waitpid(child, 0)
marks.begin("after", 3)
"""


def ran(python: str, *argv: str, inside: Path) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(inside), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, *argv], env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_this_python_is_among_those_that_are_tried() -> None:
    assert sys.executable in PYTHONS.values()


@every_python
def test_marks_are_written_and_forks_stay_silent(python: str, workdir: Path) -> None:
    inside, path = workdir / "inside", workdir / "marks.bin"
    ran(python, "-c", MARKING, str(path), inside=inside)
    load = "import json, sys; from tare_inside import marks; print(json.dumps(marks.load(sys.argv[1])))"
    loaded, lost = json.loads(ran(python, "-c", load, str(path), inside=inside).stdout)

    assert [mark[1:] for mark in loaded] == [
        ["fetch", "begin", 0],
        ["step", "begin", 0],
        ["epoch", "begin", 0],
        ["fetch", "end", 0],
        ["step", "end", 0],
        ["epoch", "end", 0],
        ["ready", "point", -1],
        ["after", "begin", 3],
    ]
    assert lost == 0


@every_python
def test_a_command_is_launched_and_counted(python: str, workdir: Path) -> None:
    result = workdir / "result.json"
    launch = workdir / "inside" / "tare_inside" / "launch.py"
    ran(python, "-I", "-S", str(launch), str(result), "--", "true", inside=workdir / "inside")
    said = json.loads(result.read_text())

    assert said["exit"] == 0
    assert 0 < said["wall_s"] < 60


@every_python
def test_the_software_is_named(python: str, workdir: Path) -> None:
    script = workdir / "inside" / "tare_inside" / "fingerprint.py"
    said = json.loads(ran(python, "-S", str(script), inside=workdir / "inside").stdout)

    assert said["python"]["version"].split(".")[0] == "3"
    assert "torch" not in said  # -S leaves installed packages out
    assert said["kernel"]


@every_python
def test_the_sitecustomize_leaves_a_script_without_torch_alone(python: str, workdir: Path) -> None:
    site = workdir / "inside" / "tare_inside" / "inside_site"
    env = {"PYTHONPATH": f"{site}:{workdir / 'inside'}", "TARE_MARKS": str(workdir / "marks.bin"), "PATH": os.defpath}
    done = subprocess.run([python, "-c", "print('as ever')"], env=env, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, "as ever\n", "")
    assert not (workdir / "marks.bin").exists()


@every_python
@pytest.mark.parametrize(
    ("name", "count", "digest"),  # of the list of files; a change here needs another folder name
    [("mnist", 10, "57c62a"), ("cifar10", 10, "90dcf3")],
)
def test_the_data_set_is_the_same_whichever_python_makes_it(
    python: str, workdir: Path, name: str, count: int, digest: str
) -> None:
    maker = workdir / "inside" / "tare_inside" / "workloads" / "formats" / "make.py"
    ran(python, "-S", str(maker), name, str(workdir / "data"), str(count), "4", inside=workdir / "inside")
    manifest = json.loads((workdir / "data" / "manifest.json").read_text())

    assert manifest["sha256"].startswith(digest)
