"""From the command line to the verdict, on real platforms; killed in the middle, and gone on with."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm_tare

from tare.records.store import Store

TARE = (sys.executable, str(Path(__file__).with_name("undisturbed.py")))
SLEEPY = """\
study: sleepy
platform: [bare, {platform}]
workload: {{command: [sh, -c, "sleep 1.125"]}}
repeat: 2
aa: false
rehearse: false
"""


def fresh_tare(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, with an order of its own for what is hashed: `variables` are those of undisturbed.py."""
    env = {**os.environ, **variables}
    return subprocess.run([*TARE, *words], check=False, capture_output=True, text=True, cwd=cwd, timeout=300, env=env)


def records(store: Path) -> list[dict]:
    with Store.open(store) as opened:
        return [record.as_json() for record in opened.records()]


BEFORE: set[str] = set()


@pytest.fixture(autouse=True)
def what_is_there_before() -> None:
    """Names follow from the study: another run of it on this machine, which was killed, has the same."""
    BEFORE.clear()
    BEFORE.update(everything())


def everything() -> list[str]:
    found = Path("/proc/self/mounts").read_text().splitlines()
    # Not by a glob: groups of others go meanwhile.
    found += [str(Path(above, each)) for above, below, _ in os.walk("/sys/fs/cgroup") for each in below]
    found += [str(path) for path in Path("/dev/shm").glob("tare-*")]
    return [*found, *containers(), *workloads()]


def left_on_the_device(store: Path) -> list[str]:
    """Containers, mounts, cgroups, processes, folders of these trials: everything of theirs carries their names."""
    names = [f"tare-{record['trial'][:8]}-" for record in records(store)]
    return [each for each in everything() if each not in BEFORE and any(name in each for name in names)]


def containers() -> list[str]:
    from tare.base.host import LocalHost
    from tare.drivers.containers import engine

    if engine.find() is None:
        return []
    return [left.site for left in engine.connect(LocalHost()).leftovers()]


def workloads() -> list[str]:
    done = subprocess.run(["pgrep", "-fa", "tare-.*-workdir"], check=False, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "pgrep" not in line]


DOCKER, RUNC = ([pytest.mark.machine("root", name)] for name in ("docker", "runc"))


