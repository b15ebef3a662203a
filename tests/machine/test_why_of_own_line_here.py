"""`tare why` before somebody's own line: the option that costs is named, and the printed line runs without its cost."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_images import PYTHON
from test_own_line_here import ENGINES, LIMITS, PLAIN, Run, archive, called, containers, everything, held, image, tare

import tare_inside

__all__ = ["archive", "image", "tare"]
STEPS = """\
import os, time
from tare_inside import marks
slow = 8 if os.environ.get("VERBOSE_CHECKS") else 2
for step in range(12):
    marks.begin("step", step)
    for _ in range(slow):
        sum(range(400_000))
    marks.end("step", step)
"""


def seconds(*words: str) -> float:
    """Of the quickest of three, as a user would time it."""
    taken = []
    for _ in range(3):
        began_s = time.monotonic()
        subprocess.run(words, capture_output=True, check=True, timeout=300)
        taken.append(time.monotonic() - began_s)
    return min(taken)


def pasted(said: str) -> list[str]:
    """The line that an answer says is to be run instead."""
    lines = said.splitlines()
    change = next(n for n, line in enumerate(lines) if line.startswith("Change: "))
    return shlex.split(lines[change + 1])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("option", "named"),
    [(("--cpus", "0.06"), "the CPU quota"), (("-e", "VERBOSE_CHECKS=1"), "VERBOSE_CHECKS=1")],
    ids=["quota", "variable"],
)
@pytest.mark.alone
def test_the_option_that_costs_is_named_and_the_printed_line_does_without_its_cost(
    engine: str, option: tuple[str, ...], named: str, image: str, tare: Run, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "steps.py").write_text(STEPS)
    limits = LIMITS if engine.startswith("podman") else ()
    before = [*engine.split(), "run", "--rm", *limits]
    after = ["--init=false", "-v", f"{work}:/work", "-w", "/work", "--entrypoint", PYTHON, image, "/work/steps.py"]
    done = tare("why", "--set", "compare.margin=20%", "-o", "out", "--", *before, *option, *after)
    assert done.returncode == 0, done.stderr[-3000:]

    cause = [line for line in done.stdout.splitlines() if line.startswith("Cause: ") and named in line]
    assert cause, done.stdout + done.stderr[-3000:]
    assert len([line for line in done.stdout.splitlines() if line.partition(":")[0].isalpha()]) == 5
    assert containers(engine, image) == []
    cured = pasted(done.stdout)
    assert cured == [*before, *after]
    (work / "steps.py").write_text(STEPS.replace("from tare_inside import marks", _NO_MARKS))
    slow_s, cured_s, bare_s = seconds(*before, *option, *after), seconds(*cured), seconds(PYTHON, f"{work}/steps.py")
    # What a start takes, which no option costs.
    engine_s = seconds(*before, "--init=false", "--entrypoint", PYTHON, image, "-c", "pass")
    assert (slow_s - cured_s) / (slow_s - bare_s - engine_s) >= 0.7, (slow_s, cured_s, bare_s, engine_s)


_NO_MARKS = """
class marks:
    begin = end = staticmethod(lambda name, step: None)
"""


SERVICE = """\
import os, sys, time
from tare_inside import marks
if os.path.exists("/of_the_image"):
    assert "/canary-1" in os.environ["DATABASE_URL"] and "canary-2" in os.environ["HTTPS_PROXY"]
    assert sys.argv[1:] == ["--token", "canary-3"], sys.argv
    with open("/data/database", "a") as file:
        file.write("written\\n")
for step in range(5):
    marks.begin("step", step)
    sum(range(300_000))
    marks.end("step", step)
while os.environ.get("SERVES"):
    time.sleep(1)
