"""What goes wrong with containers, made to go wrong: faults.md D2p to D5p, D14p, D17p, D18p."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_tare

from sshd_devices import until
from tare.base.errors import TareError
from tare.base.host import Job, LocalHost, Site
from tare.base.processes import mounts
from tare.drivers.cgroups import tree
from tare.drivers.containers import engine, oci
from tare.parts import find
from tare.parts.platforms.docker import Docker

LIKE = "without_reruns"
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8"}
CONTAINERS = [pytest.param(name, marks=pytest.mark.machine(name)) for name in ("docker", "podman", "runc", "gvisor")]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "scratch").mkdir()
    return Site(f"tare-fault-{secrets.token_hex(4)}", tmp_path / "scratch")


def opened(platform: str, site: Site, **fields: object) -> Any:
    return find.find("platforms", platform)(**fields).open(LocalHost(), site)  # type: ignore[attr-defined]


def left(site: Site) -> list[str]:
    found = [mount.point for mount in mounts(LocalHost()) if site.name in mount.point + mount.source]
    found += [str(pid) for pid in tree.processes_named(LocalHost(), site.name)]
    return found + [str(path) for path in site.scratch.iterdir()]


@pytest.mark.parametrize("platform", CONTAINERS)
def test_a_job_that_ignores_every_polite_signal_dies_at_its_limit_and_the_stop_is_timed(platform, site):
    stubborn = "trap '' TERM INT HUP QUIT; while :; do sleep 1; done"
    place = opened(platform, site)
    try:
        ended = place.spawn(Job(("sh", "-c", stubborn), env=ENV)).wait(1.0)
    finally:
        place.close()

    assert ended.timed_out
    assert ended.seconds < 60
    assert 0 < place.phases["close.remove"] < 60
    assert left(site) == []


@pytest.fixture
def private_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A Docker engine of this test's own, which may be hung or killed; its pid."""
    folder = Path(tempfile.mkdtemp(prefix="tare-", dir="/var/tmp"))
    monkeypatch.setenv("TARE_STATE", str(folder))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "SYSTEM_SOCKET", str(folder / "none.sock"))
    engine.start(LocalHost())
    pid = int((folder / "engine" / "dockerd.pid").read_text())
    yield pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    engine.stop(LocalHost())
    # A killed engine leaves its data folder mounted onto itself, for a moment also busy.
    subprocess.run(["umount", "--lazy", str(folder / "engine" / "data")], check=False, capture_output=True)
    shutil.rmtree(folder)


@pytest.mark.machine("docker", "root")
def test_an_engine_that_hangs_is_given_up_on_and_everything_goes_once_it_answers(private_engine, site, monkeypatch):
    monkeypatch.setattr(engine, "_ANSWERS_WITHIN_S", 4)
    place = opened("docker", site)
    os.kill(private_engine, signal.SIGSTOP)
    begin_s = time.monotonic()
    assert place.run(["true"], limit_s=4).code == 124
    with pytest.raises(TareError):
        place.close()
    assert time.monotonic() - begin_s < 120

    os.kill(private_engine, signal.SIGCONT)
    Docker.sweep(LocalHost(), site.name)

    assert left(site) == []


@pytest.mark.machine("docker", "root")
def test_an_engine_that_is_killed_fails_the_job_and_what_it_left_is_removed(private_engine, site):
    place = opened("docker", site)
    process = place.spawn(Job(("sleep", "987"), env=ENV))
    os.kill(private_engine, signal.SIGKILL)
    with pytest.raises(TareError, match="how the job ended"):
        process.wait(30)
    with contextlib.suppress(TareError):
        place.close()

    Docker.sweep(LocalHost(), site.name)

    assert left(site) == []


def tare(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return warm_tare.run(*words, cwd=cwd, like=LIKE)


def records(cwd: Path) -> list[dict[str, Any]]:
    shown = tare("show", "store", "--json", cwd=cwd)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)["trials"]  # type: ignore[no-any-return]


TWO_REPEATS = """\
study: moved
platform: {{docker: {{image: "{image}"}}}}
workload: {{command: [sh, -c, "sleep 2"]}}
repeat: 2
aa: false
"""