# With runc only now and then: that it runs the same software and computes the same has quicker tests of its own.
@pytest.mark.parametrize(
    "platform", [pytest.param("docker", marks=DOCKER), pytest.param("runc", marks=[*RUNC, pytest.mark.deep])]
)
def test_weigh_runs_both_sides_on_the_same_software_and_reports(tmp_path, platform):
    words = ("weigh", "--in", platform, "--blocks", "1", "-o", "store", "--json")
    done = fresh_tare(*words, cwd=tmp_path, WITH_REPORT="1", OWN_SAMPLER="1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [c["level"] for c in said["comparisons"]] == [platform]
    assert "<svg" in (tmp_path / "store" / "report.html").read_text()
    found = records(tmp_path / "store")
    inside = {record["settings"]["platform"]: record["facts"]["inside"] for record in found}
    assert inside["bare"]["torch"] == inside[platform]["torch"]
    assert inside["bare"]["libraries"] == inside[platform]["libraries"]
    outcomes = {record["facts"]["outcome"]["loss_digest"] for record in found}
    assert len(outcomes) == 1, "the same computation on both sides, bit for bit"
    for record in found:
        assert record["metrics"]["step_s"] > 0
        assert record["metrics"]["cgroup_cpu_s"] > 0
    assert left_on_the_device(tmp_path / "store") == []


@pytest.mark.parametrize(
    "platform", [pytest.param("docker", marks=DOCKER), pytest.param("runc", marks=[*RUNC, pytest.mark.deep])]
)
def test_a_run_killed_in_the_middle_loses_nothing_and_the_next_one_goes_on(tmp_path, platform):
    (tmp_path / "sleepy.yaml").write_text(SLEEPY.format(platform=platform))
    store = tmp_path / "store"
    run = ("run", "sleepy.yaml", "-o", "store")
    runner = warm_tare.start(*run, cwd=tmp_path)
    _wait_until(lambda: len(list((store / "trials").glob("*"))) >= 1 and _is_running(store, platform), runner)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    finished = {(r["trial"], r["attempt"]) for r in records(store)}
    assert finished

    again = fresh_tare(*run, cwd=tmp_path)  # not a fork, which would hash as the first one did
    assert again.returncode == 0, again.stderr
    assert "ended without restoring it" in again.stderr
    found = records(store)
    assert finished <= {(r["trial"], r["attempt"]) for r in found}
    assert "interrupted" in {r["state"] for r in found}
    usable = [r for r in found if r["state"] in ("ok", "suspect", "invalid")]
    assert len({r["trial"] for r in usable}) == 4
    assert left_on_the_device(store) == []


@pytest.mark.machine("root", "docker")
def test_ctrl_c_twice_stops_at_once_and_leaves_the_device_as_it_was(tmp_path):
    (tmp_path / "sleepy.yaml").write_text(SLEEPY.format(platform="docker").replace("sleep 1.125", "sleep 61.75"))
    with (tmp_path / "err").open("wb") as err:
        runner = warm_tare.start("run", "sleepy.yaml", "-o", "store", cwd=tmp_path, err=err)
    _wait_until(lambda: any("sleep 61.75" in line for line in workloads()), runner)
    os.kill(runner.pid, signal.SIGINT)
    time.sleep(0.5)
    os.kill(runner.pid, signal.SIGINT)
    assert runner.wait(60) == 130
    assert "press Ctrl-C again" in (tmp_path / "err").read_text()
    assert [r["state"] for r in records(tmp_path / "store")] == ["interrupted"]
    assert left_on_the_device(tmp_path / "store") == []


@pytest.mark.machine("root", "docker")
def test_a_script_of_ones_own_is_marked_in_the_container_without_a_change_to_it(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "data = TensorDataset(torch.randn(160, 8), torch.randint(0, 2, (160,)))\n"
        "model = torch.nn.Linear(8, 2)\n"
        "optimiser = torch.optim.AdamW(model.parameters())\n"
        "for x, y in DataLoader(data, batch_size=8):\n"
        "    optimiser.zero_grad()\n"
        "    torch.nn.functional.cross_entropy(model(x), y).backward()\n"
        "    optimiser.step()\n"
        "print('done')\n"
    )
    work = {"argv": [sys.executable, "mine.py"], "cwd": str(tmp_path)}
    study = {"study": "mine", "platform": ["bare", "docker"], "workload": {"command": work}, "repeat": 1, "aa": False}
    (tmp_path / "study.yaml").write_text(json.dumps({**study, "rehearse": False}))  # each would be an import of torch
    done = warm_tare.run("run", "study.yaml", "-o", "store", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = records(tmp_path / "store")
    assert {record["settings"]["platform"] for record in found} == {"bare", "docker"}
    for record in found:
        assert record["metrics"]["steps"] == 20
        assert record["metrics"]["stall_s"] > 0
        assert record["metrics"]["optimiser_s"] > 0


@pytest.mark.machine("tracefs")
def test_check_says_that_the_kernel_can_be_traced(tmp_path):
    said = json.loads(warm_tare.run("doctor", "--json", cwd=tmp_path).stdout)
    assert {"name": "tracefs", "yes": True}.items() <= next(
        a for a in said["abilities"] if a["name"] == "tracefs"
    ).items()


def _is_running(store: Path, platform: str) -> bool:
    """Whether a trial of the container is in the middle of its workload."""
    text = ""
    for path in (store / "spool").glob("*/draft.json"):
        with contextlib.suppress(FileNotFoundError):  # sealed meanwhile
            text += json.dumps(json.loads(path.read_text()))
    return f'"platform": "{platform}"' in text and any("sleep 1.125" in line for line in workloads())


def _wait_until(happened, runner: warm_tare.Started, limit_s: float = 90) -> None:
    deadline = time.monotonic() + limit_s
    while not happened():
        assert runner.poll() is None, f"the run ended early, with code {runner.returncode}"
        assert time.monotonic() < deadline, "it never got so far"
        time.sleep(0.05)
