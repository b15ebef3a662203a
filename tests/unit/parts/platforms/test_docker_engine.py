"""Finding an engine, and what is said when there is none."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from small_linux import SmallLinux
from tare.base.errors import ObstacleError, TrialError
from tare.base.host import Completed, LocalHost
from tare.drivers.containers import client, engine
from tare.parts.platforms.docker import Docker
from tare.testing import FakeHost


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No engine of this machine is seen."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("TARE_STATE", str(tmp_path))
    monkeypatch.setattr(engine, "SYSTEM_SOCKET", str(tmp_path / "none.sock"))


@contextlib.contextmanager
def answering(path: Path, answer: bytes = b"HTTP/1.1 200 OK\r\n\r\nOK") -> Iterator[None]:
    """Something that answers every connection at `path`."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line, _ = server.accept()
                    with line:
                        line.recv(100)
                        line.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield
        server.shutdown(socket.SHUT_RDWR)


def test_the_named_engine_comes_first_then_the_systems_then_ours(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere.sock")

    assert engine.candidates() == ["/somewhere.sock", engine.SYSTEM_SOCKET, str(tmp_path / "engine/docker.sock")]


def test_an_engine_that_answers_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")

    with answering(tmp_path / "d.sock"):
        found = engine.find()

    assert found == engine.Engine(str(tmp_path / "d.sock"), ours=False)
    assert found.address == f"unix://{tmp_path}/d.sock"


def test_our_own_engine_is_known_as_ours(tmp_path):
    (tmp_path / "engine").mkdir()

    with answering(tmp_path / "engine" / "docker.sock"):
        assert engine.find() == engine.Engine(engine.own_socket(), ours=True)


def test_something_else_at_the_socket_is_no_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")

    with answering(tmp_path / "d.sock", b"HTTP/1.1 500 No\r\n\r\n"):
        assert engine.find() is None
        (sentence,) = map(str, engine.own_obstacles(LocalHost()))

    assert "500" in sentence


def test_without_an_engine_the_sentence_says_where_it_was_looked_for_and_what_to_do():
    (sentence,) = map(str, engine.own_obstacles(LocalHost()))

    for part in ("none.sock", "engine/docker.sock", "apt-get install docker.io", "`tare run`"):
        assert part in sentence
    with pytest.raises(ObstacleError, match="no Docker engine answers"):
        engine.connect(LocalHost())


def test_an_engine_on_another_machine_is_not_this_device(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")

    (sentence,) = map(str, engine.own_obstacles(LocalHost()))

    assert "is not on this device" in sentence


def test_without_the_command_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(engine, "is_installed", lambda host, program: False)

    assert any("apt-get install docker.io" in sentence for sentence in map(str, engine.own_obstacles(LocalHost())))


def test_starting_takes_the_engine_that_is_there(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
    host = SmallLinux()

    with answering(tmp_path / "d.sock"):
        assert not engine.start(host).ours

    assert host.asked == []


def test_only_root_starts_an_engine():
    with pytest.raises(ObstacleError, match="only root"):
        engine.start(SmallLinux(uid=1000))


def test_an_engine_that_is_not_installed_cannot_be_started():
    with pytest.raises(ObstacleError, match=r"apt-get install docker\.io"):
        engine.start(SmallLinux())


def test_a_state_folder_too_deep_for_a_socket_is_refused(monkeypatch):
    monkeypatch.setenv("TARE_STATE", "/" + "x" * 120)
    host = SmallLinux(answer=lambda argv: Completed(tuple(argv), 0, "", "") if argv[0] == "dockerd" else None)

    with pytest.raises(ObstacleError, match="shorter folder"):
        engine.start(host)


def test_an_engine_that_does_not_answer_in_time_is_stopped_and_its_log_is_quoted(tmp_path):
    place = str(tmp_path / "engine")
    started = []

    def answer(argv):
        if argv[0] == "tail":
            return Completed(tuple(argv), 0, "failed to mount", "")
        if argv[0] == "dockerd":
            started.append(argv)
            host.files[f"{place}/dockerd.pid"] = "600"
            host.files["/proc/600/cmdline"] = "\0".join(argv)
        if argv[0] == "kill":
            del host.files["/proc/600/cmdline"]
        return Completed(tuple(argv), 0, "", "") if argv[0] in ("dockerd", "kill") else None

    host = SmallLinux(answer=answer)

    with pytest.raises(ObstacleError, match="failed to mount"):
        engine.start(host)

    assert {"--iptables=false", "--bridge=none", "--storage-driver=overlay2", "--userland-proxy=false"} <= set(
        started[1]
    )
    assert ("kill", "-TERM", "600") in host.asked


def test_pid_files_that_a_power_cut_left_do_not_keep_our_engine_from_starting(tmp_path):
    place = str(tmp_path / "engine")
    stale, ours = f"{place}/dockerd.pid", f"{place}/exec/containerd/containerd.pid"
    host = SmallLinux(
        files={
            stale: "600",
            "/proc/600/cmdline": f"vim\0{place}/dockerd.log\0",
            ours: "601",
            "/proc/601/cmdline": f"containerd\0--config\0{place}/exec/containerd/containerd.toml\0",
        }
    )
    host.answer = lambda argv: Completed((), 0, "", "") if argv[0] in ("dockerd", "tail") else None

    with pytest.raises(ObstacleError):  # it never answers here
        engine.start(host)

    assert ("rm", "-f", "--", stale) in host.asked
    assert ("rm", "-f", "--", ours) not in host.asked
    assert not any(command[0] == "kill" for command in host.asked)


def test_stopping_never_touches_a_process_that_is_not_our_engine():
    host = FakeHost(files={"/e/dockerd.pid": "600", "/proc/600/cmdline": "vim\0notes"})

    assert engine.stop(host, "/e") is False
    assert engine.stop(FakeHost(), "/e") is False
    assert host.asked == []


@pytest.mark.parametrize(
    ("code", "err", "message"),
    [
        (1, "no", r"docker could not dance: no"),
        (124, "ended by tare: no answer within 60 s", "no answer within 60 s\nIt was restarted or hangs"),
    ],
)
def test_what_the_engine_refuses_is_an_error_that_says_what_was_done(code, err, message):
    host = SmallLinux(answer=lambda argv: Completed(tuple(argv), code, "", err))

    with pytest.raises(TrialError, match=message):
        client.docker(host, "/s.sock").checked("dance", "info")


def test_the_command_line_says_what_it_knows(capsys, monkeypatch, tmp_path):
    assert engine.main(["dance"]) == 2
    assert engine.main(["status"]) == 3
    assert "no Docker engine" in capsys.readouterr().err
    assert engine.main(["stop"]) == 0
    assert "no engine of ours" in capsys.readouterr().out
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
    with answering(tmp_path / "d.sock"):
        assert engine.main(["start"]) == 0
        assert engine.main(["status"]) == 0
    assert f"export DOCKER_HOST=unix://{tmp_path}/d.sock\n" in capsys.readouterr().out
    assert "DOCKER_HOST" in os.environ


def test_a_folder_that_a_killed_engine_left_without_settings_is_no_container():
    data = engine.folder() / "data/containers"
    assert not engine.holds_containers(LocalHost())

    (data / "a1").mkdir(parents=True)
    assert not engine.holds_containers(LocalHost())

    (data / "b2").mkdir()
    (data / "b2" / "config.v2.json").write_text("{}")
    assert engine.holds_containers(LocalHost())


def test_the_network_namespace_that_a_killed_engine_left_mounted_is_found_and_unmounted(monkeypatch):
    place, point = engine.folder(), engine.folder() / "exec/netns/ff71"
    mountinfo = f"36 35 0:4 net:[1] {point} rw - nsfs nsfs rw\n37 35 98:0 / /home rw - ext4 /dev/vda rw\n"
    dead = FakeHost(files={"/proc/self/mountinfo": mountinfo}, answers={"umount": ""})

    (left,) = Docker.leftovers(dead)
    assert (left.site, left.what) == (engine.SITE, f"the mount {point}")
    Docker.sweep(dead, left.site)
    assert dead.asked[-1] == ("umount", "--", str(point))
    guardians = FakeHost(files=dead.files, answers={"umount": ""})
    monkeypatch.setattr(engine, "find", lambda: None)
    monkeypatch.setattr(engine, "is_root", lambda host: False)
    Docker.sweep(guardians, "tare-ab-1")  # which asks for a run's own site alone
    assert ("umount", "--", str(point)) in guardians.asked

    living = {f"{place}/dockerd.pid": "600", "/proc/600/cmdline": f"dockerd\0{place}/dockerd.pid"}
    assert engine.dead_mounts(FakeHost(files={**dead.files, **living})) == []


def test_a_command_line_below_a_home_folder_is_found_for_jobs_too(monkeypatch):
    monkeypatch.setenv("PATH", "/home/ada/bin:/usr/bin")
    assert client.docker(LocalHost(), "/run/docker.sock").env["PATH"] == "/home/ada/bin:/usr/bin"
    assert client.podman(LocalHost()).env["PATH"] == "/home/ada/bin:/usr/bin"
