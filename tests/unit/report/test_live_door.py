"""The dashboard's connections: who does not ask is closed, and many who ask cost one look."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")

from tare.report.live import app  # noqa: E402

TOKEN = app.new_token()


@contextmanager
def served() -> Iterator[int]:
    """The port of a dashboard of nothing."""
    config = uvicorn.Config(app.make_app([], TOKEN), http=app.Door, lifespan="off", log_level="error", backlog=16)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            yield door.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


def ask(line: socket.socket, port: int) -> bytes:
    line.sendall(f"GET /data HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"[]"):
        answer += line.recv(4096)
    return answer


def is_closed(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127"])
def test_a_connection_that_does_not_ask_is_closed(monkeypatch, sent: bytes) -> None:
    monkeypatch.setattr(app, "REQUEST_WITHIN_S", 0.2)
    with served() as port, socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(sent)
        assert is_closed(line)


def test_a_second_request_that_does_not_come_to_its_end_is_closed_too(monkeypatch) -> None:
    monkeypatch.setattr(app, "REQUEST_WITHIN_S", 0.2)
    with served() as port, socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        assert b"200 OK" in ask(line, port)
        line.sendall(b"GET / HT")
        assert is_closed(line)


def test_of_too_many_that_wait_the_oldest_go_and_who_asks_is_answered(monkeypatch) -> None:
    monkeypatch.setattr(app, "MOST_WAITING", 20)
    with ExitStack() as stack, served() as port:
        lines = []
        for _ in range(100):
            lines.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)))
        with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
            assert b"200 OK" in ask(line, port)
        assert all(map(is_closed, lines[:50]))


def test_a_stream_is_no_connection_that_waits(monkeypatch) -> None:
    monkeypatch.setattr(app, "REQUEST_WITHIN_S", 0.2)
    with served() as port, socket.create_connection(("127.0.0.1", port), timeout=0.6) as line:
        head = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        line.sendall(head.encode())
        assert b"200 OK" in line.recv(4096)
        with pytest.raises(TimeoutError):
            while line.recv(4096):
                pass


def test_viewers_of_one_moment_share_one_look() -> None:
    looks: list[float] = []

    def look() -> dict[str, Any]:
        looks.append(time.monotonic())
        return {"at": len(looks)}

    async def ask_many() -> list[str]:
        shared = app.Looks([SimpleNamespace(look=look)], period_s=30.0)  # type: ignore[list-item]
        return await asyncio.gather(*(shared.state.now() for _ in range(100)))

    answers = asyncio.run(ask_many())

    assert len(looks) == 1
    assert [json.loads(each) for each in set(answers)] == [[{"at": 1}]]
