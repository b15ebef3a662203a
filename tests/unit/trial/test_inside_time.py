"""What is marked in a guest is told in device time; a container in the guest tells of both."""

from __future__ import annotations

from tare.drivers.cgroups.job import Group
from tare.drivers.containers.place import ContainerPlace
from tare.drivers.guests.channel import GuestClock, Sighting
from tare.parts.protocols import Mark
from tare.testing import FakeHost, FakeInnerHost
from tare.trial.engine import in_device_time, place_facts

MARKS = [Mark(1_000, "step", "begin", 0), Mark(3_000, "step", "end", 0)]


def in_guest() -> FakeInnerHost:
    """A host with a clock of its own, 1 s behind the device's."""
    clock = GuestClock()
    clock.add(Sighting(1_000_000_000, 0, 10))
    clock.add(Sighting(1_000_004_000, 4_000, 10))
    return FakeInnerHost(facts={"accel": "tcg", "root": "virtiofs"}, guest_clock=clock, shares_workdir=False)


class Container(ContainerPlace):
    """A container that is opened in some host."""

    def run(self, argv, *, limit_s=60, stdin=""):
        return self._host.run(argv, limit_s=limit_s, stdin=stdin)

    def spawn(self, job):
        return self._host.spawn(job)


def test_marks_of_a_place_with_the_devices_clock_stay_as_they_are():
    assert in_device_time(MARKS, FakeHost()) == MARKS
    assert place_facts(FakeHost()) == {}


def test_marks_of_a_guest_are_moved():
    assert [mark.t_ns for mark in in_device_time(MARKS, in_guest())] == [1_000_001_000, 1_000_003_000]


def test_a_container_in_a_guest_has_its_clock_and_says_that_it_is_emulated():
    guest = in_guest()
    inner = Container(guest, "tare-1", Group(guest))
    inner.facts |= {"root": "overlay"}

    assert in_device_time(MARKS, inner) == in_device_time(MARKS, guest)
    facts = place_facts(inner)
    assert (facts["accel"], facts["root"]) == ("tcg", "overlay")
    assert facts["clock"]["offset_ns"] == 1_000_000_000
    assert guest.facts["root"] == "virtiofs"
    assert not inner.shares_workdir
