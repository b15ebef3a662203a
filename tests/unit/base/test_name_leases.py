from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tare.base import processes
from tare.base.processes import Lease, Owner, boot_id
from tare.parts.protocols import Leftover
from tare.trial.undo import restoration

HOLD = """
import sys
from pathlib import Path
from tare.base import processes
processes.LEASES = Path(sys.argv[1])
processes.lease_name(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "LEASES", tmp_path)
    monkeypatch.setattr(processes, "_held", {})
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    yield tmp_path
    for descriptor in processes._held.values():
        os.close(descriptor)


def holder(folder: Path, name: str, *before: str) -> subprocess.Popen[bytes]:
    """Another process that has this name, once this returns."""
    command = [*before, sys.executable, "-c", HOLD, str(folder), name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def dead_owner() -> Owner:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return Owner(child.pid, 1)


def test_what_this_process_has_leased_is_in_use_until_it_is_dropped(folder):
    processes.lease_name("tare-one")
    processes.lease_name("tare-two")
    mine = Lease(Owner.me(), os.geteuid())

    assert processes.leased_names() == {"tare-one": mine, "tare-two": mine}
    processes.drop_name("tare-one")
    assert processes.leased_names() == {"tare-two": mine}
    assert [path.name for path in folder.iterdir()] == ["tare-two.lock"]


def test_what_is_inside_a_leased_place_needs_no_lease_of_its_own(folder):
    processes.lease_name("tare-one")
    processes.lease_name("tare-one-1")

    assert [path.name for path in folder.iterdir()] == ["tare-one.lock"]


def test_a_dead_processs_lease_is_void_and_its_file_goes(folder):
    process = holder(folder, "tare-dead")
    processes.lease_name("tare-mine")
    assert processes.leased_names()["tare-dead"].owner.pid == process.pid
    end(process)

    assert set(processes.leased_names()) == {"tare-mine"}
    processes.remove_stale_leases()
    assert [path.name for path in folder.iterdir()] == ["tare-mine.lock"]


@pytest.mark.machine("root")
def test_a_lease_of_another_pid_namespace_holds_though_its_process_cannot_be_seen(folder):
    process = holder(folder, "tare-there", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    try:
        assert processes.leased_names()["tare-there"].owner != Owner.me()
        processes.remove_stale_leases()
        assert set(processes.leased_names()) == {"tare-there"}
    finally:
        end(process)


def test_a_name_is_waited_for_while_what_had_it_is_removed(folder):
    begun, leased = threading.Event(), threading.Event()

    def begin() -> None:
        begun.set()
        processes.lease_name("tare-one")
        leased.set()

    with processes.name_kept_free("tare-one") as is_free:
        assert is_free
        beginning = threading.Thread(target=begin)
        beginning.start()
        assert begun.wait(10)
        assert not leased.wait(0.1)
    assert leased.wait(10)
    beginning.join()
    with processes.name_kept_free("tare-one") as is_free:
        assert not is_free


def test_a_name_that_is_never_let_go_of_is_an_error_with_the_command_that_names_its_process(folder, monkeypatch):
    monkeypatch.setattr(processes, "_PATIENCE_S", 0.0)
    with (
        processes.name_kept_free("tare-one"),
        pytest.raises(processes.BusyError, match=r"fuser .*tare-one\.lock"),
    ):
        processes.lease_name("tare-one")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_plain_file_is_no_lease(folder, make):
    make(folder / "tare-odd.lock")

    assert processes.leased_names() == {}


def test_where_the_shared_folder_cannot_be_written_the_lease_lies_in_our_own(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "LEASES", tmp_path / "missing")

    processes.lease_name("tare-one")

    assert set(processes.leased_names()) == {"tare-one"}
    assert (tmp_path / "state" / "owners" / "tare-one.lock").stat().st_mode & 0o777 == 0o600


def test_what_is_inside_a_leased_place_belongs_to_it_and_a_longer_name_does_not():
    active = {"tare-one": Lease(Owner.me(), 0)}

    assert restoration.owner_of("tare-one-1", [], active) == Owner.me()
    assert restoration.owner_of("tare-oneself", [], active) is None


def test_a_users_lease_does_not_keep_what_another_user_left():
    lease = {"tare-one": Lease(Owner.me(), 1000)}

    assert restoration.owner_of("tare-one", [Leftover("tare-one", "it", uid=1000)], lease) == Owner.me()
    assert restoration.owner_of("tare-one", [Leftover("tare-one", "it", uid=0)], lease) is None


def test_a_label_names_a_living_owner_of_this_boot_only():
    me = str(Owner.me())

    assert restoration.owner_of("tare-x", [Leftover("tare-x", "it", me, boot_id())], {}) == Owner.me()
    assert restoration.owner_of("tare-x", [Leftover("tare-x", "it", me, "another-boot")], {}) is None
    assert restoration.owner_of("tare-x", [Leftover("tare-x", "it", str(dead_owner()), boot_id())], {}) is None
