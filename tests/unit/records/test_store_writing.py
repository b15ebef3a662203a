"""One writer; a disk that fails, or a folder that goes, is said at once and costs no finished trial."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from some_records import MARKS, draft, ended, run_one
from tare.base.errors import StoreError
from tare.records import sealed
from tare.records.spool import SpoolWriter
from tare.records.store import Store

NAME = sealed._NAME


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store", {}, "")


# One writer


def test_a_second_writer_is_refused_and_told_who_writes(store: Store) -> None:
    writer = store.begin(draft())
    with Store.open(store.root, write=True) as second:
        says = rf"this store is being written by process {os.getpid()}, since 20.* Wait until that run has ended"
        for attempt in (lambda: second.begin(draft("bbbb")), second.recover, lambda: second.plan([])):
            with pytest.raises(StoreError, match=says):
                attempt()
    assert writer.seal(ended(draft()), [], "", "").state == "ok"


def test_beginning_a_trial_looks_at_its_own_attempts_however_many_trials_there_are(store: Store, monkeypatch) -> None:
    looks: list[str] = []
    monkeypatch.setattr(
        sealed, "_NAME", SimpleNamespace(fullmatch=lambda name: looks.append(name) or NAME.fullmatch(name))
    )
    for number in range(3):
        run_one(store, f"bbb{number}")
    run_one(store, "aaaa")
    looks.clear()
    assert store.begin(draft("aaaa")).attempt == 2
    assert looks == ["aaaa.1"]


def test_the_lock_goes_with_close(store: Store) -> None:
    run_one(store)
    store.close()
    with Store.open(store.root, write=True) as second:
        assert run_one(second).attempt == 2


WRITER = """
import subprocess, sys, time
from pathlib import Path
from some_records import draft
from tare.records.store import Store
store = Store.open(Path(sys.argv[1]), write=True)
store.begin(draft("bbbb"))
child = subprocess.Popen(["sleep", "60"], close_fds=False)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_killed_writer_frees_the_store_although_its_child_lives_on(store: Store) -> None:
    store.close()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store.root)], stdout=subprocess.PIPE, text=True, env=environment
    ) as writer:
        assert writer.stdout is not None
        orphan = int(writer.stdout.readline())
        try:
            with Store.open(store.root, write=True) as second:
                with pytest.raises(StoreError, match=f"being written by process {writer.pid}"):
                    second.recover()
                writer.kill()
                writer.wait()
                (record,) = second.recover()
        finally:
            os.kill(orphan, signal.SIGKILL)
    assert (record.trial, record.state) == ("bbbb", "interrupted")


def test_readers_never_take_the_lock(store: Store) -> None:
    with Store.open(store.root) as reader:
        reader.records(), reader.states(), reader.verify()
        run_one(store)
        assert len(reader.records()) == 1


# Recovery


def test_a_trial_that_was_cut_off_is_sealed_with_what_was_seen(store: Store) -> None:
    writer = store.begin(draft())
    with SpoolWriter(writer.spool) as spool:
        spool.tick(5, [(5, "cpu.busy_s", 1.5)])
    writer.keep(draft(facts={"device": {"cores": 2}}))
    store.close()

    with Store.open(store.root, write=True) as again:
        assert again.states() == {"aaaa": "running"}
        (record,) = again.recover()
        assert (record.trial, record.attempt, record.state) == ("aaaa", 1, "interrupted")
        assert (*map(str, record.reasons),) == ("the run ended during this trial; the data until then is kept.",)
        assert record.facts == {"device": {"cores": 2}}
        assert again.readings("aaaa", 1)["cpu.busy_s"][1].tolist() == [1.5]
        assert again.output("aaaa", 1) == ("", "")
        assert again.recover() == []
        assert run_one(again).attempt == 2
    assert list((store.root / "spool").iterdir()) == []


def test_half_made_folders_are_removed_by_the_next_writer(store: Store) -> None:
    for name in ("trials/.tmp-aaaa.1", "spool/.tmp-aaaa.1"):
        (store.root / name).mkdir()
        (store.root / name / "record.json").write_text("{")
    (store.root / ".tmp-store.json").write_text("{")
    with Store.open(store.root) as reader:
        assert (reader.records(), reader.problems, reader.states()) == ([], [], {})
    store.recover()
    assert list(store.root.rglob(".tmp-*")) == []


def test_a_spool_that_outlived_its_seal_goes(store: Store) -> None:
    writer = store.begin(draft())
    shutil.copytree(writer.spool.parent, store.root / "kept")
    sealed = writer.seal(ended(draft()), [], "", "")
    (store.root / "kept").rename(writer.spool.parent)

    assert store.recover() == []
    assert store.records() == [sealed]
    assert not writer.spool.parent.exists()


