"""Processes of a place are stopped by what the kernel has there."""

import pytest

from tare.base.errors import TrialError
from tare.base.host import Scope
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.tree import freezer_of
from tare.testing import FakeHost

V2, V1 = "/sys/fs/cgroup/tare/x", "/sys/fs/cgroup/freezer/tare/x"


def test_version_two_is_stopped_by_its_freezer():
    host = FakeHost(files={f"{V2}/cgroup.freeze": "0", f"{V2}/cgroup.events": "populated 1\nfrozen 1\n"})
    freezer = freezer_of(host, "x", Scope(cgroups={"": V2, "freezer": V1}))
    assert freezer.way == "cgroup v2"
    freezer.stop()
    assert host.read(f"{V2}/cgroup.freeze") == "1"
    freezer.resume()
    assert host.read(f"{V2}/cgroup.freeze") == "0"


def test_version_one_has_a_hierarchy_for_it():
    host = FakeHost(files={f"{V1}/freezer.state": "THAWED"})
    freezer = freezer_of(host, "x", Scope(cgroups={"freezer": V1}))
    assert freezer.way == "cgroup v1"
    freezer.stop()
    assert host.read(f"{V1}/freezer.state") == "FROZEN"


def test_without_a_group_it_is_signals():
    assert freezer_of(FakeHost(), "x", Scope()).way == "SIGSTOP"


def test_what_does_not_stop_is_told(monkeypatch):
    monkeypatch.setattr(tree, "STOPPED_WITHIN_S", 0.01)
    host = FakeHost(files={f"{V2}/cgroup.freeze": "0", f"{V2}/cgroup.events": "populated 1\nfrozen 0\n"})
    with pytest.raises(TrialError, match="did not stop within"):
        freezer_of(host, "x", Scope(cgroups={"": V2})).stop()


def test_a_group_that_is_gone_has_nothing_to_resume():
    tree.Freezer(FakeHost(), "cgroup v2", V2).resume()
