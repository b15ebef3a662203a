"""Docker's containers on a host that is reached over a guest's line, in front of a real engine.

The guest is its real agent as a plain process; in a real machine the engine alone takes minutes where all is emulated.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest_without_a_machine import Guest
from tare.base.host import Host, Job, LocalHost, Site
from tare.base.processes import mounts
from tare.drivers.containers import engine
from tare.parts.platforms.docker import Docker

pytestmark = pytest.mark.machine("docker", "root")
ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    made = Guest(tmp_path)
    yield made
    made.close()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "workdir").mkdir()
    name = f"tare-test-{secrets.token_hex(4)}"
    return Site(name=name, scratch=tmp_path / "scratch", writes=(tmp_path / "workdir",))


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where an engine inside lives; short enough for a socket."""
    made = Path(tempfile.mkdtemp(prefix="tare-", dir="/var/tmp"))
    monkeypatch.setattr(engine, "INSIDE", str(made / "engine"))
    yield made
    assert [mount.point for mount in mounts(LocalHost()) if mount.point.startswith(str(made))] == []
    shutil.rmtree(made)


def check(place: Host, workdir: Path) -> None:
    """All that the engine's hijacked connections have to carry."""
    assert place.run(["cat", "/proc/1/comm"]).out == "sleep\n"
    assert place.run(["wc", "-c"], stdin="x" * 3_000_000).out == "3000000\n"  # only ends with its input
    assert len(place.run(["head", "-c", "900000", "/dev/zero"]).out) == 900_000
    ended = place.spawn(Job(("sh", "-c", f"echo out; echo err >&2; echo made > {workdir}/file; exit 3"), env=ENV)).wait(
        60
    )
    assert (ended.code, ended.out, ended.err) == (3, "out\n", "err\n")
    assert (workdir / "file").read_text() == "made\n"
    late = place.spawn(Job(("sleep", "987"), env=ENV)).wait(0.5)
    assert late.timed_out


def test_an_engine_is_started_inside_a_guest_used_and_stopped(guest, site, folder, monkeypatch):
    monkeypatch.setattr(engine, "SYSTEM_SOCKET", str(folder / "none.sock"))
    outer = guest.place()
    place = Docker().open(outer, site)
    try:
        assert engine.answers(outer)
        check(place, site.writes[0])
    finally:
        place.close()

    assert not engine.answers(outer)
    assert not (folder / "engine" / "dockerd.pid").exists()


def test_the_engine_that_runs_inside_is_used_and_left_alone(guest, site, folder, monkeypatch):
    found = engine.find()
    assert found is not None
    monkeypatch.setattr(engine, "SYSTEM_SOCKET", found.socket)
    outer = guest.place()
    assert Docker().here(outer)["storage"]
    place = Docker().open(outer, site)
    try:
        check(place, site.writes[0])
    finally:
        place.close()

    assert engine.answers(outer)
    assert not (folder / "engine").exists()
