"""The acceptance test of restoring: killed at every step, and then every knob is byte for byte as it was.

`strace` kills the process at its Nth fsync, its Nth line of the journal, or its Nth write to a knob, for every N until
a run comes through.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from knobs import DEVICE, make_findable
from tare.base.host import LocalHost
from tare.trial.undo.journal import Journal
from tare.trial.undo.restoration import restore

DRIVER = Path(__file__).with_name("driver_knobs.py")
NAMES = ("a", "b", "c")
FOUND = {"a": b"1\n", "b": b"2\n", "c": b"0\n"}
DEATH = 40  # as in the driver


pytestmark = pytest.mark.machine("strace")


class Bench:
    """A device made of three knobs, and a state folder of its own."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root, self.state = root, state
        (root / "idle").write_bytes(b"")
        self.knobs = [str((root / "sys/knobs" / name).resolve()) for name in NAMES]
        self.journal = state / "devices" / DEVICE / "undo.jsonl"
        self.found = self.stand()

    def stand(self) -> dict[str, bytes]:
        return {name: (self.root / "sys/knobs" / name).read_bytes() for name in NAMES}

    def drive(self, verb: str, *arguments: str, strace: list[str]) -> subprocess.CompletedProcess[str]:
        """The driver in a process of its own, with a fault put into its system calls."""
        driver = [sys.executable, str(DRIVER), verb, str(self.root), str(self.state), *arguments]
        argv = ["strace", "-f", "-qq", "-o", "/dev/null", *strace, *driver]
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)

    def sweep(self, fault: str, *verbs: str) -> int:
        """Every death in turn; the number of them."""
        idle = str(self.root / "idle")
        call, paths = {
            "fsync": ("fsync", []),
            "knob": ("write", [*self.knobs, idle]),
            "line": ("write", [str(self.journal), idle]),
        }[fault]
        where = [word for path in paths for word in ("-P", path)]
        kill = ["-e", f"trace={call}", *where, "-e", f"inject={call}:signal=SIGKILL:when={DEATH}"]
        ended = self.drive("sweep", fault, *verbs, strace=kill)
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr
        report = json.loads(ended.stdout)
        assert report["wrong"] == []
        assert self.stand() == self.found
        return int(report["deaths"])

    def restored(self) -> None:
        """What the next start does; then nothing is pending and every knob is as it was."""
        journal = Journal(self.journal.parent)
        report = restore(LocalHost(root=self.root), journal)
        assert report.clean, report.sentences()
        assert journal.pending() == []
        assert self.stand() == self.found


def tree(folder: Path) -> Path:
    (folder / "sys/knobs").mkdir(parents=True)
    for name, value in FOUND.items():
        (folder / "sys/knobs" / name).write_bytes(value)
    return folder


def cgroup_tree(folder: Path, group: Path) -> Path:
    """Real knobs of the kernel that concern nobody: those of an empty cgroup of our own."""
    (folder / "sys/knobs").mkdir(parents=True)
    for name, file in zip(NAMES, ("cgroup.max.depth", "cgroup.max.descendants", "cgroup.freeze"), strict=True):
        (folder / "sys/knobs" / name).symlink_to(group / file)
    return folder


def unified_hierarchy() -> Path:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next(Path(where) for _, where, kind, *_ in mounts if kind == "cgroup2")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Knobs that are plain files."""
    make_findable(monkeypatch)
    monkeypatch.setenv("TARE_LOCK_DIR", str(tmp_path / "locks"))
    return Bench(tree(tmp_path / "root"), tmp_path / "state")


@pytest.fixture
def kernel_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Knobs that are the kernel's own."""
    monkeypatch.setenv("TARE_LOCK_DIR", str(tmp_path / "locks"))
    group = unified_hierarchy() / f"tare-test-{os.getpid()}"
    group.mkdir()
    try:
        yield Bench(cgroup_tree(tmp_path / "root", group), tmp_path / "state")
    finally:
        group.rmdir()


# Three notes and three retirements, and the folder of the new file; three knobs there and three back.
FAULTS = pytest.mark.parametrize(("fault", "steps"), [("fsync", 7), ("line", 6), ("knob", 6)])


@FAULTS
def test_killed_at_every_step_of_a_trial_a_restore_puts_every_knob_back(bench: Bench, fault: str, steps: int):
    assert bench.sweep(fault, "hold", "restore") == steps


@FAULTS
def test_killed_at_every_step_of_a_trial_the_next_trial_finds_the_true_baseline(bench: Bench, fault: str, steps: int):
    assert bench.sweep(fault, "hold", "hold") >= steps


@FAULTS
def test_killed_at_every_step_of_a_trial_and_of_the_restore_after_it_the_next_one_finishes_it(
    bench: Bench, fault: str, steps: int
):
    assert bench.sweep(fault, "hold", "restore", "restore") > 2 * steps


def test_killed_at_every_step_of_two_trials_the_third_finds_the_true_baseline(bench: Bench):
    assert bench.sweep("line", "hold", "hold", "hold") > 6 * 6


@pytest.mark.machine("root")
@FAULTS
def test_the_kernels_own_knobs_are_put_back_in_the_same_way(kernel_bench: Bench, fault: str, steps: int):
    assert kernel_bench.sweep(fault, "hold", "restore", "restore") > 2 * steps


def test_no_knob_is_written_before_its_record_is_on_disk(bench: Bench, tmp_path: Path):
    log = tmp_path / "strace.log"
    calls = ["-o", str(log), "-y", "-e", "trace=write,fsync", "-e", "signal=none"]
    assert bench.drive("hold", strace=calls).returncode == 0
    steps = []
    for line in log.read_text().splitlines():
        call, _, rest = line.partition("(")
        path = rest.partition("<")[2].partition(">")[0]
        if path == str(bench.journal) or path in bench.knobs:
            steps.append(f"{call.split()[-1]} {'knob' if path in bench.knobs else 'journal'}")
    there, back = ["write journal", "fsync journal", "write knob"], ["write knob", "write journal", "fsync journal"]
    assert steps == there * 3 + back * 3


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_journal_that_cannot_be_written_leaves_the_knob_alone(bench: Bench, number: int):
    inject = ["-e", "trace=write", "-P", str(bench.journal), "-e", f"inject=write:error=ENOSPC:when={number}"]
    ended = bench.drive("hold", strace=inject)
    assert "No space left on device" in ended.stderr
    assert "file_knob was left alone" in ended.stderr
    assert ended.returncode == 1
    assert bench.stand() == bench.found
    bench.restored()


def test_an_fsync_that_fails_leaves_the_knob_alone_and_is_not_believed_again(bench: Bench):
    inject = ["-e", "trace=fsync", "-P", str(bench.journal), "-e", "inject=fsync:error=EIO:when=2"]
    ended = bench.drive("hold", strace=inject)
    assert ended.returncode == 1
    assert "Input/output error" in ended.stderr
    assert bench.stand() == bench.found
    bench.restored()


@pytest.mark.machine("root")
def test_a_disk_that_fills_up_during_the_trial_does_not_keep_the_restore_from_being_noted(tmp_path: Path):
    root, small = tree(tmp_path / "root"), tmp_path / "small"
    small.mkdir()
    mount = 'mount -t tmpfs -o size=256k,mode=700 none "$1" && exec "$2" "$3" fill "$4" "$1"'
    words = [str(small), sys.executable, str(DRIVER), str(root)]
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TARE_LOCK_DIR": str(tmp_path / "locks")},
    )
    assert ended.returncode == 0, ended.stderr
    assert {name: (root / "sys/knobs" / name).read_bytes() for name in NAMES} == FOUND
