"""The dashboard's addresses: the page, the data once, the data as it comes (server-sent events), and for Prometheus."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tare.report.figure import available, script
from tare.report.html import templates
from tare.report.live.guard import App, Guard
from tare.report.live.snapshot import Watched
from tare.report.openmetrics import CONTENT_TYPE, as_openmetrics

PERIOD_S = 1.0
_REST = 5.0  # times as long as a look takes: thousands of trials are looked at less often
_CALM_S = 15.0  # so often something is said although nothing has changed, so that a dead line is noticed


class Looks:
    """The newest look at every store, shared by all viewers: two of them cost what one does, none cost nothing."""

    def __init__(self, stores: Sequence[Watched], period_s: float = PERIOD_S) -> None:
        self._stores, self._period_s = stores, period_s
        self._eye = ThreadPoolExecutor(1)
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._text, self._number = "", 0
        self._changed = asyncio.Condition()

    async def now(self) -> str:
        """What there is, looked at in a thread, so that nobody waits for a slow disk; in one, for stores stay open."""
        return await asyncio.get_running_loop().run_in_executor(self._eye, self._look)

    def _look(self) -> str:
        return json.dumps([store.look() for store in self._stores], allow_nan=False)

    async def numbers(self) -> str:
        """Counts and verdicts as OpenMetrics text."""
        return await asyncio.get_running_loop().run_in_executor(self._eye, self._count)

    def _count(self) -> str:
        return as_openmetrics(store.numbers() for store in self._stores)

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events: the state at once, then each change."""
        self._viewers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._keep_looking())
        try:
            yield f"data: {await self.now()}\n\n"
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
        took_s = 0.0
        while True:
            await asyncio.sleep(max(self._period_s, _REST * took_s))
            start_s = time.monotonic()
            text = await self.now()
            took_s = time.monotonic() - start_s
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
        return JSONResponse(json.loads(await looks.now()))

    async def events(request: Request) -> Response:
        return StreamingResponse(looks.stream(), media_type="text/event-stream")

    async def metrics(request: Request) -> Response:
        return Response(await looks.numbers(), headers={"content-type": CONTENT_TYPE})

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
