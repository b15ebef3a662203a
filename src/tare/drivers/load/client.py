"""A small HTTP/1.1 client on asyncio streams: one request at a time on a connection that is kept, each part timed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tare_inside import marks

now_ns: Callable[[], int] = marks.now_ns

REJECTED = (429, 503)  # a server that is full answers so
_LIMIT = 1 << 24


class Broken(Exception):
    """The answer is none, or not HTTP."""


@dataclass(frozen=True)
class Request:
    """What is sent; `streams`: its answer comes in server-sent events, each of them a token."""

    method: str = "GET"
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    streams: bool = False

    def encoded(self, host: str) -> bytes:
        lines = {"Host": host, "Connection": "keep-alive", "Content-Length": str(len(self.body)), **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{self.method} {self.path} HTTP/1.1\r\n{head}\r\n".encode() + self.body


@dataclass
class Answer:
    """What came back: the status, and when each piece of a streamed answer came."""

    status: int = 0
    bytes: int = 0
    tokens_ns: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


class Connection:
    """A connection that is opened when it is needed, and again after a failure."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> Answer:
        """The answer, whole; OSError or Broken where there is none."""
        kept = self._streams is not None
        try:
            return await self._ask(request)
        except (OSError, Broken, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            self.close()
            if kept and isinstance(error, _GONE):  # the server closed a connection that was kept: that is its right
                return await self.ask(request)
            raise Broken(str(error) or type(error).__name__) from error
        except BaseException:
            self.close()
            raise

    async def _ask(self, request: Request) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, limit=_LIMIT)
        reader, writer = self._streams
        writer.write(request.encoded(f"{self._host}:{self._port}"))
        await writer.drain()
        status, headers = await _head(reader)
        answer = Answer(status)
        pending = b""
        async for piece in _pieces(reader, headers):
            answer.bytes += len(piece)
            if request.streams and status == 200:
                pending = _events(pending + piece, answer)
        if headers.get("connection", "").lower() == "close" or _ends_with_connection(headers):
            self.close()
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class _GoneError(Broken):
    """The connection was closed before anything of an answer came."""


_GONE = (_GoneError, ConnectionResetError, BrokenPipeError)


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first = await reader.readline()
    if not first:
        raise _GoneError("the server closed the connection without an answer")
    words = first.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise Broken(f"not an answer of HTTP: {first[:40]!r}")
    headers = {"http": words[0].decode("latin-1")}
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(words[1]), headers


def _ends_with_connection(headers: Mapping[str, str]) -> bool:
    sized = "content-length" in headers or headers.get("transfer-encoding", "").lower() == "chunked"
    return not sized or (headers["http"] == "HTTP/1.0" and headers.get("connection", "").lower() != "keep-alive")


async def _pieces(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readline()
    elif "content-length" in headers:
        left = int(headers["content-length"])
        while left:
            piece = await reader.read(min(left, 65536))
            if not piece:
                raise Broken("the connection was closed within an answer")
            left -= len(piece)
            yield piece
    else:
        while piece := await reader.read(65536):
            yield piece


def _events(data: bytes, answer: Answer) -> bytes:
    """Note each whole event with text in it; what is left over."""
    *whole, rest = data.replace(b"\r\n", b"\n").split(b"\n\n")
    for event in whole:
        told = b"".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:")).strip()
        if told and told != b"[DONE]" and (text := _text(told)):
            answer.tokens_ns.append(now_ns())
            answer.text.append(text)
    return rest


def _text(told: bytes) -> str:
    """The text of an event of an OpenAI-compatible server; of another, the event itself."""
    try:
        data: Any = json.loads(told)
        choice = data["choices"][0]
    except (ValueError, LookupError, TypeError):
        return told.decode("utf-8", "replace")
    found = choice.get("text") or (choice.get("delta") or {}).get("content")
    return found if isinstance(found, str) else ""
