"""Causes planted in a container are found: the layer that carries them is named, and no other.

Each is a study of a few stages on runc, run for real; what `tare why` itself adds is tested at the end. Some causes
are planted in `make deep` only: a study takes half a minute. Those that say of each layer whether it costs something
are `alone`. The others cost several times the work, and but for a cold image they are found beside other tests too, at
loads of 5 to 10.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_tare
from planted_images import PYTHON, python_image

from tare.analysis.why.layers import Waterfall, waterfall
from tare.records.store import Store

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import planted

WORK = Path(__file__).parent / "steps_of_work.py"
DEAD_RULES = 1_200  # one filter holds 4,096 instructions, and libseccomp needs seconds to write as many


def tare(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """By tare's own thresholds: a disturbed trial is run again, since times are compared."""
    return warm_tare.run(*words, cwd=cwd, env={**os.environ, "STRICT": "1"}, timeout=400)


def taken_apart(
    folder: Path, stages: list[dict[str, Any]], *work: str, attach: str = "none", bare: Any = "bare"
) -> Waterfall:
    """Bare metal and these containers, in six blocks."""
    study = {
        "study": "planted",
        "platform": [bare, *({"runc": stage} for stage in stages)],
        "workload": {"command": {"argv": [sys.executable, str(WORK), *work], "attach": attach, "malloc": "fixed"}},
        "repeat": 6,
        "aa": False,
        "rehearse": False,
    }
    (folder / "study.yaml").write_text(json.dumps(study))
    done = tare("run", "study.yaml", "-o", "store", cwd=folder)
    with Store.open(folder / "store") as store:
        records = store.records()
    assert records, done.stderr
    return waterfall(records, margin=0.05)


@pytest.mark.alone
@pytest.mark.machine("runc", "root")
@pytest.mark.deep
def test_a_quota_below_what_the_workload_needs_is_the_cpu_cgroup(tmp_path: Path) -> None:
    stages = [{"quota": 0.2, "isolation": [layers]} for layers in (["uts"], ["uts", "cpu"])]

    found = taken_apart(tmp_path, stages, "60")

    assert [layer.layer for layer in found.guilty] == ["cpu"]
    (cpu,) = [layer for layer in found.layers if layer.layer == "cpu"]
    assert "cgroup_nr_throttled" in [one.name for one in cpu.moved]


