"""The acceptance test of restoring: killed at every step, and then every knob is byte for byte as it was.

`strace` kills the process at its Nth fsync, or at its Nth write to a knob, for every N until a run comes through.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from knobs import DEVICE, make_findable

from tare.host import LocalHost
from tare.trial.journal import Journal
from tare.trial.restoration import restore

DRIVER = Path(__file__).with_name("driver_knobs.py")
NAMES = ("a", "b", "c")
FOUND = {"a": b"1\n", "b": b"2\n", "c": b"0\n"}
MOST_STEPS = 60

pytestmark = pytest.mark.machine("strace")


class Bench:
    """A device made of three knobs, and a state folder of its own."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root, self.state = root, state
        self.host = LocalHost(root=root)
        self.found = self.stand()

    def stand(self) -> dict[str, bytes]:
        return {name: (self.root / "sys/knobs" / name).read_bytes() for name in NAMES}

    def journal(self) -> Journal:
        return Journal(self.state / "devices" / DEVICE)

    def knob_paths(self) -> list[str]:
        return [str((self.root / "sys/knobs" / name).resolve()) for name in NAMES]

    def drive(self, verb: str, *inject: str) -> subprocess.CompletedProcess[str]:
        """The driver in a process of its own, with a fault put into its system calls."""
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", *inject] if inject else []
        argv = [*strace, sys.executable, str(DRIVER), verb, str(self.root), str(self.state)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    def restored(self) -> None:
        """What the next start does; then nothing is pending and every knob is as it was."""
        report = restore(self.host, self.journal())
        assert report.clean, report.sentences()
        assert self.journal().pending() == []
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


def unified_hierarchy() -> Path | None:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next((Path(where) for _, where, kind, *_ in mounts if kind == "cgroup2"), None)


@pytest.fixture(params=["files", "cgroup"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    make_findable(monkeypatch)
    monkeypatch.setenv("TARE_LOCK_DIR", str(tmp_path / "locks"))
    hierarchy = unified_hierarchy()
    if request.param == "files" or hierarchy is None or not os.access(hierarchy, os.W_OK):
        yield Bench(tree(tmp_path / "root"), tmp_path / "state")
        return
    group = hierarchy / f"tare-test-{os.getpid()}"
    group.mkdir()
    try:
        yield Bench(cgroup_tree(tmp_path / "root", group), tmp_path / "state")
    finally:
        group.rmdir()


def at_fsync(bench: Bench, number: int) -> list[str]:
    return ["-e", "trace=fsync", "-e", f"inject=fsync:signal=SIGKILL:when={number}"]


def at_knob_write(bench: Bench, number: int) -> list[str]:
    paths = [word for path in bench.knob_paths() for word in ("-P", path)]
    return ["-e", "trace=write", *paths, "-e", f"inject=write:signal=SIGKILL:when={number}"]


Fault = Callable[[Bench, int], list[str]]
FAULTS = pytest.mark.parametrize(("fault", "steps"), [(at_fsync, 7), (at_knob_write, 6)], ids=["fsync", "knob-write"])


def sweep(bench: Bench, verb: str, fault: Fault, after: Callable[[], None], before: Callable[[], None]) -> int:
    """Kill the driver at step 1, 2, 3, ... until it comes through; `after` looks at what each death has left."""
    for number in range(1, MOST_STEPS):
        before()
        ended = bench.drive(verb, *fault(bench, number))
        assert ended.returncode in (0, -signal.SIGKILL), (number, ended.stderr)
        assert "Traceback" not in ended.stderr
        after()
        if ended.returncode == 0:
            return number - 1
    raise AssertionError(f"{verb} did not come through within {MOST_STEPS} steps")


@FAULTS
def test_killed_at_every_step_of_a_trial_a_restore_puts_every_knob_back(bench: Bench, fault: Fault, steps: int):
    deaths = sweep(bench, "hold", fault, after=bench.restored, before=lambda: None)
    assert deaths >= steps


@FAULTS
def test_killed_at_every_step_of_a_trial_the_next_trial_finds_the_true_baseline(bench: Bench, fault: Fault, steps: int):
    def next_trial() -> None:
        ended = bench.drive("hold")
        assert ended.returncode == 0, ended.stderr
        assert bench.stand() == bench.found

    assert sweep(bench, "hold", fault, after=next_trial, before=lambda: None) >= steps


@FAULTS
def test_killed_at_every_step_of_a_restore_the_next_one_finishes_it(bench: Bench, fault: Fault, steps: int):
    def crash_with_everything_held() -> None:
        bench.drive("hold", *at_knob_write(bench, 4))  # the fourth write is the first on the way back
        assert all(bench.stand()[name] != bench.found[name] for name in NAMES)

    deaths = sweep(bench, "restore", fault, after=bench.restored, before=crash_with_everything_held)
    assert deaths >= 3


def test_no_knob_is_written_before_its_record_is_on_disk(bench: Bench, tmp_path: Path):
    log = tmp_path / "strace.log"
    calls = ["-o", str(log), "-y", "-e", "trace=write,fsync", "-e", "signal=none"]
    assert bench.drive("hold", *calls).returncode == 0
    journal, steps = str(bench.journal().path), []
    for line in log.read_text().splitlines():
        call, _, rest = line.partition("(")
        path = rest.partition("<")[2].partition(">")[0]
        if path == journal or path in bench.knob_paths():
            steps.append(f"{call.split()[-1]} {'journal' if path == journal else 'knob'}")
    held, noted = ["write journal", "fsync journal", "write knob"], ["write knob", "write journal", "fsync journal"]
    assert steps == held * 3 + noted * 3


@pytest.mark.parametrize("error", ["ENOSPC", "EROFS"])
def test_a_journal_that_cannot_be_written_leaves_the_knob_alone(bench: Bench, error: str):
    bench.drive("hold")  # so that the journal is there, and can be named
    for number in (1, 2, 3):
        bench.drive("hold", "-P", str(bench.journal().path), "-e", "trace=none")
        inject = ["-e", "trace=write", "-P", str(bench.journal().path), "-e"]
        ended = bench.drive("hold", *inject, f"inject=write:error={error}:when={number}")
        assert "file_knob was left alone" in ended.stderr
        assert "Traceback" not in ended.stderr
        assert ended.returncode == 1
        assert bench.stand() == bench.found
        bench.restored()


def test_an_fsync_that_fails_leaves_the_knob_alone_and_is_not_believed_again(bench: Bench):
    bench.drive("hold")
    inject = ["-e", "trace=fsync", "-P", str(bench.journal().path), "-e", "inject=fsync:error=EIO:when=2"]
    ended = bench.drive("hold", *inject)
    assert ended.returncode == 1
    assert "Input/output error" in ended.stderr
    assert bench.stand() == bench.found
    bench.restored()


@pytest.mark.machine("root")
def test_a_disk_that_fills_up_during_the_trial_does_not_keep_the_knobs_from_being_noted_as_restored(tmp_path: Path):
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
