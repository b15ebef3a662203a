"""The fields of container platforms: one root, told in one way."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tare.base.host import Site
from tare.parts.platforms.docker import Docker
from tare.parts.platforms.podman import Podman
from tare.parts.platforms.runc import Runc
from tare.testing import FakeHost

EVERY = pytest.mark.parametrize("platform", [Docker, Podman, Runc])


@EVERY
def test_the_hosts_own_root_is_the_default(platform):
    assert (platform().rootfs, platform().image) == ("host", None)


@EVERY
def test_an_image_takes_the_place_of_the_hosts_root(platform):
    assert (platform(image="pt:1").rootfs, platform(image="pt:1").image) == (None, "pt:1")


@EVERY
@pytest.mark.parametrize("fields", [{"rootfs": "host", "image": "pt:1"}, {"rootfs": None}, {"rootfs": "other"}])
def test_two_roots_or_none_are_refused(platform, fields):
    with pytest.raises(ValidationError):
        platform(**fields)


@EVERY
def test_a_part_comes_back_from_its_plain_data(platform):
    for part in (platform(), platform(image="pt:1", quota=1.5, memory="1 GiB", shm="64 MiB")):
        assert platform(**part.fields()) == part
        assert hash(platform(**part.fields())) == hash(part)


def test_a_dockerfile_is_an_image_too_but_not_a_second_one():
    assert Docker(dockerfile="some/Dockerfile").rootfs is None
    with pytest.raises(ValidationError, match="not both"):
        Docker(dockerfile="some/Dockerfile", image="pt:1")


def test_shared_memory_is_as_large_as_the_hosts_unless_the_study_has_a_size():
    host = FakeHost(answers={"df": "1B-blocks\n4096\n"})
    assert Docker().shm_bytes(host) == 4096
    assert Docker(shm="2GiB").shm_bytes(host) == 2 << 30
    assert Docker().shm_bytes(FakeHost()) == 1 << 30


def test_a_command_may_write_and_a_built_in_workload_may_not_unless_the_study_has_it_otherwise():
    command, built_in = Site("tare-1", Path("/s"), layered=True), Site("tare-1", Path("/s"))
    may = {
        value: [Docker(writable=value).may_write(site) for site in (command, built_in)] for value in (None, True, False)
    }
    assert may == {None: [True, False], True: [True, True], False: [False, False]}