"""
CANARIES = ("canary-1", "canary-2", "canary-3", "canary-4")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_live_service_is_left_alone_and_its_secrets_are_told_nowhere(
    engine: str, archive: Path, tare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLAIN, "WITH_REPORT", "1")
    words, image, name = engine.split(), f"localhost/tare/live:{os.getpid()}", f"live-{os.getpid()}"
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "serve.py").write_text(SERVICE)
    entry = json.dumps([PYTHON, "/app/serve.py"])
    changes = [f"ENTRYPOINT {entry}", 'CMD ["--token","canary-3"]', "ENV API_URL=https://me:canary-4@host"]
    called(*words, "import", *(f"--change={each}" for each in changes), str(archive), image)
    volume = called(*words, "volume", "create").strip()
    line = [
        *words, "run", "-d", *LIMITS, "--restart", "always", f"--name={name}", "-p", "127.0.0.1:18765:8000",
        "--label", "proxy.rule=canary-2", "-e", "DATABASE_URL=postgres://me:secret@db/canary-1",
        "-e", "HTTPS_PROXY=http://me:canary-2@proxy:3128", "-v", f"{volume}:/data", "-v", f"{tmp_path}/app:/app:ro",
    ]  # fmt: skip
    try:
        ours = Path(tare_inside.__file__).parents[1]
        with_marks = ["-e", f"PYTHONPATH={ours}", "-v", f"{ours}:{ours}:ro"]
        called(*line, "--network=none", "-e", "SERVES=1", *with_marks, image)
        mount = Path(called(*words, "volume", "inspect", "--format", "{{.Mountpoint}}", volume).strip())
        comes_true((mount / "database").is_file)
        before = held(engine, name), everything(mount)
        assert before[1] == "written\n"
        bare = f"{PYTHON} {tmp_path}/app/serve.py"
        weighed = tare("weigh", "--blocks", "1", "--set", f"workload.argv={bare}", "-o", "weighed", "--", *line, image)
        explained = tare(
            "why",
            "--set",
            "repeat=1",
            "--json",
            "--set",
            f"workload.argv={bare}",
            "-o",
            "explained",
            "--",
            *line,
            image,
        )
        checked = tare("doctor", "--image", image)
        assert weighed.returncode == explained.returncode == 0, weighed.stderr[-1500:] + explained.stderr[-1500:]

        assert (held(engine, name), everything(mount)) == before
        assert containers(engine, image) == [before[0]["id"]]
    finally:
        subprocess.run([*words, "rm", "--force", name], capture_output=True, check=False)
        subprocess.run([*words, "volume", "rm", volume], capture_output=True, check=False)
        subprocess.run([*words, "rmi", "--force", image], capture_output=True, check=False)
    assert json.loads(explained.stdout)["total"]
    assert (tmp_path / "weighed" / "report.html").is_file()
    kept = "".join(everything(tmp_path / folder) for folder in ("weighed", "explained", "state"))
    said = "".join(each.stdout + each.stderr for each in (weighed, explained, checked))
    assert [canary for canary in CANARIES if canary in kept + said] == []


def comes_true(holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come true within 30 s")


@pytest.mark.parametrize("engine", ENGINES[:1])
def test_another_image_in_the_same_line_is_the_other_side(
    engine: str, archive: Path, tare: Run, tmp_path: Path
) -> None:
    slow, quick = (f"localhost/tare/{name}:{os.getpid()}" for name in ("slow", "quick"))
    (tmp_path / "steps.py").write_text(STEPS.replace("else 2", "else 1").replace("range(12)", "range(4)"))
    called(engine, "import", "--change=ENV VERBOSE_CHECKS=1", str(archive), slow)
    called(engine, "import", str(archive), quick)
    try:
        line = [engine, "run", "--rm", "-v", f"{tmp_path}:/in/no/folder/of/the/device:ro", f"--entrypoint={PYTHON}"]
        done = tare("why", "--set", "compare.margin=20%", "--against-image", quick, "-o", "out", "--",
                    *line, slow, "/in/no/folder/of/the/device/steps.py")  # fmt: skip
    finally:
        subprocess.run([engine, "rmi", "--force", slow, quick], capture_output=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert "VERBOSE_CHECKS=1" in next(line for line in done.stdout.splitlines() if line.startswith("Cause: "))
    assert "--env=VERBOSE_CHECKS" in pasted(done.stdout)
