"""Who may look: one gate in front of every route, that says no unless all of it is right (faults.md S18-S20).

The server listens on loopback, but every page in the operator's browser can knock there: a token keeps others out, and
the Host check keeps out pages whose name was made to mean loopback (DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias
from urllib.parse import parse_qs

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "tare_watch"  # with the port behind it: cookies do not know ports, and two servers would share one
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::[0-9]{1,5})?")
ALWAYS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
    b"x-frame-options": b"DENY",
}


def new_token() -> str:
    """256 bits, for one server's life."""
    return secrets.token_urlsafe(32)


class Guard:
    """Wraps an app: what is not plainly allowed does not reach it."""

    def __init__(self, app: App, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await _refuse(send, 403, "Only plain requests are answered here.")
        elif not is_ours(_header(scope, b"host")):
            await _refuse(send, 421, "This name is not one of ours.")
        elif scope["method"] not in ("GET", "HEAD") or not _same_site(scope):
            await _refuse(send, 403, "Nothing can be changed here.")
        elif scope["path"] == "/" and self._is_token(_asked(scope)):
            await _let_in(send, self._token, _cookie_name(scope))
        elif not self._is_token(_cookie(scope) or _bearer(scope)):
            await _refuse(send, 403, "Open the address that `tare watch` printed, with its token.")
        else:
            await self._app(scope, receive, _with_headers(send))

    def _is_token(self, said: str) -> bool:
        return hmac.compare_digest(said.encode(), self._token.encode())


def is_ours(host: str) -> bool:
    """Whether a Host header names this machine itself: an address of loopback, or localhost."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1] or found[2]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _same_site(scope: Scope) -> bool:
    """A browser says where a request comes from; other programs say nothing."""
    site, origin = _header(scope, b"sec-fetch-site"), _header(scope, b"origin")
    return site in ("", "same-origin", "none") and (not origin or origin == f"http://{_header(scope, b'host')}")


def _header(scope: Scope, name: bytes) -> str:
    found: list[bytes] = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""  # said twice is not said


def _asked(scope: Scope) -> str:
    query: bytes = scope["query_string"]
    return parse_qs(query.decode("latin-1")).get("token", [""])[0]


def _cookie(scope: Scope) -> str:
    try:
        held = SimpleCookie(_header(scope, b"cookie")).get(_cookie_name(scope))
    except CookieError:
        return ""
    return str(held.value) if held is not None else ""


def _bearer(scope: Scope) -> str:
    """What a program sends that keeps no cookies, such as Prometheus."""
    kind, _, held = _header(scope, b"authorization").partition(" ")
    return held.strip() if kind.lower() == "bearer" else ""


def _cookie_name(scope: Scope) -> str:
    """By the port that was asked, as the browser names it."""
    port = _header(scope, b"host").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdecimal() else COOKIE


async def _let_in(send: Send, token: str, name: str) -> None:
    """The token leaves the address bar at once: into a cookie that scripts cannot read."""
    cookie = f"{name}={token}; HttpOnly; SameSite=Strict; Path=/"
    headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), *ALWAYS.items()]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *ALWAYS.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why.encode() + b"\n"})


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {key for key, _ in message["headers"]}
            message["headers"] = [*message["headers"], *((k, v) for k, v in ALWAYS.items() if k not in own)]
        await send(message)

    return sending
