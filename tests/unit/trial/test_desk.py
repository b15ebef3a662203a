"""The trial's folders are removed, but never through something that is mounted there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.base.errors import TareError
from tare.base.host import LocalHost
from tare.base.mounts import mounts
from tare.drivers.storage import folders
from tare.testing import FakeHost
from tare.trial import workdir
from tare.trial.workdir import remove_folders

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
    monkeypatch.setattr(workdir, "mounts", lambda _: mounts(host))


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
    monkeypatch.setattr(folders, "FOLDER", tmp_path / "disk")
    left, others = (tmp_path / "disk" / f"{name}-checkpoints" / "0.pt" for name in ("tare-1", "tare-12"))
    for file in (left, others):
        file.parent.mkdir(parents=True)
        file.write_text("")
    remove_folders("tare-1", tmp_path / "scratch")
    assert not left.parent.exists()
    assert others.exists()
