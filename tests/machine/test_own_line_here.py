"""Somebody's own `docker run` and `podman run` line: the container is theirs, and what runs already is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from planted_images import PYTHON, python_image

from tare.records.store import Store

# Podman's own default does not start on machines with both versions of control groups.
CALLED = {"docker": "docker", "podman": "podman --runtime=runc"}
ENGINES = [pytest.param(each, id=name, marks=pytest.mark.machine(name, "root")) for name, each in CALLED.items()]
# Podman's own are refused where root lacks CAP_SYS_RESOURCE.
LIMITS = ("--ulimit", "nofile=600:700", "--ulimit", "nproc=4096:4096")
MINE = f"mine-{os.getpid()}"
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("TARE_", "PYTHONDONT"))}
CHECKS = """\
import os, resource, sys
assert sys.argv[1:] == ["entry", "given"], sys.argv
if os.path.exists("/of_the_image"):
    engines = ("PYTHONPATH", "HOSTNAME", "HOME", "TERM", "container")
    own = {name: value for name, value in os.environ.items() if not name.startswith("TARE_") and name not in engines}
    url = own.pop("DATABASE_URL")
    assert own == {"PATH": "/nowhere", "SET": "by the image", "A": "two  words"}, own
    assert url.endswith("/canary"), url
    assert os.getpid() == 1 and not os.path.exists("/bin/sh")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (600, 700)
    shm = os.statvfs("/dev/shm")
    assert shm.f_frsize * shm.f_blocks == 96 << 20, shm
    with open("/data/written", "x") as file:
        file.write("by the container")
else:
    assert "A" not in os.environ
from tare_inside import marks
for step in range(20):
    marks.begin("step", step)
    sum(range(100_000))
    marks.end("step", step)
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


def called(*words: str, cwd: Path | None = None) -> str:
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=True, timeout=300).stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of an image with Python and no shell, as a tarball."""
    folder = tmp_path_factory.mktemp("own line")
    root = python_image(folder / "root")
    for program in ("bin/sh", "bin/sleep", "bin/cat", "usr/bin/env"):
        (root / program).unlink()
    (root / "of_the_image").touch()
    called("tar", "-C", str(root), "-cf", str(folder / "image.tar"), ".")
    return folder / "image.tar"


@pytest.fixture
def image(archive: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    engine, name = request.getfixturevalue("engine").split(), f"localhost/tare/own-line:{os.getpid()}"
    entry = json.dumps([PYTHON, "/work/checks.py", "entry"])
    changes = [f"ENTRYPOINT {entry}", "ENV PATH=/nowhere", 'ENV SET="by the image"']
    called(*engine, "import", *(f"--change={each}" for each in changes), str(archive), name)
    yield name
    subprocess.run([*engine, "rmi", "--force", name], capture_output=True, check=False)


@pytest.fixture
def tare(tmp_path: Path) -> Run:
    """In a folder of its own; others on the machine make no trial invalid."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(Path(__file__).with_name("undisturbed.py")), *words]
        env = {**PLAIN, "TARE_STATE": str(tmp_path / "state"), "TARE_LOCK_DIR": str(tmp_path / "lock")}
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900, check=False)

    return run


def held(engine: str, name: str) -> dict[str, Any]:
    (seen,) = json.loads(called(*engine.split(), "container", "inspect", name))
    return {"id": seen["Id"], "began": seen["State"]["StartedAt"], "restarts": seen["RestartCount"]}


def containers(engine: str, image: str) -> list[str]:
    """Those of this image, whoever made them."""
    asked = ("ps", "--all", "--quiet", "--no-trunc", f"--filter=ancestor={image}")
    return called(*engine.split(), *asked).split()


