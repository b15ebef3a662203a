"""What a shell, a clock or a disk does to a run: few descriptors, a clock that is set, a store that turns read-only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tare.records.model import Record
from tare.records.store import Store

HERE = Path(__file__).parent
TARE = f"{sys.executable} {HERE / 'undisturbed.py'}"


def study(folder: Path, argv: list[str], platform: object = "bare", **more: Any) -> None:
    work = {"command": {"argv": argv, "attach": "none", **more}}
    plain = {"study": "trust", "platform": platform, "workload": work, "probes": [], "repeat": 1, "aa": False}
    (folder / "study.yaml").write_text(json.dumps(plain))


def shell(folder: Path, script: str, *before: str) -> subprocess.CompletedProcess[str]:
    line = [*before, "bash", "-c", script]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def kept(folder: Path) -> list[Record]:
    with Store.open(folder / "store") as store:
        return store.records()


@pytest.mark.machine("bare")
@pytest.mark.parametrize("permitted", [10, 16])
def test_too_few_descriptors_are_a_sentence_and_no_work_folder_is_left(tmp_path: Path, permitted: int):
    study(tmp_path, ["true", str(tmp_path)])  # a trial that no other test has
    done = shell(tmp_path, f"ulimit -n {permitted}; exec {TARE} run study.yaml -o store")
    assert done.returncode == 3, done.stderr
    assert "`ulimit -n 256` is enough" in done.stderr
    assert "Traceback" not in done.stderr
    plan = json.loads(shell(tmp_path, f"{TARE} plan study.yaml --json").stdout)
    (trial,) = plan["trials"]
    assert list(Path("/dev/shm").glob(f"tare-{trial['trial'][:8]}*")) == []


@pytest.mark.machine("runc", "root")
@pytest.mark.parametrize("platform", ["runc", pytest.param("docker", marks=pytest.mark.machine("docker"))])
def test_a_state_folder_below_the_working_folder_is_no_obstacle(tmp_path: Path, platform: str):
    study(tmp_path, ["sh", "-c", "echo made > here; cat here"], platform)
    done = shell(tmp_path, f"TARE_STATE=$PWD/state exec {TARE} run study.yaml -o store")
    (record,) = kept(tmp_path)
    assert record.state in ("ok", "suspect"), (record.reasons, done.stderr)
    assert not (tmp_path / "here").exists()


# The workload sets the clock: from then on `time.time` of the runner is an hour behind, as after settimeofday.
SET_CLOCK = """
import os, runpy, sys, time
real = time.time
time.time = lambda: real() - (3600.0 if os.path.exists("set") else 0.0)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.machine("bare")
def test_a_clock_that_is_set_back_during_a_trial_is_noted_and_touches_no_duration(tmp_path: Path):
    study(tmp_path, ["touch", str(tmp_path / "set")], writes=[str(tmp_path)])
    (tmp_path / "set_clock.py").write_text(SET_CLOCK.replace("sys.argv[1]", repr(str(HERE / "undisturbed.py"))))
    done = shell(tmp_path, f"PYTHONPATH=$PYTHONPATH:{HERE} exec {sys.executable} set_clock.py run study.yaml -o store")
    assert "Traceback" not in done.stderr, done.stderr
    (record,) = kept(tmp_path)
    noted = {note.code: str(note) for note in record.notes}
    assert record.state == "ok", record.reasons
    assert "-3600" in noted["clock.set"], noted
    assert 0 < record.metrics["wall_s"] < 600
    assert 0 < (record.end_ns - record.start_ns) / 1e9 < 600


# A disk that the kernel itself turns read-only, as it does after an error of the file system.
READ_ONLY = """\
set -e
mkdir disk
truncate -s 32M image
mkfs.ext4 -q image
mount -o loop,errors=remount-ro image disk
{tare} run study.yaml -o disk/store > out 2>&1 &
while ! [ -e begun ]; do sleep 0.05; kill -0 $!; done
echo test > /sys/fs/ext4/$(basename $(findmnt -no SOURCE disk))/trigger_fs_error
touch go
wait $! || code=$?
cat out
umount disk
e2fsck -p image > /dev/null || true
mount -o loop image disk
{tare} device restore
echo ended ${{code:-0}}, $({tare} show disk/store --json | head -c 1), layers: $(ls disk/.tare)
"""


@pytest.mark.machine("bare", "root")
def test_a_store_that_turns_read_only_during_a_trial_ends_the_run_with_a_sentence(tmp_path: Path):
    """What lies on that disk cannot be removed (70); once it can be written again, `tare device restore` does."""
    study(tmp_path, ["sh", "-c", "touch begun; while ! [ -e go ]; do sleep 0.05; done"], writes=[str(tmp_path)])
    done = shell(tmp_path, READ_ONLY.format(tare=TARE), "unshare", "--mount", "--propagation", "private")
    assert "Read-only file system" in done.stdout, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "THE DEVICE WAS NOT RESTORED" in done.stdout
    assert done.stdout.endswith("ended 70, {, layers:\n"), done.stdout + done.stderr