@pytest.mark.machine("docker", "root", "environment outside /tmp")
def test_a_tag_that_moves_between_repeats_is_refused(tmp_path):
    image = f"tare/test-{secrets.token_hex(4)}"
    built = tare("device", "image", "build", "--packages", "", "--name", image, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    (tmp_path / "study.yaml").write_text(TWO_REPEATS.format(image=image))
    _run_one_trial(tmp_path)
    before = {(record["trial"], record["attempt"]) for record in records(tmp_path)}
    client = engine.connect(LocalHost())
    client.checked("build it", "build", f"--tag={image}", "-", stdin=f"FROM {image}\nLABEL moved=yes\n")

    refused = tare("run", "study.yaml", "-o", "store", cwd=tmp_path)

    client.checked("remove it", "image", "rm", "--force", image)
    assert before
    assert {(record["trial"], record["attempt"]) for record in records(tmp_path)} == before
    assert refused.returncode != 0
    assert "another one than in earlier trials" in refused.stderr


def _run_one_trial(folder: Path) -> None:
    """Begin the study, and ask it once to stop: it finishes the trial that it is at."""
    runner = warm_tare.start("run", "study.yaml", "-o", "store", cwd=folder, like=LIKE)
    deadline_s = time.monotonic() + 60
    while not list((folder / "store" / "spool").glob("*/draft.json")):
        assert runner.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    runner.send_signal(signal.SIGINT)
    assert runner.wait(60) == 130


BESIDE = """\
study: beside
platform: runc
workload: {command: [sh, -c, "sleep 3"]}
tenants: {beside: {command: [sh, -c, "sleep 0.3; kill -9 $$"]}}
repeat: 1
aa: false
"""


@pytest.mark.machine("runc", "root")
def test_a_tenant_that_is_killed_makes_the_trial_invalid(tmp_path):
    (tmp_path / "study.yaml").write_text(BESIDE)

    tare("run", "study.yaml", "-o", "store", cwd=tmp_path)

    found = records(tmp_path)
    assert {record["state"] for record in found} == {"invalid"}
    assert "tenant 1" in found[0]["reasons"][0]["sentence"]


@pytest.mark.parametrize("platform", CONTAINERS[:3])
def test_a_fork_bomb_stays_within_its_container(platform, site, monkeypatch):
    monkeypatch.setattr(oci, "PIDS_LIMIT", 64)
    monkeypatch.setattr(tree, "PIDS_LIMIT", 64)
    place = opened(platform, site)
    try:
        ended = place.spawn(Job(("sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 987"), env=ENV)).wait(2.0)
        assert LocalHost().run(["true"]).code == 0
    finally:
        place.close()

    assert ended.timed_out or ended.code != 0
    assert left(site) == []


@pytest.mark.machine("runc", "root")
def test_too_little_shared_memory_is_told_with_what_to_do(tmp_path):
    full = "import mmap, os; f = os.open('/dev/shm/x', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 1 << 22); "
    full += "m = mmap.mmap(f, 1 << 22); m[:] = bytes(1 << 22)"
    argv = json.dumps(
        [
            "sh",
            "-c",
            f'{shlex.quote(sys.executable)} -c "{full}"; code=$?; [ $code = 0 ] || echo Bus error >&2; exit $code',
        ]
    )
    work = f"workload: {{command: {{argv: {argv}}}}}"
    study = f"study: shm\nplatform: {{runc: {{shm: 1 MiB}}}}\n{work}\nrepeat: 1\naa: false\n"
    (tmp_path / "study.yaml").write_text(study)

    tare("run", "study.yaml", "-o", "store", cwd=tmp_path)

    (found,) = records(tmp_path)
    assert found["state"] == "failed"
    assert any("larger `shm:`" in reason["sentence"] for reason in found["reasons"])


@pytest.mark.machine("docker", "root")
def test_stacks_that_containerd_writes_stay_in_the_engines_folder_and_go_with_it(private_engine):
    """dockerd makes it write them (SIGUSR1) where it does not answer in time, as beside much other work."""
    folder = Path(os.environ["TARE_STATE"]) / "engine"
    pid = int((folder / "exec/containerd/containerd.pid").read_text())
    os.kill(pid, signal.SIGUSR1)
    written = folder / "tmp" / f"containerd.{pid}.stacks.log"
    until(written.exists, "containerd writes its stacks", 60)

    # Also those of a containerd that did not answer dockerd in time, which has started another one since.
    assert [path.name for path in written.parent.glob("*.stacks.log") if Path("/tmp", path.name).exists()] == []
    engine.stop(LocalHost())
    assert not (folder / "tmp").exists()
