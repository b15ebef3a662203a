"""What the device says of itself."""

import pytest

from tare.testing import FakeHost
from tare.trial.facts import abilities, cgroup_layout, device_facts

V1 = "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
V2 = "31 20 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(("mounted", "layout"), [(V1, "v1"), (V2, "v2"), (V1 + V2, "hybrid"), ("", None)])
def test_the_cgroups_are_told_by_what_is_mounted(mounted, layout):
    assert cgroup_layout(FakeHost(files={"/proc/self/mountinfo": mounted})) == layout


def test_a_device_that_tells_nothing_has_no_facts_rather_than_empty_ones():
    facts = device_facts(FakeHost())
    assert None not in facts.values()
    assert "cgroups" not in facts


def test_every_ability_is_answered_in_a_sentence():
    assert all(why.endswith(".") for _, _, why in abilities(FakeHost()))


def test_a_device_that_is_driven_from_elsewhere_has_its_own_facts_and_not_ours():
    there = FakeHost()
    there.prepare_workdir = lambda site: None
    there.machine_facts = {"kernel": "4.9.253-tegra", "machine": "aarch64", "cores": 6, "driven": "lean"}
    facts = device_facts(there)
    assert (facts["kernel"], facts["cores"], facts["driven"]) == ("4.9.253-tegra", 6, "lean")