def everything(folder: Path) -> str:
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("engine", ENGINES)
def test_the_container_is_theirs_and_what_runs_already_is_left_alone(
    engine: str, image: str, tare: Run, tmp_path: Path
) -> None:
    (tmp_path / "checks.py").write_text(CHECKS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kept").write_text("the user's")
    line = [
        *engine.split(), "run", "--rm", "-it", f"--name={MINE}", "-p", "8000:8000", "--restart", "always",
        "--label", "own=1",
        *LIMITS, "--shm-size", "96m", "-e", "A=two  words",
        "-e", "DATABASE_URL=postgres://me:secret@db/canary", "-v", f"{tmp_path}:/work:ro",
        "-v", f"{tmp_path}/data:/data", image, "given",
    ]  # fmt: skip
    waits = ["--network=none", *LIMITS, f"--entrypoint={PYTHON}", image, "-c", "import time; time.sleep(600)"]
    called(*engine.split(), "run", "--detach", f"--name={MINE}", *waits)
    try:
        before = held(engine, MINE)
        done = tare("weigh", "--blocks", "1", "-o", "out", "--", *line)
        assert done.returncode == 0, done.stderr[-3000:]
        assert held(engine, MINE) == before
        assert containers(engine, image) == [before["id"]]
    finally:
        subprocess.run([*engine.split(), "rm", "--force", MINE], capture_output=True, check=False)

    records = Store.open(tmp_path / "out").records()
    assert {record.settings["platform"] for record in records} == {"bare", "own"}
    for record in records:
        assert record.state in ("ok", "suspect"), record.reasons
        assert record.metrics["steps"] == 20 and record.metrics["cpu_s"] > 0, record.metrics
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["kept"]
    told = " ".join(done.stderr.split())
    assert f"not honoured: -i -t --name={MINE} -p 8000:8000 --restart always --label own=1" in told
    said = everything(tmp_path / "out") + done.stdout + done.stderr
    assert "canary" not in said and "two  words" not in said


@pytest.mark.parametrize("engine", ENGINES)
def test_volumes_of_another_container_are_not_written_to(engine: str, image: str, tare: Run, tmp_path: Path) -> None:
    theirs = called(*engine.split(), "create", "--network=none", "-v", "/theirs", "-v", f"{tmp_path}:/w", image).strip()
    try:
        done = tare("weigh", "-o", "out", "--", *engine.split(), "run", "--volumes-from", theirs, image, "given")
        assert containers(engine, image) == [theirs]
    finally:
        subprocess.run([*engine.split(), "rm", "--force", "--volumes", theirs], capture_output=True, check=False)

    told = " ".join(done.stderr.split())
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    # Podman's `inspect` lists no folder that another container has by `-v FOLDER:...`.
    if engine == "docker":
        assert f"{tmp_path}, which the container may write to at /w" in told
    else:
        assert f"--volumes-from {theirs} shares folders that podman does not list" in told
    assert "which the container may write to at /theirs, is in no --volume" in told


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (
            ["--privileged"],
            "--privileged let the container change this device itself: `--set platform.allow_privileged=true`",
        ),
        (["--pid", "host"], "--pid host let the container change this device itself"),
        (
            ["--cap-add", "SYS_TIME", "--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined"],
            "tare: --cap-add SYS_TIME let the container change this device itself",
        ),
        (["--ipc", "host", "--uts", "host"], "tare: --ipc host let the container change"),
        (["--ipc", "host"], "For data loaders --shm-size 8g does what --ipc host does"),
        (["--device-cgroup-rule", "c 42:* rmw"], "tare: --device-cgroup-rule 'c 42:* rmw' let the container change"),
        (
            ["-v", "{socket}:/var/run/docker.sock"],
            "an engine or a service: `--set platform.real_volumes=true`",
        ),
        (["--entrypoint", "/only/in/the/image"], "bare metal cannot run `/only/in/the/image given`"),
        (["--no-such-option"], "has no option --no-such-option"),
        (["--cpus", "many"], "the engine does not take this line"),
    ],
)
def test_what_could_harm_or_cannot_be_compared_is_refused_before_anything_runs(
    engine: str, options: list[str], wrong: str, image: str, tare: Run, tmp_path: Path
) -> None:
    import socket

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    words = [word.format(socket=tmp_path / "s") for word in options]
    done = tare("weigh", "-o", "out", "--", *engine.split(), "run", *words, image, "given")
    listening.close()

    assert done.returncode == 2, done.stderr
    assert wrong in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists() and containers(engine, image) == []
