"""Images made here from what is installed, and run."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm_tare

from tare.base.host import Job, LocalHost, Site
from tare.drivers.containers import engine
from tare.drivers.places import built_in_env
from tare.parts import find
from tare.trial.tenants import prepare_workdir, remove_folders

pytestmark = pytest.mark.machine("environment outside /tmp")


def tare(*words: str) -> subprocess.CompletedProcess[str]:
    return warm_tare.run(*words, cwd=Path.cwd(), like="")


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter and nothing else, unpacked."""
    folder = tmp_path_factory.mktemp("image") / "root"
    done = tare("device", "image", "build", "--packages", "", "--engine", "folder", "-o", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["image"] == str(folder)
    return folder


@pytest.fixture
def small_image() -> Iterator[str]:
    name = f"tare/test-{secrets.token_hex(4)}"
    done = tare("device", "image", "build", "--packages", "", "--name", name, "--json")
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)["image"]
    engine.connect(LocalHost()).checked("remove it", "image", "rm", "--force", name)


def run_in(platform: str, image: str, tmp_path: Path) -> str:
    """What the image's own Python says inside, modules of C among what it imports."""
    (tmp_path / "scratch").mkdir()
    site = Site(f"tare-image-{secrets.token_hex(4)}", tmp_path / "scratch")
    place = find.find("platforms", platform)(image=image).open(LocalHost(), site)  # type: ignore[attr-defined]
    try:
        script = "import ssl, sqlite3, ctypes, lzma, sys; print(sys.version.split()[0], sys.prefix)"
        return place.spawn(Job((place.python, "-c", script), env={"HOME": "/"})).wait(60).out
    finally:
        place.close()


@pytest.mark.parametrize(
    "platform", [pytest.param(name, marks=pytest.mark.machine(name)) for name in ("runc", "gvisor")]
)
def test_the_interpreter_runs_in_an_unpacked_image(platform, small_folder, tmp_path):
    said = run_in(platform, str(small_folder), tmp_path)

    assert said == f"{sys.version.split()[0]} {sys.prefix}\n"


@pytest.mark.machine("docker")
@pytest.mark.machine("root")
def test_the_interpreter_runs_in_an_image_of_the_engine(small_image, tmp_path):
    assert run_in("docker", small_image, tmp_path) == f"{sys.version.split()[0]} {sys.prefix}\n"


@pytest.mark.parametrize(
    "platform", [pytest.param(name, marks=pytest.mark.machine(name, "root")) for name in ("runc", "docker")]
)
def test_an_environment_in_tmp_is_not_hidden_by_the_containers_own(platform, tmp_path):
    with tempfile.TemporaryDirectory(dir="/tmp") as odd, contextlib.ExitStack() as stack:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{odd}/venv"], check=True)
        where = ["--engine", "folder", "-o", str(tmp_path / "root")]
        if platform == "docker":
            name = f"tare/test-{secrets.token_hex(4)}"
            where = ["--name", name]
            stack.callback(engine.connect(LocalHost()).run, "image", "rm", "--force", name)
        done = tare(
            "device", "image", "build", "--packages", "", "--python", f"{odd}/venv/bin/python3", "--json", *where
        )
        assert done.returncode == 0, done.stderr

        said = run_in(platform, json.loads(done.stdout)["image"], tmp_path)

        assert said == f"{sys.version.split()[0]} {odd}/venv\n"


@pytest.mark.machine("runc")
def test_an_image_without_torch_is_told_apart_from_a_device_that_has_it(small_folder):
    done = tare("device", "image", "check", str(small_folder), "--in", "runc", "--json")

    said = json.loads(done.stdout)
    facts = {fact["key"]: fact for fact in said["facts"]}
    assert (done.returncode, said["same"]) == (1, False)
    assert facts["python.version"]["same"]
    assert not facts["torch.version"]["same"]


@pytest.mark.machine("runc")
@pytest.mark.deep
def test_an_image_with_torch_carries_the_same_software_and_trains_in_it(tmp_path):
    """The whole way: build, check, and steps of LeNet-5 whose marks come back."""
    folder = tmp_path / "root"
    built = tare("device", "image", "build", "--engine", "folder", "-o", str(folder), "--json")
    assert built.returncode == 0, built.stderr
    checked = tare("device", "image", "check", str(folder), "--in", "runc")
    assert checked.returncode == 0, checked.stdout
    name, scratch = f"tare-image-{secrets.token_hex(4)}", tmp_path / "scratch"
    scratch.mkdir()
    workdir = prepare_workdir(name, scratch)
    workload = find.find("workloads", "torch_train").model_validate(
        {"model": "lenet5", "batch": 4, "steps_per_epoch": 3}
    )
    workload.prepare(LocalHost())
    site = Site(name, scratch, reads=workload.inputs(), writes=(workdir,))
    place = find.find("platforms", "runc")(image=str(folder)).open(LocalHost(), site)
    try:
        job = workload.job(place, workdir, 7)
        ended = place.spawn(job).wait(120)
        assert ended.code == 0, ended.err
        assert (workdir / "marks.bin").stat().st_size > 0
        assert built_in_env(workdir, "fixed").items() <= job.env.items()
    finally:
        place.close()
        remove_folders(name, scratch)
        shutil.rmtree(folder)  # pytest would keep three of it
