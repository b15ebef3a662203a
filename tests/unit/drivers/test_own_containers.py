"""What a container of somebody's own line may be given, and what is said of it."""

from __future__ import annotations

import os
import socket
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tare.base.errors import StudyError, TareError
from tare.base.host import Completed, Job, LocalHost, Site
from tare.drivers.containers import own
from tare.drivers.containers.line import Flag, Line
from tare.drivers.containers.own import Mount, OwnPlace, Seen
from tare.parts.platforms.own import not_honoured
from tare.testing import FakeHost


class Answering:
    """A host on which each command ends as it is said, and is written down."""

    def __init__(self, code: int = 0, out: str = "", err: str = "") -> None:
        self.clock, self.ran = LocalHost().clock, list[tuple[str, ...]]()
        self._answer = (code, out, err)

    def run(self, argv: Any, **_: object) -> Completed:
        self.ran.append(tuple(argv))
        return Completed(tuple(argv), *self._answer)

    def spawn(self, job: Job) -> Any:
        return SimpleNamespace()


def line_of(*options: tuple[str, str], program: str = "docker") -> Line:
    flags = tuple(Flag(name, value, (f"{name}={value}",)) for name, value in options)
    return Line((program,), flags, "app:1", ("python", "train.py"))


def place_of(host: Any, line: Line, env: dict[str, str]) -> OwnPlace:
    seen = Seen(("python",), env, "/", (), "sha256:1", "", ())
    return OwnPlace(host, Site("tare-1", Path("/scratch"), writes=(Path("/work"),)), line, seen, ["--network=none"], {})


@pytest.mark.parametrize(
    ("program", "is_users"),
    [("crunch", True), ("tinify", True), ("runc-bench", True), ("runc:[2:INIT]", False), ("tini", False)],
)
def test_a_program_whose_name_only_begins_like_a_runtime_is_the_users(
    tmp_path: Path, program: str, is_users: bool
) -> None:
    (tmp_path / "container").mkdir()
    files = {str(tmp_path / "container" / "cgroup.procs"): "7\n", "/proc/7/comm": f"{program}\n"}
    watch = own.Watch(FakeHost(files=files), {"": str(tmp_path)}, {})
    assert watch._first() == (7 if is_users else None)


def test_a_container_that_the_engine_does_not_make_betrays_no_value() -> None:
    said = (
        "docker: Error: bad mount for postgres://user:hunter2@db and t0psecret\n\nRun 'docker create --help' for more"
    )
    host = Answering(125, err=said)
    line = line_of(("--env", "DB_URL=postgres://user:hunter2@db"), ("--env", "OTHER=t0psecret"))
    env = {"DB_URL": "postgres://user:hunter2@db", "OTHER": "t0psecret"}

    with pytest.raises(TareError) as refused:
        place_of(host, line, env).spawn(Job(("python",), env))

    shown = str(refused.value)
    assert "hunter2" not in shown and "t0psecret" not in shown
    assert "app:1 python train.py" in shown and "Error: bad mount for" in shown


def test_the_refusal_of_a_line_betrays_no_value() -> None:
    with pytest.raises(TareError) as refused:
        own.look_at(Answering(125, err="no t0psecret here"), line_of(("--env", "OTHER=t0psecret")), ())  # type: ignore[arg-type]

    assert "t0psecret" not in str(refused.value) and "here" in str(refused.value)


def test_processes_of_the_container_carry_the_name_by_which_a_gpu_probe_knows_ours() -> None:
    host = Answering()

    place_of(host, line_of(), {"A": "1"}).spawn(Job(("python",), {"A": "1"}))

    (created,) = host.ran
    assert created[created.index("app:1") - 1] == "--env=TARE_NAME=tare-1"


@pytest.mark.parametrize(("remote", "is_refused"), [("true\n", True), ("false\n", False)])
def test_a_podman_that_calls_a_service_is_refused(remote: str, is_refused: bool) -> None:
    host: Any = Answering(out=remote)
    with pytest.raises(StudyError, match="through a service") if is_refused else nullcontext():
        own.refuse_remote(host, line_of(program="podman"))


def seen_with(*mounts: Mount) -> Seen:
    return Seen(("python",), {}, "/", mounts, "sha256:1", "", ())


def test_a_volume_of_another_container_is_never_written_to_unasked(tmp_path: Path) -> None:
    line = line_of(("--volume", f"{tmp_path}:/own"), ("--volumes-from", "database"))
    seen = seen_with(Mount(str(tmp_path), "/own", True), Mount(str(tmp_path / "theirs"), "/theirs", True))

    (refused,) = own.refusals(line, seen, ())

    assert refused.startswith(f"{tmp_path}/theirs, which the container may write to at /theirs")
    assert own.refusals(line, seen, {"volumes"}) == []
    with pytest.raises(StudyError, match="theirs would be written to for real"):
        own.on_copies(Answering(), line, seen, "/copies")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "is_writable", "is_refused"),
    [("docker.sock", False, True), ("docker.sock", True, True), ("any", False, True), ("any", True, False)],
)
def test_a_folder_that_hands_on_a_socket_is_refused(
    name: str, is_writable: bool, is_refused: bool, tmp_path: Path
) -> None:
    (tmp_path / "run" / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to("run")  # as /var/run is
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "run" / "in" / name))
        line, mount = line_of(("--volume", f"{tmp_path}/link:/run")), Mount(f"{tmp_path}/link", "/run", is_writable)

        refused = own.refusals(line, seen_with(mount), ())

    hands = "`--set platform.real_volumes=true` hands it on."
    wrong = f"{tmp_path}/run/in/{name} gives the container an engine or a service: {hands}"
    assert refused == ([wrong] if is_refused else [])


def test_what_the_container_has_anyway_is_not_called_left_out() -> None:
    kept = line_of(("--network", "none"), ("--restart", "no"), ("--detach", "false"))
    away = line_of(("--network", "host"), ("--restart", "always"), ("--detach", "true"))

    assert not_honoured(kept, {}) == []
    assert not_honoured(away, {}) == list(away.flags)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_volume_has_a_size_only_where_all_of_it_was_read(
    is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(5000))
    (tmp_path / "bin").mkdir()
    # du's own answer to a folder that it may not read, which root cannot be refused.
    (tmp_path / "bin" / "du").write_text(f'#!/bin/sh\n/usr/bin/du "$@"\nexit {0 if is_whole else 1}\n')
    (tmp_path / "bin" / "du").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    size = Mount(str(tmp_path), "/data", writable=True).size

    assert (size is not None and size > 5000) if is_whole else size is None


@pytest.mark.parametrize(("group_s", "expected"), [(2.02, {"run_queue_s": 0.5}), (6.0, {})])
def test_a_first_thread_that_others_work_for_does_not_say_how_long_they_waited(
    group_s: float, expected: dict[str, float]
) -> None:
    files = {
        "/proc/7/task/7/schedstat": "2000000000 500000000 12\n",
        "/cg/x/cpu.stat": f"usage_usec 1\nuser_usec {group_s * 1e6:.0f}\nsystem_usec 0\n",
    }

    assert own._waits(FakeHost(files=files), 7, {"": "/cg/x"}) == expected
    assert own._waits(FakeHost(), 7, {"": "/cg/x"}) is None
