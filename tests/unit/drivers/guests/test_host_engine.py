"""An engine inside a guest: found, started where there is none, and stopped; the engine here is a small pretend one."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest_without_a_machine import Guest
from tare.base.errors import ObstacleError
from tare.base.host import LocalHost
from tare.drivers.containers import daemons, engine
from tare.drivers.containers.daemons import Patience
from tare.drivers.guests import place as guest_place
from tare.drivers.guests.place import GuestPlace
from tare.parts.platforms.docker import Docker
from tare.testing import FakeHost

DOCKERD = """#!/bin/sh
'''exec' {python} -I "$0" "$@"
' '''
import http.server, os, socketserver, sys
value = dict(zip(sys.argv[1::2], sys.argv[2::2]))
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = b"OK"
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def address_string(self):
        return "a client"
open(value["--pidfile"], "w").write(str(os.getpid()))
socketserver.ThreadingUnixStreamServer(value["-H"][len("unix://"):], Answer).serve_forever()
"""
DOCKER = """#!/bin/sh
'''exec' {python} -I "$0" "$@"
' '''
import socket, sys
if "--version" not in sys.argv:
    (address,) = [word for word in sys.argv if word.startswith("--host=unix://")]
    line = socket.socket(socket.AF_UNIX)
    line.connect(address[len("--host=unix://"):])
    line.sendall(b"GET /_ping HTTP/1.0\\r\\n\\r\\n")
    print(line.makefile("rb").read()[-2:].decode())
"""
CONTAINERD = """#!/bin/sh
'''exec' {python} -I "$0" "$@"
' '''
import signal, socket, sys
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[sys.argv.index("--address") + 1])
signal.pause()
"""
BROKEN = "#!/bin/sh\necho no graph driver >&2\nexit 1\n"


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuestPlace]:
    """A guest with programs of its own, and an engine's folder short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="tare-", dir="/tmp"))
    monkeypatch.setattr(engine, "INSIDE", str(folder / "engine"))
    monkeypatch.setattr(engine, "_PATIENCE", Patience(ready_s=60, stop_s=60))
    monkeypatch.setattr(engine, "is_root", lambda host: True)
    monkeypatch.setattr(engine, "SYSTEM_SOCKET", str(folder / "system.sock"))
    monkeypatch.setattr(guest_place, "_ENV", {"PATH": f"{tmp_path}/programs:/usr/bin:/bin"})
    (tmp_path / "programs").mkdir()
    guest = Guest(tmp_path)
    yield guest.place()
    guest.close()
    shutil.rmtree(folder)


def install(tmp_path: Path, dockerd: str, containerd: str = CONTAINERD) -> None:
    for name, text in (("docker", DOCKER), ("dockerd", dockerd), ("containerd", containerd)):
        path = tmp_path / "programs" / name
        path.write_text(text.format(python=shlex.quote(sys.executable)))
        path.chmod(0o755)


def processes() -> list[str]:
    """What runs with an argument in the engine's folder."""
    seen = (path for path in Path("/proc").glob("[0-9]*/cmdline"))
    return [text for path in seen if engine.INSIDE in (text := read_if_there(path))]


def read_if_there(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_where_none_answers_one_is_started_inside_used_from_here_and_stopped(inside, tmp_path):
    install(tmp_path, DOCKERD)
    assert engine.obstacles(inside) == []
    assert not engine.answers(inside)  # asking starts nothing

    with engine.opened(inside) as client:
        assert client.checked("answer", "version") == "OK"
        assert engine.answers(inside)
        assert len(processes()) == 2

    assert not engine.answers(inside)
    assert processes() == []


def test_the_engine_that_answers_inside_is_taken_and_left_running(inside, tmp_path):
    install(tmp_path, DOCKERD)
    place = str(Path(engine.SYSTEM_SOCKET).parent / "other")
    path = daemons.socket_in(place)
    daemons.launch(inside, place, lambda: engine.why_silent(path), Patience(60, 60))
    try:
        Path(engine.SYSTEM_SOCKET).symlink_to(path)
        with engine.opened(inside) as client:
            assert client.checked("answer", "version") == "OK"
        assert engine.answers(inside)
    finally:
        assert daemons.stop_in(inside, place, Patience(60, 60))


@pytest.mark.parametrize(
    ("dockerd", "containerd"), [(BROKEN, CONTAINERD), (DOCKERD, BROKEN)], ids=["dockerd", "containerd"]
)
def test_an_engine_that_dies_inside_is_told_at_once_with_its_log_and_leaves_nothing(
    inside, tmp_path, monkeypatch, dockerd, containerd
):
    monkeypatch.setattr(engine, "_PATIENCE", Patience(ready_s=600, stop_s=60))
    install(tmp_path, dockerd, containerd)
    begin_s = time.monotonic()

    with pytest.raises(ObstacleError, match="no graph driver"), engine.opened(inside):
        pass

    assert time.monotonic() - begin_s < 120
    assert processes() == []


@pytest.mark.parametrize(("state", "lives"), [("R", True), ("Z", False)])
def test_an_engine_lives_by_its_state_since_one_that_is_just_starting_has_no_command_line(state, lives):
    host = FakeHost(files={"/proc/12/stat": f"12 (dockerd) {state} 1 12", "/proc/12/cmdline": ""})

    assert daemons._may_live(host, "12") is lives
    assert not daemons._may_live(host, "13")


def test_without_an_engine_installed_inside_the_sentence_says_so(inside, tmp_path):
    (sentence,) = map(str, Docker(image="some").obstacles(inside))

    assert "tare-guest" in sentence
    assert "apt-get install docker.io" in sentence
    with pytest.raises(ObstacleError, match="inside tare-guest"), engine.opened(inside):
        pass


def test_only_root_starts_one_inside(inside, tmp_path, monkeypatch):
    install(tmp_path, DOCKERD)
    monkeypatch.setattr(engine, "is_root", lambda host: False)

    (sentence,) = map(str, engine.obstacles(inside))

    assert "only root" in sentence


def test_a_place_without_a_way_to_its_sockets_is_refused(monkeypatch):
    assert any("there is none inside" in sentence for sentence in map(str, engine.obstacles(FakeHost())))
    monkeypatch.setattr(engine, "candidates", list)
    assert not engine.answers(LocalHost())
