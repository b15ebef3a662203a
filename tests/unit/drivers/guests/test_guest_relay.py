"""Connections to a socket inside a guest: both directions, many at once, half-closed, slow, and cut off."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guest_without_a_machine import Guest
from old_pythons import id_of, interpreters
from tare.base.host import LocalHost, Reaching
from tare_inside.agents.guest_jobs import WINDOW_BYTES

LARGE = os.urandom(1 << 20) * 8
OLD_PYTHONS = [str(path) for path in interpreters("3.[678].*")]


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    made = Guest(tmp_path)
    yield made
    made.close()


@contextlib.contextmanager
def serving(path: Path, talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something inside that talks to each of its clients in a thread of its own."""

    def one(line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            talk(line)

    def everyone() -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = server.accept()
                threading.Thread(target=one, args=(line,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        threading.Thread(target=everyone, daemon=True).start()
        yield str(path)
        server.shutdown(socket.SHUT_RDWR)


def client(path: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(20)
    line.connect(path)
    return line


def everything(line: socket.socket) -> bytes:
    return b"".join(iter(lambda: line.recv(1 << 16), b""))


def digest_after_the_end(line: socket.socket) -> None:
    """Reads to the end, and only then answers: whoever asks has to close one direction and keep the other."""
    line.sendall(hashlib.sha256(everything(line)).hexdigest().encode())


def echo(line: socket.socket) -> None:
    while data := line.recv(1 << 16):
        line.sendall(data)


def check_digest(guest: Guest, folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        inside = stack.enter_context(serving(folder / "in", digest_after_the_end))
        line = stack.enter_context(client(stack.enter_context(guest.place().reach(inside))))
        line.sendall(LARGE)
        line.shutdown(socket.SHUT_WR)
        assert everything(line).decode() == hashlib.sha256(LARGE).hexdigest()


def test_a_guest_can_be_reached_and_the_device_needs_no_such_way(guest):
    assert isinstance(guest.place(), Reaching)
    assert not isinstance(LocalHost(), Reaching)


def test_what_is_said_comes_out_inside_and_the_answer_comes_back(guest, tmp_path):
    with serving(tmp_path / "in", echo) as inside, guest.place().reach(inside) as near, client(near) as line:
        line.sendall(b"one")
        assert line.recv(10) == b"one"
        line.sendall(b"two")
        assert line.recv(10) == b"two"


def test_the_socket_is_ours_alone_and_goes_when_it_is_let_go_of(guest, tmp_path):
    with guest.place().reach("/nowhere") as near:
        assert stat.S_IMODE(Path(near).stat().st_mode) == 0o600
        assert Path(near).parent == tmp_path

    assert not Path(near).exists()


def test_a_direction_that_is_closed_is_closed_inside_and_the_other_stays_open(guest, tmp_path):
    check_digest(guest, tmp_path)


def test_an_end_inside_is_an_end_here_and_what_is_said_after_it_is_still_heard(guest, tmp_path):
    heard: list[bytes] = []
    done = threading.Event()

    def says_goodbye_and_listens(line: socket.socket) -> None:
        line.sendall(LARGE)
        line.shutdown(socket.SHUT_WR)
        heard.append(everything(line))
        done.set()

    with serving(tmp_path / "in", says_goodbye_and_listens) as inside, guest.place().reach(inside) as near:
        with client(near) as line:
            assert hashlib.sha256(everything(line)).digest() == hashlib.sha256(LARGE).digest()
            line.sendall(b"last words")
        assert done.wait(60)

    assert heard == [b"last words"]


def test_what_was_said_before_a_client_left_is_heard_inside(guest, tmp_path):
    heard: list[bytes] = []
    done = threading.Event()

    def listens_late(line: socket.socket) -> None:
        time.sleep(0.1)
        heard.append(everything(line))
        done.set()

    with serving(tmp_path / "in", listens_late) as inside, guest.place().reach(inside) as near:
        with client(near) as line:
            line.sendall(LARGE)
        assert done.wait(20)

    assert heard == [LARGE]


def test_several_connections_do_not_mix(guest, tmp_path):
    texts = [bytes([number]) * (1 << 20) for number in range(6)]
    got: dict[int, bytes] = {}

    def talk(number: int, near: str) -> None:
        with client(near) as line:
            sender = threading.Thread(target=lambda: (line.sendall(texts[number]), line.shutdown(socket.SHUT_WR)))
            sender.start()
            got[number] = everything(line)
            sender.join()

    with serving(tmp_path / "in", echo) as inside, guest.place().reach(inside) as near:
        threads = [threading.Thread(target=talk, args=(number, near)) for number in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [got[number] for number in range(len(texts))] == texts


def test_whoever_does_not_listen_stops_only_who_talks_to_it(guest, tmp_path):
    let_go = threading.Event()
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(serving(tmp_path / "deaf", lambda _: bool(let_go.wait(30))))
        quick = stack.enter_context(serving(tmp_path / "quick", echo))
        place = guest.place()
        to_deaf, to_quick = stack.enter_context(place.reach(deaf)), stack.enter_context(place.reach(quick))
        line, other = stack.enter_context(client(to_deaf)), stack.enter_context(client(to_quick))

        line.settimeout(0.5)
        taken = 0
        with contextlib.suppress(TimeoutError):
            while taken < len(LARGE):
                taken += line.send(LARGE[:65536])
        other.sendall(b"still here")

        assert other.recv(100) == b"still here"
        assert place.run(["echo", "and here"]).out == "and here\n"
        assert taken < WINDOW_BYTES + (2 << 20), "what nobody takes piles up somewhere"
        let_go.set()


def test_a_client_that_does_not_read_stops_only_who_talks_to_it(guest, tmp_path):
    sent: list[int] = []

    def talkative(line: socket.socket) -> None:
        while True:
            sent.append(line.send(LARGE[:65536]))

    with serving(tmp_path / "in", talkative) as inside, guest.place().reach(inside) as near, client(near) as line:
        line.recv(1)
        settled, before = False, -1
        deadline_s = time.monotonic() + 20
        while not settled and time.monotonic() < deadline_s:
            before = sum(sent)
            time.sleep(0.3)
            settled = sum(sent) == before
        assert settled, "it could talk on for ever"
        assert guest.place().run(["echo", "here"]).out == "here\n"


def test_a_client_that_talks_without_reading_is_heard_while_it_is_talked_to(guest, tmp_path):
    heard = threading.Event()

    def say_all(line: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client leaves without having read it
            line.sendall(LARGE)

    def both(line: socket.socket) -> None:
        threading.Thread(target=say_all, args=(line,), daemon=True).start()
        left = len(LARGE)
        while left:
            left -= len(line.recv(1 << 16))
        heard.set()
        time.sleep(0.1)

    with serving(tmp_path / "in", both) as inside, guest.place().reach(inside) as near, client(near) as line:
        line.sendall(LARGE)
        assert heard.wait(20)


def test_where_nobody_listens_inside_the_client_is_sent_away(guest, tmp_path):
    with guest.place().reach(str(tmp_path / "nobody")) as near, client(near) as line:
        assert line.recv(10) == b""


def test_whoever_dies_inside_ends_the_connection_here(guest, tmp_path):
    with serving(tmp_path / "in", lambda line: bool(line.recv(1))) as inside, guest.place().reach(inside) as near:
        with client(near) as line, contextlib.suppress(OSError):
            line.sendall(LARGE)  # nobody will take it
            line.sendall(LARGE)
        with client(near) as line:
            line.sendall(b"x")
            assert line.recv(10) == b""


def test_a_client_that_dies_ends_the_connection_inside(guest, tmp_path):
    ended = threading.Event()

    def until_nobody_listens(line: socket.socket) -> None:
        with contextlib.suppress(OSError):
            line.recv(1)
            line.recv(1)  # the client only had no more to say
            while True:
                line.sendall(b"is anybody there?")
                time.sleep(0.01)
        ended.set()

    with serving(tmp_path / "in", until_nobody_listens) as inside, guest.place().reach(inside) as near:
        with client(near) as line:
            line.sendall(b"x")
            line.shutdown(socket.SHUT_WR)
            assert line.recv(2) == b"is"
        assert ended.wait(60)


def test_a_guest_that_dies_ends_every_connection(guest, tmp_path):
    with serving(tmp_path / "in", echo) as inside, guest.place().reach(inside) as near, client(near) as line:
        line.sendall(b"x")
        assert line.recv(1) == b"x"
        guest.process.kill()

        assert line.recv(1) == b""
        with client(near) as late:
            assert late.recv(1) == b""


def test_letting_go_ends_connections_that_are_open_and_leaves_nothing_in_the_guest(guest, tmp_path):
    def descriptors() -> int:
        return len(list(Path(f"/proc/{guest.process.pid}/fd").iterdir()))

    before = descriptors()
    with serving(tmp_path / "in", echo) as inside:
        with guest.place().reach(inside) as near:
            lines = [client(near) for _ in range(3)]
            for line in lines:
                line.sendall(b"x")
                assert line.recv(1) == b"x"
            assert descriptors() == before + 3
        assert [line.recv(1) for line in lines] == [b""] * 3

    assert descriptors() == before
    for line in lines:
        line.close()


@pytest.mark.parametrize("python", OLD_PYTHONS or [sys.executable], ids=id_of)
def test_it_works_with_the_oldest_interpreters_inside(tmp_path, python):
    guest = Guest(tmp_path, python)
    try:
        check_digest(guest, tmp_path)
    finally:
        guest.close()