def test_a_spool_stays_until_its_trial_is_in_the_catalogue(store: Store, monkeypatch) -> None:
    seen: list[bool] = []
    noted = Store._note_sealed
    monkeypatch.setattr(
        Store, "_note_sealed", lambda self, record: (seen.append(writer.spool.parent.exists()), noted(self, record))
    )
    writer = store.begin(draft())
    writer.seal(ended(draft()), [], "", "")
    assert (seen, writer.spool.parent.exists()) == ([True], False)


# A folder that goes


def test_a_store_that_was_removed_is_not_made_again(store: Store) -> None:
    writer = store.begin(draft())
    shutil.rmtree(store.root)
    for write in (lambda: writer.seal(ended(draft()), [], "", ""), lambda: store.begin(draft()), store.recover):
        with pytest.raises(StoreError, match="removed"):
            write()
    with pytest.raises(StoreError, match="was removed or moved"), SpoolWriter(writer.spool):
        pass
    assert not store.root.exists()


def test_a_store_that_was_moved_and_replaced_is_left_alone(store: Store, tmp_path: Path) -> None:
    store.begin(draft())
    store.root.rename(tmp_path / "moved")
    Store.create(store.root, {"study": "another"}, "").close()
    with pytest.raises(StoreError, match="removed or moved while it was in use"):
        store.begin(draft("bbbb"))
    assert Store.open(store.root).states() == {}


@pytest.mark.parametrize("folder", ["spool", "trials", "spool/aaaa.1"])
def test_a_part_of_the_store_that_was_removed_is_an_error(store: Store, folder: str) -> None:
    writer = store.begin(draft())
    shutil.rmtree(store.root / folder)
    with pytest.raises(StoreError, match=folder.split("/")[0]):
        writer.seal(ended(draft()), [], "", "")
    assert not (store.root / folder).exists()


# A disk that fails


class FailingSync:
    """`os.fsync` that fails once, at its n-th call."""

    def __init__(self, n: int, code: int) -> None:
        self.left = n
        self.code = code
        self.real = os.fsync

    def __call__(self, descriptor: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))
        self.real(descriptor)


@pytest.mark.parametrize("n", range(1, 13))
def test_a_trial_whose_sync_failed_is_in_doubt_and_never_ok(
    store: Store, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    whole = run_one(store, "bbbb")
    failing = FailingSync(n, errno.EIO)
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoreError, match=r"(beginning|sealing) trial aaaa.* failed: Input/output error"):
        writer = store.begin(draft())
        writer.seal(ended(draft()), MARKS, "", "")
    monkeypatch.undo()
    store.close()

    with Store.open(store.root, write=True) as again:
        assert {r.state for r in again.recover()} <= {"interrupted"}
        assert again.states().get("aaaa") in (None, "interrupted")
        assert [r for r in again.records() if r.state == "ok"] == [whole]
        assert again.verify() == again.problems == []


def test_there_are_twelve_syncs_from_begin_to_seal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The range above covers all of them."""
    counting = FailingSync(10**6, errno.EIO)
    monkeypatch.setattr(os, "fsync", counting)
    store.begin(draft()).seal(ended(draft()), MARKS, "", "")
    assert 10**6 - counting.left == 12


def test_a_full_disk_says_what_is_free_and_what_is_needed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = store.begin(draft())
    monkeypatch.setattr(os, "fsync", FailingSync(1, errno.ENOSPC))
    says = (
        r"no space left while sealing trial aaaa\.1: [\d.]+ [KM]iB free, about 1\d\d KiB needed\.\nThe finished trials"
    )
    with pytest.raises(StoreError, match=says):
        writer.seal(ended(draft()), MARKS, "x" * 100_000, "")
    assert list((store.root / "trials").iterdir()) == []


def test_a_file_size_limit_is_an_error_and_costs_no_finished_trial(store: Store) -> None:
    store.close()
    code = (
        "import resource, sys; from pathlib import Path; from some_records import *\n"
        "from tare.base.errors import StoreError\n"
        "store = Store.open(Path(sys.argv[1]), write=True); run_one(store, 'bbbb'); writer = store.begin(draft())\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "try: writer.seal(ended(draft()), [], 'x' * 300_000, '')\n"
        "except StoreError as error: print(error)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code, str(store.root)], capture_output=True, text=True, check=True, env=environment
    )
    assert "sealing trial aaaa.1 failed: File too large" in done.stdout, done.stderr

    with Store.open(store.root, write=True) as again:
        assert [r.state for r in again.recover()] == ["interrupted"]
        assert again.states() == {"bbbb": "ok", "aaaa": "interrupted"}
        assert again.verify() == []
