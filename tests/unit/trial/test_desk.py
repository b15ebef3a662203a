"""The trial's folders are removed, but never through something that is mounted there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.base.errors import TareError
from tare.base.host import Job, LocalHost
from tare.base.processes import mounts
from tare.drivers.storage import checkpoints
from tare.testing import FakeHost
from tare.trial import tenants
from tare.trial.tenants import OUTPUT_FILE, Tail, heard_by, remove_folders

# How the kernel writes each of these folder names in its table.
WRITTEN = {
    "plain": "plain",
    "é": "é",
    "a b": r"a\040b",
    "back\\slash": r"back\134slash",
    "no\u00a0break": "no\u00a0break",
}


def seen(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    host = FakeHost(files={"/proc/self/mountinfo": table})
    monkeypatch.setattr(tenants, "mounts", lambda _: mounts(host))


@pytest.mark.parametrize("name", WRITTEN)
def test_nothing_is_deleted_through_a_mount_whatever_the_folder_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    precious = tmp_path / name / "tare-1" / "root" / "precious"
    precious.parent.mkdir(parents=True)
    precious.write_text("")
    root = "29 1 254:0 / / rw - ext4 /dev/vda rw\n"
    seen(monkeypatch, root + f"36 29 0:9 / {tmp_path}/{WRITTEN[name]}/tare-1/root rw - overlay tare:tare-1 rw\n")
    with pytest.raises(TareError, match="still mounted"):
        remove_folders("tare-1", tmp_path / name)
    assert precious.exists()
    seen(monkeypatch, root)
    remove_folders("tare-1", tmp_path / name)
    assert not precious.exists()


def test_nothing_is_deleted_where_nobody_can_tell_what_is_mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "tare-1").mkdir()
    seen(monkeypatch, "")
    with pytest.raises(TareError, match="does not say what is mounted"):
        remove_folders("tare-1", tmp_path)
    assert (tmp_path / "tare-1").exists()


def test_this_machine_says_what_is_mounted():
    assert "/" in [mount.point for mount in mounts(LocalHost())]


def test_checkpoints_that_a_killed_workload_left_go_with_the_trials_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(checkpoints, "FOLDER", tmp_path / "disk")
    left, others = (tmp_path / "disk" / f"{name}-checkpoints" / "0.pt" for name in ("tare-1", "tare-12"))
    for file in (left, others):
        file.parent.mkdir(parents=True)
        file.write_text("")
    remove_folders("tare-1", tmp_path / "scratch")
    assert not left.parent.exists()
    assert others.exists()


def test_what_a_job_prints_is_heard_while_it_runs_and_its_end_is_kept_for_whoever_watches(tmp_path):
    heard: list[bytes] = []
    job = Job(("sh", "-c", "echo first; echo second >&2"), env={"PATH": "/usr/bin:/bin"}, cwd=str(tmp_path))
    with heard_by(Tail(tmp_path, heard.append)):
        ended = LocalHost().spawn(job).wait(60)
    LocalHost().spawn(job).wait(60)  # and nobody hears this one
    assert sorted(b"".join(heard).splitlines()) == [b"first", b"second"]
    assert (ended.out, ended.err) == ("first\n", "second\n")
    assert (tmp_path / OUTPUT_FILE).read_text() in ("first\n", "second\n")  # written at most twice a second


def test_only_the_end_of_a_long_output_is_kept(tmp_path):
    tail = Tail(tmp_path)
    tail(b"x" * 100_000 + b"the end")
    assert (tmp_path / OUTPUT_FILE).read_bytes().endswith(b"the end")
    assert (tmp_path / OUTPUT_FILE).stat().st_size < 10_000


def test_a_workdir_that_is_gone_is_no_error(tmp_path):
    Tail(tmp_path / "gone")(b"late words")
