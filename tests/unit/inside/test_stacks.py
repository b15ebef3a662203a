"""The functions of a program in which its time goes, by looking at it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib import parse

import tare_inside

PROGRAM = """\
import time
def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end: pass
def outer():
    busy(0.4)
    time.sleep(0.2)
outer()
"""
HOOKS = Path(tare_inside.__file__).parent


def looked_at(folder: Path, program: str) -> dict[str, list[float]]:
    (folder / "program.py").write_text(program)
    env = {
        **os.environ, "TARE_STACKS": "1", "TARE_MARKS": str(folder / "marks.bin"),
        "PYTHONPATH": f"{HOOKS / 'inside_site'}:{HOOKS.parent}",
    }  # fmt: skip
    subprocess.run([sys.executable, str(folder / "program.py")], env=env, check=True)
    found: dict[str, list[float]] = json.loads((folder / "stacks.json").read_text())
    assert found.pop("cpu_s")
    return found


def test_seconds_go_to_the_function_and_to_whoever_called_it(tmp_path: Path) -> None:
    found = looked_at(tmp_path, PROGRAM)

    assert 0.3 < found["program.py:busy"][0] < 0.7
    assert 0.5 < found["program.py:outer"][1] < 1.0
    assert found["program.py:outer"][0] < 0.4 < found["program.py:<module>"][1]
    assert all(own < 0.1 for name, (own, _) in found.items() if "stacks.py" in name)


def test_of_a_launcher_and_its_child_the_one_that_works_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(PROGRAM.replace("0.4", "1.0"))
    launcher = "import subprocess, sys\ndef wait(): subprocess.run([sys.executable, sys.argv[0][:-10] + 'child.py'])\n"
    found = looked_at(tmp_path, launcher + "wait()\n")

    assert found["child.py:busy"][0] > 0.5
    assert "program.py:wait" not in found


def test_what_a_program_left_that_ends_at_once_is_kept(tmp_path: Path) -> None:
    found = looked_at(tmp_path, PROGRAM.replace("0.4", "1.4") + "import os\nos._exit(0)\n")

    assert found["program.py:busy"][1] > 0.5


OPENS = """\
import json, time
from urllib import parse
try:
    open("/missing/settings.ini")
except OSError:
    pass
time.sleep(0.05)
"""


def test_files_that_a_program_opened_mapped_or_looked_for_are_listed(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "program.py").write_text(OPENS)
    env = {
        **os.environ, "TARE_STACKS": "1", "TARE_MARKS": str(tmp_path / "work" / "marks.bin"),
        "PYTHONPATH": f"{HOOKS / 'inside_site'}:{HOOKS.parent}",
    }  # fmt: skip
    subprocess.run([sys.executable, str(tmp_path / "program.py")], env=env, check=True)
    found = json.loads((tmp_path / "work" / "touched.json").read_text())["files"]

    assert {"/missing/settings.ini", os.path.realpath(parse.__file__), str(tmp_path / "program.py")} <= {*found}
    assert any("libc.so" in path or "libc-" in path for path in found)
    assert not any(path.startswith(("/proc/", "/dev/", f"{tmp_path}/work/")) for path in found)


def test_files_of_a_program_without_python_are_seen_from_outside(tmp_path: Path) -> None:
    held = tmp_path / "held.txt"
    held.write_text("here")
    (tmp_path / "work").mkdir()
    result = tmp_path / "work" / "result.json"
    env = {**os.environ, "TARE_STACKS": "1", "TARE_MARKS": str(result.with_name("marks.bin"))}
    launcher = [sys.executable, str(HOOKS / "launch.py"), str(result), "--"]
    subprocess.run([*launcher, "sh", "-c", "sleep 0.5", str(held)], env=env, stdin=held.open(), check=True)
    found = json.loads(result.with_name("touched.json").read_text())["files"]

    shell = os.path.realpath("/bin/sh")
    assert {str(held), shell} <= {*found} and any(path.endswith("/sleep") for path in found)


def test_a_program_whose_folder_is_gone_opens_files_as_before(tmp_path: Path) -> None:
    program = f"""
import os, time
os.mkdir({str(tmp_path / "gone")!r})
os.chdir({str(tmp_path / "gone")!r})
os.rmdir({str(tmp_path / "gone")!r})
try:
    open("here")
except FileNotFoundError as error:
    assert error.filename == "here", error
time.sleep(0.05)
"""
    assert looked_at(tmp_path, program)
