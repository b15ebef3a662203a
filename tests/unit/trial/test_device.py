from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tare.base.errors import BusyError, TareError
from tare.base.files import state_dir
from tare.drivers.containers import engine
from tare.testing import FakeHost
from tare.trial import device
from tare.trial.device import DeviceLock, device_id, lock_dir, out_of_sight, private_folder, restore_command
from tare.trial.undo.journal import Journal


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_LOCK_DIR", str(tmp_path / "locks"))


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int = 1000) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)


# Where things are


def test_the_state_folder_is_the_one_that_the_user_names(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TARE_STATE", "/somewhere/else")
    assert state_dir() == Path("/somewhere/else")


def test_the_state_folder_of_root_is_the_systems(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TARE_STATE")
    as_user(monkeypatch, 0)
    assert state_dir() == Path("/var/lib/tare")


def test_the_state_folder_of_a_user_is_in_their_home(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TARE_STATE")
    as_user(monkeypatch)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert state_dir() == Path("/home/ada/.local/state/tare")
    monkeypatch.setenv("XDG_STATE_HOME", "/data/state")
    assert state_dir() == Path("/data/state/tare")


def test_all_of_roots_runs_share_one_lock_whatever_their_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("TARE_LOCK_DIR")
    as_user(monkeypatch, 0)
    assert lock_dir(tmp_path / "one") == lock_dir(tmp_path / "two") == Path("/run/tare/locks")
    as_user(monkeypatch)
    assert lock_dir(tmp_path / "one") == tmp_path / "one"


def test_the_command_that_restores_can_be_pasted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TARE_STATE")
    monkeypatch.delenv("TARE_LOCK_DIR")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    as_user(monkeypatch, 0)
    assert restore_command() == restore_command(as_root=True) == "tare device restore"
    as_user(monkeypatch)
    assert restore_command(force=True) == "tare device restore --force"  # what they could change they can put back
    assert restore_command(as_root=True) == "sudo env TARE_STATE=/home/ada/.local/state/tare tare device restore"


def test_the_command_that_restores_works_from_another_folder_and_with_the_same_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARE_STATE", "my state")
    monkeypatch.setenv("TARE_LOCK_DIR", "locks")
    settings = f"env 'TARE_STATE={tmp_path}/my state' TARE_LOCK_DIR={tmp_path}/locks"
    as_user(monkeypatch)
    assert restore_command() == f"{settings} tare device restore"
    assert restore_command(as_root=True) == f"sudo {settings} tare device restore"
    as_user(monkeypatch, 0)
    assert restore_command(as_root=True) == f"{settings} tare device restore"


def test_the_engine_lies_in_the_state_folder_whoever_runs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARE_STATE", "relative")
    assert engine.folder() == state_dir() / "engine" == tmp_path / "relative/engine"
    monkeypatch.delenv("TARE_STATE")
    as_user(monkeypatch)
    assert engine.folder() == state_dir() / "engine"


@pytest.mark.machine("root")
def test_root_trusts_a_users_state_folder_only_if_that_user_shows_it_by_sudo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    theirs = private_folder(tmp_path / "state" / "devices" / "here")
    for path in (tmp_path / "state", theirs):
        os.chown(path, 1000, 1000)
    monkeypatch.delenv("TARE_STATE")
    monkeypatch.setenv("SUDO_UID", "1000")
    with pytest.raises(TareError, match="does not trust it"):
        private_folder(theirs)
    monkeypatch.setenv("TARE_STATE", str(tmp_path / "state"))
    journal = Journal(theirs)
    journal.retire(journal.note_site("bare", "tare-1"), "swept")
    os.chown(journal.path, 1000, 1000)
    assert journal.pending() == []
    monkeypatch.setenv("SUDO_UID", "1001")
    with pytest.raises(TareError, match="not trusted"):
        journal.pending()


def test_a_user_is_told_that_roots_journal_is_out_of_sight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("TARE_STATE")
    monkeypatch.setattr(device, "ROOT_STATE", tmp_path)
    as_user(monkeypatch, 0)
    assert out_of_sight() is None
    as_user(monkeypatch)
    assert "sudo tare device restore" in str(out_of_sight())
    monkeypatch.setattr(device, "ROOT_STATE", tmp_path / "missing")
    assert out_of_sight() is None


def test_a_private_folder_is_for_its_owner_alone_and_not_what_lies_beside_it(tmp_path: Path):
    """/run/tare/owners lies beside root's locks, and every user looks there."""
    made = private_folder(tmp_path / "one" / "two")
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (made, made.parent)] == [0o700, 0o755]
    assert private_folder(made) == made


def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(TareError, match="does not trust it"):
        private_folder(tmp_path / "shared")


def test_a_link_in_place_of_the_folder_is_not_trusted(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TareError, match="does not trust it"):
        private_folder(tmp_path / "link")


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TareError, match="cannot be made"):
        private_folder(tmp_path / "file" / "state")


# What the device is called

SERIAL, MACHINE = "/proc/device-tree/serial-number", "/etc/machine-id"
DMI = "/sys/class/dmi/id/product_uuid"


def test_a_board_is_known_by_its_serial_number_even_when_its_card_was_cloned():
    one = FakeHost(files={SERIAL: "1420718012345\0", MACHINE: "same\n"})
    two = FakeHost(files={SERIAL: "1420718099999\0", MACHINE: "same\n"})
    assert device_id(one) != device_id(two)
    assert device_id(one) == device_id(FakeHost(files={SERIAL: "1420718012345\0", MACHINE: "reinstalled\n"}))


def test_without_a_serial_number_the_machine_id_names_it_and_then_the_firmware():
    by_machine = device_id(FakeHost(files={MACHINE: "bb1f9f7d44354cd6\n", DMI: "4C4C4544-0042\n"}))
    by_firmware = device_id(FakeHost(files={MACHINE: "", DMI: "4C4C4544-0042\n"}))
    assert by_machine == device_id(FakeHost(files={MACHINE: "bb1f9f7d44354cd6\n"}))
    assert by_firmware == device_id(FakeHost(files={DMI: "4C4C4544-0042\n"}))
    assert by_machine != by_firmware


@pytest.mark.parametrize(
    "filler", ["0000000000000000\0", "", "To Be Filled By O.E.M.", "Default string", "Not Specified"]
)
def test_a_number_that_every_board_has_names_none(filler: str):
    named = FakeHost(files={MACHINE: "bb1f9f7d44354cd6\n"})
    assert device_id(FakeHost(files={SERIAL: filler, MACHINE: "bb1f9f7d44354cd6\n"})) == device_id(named)


def test_the_id_does_not_give_the_serial_number_away():
    assert "1420718012345" not in device_id(FakeHost(files={SERIAL: "1420718012345\0"}))


def test_a_nameless_device_gets_a_random_id_and_keeps_it(tmp_path: Path):
    first = device_id(FakeHost(), tmp_path / "state")
    assert device_id(FakeHost(), tmp_path / "state") == first
    assert device_id(FakeHost(), tmp_path / "other") != first
    assert stat.S_IMODE((tmp_path / "state" / "device-id").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["device-id"]


# Who owns it


def test_a_second_run_is_told_who_has_the_device(tmp_path: Path):
    first, second = DeviceLock(tmp_path, "dev", "out/weigh-7f3"), DeviceLock(tmp_path, "dev", "second")
    with first:
        since_s = json.loads(first.path.read_text())["since"]
        with pytest.raises(BusyError) as caught, second:
            pass
    message = str(caught.value)
    assert caught.value.exit_code == 75
    assert f"pid {os.getpid()}" in message
    assert "run 'out/weigh-7f3'" in message
    assert time.strftime("since %Y-%m-%d %H:%M:%S", time.localtime(since_s)) in message
    assert abs(time.time() - since_s) < 300
    assert f"kill {os.getpid()}" in message


def test_who_waits_is_told_once_and_has_the_device_when_the_other_run_ends(tmp_path: Path):
    first, said = DeviceLock(tmp_path, "dev", "first").__enter__(), []

    def say(text: str) -> None:
        said.append(text)
        first.__exit__()

    with DeviceLock(tmp_path, "dev", "second", wait_s=60, say=say) as second:
        assert b"second" in second.path.read_bytes()
    (told,) = said
    assert f"pid {os.getpid()}" in told
    assert told.endswith("Waiting until it ends, up to 60 s.")


def test_who_waits_waits_no_longer_than_asked(tmp_path: Path):
    with DeviceLock(tmp_path, "dev", "first"), pytest.raises(BusyError, match="`tare run STUDY --wait` does"):
        DeviceLock(tmp_path, "dev", "second", wait_s=0.01).__enter__()


def test_the_device_is_free_when_the_run_ends_also_by_an_error(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), DeviceLock(tmp_path, "dev"):
        raise ZeroDivisionError
    with DeviceLock(tmp_path, "dev"):
        pass


def test_two_devices_have_two_locks(tmp_path: Path):
    with DeviceLock(tmp_path, "one"), DeviceLock(tmp_path, "two"):
        pass


def test_the_lock_file_is_for_its_owner_alone(tmp_path: Path):
    with DeviceLock(tmp_path, "dev") as lock:
        assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(lock.path.parent.stat().st_mode) == 0o700


HOLDER = """
import subprocess, sys, time
from pathlib import Path
from tare.trial.device import DeviceLock
with DeviceLock(Path(sys.argv[1]), "dev", "doomed"):
    # A child that keeps every inheritable descriptor: the lock must not be among them.
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    print(child.pid, flush=True)
    time.sleep(60)
"""


def test_a_killed_holder_blocks_nobody_and_neither_does_its_orphan(tmp_path: Path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    orphan = int(holder.stdout.readline())
    with pytest.raises(BusyError, match=f"pid {holder.pid}.*doomed"), DeviceLock(tmp_path, "dev"):
        pass
    os.kill(orphan, 19)  # stopped: it cannot notice that its parent is gone
    holder.kill()
    holder.wait()
    try:
        with DeviceLock(tmp_path, "dev") as lock:  # what the dead one wrote is still in the file, and means nothing
            assert b"doomed" not in lock.path.read_bytes()
    finally:
        os.kill(orphan, 9)
        holder.stdout.close()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff\xfe", b'{"pid": 1, "started": 0, "since": 1e999}']
)
def test_a_holder_that_cannot_be_named_is_still_respected(tmp_path: Path, content: bytes):
    with DeviceLock(tmp_path, "dev") as lock:
        lock.path.write_bytes(content)
        with pytest.raises(BusyError, match="fuser"), DeviceLock(tmp_path, "dev"):
            pass


def test_a_holder_that_is_not_the_one_in_the_file_is_not_given_its_name(tmp_path: Path):
    with DeviceLock(tmp_path, "dev") as lock:
        lock.path.write_text('{"pid": 1, "started": 1, "since": 0, "run": "of before"}')
        with pytest.raises(BusyError, match="not pid 1 of before") as caught, DeviceLock(tmp_path, "dev"):
            pass
    assert "kill" not in str(caught.value)


def test_the_lock_does_not_follow_a_link(tmp_path: Path):
    victim = tmp_path / "passwd"
    victim.write_text("precious")
    private_folder(tmp_path / "locks")
    (tmp_path / "locks" / "dev.lock").symlink_to(victim)
    with pytest.raises(TareError, match="symbolic link"), DeviceLock(tmp_path, "dev"):
        pass
    assert victim.read_text() == "precious"