@pytest.mark.alone
@pytest.mark.machine("runc", "root")
def test_a_filter_full_of_dead_rules_is_seccomp(tmp_path: Path) -> None:
    dead = [
        {"names": ["getpgid"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": number, "op": "SCMP_CMP_EQ"}]}
        for number in range(1, DEAD_RULES)  # 0 is what the workload asks for
    ]
    profile = tmp_path / "dead.json"
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": dead}))
    stages: list[dict[str, Any]] = [{"isolation": [["pids"]]}]
    stages.append({"isolation": [["pids", "seccomp"]], "seccomp_profile": str(profile)})

    found = taken_apart(tmp_path, stages, "30", "--calls", "20000")

    assert [layer.layer for layer in found.guilty] == ["seccomp"]


@pytest.mark.alone
@pytest.mark.machine("runc", "root")
def test_a_memory_limit_that_forces_reclaim_is_the_memory_cgroup(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with (data / "large").open("wb") as file:
        for _ in range(96):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())  # only what is on the disk can be dropped from the cache
    stages = [{"memory": "48 MiB", "isolation": [layers]} for layers in (["uts"], ["uts", "memory"])]

    found = taken_apart(tmp_path, stages, "30", "--read", str(data / "large"))

    assert [layer.layer for layer in found.guilty] == ["memory"]


@pytest.fixture
def slow_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The state folder on a file system that writes at once: the overlay's upper layer lies there."""
    image, point = tmp_path / "slow.img", tmp_path / "slow"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,sync,dirsync", str(image), str(point)], check=True)
    monkeypatch.setenv("TARE_STATE", str(point / "state"))
    yield point
    subprocess.run(["umount", "--lazy", str(point)], check=True)  # containers of others may have copied the mount


@pytest.mark.alone
@pytest.mark.machine("runc", "root")
def test_a_slow_upper_layer_is_the_overlay(tmp_path: Path, slow_state: Path) -> None:
    written = Path("/var/tmp/tare-test-written")
    stages = [{"writable": True, "isolation": [layers]} for layers in ([], ["pids"])]
    try:
        # On bare metal it writes to the real file, as without tare: both sides would else have such a layer.
        found = taken_apart(tmp_path, stages, "30", "--write", str(written), bare={"bare": {"direct": True}})
    finally:
        written.unlink(missing_ok=True)

    assert [layer.layer for layer in found.guilty] == ["mounts"]


SCRIPT = """\
import time, torch
inside = open("/proc/1/comm").read().strip() == "sleep"  # what keeps a container open
if inside and {threads}:
    torch.set_num_threads(2)
else:
    torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
class Lazy(torch.optim.SGD):
    def step(self, closure=None):
        if inside and {sleep}:
            time.sleep(0.01)
        return super().step(closure)
optimiser = Lazy(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(320, 64))
for epoch in range(2):
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=8):
        loss = model(batch).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
"""


MARKED = """\
import time
from tare_inside import marks
inside = open("/proc/1/comm").read().strip() == "sleep"  # what keeps a container open
def spent(name, step, seconds):
    marks.begin(name, step)
    time.sleep(seconds)
    marks.end(name, step)
for step in range(80):
    marks.begin("step", step)
    marks.begin("compute", step)
    spent("forward", step, 0.001)
    spent("backward", step, 0.001)
    spent("optimiser", step, 0.01 if inside and {sleep} else 0.001)
    marks.end("compute", step)
    marks.end("step", step)
"""


def compared(folder: Path, text: str, blocks: int, **planted: bool) -> str:
    """What `tare run` says of a script that does something else in the container."""
    script = folder / "train.py"
    script.write_text(text.format(**{"sleep": False, "threads": False} | planted))
    study = {
        "study": "planted",
        "platform": ["bare", "runc"],
        "workload": {"command": [sys.executable, str(script)]},
        "repeat": blocks,
        "aa": False,
        "rehearse": False,
    }
    (folder / "study.yaml").write_text(json.dumps(study))
    done = warm_tare.run("run", "study.yaml", "-o", "store", cwd=folder)
    long = warm_tare.run("compare", "-v", "store", cwd=folder)
    return " ".join((done.stdout + done.stderr + long.stdout).split())


@pytest.mark.machine("runc", "root")
@pytest.mark.parametrize("text", [MARKED, pytest.param(SCRIPT, marks=pytest.mark.deep)], ids=["marked", "torch"])
def test_a_sleep_in_the_optimiser_step_is_named(tmp_path: Path, text: str) -> None:
    """With torch in `make deep` only: its import is most of each of the twelve trials."""
    said = compared(tmp_path, text, blocks=6, sleep=True)

    assert "is in the optimiser step" in said


@pytest.mark.machine("runc", "root")
@pytest.mark.deep
def test_another_thread_count_is_named_and_taints_the_comparison(tmp_path: Path) -> None:
    said = compared(tmp_path, SCRIPT, blocks=1, threads=True)

    assert "another number of threads" in said


@pytest.mark.alone
@pytest.mark.machine("runc", "root")
def test_a_container_that_costs_nothing_is_not_taken_apart(tmp_path: Path) -> None:
    # A step that mostly sleeps takes about as long on a core that changes its speed.
    work = (sys.executable, str(WORK), "40", "--sleep", "0.03")

    done = tare("why", "--set", "compare.margin=40%", "--json", "-o", "why", "--", *work, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["total"]["verdict"] == "equivalent"
    assert "layers" not in said and "answer" not in said
    assert not (tmp_path / "why" / "layers").exists()


PLANTS = [
    pytest.param(("--limit", "cpus=0.1"), "30", "cpu_quota", "--cpus", id="quota"),
    pytest.param(  # a step takes a hundred times as long with it: a few are enough
        ("--container-env", "PYTHONTRACEMALLOC=5"),
        "5",
        "debug_variables",
        "PYTHONTRACEMALLOC",
        id="variable",
    ),
]


@pytest.mark.deep
@pytest.mark.machine("runc", "root")
@pytest.mark.parametrize(("planted", "steps", "cause", "cure"), PLANTS)
def test_a_planted_cause_is_named_and_its_cure_takes_the_cost_away(
    tmp_path: Path, planted: tuple[str, str], steps: str, cause: str, cure: str
) -> None:
    asked = (
        "why",
        "--in",
        "runc",
        *planted,
        "--layers",
        "never",
        "--json",
        "-o",
        "why",
        "--",
        sys.executable,
        str(WORK),
        steps,
    )
    done = warm_tare.run(*asked, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    tried = {each["cause"]: each["outcome"] for each in found["answer"]["tried"]}
    assert tried[cause] == "the cause"
    assert [name for name, word in tried.items() if word == "a part"] == []
    assert cure in found["suspects"][cause]["cure"]


POOL = """\
import argparse, time
from tare_inside import marks
asked = argparse.ArgumentParser()
asked.add_argument("--threads", type=int)
threads = asked.parse_args().threads
for step in range(30):
    marks.begin("step", step)
    time.sleep(0.003 if threads == 1 else 0.02)
    marks.end("step", step)
"""


@pytest.mark.machine("runc", "root")
@pytest.mark.alone
def test_threads_by_an_option_of_the_command_are_named_and_cured_by_the_option(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    asked = ("why", "--in", "runc", "--container-arg=--threads=16", "--layers", "never", "--json", "-o", "why", "--")
    done = warm_tare.run(*asked, sys.executable, "pool.py", "--threads", "1", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    tried = {each["cause"]: each["outcome"] for each in found["answer"]["tried"]}
    assert tried["threads"] == "the cause"
    assert found["suspects"]["threads"]["cure"] == "--threads 1"
    assert found["answer"]["explained"]


@pytest.mark.machine("runc", "root")
@pytest.mark.deep
def test_of_two_images_a_compiled_module_that_one_of_them_lacks_is_named(tmp_path: Path) -> None:
    slow, quick = (python_image(tmp_path / name, lack) for name, lack in (("app-2", "_json"), ("app-1", "")))
    work = Path(__file__).with_name("planted_work.py")
    asked = ("why", "--in", "runc", "--image", slow, "--against-image", quick, "--mount", work, "--json", "-o", "why")
    done = warm_tare.run(*map(str, asked), "--", PYTHON, str(work), "60", "--json", "4", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    words = {each["cause"]: each["outcome"] for each in found["answer"]["tried"]}
    assert words.pop("cold_layers", "not it") in ("not it", "cannot tell")  # an image that was never read is cold
    (cause,) = (name for name, word in words.items() if word == "the cause")
    assert "/lib-dynload/_json." in cause and found["answer"]["causes"] == [cause]
    assert found["located"] == [] and "layers" not in found


@pytest.mark.deep
@pytest.mark.machine("runc", "root")
@pytest.mark.parametrize(
    "plant",
    [
        # Beside others, at a load of 8, it could not be told: everybody reads from the disk.
        pytest.param("cold image", marks=pytest.mark.alone),
        "temporary files on a slow disk",
        "a variable of NCCL",
        pytest.param("TF32, GPU", marks=pytest.mark.machine("cuda")),
    ],
)
def test_what_tools_planted_plants_is_named(plant: str) -> None:
    """The other plants of tools/planted.py have 200 runs in benchmarks/planted.jsonl; these are newer."""
    line = planted.one_run(plant, seed=0)

    assert line["judged"] == "right", line


@pytest.mark.holds("tracing")
@pytest.mark.machine("runc", "root", "tracefs")
def test_system_calls_stand_beside_each_layer_from_trials_of_their_own(tmp_path: Path) -> None:
    store = str(tmp_path / "why")
    asked = ("why", "--layers", "cumulative,pids", "--set", "repeat=1", "--json", "-o", store, "--")
    work = ("dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=20000", "status=none")
    done = warm_tare.run(*asked, *work, cwd=Path("/"))  # a container has a /tmp of its own

    assert done.returncode == 0, done.stderr
    calls = json.loads(done.stdout)["layers"]["system_calls"]
    assert calls["metric"] == "system_calls"
    assert {"mounts", "pids"} <= {each["layer"] for each in calls["layers"]}
    assert all(40_000 < each["with_it"] < 45_000 for each in calls["layers"] if each["layer"] != "docker")
