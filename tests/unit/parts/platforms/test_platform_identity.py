"""Who we are on a host, what we left running there, and what is known about its runtime."""

from __future__ import annotations

import pytest

from small_linux import SmallLinux
from tare.base.host import Completed
from tare.base.processes import identity, is_root, ulimits
from tare.drivers.cgroups import tree
from tare.drivers.containers.oci import advice, runc_advice
from tare.testing import FakeHost


def test_the_effective_user_and_the_right_to_mount_come_from_the_kernel():
    status = "Uid:\t1000\t0\t0\t0\nGid:\t100\t50\t0\t0\nCapEff:\t0000000000200000\n"
    who = identity(FakeHost(files={"/proc/self/status": status}))

    assert (who.uid, who.gid, who.user, who.can_mount) == (0, 50, "0:50", True)


def test_root_without_the_right_to_mount_is_not_root_enough():
    host = SmallLinux()
    assert is_root(host)
    host.files["/proc/self/status"] = host.files["/proc/self/status"].replace("000001ffffffffff", "00000000a80425fb")
    assert not is_root(host)
    assert not is_root(FakeHost())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Max open files            1024                 524288               files", {"nofile": (1024, 524288)}),
        ("Max open files            unlimited            unlimited            files", {"nofile": (-1, -1)}),
        ("Max processes             7                    7                    processes", {"nproc": (7, 7)}),
        ("Max realtime priority     7                    7                    ", {}),
    ],
)
def test_our_own_limits_are_read_or_absent(line, found):
    assert ulimits(FakeHost(files={"/proc/self/limits": f"Limit  Soft  Hard\n{line}\n"})) == found
    assert ulimits(FakeHost()) == {}


def test_we_ourselves_are_no_stray():
    host = SmallLinux()
    host.files["/proc/42/environ"] = "TARE_NAME=tare-1\0"
    host.files["/proc/42/status"] = host.files["/proc/self/status"]

    assert tree.processes_named(host, "tare-1") == set()


def test_a_stray_that_does_not_die_is_given_up_after_the_deadline():
    host = SmallLinux()
    host.start_process(environ="TARE_NAME=tare-1\0")
    host._kill = lambda words: (0, "", "")

    tree.kill_named(host, "tare-1", within_s=1)

    assert tree.processes_named(host, "tare-1")


@pytest.mark.parametrize(
    ("version", "flaws"),
    [
        ("1.1.5+ds1", ["CVE-2024-21626", "CVE-2025-31133"]),
        ("1.1.12", ["CVE-2025-31133"]),
        ("1.2.7", ["CVE-2025-31133"]),
        ("1.2.8", []),
        ("1.3.2", ["CVE-2025-31133"]),
        ("1.3.3", []),
        ("1.4.0", []),
        ("unknown", []),
    ],
)
def test_old_runtimes_get_advice(version, flaws):
    said = " ".join(runc_advice(f"runc version {version}\nspec: 1.0.2"))

    assert [flaw for flaw in ("CVE-2024-21626", "CVE-2025-31133") if flaw in said] == flaws
    assert ("distribution" in said.lower()) == bool(flaws)


def test_a_host_without_runc_gets_none():
    assert advice(FakeHost()) == []
    host = FakeHost(answer=lambda argv: Completed(tuple(argv), 0, "runc version 1.1.5", ""))
    assert len(advice(host)) == 1
