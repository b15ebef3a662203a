from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tare.base.processes import Owner, boot_id


def test_the_process_that_asks_is_alive():
    assert Owner.me().pid == os.getpid()
    assert Owner.me().is_alive()


def test_a_reused_pid_is_another_owner():
    assert not Owner(os.getpid(), Owner.me().started - 1).is_alive()


def test_an_owner_that_has_ended_is_dead_even_before_its_parent_has_noticed():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        stat = Path(f"/proc/{child.pid}/stat").read_text()
        owner = Owner(child.pid, int(stat.rpartition(")")[2].split()[19]))
        assert owner.is_alive()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie until we collect it
        assert not owner.is_alive()
    finally:
        child.communicate()
    assert not owner.is_alive()


def test_an_owner_survives_being_written_down():
    assert Owner.parse(str(Owner.me())) == Owner.me()


@pytest.mark.parametrize("text", ["", "12", "12:", ":5", "a:b", "-1:5", "1:2:3", "١:٢"])
def test_what_is_not_an_owner_is_none(text: str):
    assert Owner.parse(text) is None


def test_every_process_of_a_boot_sees_the_same_boot_id():
    assert len(boot_id()) == 36
    assert boot_id() == boot_id()
