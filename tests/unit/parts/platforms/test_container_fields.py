"""The fields of container platforms: one root, told in one way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from small_linux import SmallLinux
from tare.base.host import Completed, Site
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


def test_a_command_and_what_saves_checkpoints_may_write_and_others_may_not_unless_the_study_has_it_otherwise():
    command, built_in = Site("tare-1", Path("/s"), layered=True), Site("tare-1", Path("/s"))
    sites = (command, replace(built_in, saves=True), built_in)
    may = {value: [Docker(writable=value).may_write(site) for site in sites] for value in (None, True, False)}
    assert may == {None: [True, True, False], True: [True] * 3, False: [False] * 3}


# The user inside


@EVERY
@pytest.mark.parametrize("wrong", ["ada", "-1", "1000:", "1000:x", "0x10", "", "1000 1000", True, 1.5])
def test_a_user_is_the_caller_or_ids(platform, wrong):
    with pytest.raises(ValidationError):
        platform(user=wrong)
    assert platform(user=1000).user == "1000"


@pytest.mark.parametrize("platform", [Podman, Runc])
def test_the_user_inside_is_the_requested_one_and_owns_the_work_folder(platform):
    linux, folder = SmallLinux(), "/dev/shm/workdir"
    site = Site(name="tare-1", scratch=Path("/scratch"), writes=(Path(folder), Path("/home/ada/out")), layered=True)
    place = platform(user="1000").open(linux, site)

    assert place.facts["user"] == 1000
    assert linux.owners == {folder: "1000:1000"}  # and never a folder of the user's own
    assert platform(user="1000").capabilities(linux, site) == []  # what only root may do is root's
    assert platform().capabilities(linux, site) != []


@pytest.mark.parametrize("platform", [Podman, Runc])
def test_who_runs_as_root_keeps_the_work_folder_and_it_is_known(platform):
    linux = SmallLinux()
    place = platform().open(linux, Site(name="tare-1", scratch=Path("/scratch"), writes=(Path("/dev/shm/w"),)))
    assert (place.facts["user"], linux.owners) == (0, {})


@EVERY
def test_the_caller_is_who_called_sudo(platform, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "1003")
    monkeypatch.setenv("SUDO_GID", "1004")
    assert platform(user="caller").user_inside(SmallLinux()).user == "1003:1004"
    monkeypatch.delenv("SUDO_UID")
    assert platform(user="caller").user_inside(SmallLinux()).user == "0:0"
    assert platform().user_inside(SmallLinux()) is None


@EVERY
def test_a_user_that_cannot_be_had_is_an_obstacle_before_the_run(platform):
    (ruling,) = platform(user="1000").user_obstacles(SmallLinux(uid=1001))
    assert ruling.code == "needs.root"
    assert platform(user="1001").user_obstacles(SmallLinux(uid=1001)) == []

    def below_root(argv):
        return Completed(tuple(argv), 1, "", "") if argv[0] == "setpriv" else None

    (ruling,) = platform(user="1000").user_obstacles(SmallLinux(answer=below_root))
    assert (ruling.code, "cannot reach the interpreter" in ruling.sentence) == ("needs.file", True)
    assert platform(user="1000").user_obstacles(SmallLinux()) == []  # no setpriv there: it cannot be told
