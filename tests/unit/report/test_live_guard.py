"""Who may look at the dashboard: every route is shut unless host, method, origin and token are right."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tare.report.live.app import COOKIE, Guard, is_ours, new_token

TOKEN = new_token()


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"inside"})


def ask(path: str = "/", *, method: str = "GET", query: str = "", **headers: str) -> tuple[int, dict[bytes, bytes]]:
    """Status and headers of the answer."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    said = {"host": "127.0.0.1:8000", **{name.replace("_", "-"): value for name, value in headers.items()}}
    twice = said.pop("twice", "")  # a header that is sent once more
    scope = {
        "type": "http", "method": method, "path": path, "query_string": query.encode(),
        "headers": [(name.encode(), said[name].encode()) for name in (*said, *twice.split())],
    }  # fmt: skip
    asyncio.run(Guard(_app, TOKEN)(scope, None, send))  # type: ignore[arg-type]
    return sent[0]["status"], dict(sent[0]["headers"])


GOOD = f"{COOKIE}_8000={TOKEN}"


@pytest.mark.parametrize("path", ["/", "/data", "/events", "/nothing", "/../etc/passwd"])
def test_without_a_token_every_address_is_shut(path: str) -> None:
    assert ask(path)[0] == 403
    assert ask(path, cookie=f"{COOKIE}_8000=wrong")[0] == 403
    assert ask(path, cookie=f"other={TOKEN}")[0] == 403


def test_the_token_moves_from_the_address_into_a_cookie_that_scripts_cannot_read() -> None:
    status, headers = ask(query=f"token={TOKEN}")
    assert (status, headers[b"location"]) == (303, b"/")
    cookie = headers[b"set-cookie"].decode()
    assert TOKEN in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert ask(query="token=guess")[0] == 403
    assert ask("/data", query=f"token={TOKEN}")[0] == 403  # only the page itself takes it


def test_with_the_cookie_one_is_let_in_and_the_answer_is_sealed() -> None:
    status, headers = ask(cookie=GOOD)
    assert status == 200
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"referrer-policy"] == b"no-referrer"
    assert headers[b"cache-control"] == b"no-store"


@pytest.mark.parametrize(("twice", "status"), [("host", 421), ("cookie", 403)])
def test_a_header_that_is_sent_twice_is_not_believed(twice: str, status: int) -> None:
    assert ask(cookie=GOOD, twice=twice)[0] == status


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:8000", True), ("127.0.0.1", True), ("localhost:1", True), ("[::1]:80", True), ("[::1]", True),
        ("evil.example", False), ("127.0.0.1.evil.example:80", False), ("10.0.0.1:80", False), ("", False),
        ("localhost.evil.example", False), ("0.0.0.0", False),
    ],
)  # fmt: skip
def test_only_names_of_this_machine_itself_are_answered(host: str, ours: bool) -> None:
    assert is_ours(host) is ours
    port = host.rpartition(":")[2]
    name = f"{COOKIE}_{port}" if port.isdecimal() else COOKIE
    assert ask(host=host, cookie=f"{name}={TOKEN}")[0] == (200 if ours else 421)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(method: str) -> None:
    assert ask(method=method, cookie=GOOD)[0] == 403


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}],
)
def test_another_site_is_refused_even_with_the_cookie(headers: dict[str, str]) -> None:
    assert ask(cookie=GOOD, **headers)[0] == 403
    assert ask(cookie=GOOD, origin="http://127.0.0.1:8000", sec_fetch_site="same-origin")[0] == 200


def test_a_socket_of_another_kind_is_refused() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(_app, TOKEN)({"type": "websocket", "headers": []}, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 403


@pytest.mark.parametrize(
    "host", ["127.0.0.1:80@evil", "127.0.0.1:80:80", "[::1", "localhost:", "127.0.0.1:x", "a@[::1]"]
)
def test_a_host_that_is_more_than_a_name_and_a_port_is_not_ours(host: str) -> None:
    assert not is_ours(host)
    assert ask(cookie=GOOD, host=host)[0] == 421


def test_two_servers_on_one_machine_do_not_log_each_other_out() -> None:
    """A browser keeps cookies by name, whatever the port."""
    names = {
        ask(query=f"token={TOKEN}", host=f"127.0.0.1:{port}")[1][b"set-cookie"].partition(b"=")[0] for port in (1, 2)
    }
    assert len(names) == 2
    both = f"{COOKIE}_1=other; {GOOD}"
    assert ask(cookie=both)[0] == 200


def test_a_program_without_cookies_shows_the_token_as_a_bearer_under_the_same_conditions() -> None:
    good = f"Bearer {TOKEN}"
    assert ask("/metrics", authorization=good)[0] == 200
    assert ask("/metrics", authorization="Bearer guess")[0] == 403
    assert ask("/metrics", authorization=f"Basic {TOKEN}")[0] == 403
    assert ask("/metrics", authorization=good, twice="authorization")[0] == 403
    assert ask("/metrics", authorization=good, host="evil.example:8000")[0] == 421
    assert ask("/metrics", authorization=good, origin="http://evil.example")[0] == 403
