from __future__ import annotations

import subprocess
import sys

import pytest

from tare.base import processes
from tare.base.processes import Owner, boot_id
from tare.parts.protocols import Leftover
from tare.trial.undo import restoration


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "SYSTEM_LEASES", tmp_path / "owners")


def dead_owner() -> Owner:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return Owner(child.pid, 1)


def test_what_this_process_has_claimed_is_in_use():
    processes.lease_name("tare-one")
    processes.lease_name("tare-two")

    assert processes.leased_names() == {"tare-one": Owner.me(), "tare-two": Owner.me()}


def test_a_dead_owners_claims_are_void_and_its_file_goes(tmp_path):
    processes.lease_name("tare-mine")
    (tmp_path / "owners" / f"{dead_owner()}:{boot_id()}").write_text("tare-dead\n")
    (tmp_path / "owners" / f"{dead_owner()}:of-another-boot").write_text("tare-before\n")

    assert set(processes.leased_names()) == {"tare-mine"}
    processes.remove_stale_leases()
    assert [path.name for path in (tmp_path / "owners").iterdir()] == [f"{Owner.me()}:{boot_id()}"]


def test_where_the_systems_folder_cannot_be_written_the_claim_is_kept_in_our_own(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(processes, "SYSTEM_LEASES", tmp_path / "file" / "owners")
    monkeypatch.setattr(processes.os, "geteuid", lambda: 0)

    processes.lease_name("tare-one")

    assert set(processes.leased_names()) == {"tare-one"}


def test_what_is_inside_a_claimed_place_belongs_to_it_and_a_longer_name_does_not():
    active = {"tare-one": Owner.me()}

    assert restoration.owner_of("tare-one-1", [], active) == Owner.me()
    assert restoration.owner_of("tare-oneself", [], active) is None


def test_a_label_names_a_living_owner_of_this_boot_only():
    me = str(Owner.me())

    assert restoration.owner_of("tare-x", [Leftover("tare-x", "it", me, boot_id())], {}) == Owner.me()
    assert restoration.owner_of("tare-x", [Leftover("tare-x", "it", me, "another-boot")], {}) is None
    assert restoration.owner_of("tare-x", [Leftover("tare-x", "it", str(dead_owner()), boot_id())], {}) is None


def test_a_living_process_keeps_its_claim_though_another_sees_another_boot_in_a_namespace(monkeypatch):
    processes.lease_name("tare-mine")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(processes, "boot_id", lambda: "another")
        processes.remove_stale_leases()

    assert set(processes.leased_names()) == {"tare-mine"}
