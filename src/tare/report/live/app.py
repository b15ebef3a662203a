"""The dashboard's addresses: the page, the data once, the data as it comes (server-sent events), and for Prometheus."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from importlib import resources
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from tare.report.figure import available, script
from tare.report.html import templates
from tare.report.live.snapshot import Watched
from tare.report.other_tools import CONTENT_TYPE, as_openmetrics

# Who may look: one gate in front of every route, that says no unless all of it is right (faults.md S18-S20).
#
# The server listens on loopback, but every page in the operator's browser can knock there: a token keeps others out,
# and the Host check keeps out pages whose name was made to mean loopback (DNS rebinding).

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


# Who may knock: only loopback is listened on, and there any program, with any address of it, can open connections.

REQUEST_WITHIN_S = 10.0
MOST_WAITING = 64  # connections that have not asked for anything yet, or again


class Door(H11Protocol):
    """A connection that does not ask is closed in the end, or when there are too many such: the oldest goes first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._since_s = time.monotonic()

    @property
    def _waits(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._mind()
        waiting = [each for each in self.connections if isinstance(each, Door) and each._waits]
        if len(waiting) > MOST_WAITING:
            min(waiting, key=lambda each: each._since_s).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since_s = time.monotonic()
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def _mind(self) -> None:
        if not self._waits:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(REQUEST_WITHIN_S, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


PERIOD_S = 1.0
_REST = 5.0  # times as long as a look takes: thousands of trials are looked at less often
_CALM_S = 15.0  # so often something is said although nothing has changed, so that a dead line is noticed


class _Look:
    """What one look found, for all who ask while it is fresh: a hundred of them cost what one does."""

    def __init__(self, look: Callable[[], str], eye: ThreadPoolExecutor, period_s: float) -> None:
        self._take, self._eye, self._period_s = look, eye, period_s
        self._one_at_a_time = asyncio.Lock()
        self._text, self._fresh_until_s = "", -math.inf
        self.rests_s = period_s

    async def now(self) -> str:
        """What there is, looked at in a thread, so that nobody waits for a slow disk."""
        async with self._one_at_a_time:
            if (start_s := time.monotonic()) >= self._fresh_until_s:
                self._text = await asyncio.get_running_loop().run_in_executor(self._eye, self._take)
                end_s = time.monotonic()
                self.rests_s = max(self._period_s, _REST * (end_s - start_s))
                self._fresh_until_s = end_s + self.rests_s
            return self._text


class Looks:
    """The newest look at every store, shared by all viewers: two of them cost what one does, none cost nothing."""

    def __init__(self, stores: Sequence[Watched], period_s: float = PERIOD_S) -> None:
        eye = ThreadPoolExecutor(1)  # one thread, for stores stay open
        self.state = _Look(lambda: json.dumps([each.look() for each in stores], allow_nan=False), eye, period_s)
        self.numbers = _Look(lambda: as_openmetrics(each.numbers() for each in stores), eye, period_s)
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._text, self._number = "", 0
        self._changed = asyncio.Condition()

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events: the state at once, then each change."""
        self._viewers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._keep_looking())
        try:
            yield f"data: {await self.state.now()}\n\n"
            seen = self._number
            while True:
                async with self._changed:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait_for(lambda: self._number != seen), _CALM_S)  # noqa: B023
                    fresh, seen = self._number != seen, self._number
                yield f"data: {self._text}\n\n" if fresh else ": still here\n\n"
        finally:
            self._viewers -= 1
            if self._viewers == 0 and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self.state.rests_s)
            text = await self.state.now()
            if text != self._text:
                async with self._changed:
                    self._text, self._number = text, self._number + 1
                    self._changed.notify_all()


def make_app(stores: Sequence[Watched], token: str, period_s: float = PERIOD_S) -> App:
    """The whole dashboard behind its gate."""
    looks = Looks(stores, period_s)

    async def page(request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        text = await asyncio.to_thread(page_text, nonce)
        return HTMLResponse(text, headers={"content-security-policy": policy(nonce)})

    async def data(request: Request) -> Response:
        return Response(await looks.state.now(), media_type="application/json")

    async def events(request: Request) -> Response:
        return StreamingResponse(looks.stream(), media_type="text/event-stream")

    async def metrics(request: Request) -> Response:
        return Response(await looks.numbers.now(), headers={"content-type": CONTENT_TYPE})

    routes = [Route("/", page), Route("/data", data), Route("/events", events), Route("/metrics", metrics)]
    return Guard(Starlette(routes=routes), token)


def policy(nonce: str) -> str:
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


def page_text(nonce: str) -> str:
    """The page without any data: that comes as JSON, and is put in as text, never as markup."""
    from markupsafe import Markup

    folder = resources.files("tare.report").joinpath("templates")
    ours = folder.joinpath("watch.js").read_text("utf-8")
    style = folder.joinpath("report.css").read_text("utf-8") + folder.joinpath("watch.css").read_text("utf-8")
    known: dict[str, Any] = {
        "nonce": nonce,
        "style": Markup(style),  # ours
        "script": Markup(script("watch.js") if available() else ours),  # ours and the library's
    }
    return templates().get_template("watch.html.j2").render(known)
