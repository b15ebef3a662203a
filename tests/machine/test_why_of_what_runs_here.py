"""`tare why --attach`: what runs is looked at from outside, and left as it is."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import test_own_line_here
from planted_images import PYTHON
from test_own_line_here import ENGINES, Run, called, everything, held

archive, image, tare = test_own_line_here.archive, test_own_line_here.image, test_own_line_here.tare
BUSY = """\
import os, threading
held = [open("/dev/null") for _ in range(int(os.environ.get("HOLDS", "0")))]
def burn():
    while True:
        sum(range(100_000))
for _ in range(5):
    threading.Thread(target=burn).start()
print("burning", flush=True)
"""


@pytest.fixture
def busy(engine: str, image: str) -> Iterator[str]:
    name = f"busy-{os.getpid()}"
    given = [
        "--cpus",
        "0.03",
        "--ulimit",
        "nofile=100:100",
        "--ulimit",
        "nproc=4096:4096",
        "-e",
        "HOLDS=85",
        "-e",
        "PYTHONDEVMODE=1",
    ]
    secrets = ["-e", "DATABASE_URL=postgres://me:secret@db/canary-1", f"--entrypoint={PYTHON}"]
    called(*engine.split(), "run", "-d", f"--name={name}", "--network=none", *given, *secrets, image,
           "-c", BUSY, "--token", "canary-2")  # fmt: skip
    while "burning" not in called(*engine.split(), "logs", name):  # with so small a quota its threads start late
        time.sleep(0.2)
    yield name
    subprocess.run([*engine.split(), "rm", "--force", name], capture_output=True, check=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_that_runs_is_looked_at_and_left_as_it_is(
    engine: str, busy: str, tare: Run, tmp_path: Path
) -> None:
    before = held(engine, busy)
    done = tare("why", "--attach", busy, "--budget", "4")
    as_json = tare("why", "--attach", busy, "--budget", "2", "--json")

    assert held(engine, busy) == before
    assert done.returncode == as_json.returncode == 0, done.stderr[-2000:]
    told = " ".join(done.stdout.split())
    assert "1. Suspect (not proved): the CPU quota (at most " in told, done.stdout
    assert "a quota of 0.03 cores stopped it in " in told and "Try: --cpus 1, or none" in told
    assert "the limit of open files: " in told and "PYTHONDEVMODE=1" in told
    seen = json.loads(as_json.stdout)
    assert seen["facts"]["threads"] >= 6 and seen["facts"]["limits"]["nofile"] == [100, 100]
    assert seen["suspects"][0]["name"] == "the CPU quota"
    words = shlex.split(seen["proof"])
    assert words[:6] == ["tare", "why", "--", engine.split()[0], "run", "--rm"]
    assert " --cpus 0.03 " in seen["proof"] and "-e DATABASE_URL " in seen["proof"] and "-e PATH" not in seen["proof"]
    said = done.stdout + done.stderr + as_json.stdout + everything(tmp_path)
    assert "canary" not in said and "secret" not in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "state" not in path.parts]


def test_without_rights_it_says_what_was_not_looked_at_and_the_command_that_looks() -> None:
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    burning = subprocess.Popen([sys.executable, "-c", "while True: sum(range(100_000))"])
    try:
        argv = [*as_nobody, sys.executable, "-m", "tare", "why", "--attach", str(burning.pid), "--budget", "1"]
        env = {**os.environ, "HOME": "/nonexistent", "TARE_STATE": "/nonexistent"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert burning.poll() is None
    finally:
        burning.kill()
        burning.wait()
    told = " ".join(done.stdout.split())

    assert done.returncode == 0, done.stderr
    if as_nobody:
        assert (
            f"Not looked at: variables: only its own user and root may read that: "
            f"`sudo tare why --attach {burning.pid}`" in told
        )
    assert "Not looked at: throttling, pressure and memory of a group" in told


def test_ctrl_c_ends_the_look_with_what_was_seen_until_then_and_leaves_the_program() -> None:
    burning = subprocess.Popen([sys.executable, "-c", "while True: sum(range(100_000))"])
    try:
        argv = [sys.executable, "-m", "tare", "why", "--attach", str(burning.pid), "--budget", "10min"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as looking:
            assert looking.stderr is not None and "looking at" in looking.stderr.readline()
            time.sleep(2)
            looking.send_signal(signal.SIGINT)
            told, problem = looking.communicate(timeout=60)
        assert burning.poll() is None
    finally:
        burning.kill()
        burning.wait()

    assert looking.returncode == 0, problem
    assert "1 process" in told and "cores, in " in told and "Not looked at: " in told


def test_what_does_not_run_is_refused_in_a_sentence(tare: Run) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for words, wrong in (
        (("--attach", str(ended.pid)), f"no program runs as process {ended.pid}"),
        (("--attach", "1", "--", "python", "train.py"), "takes no command"),
    ):
        done = tare("why", *words)
        assert done.returncode == 2 and wrong in " ".join(done.stderr.split())
