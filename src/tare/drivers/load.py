"""The load that tare makes for a server: `python -m tare.drivers.load ORDER`, ORDER being JSON."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from tare_inside import launch
from tare_inside import marks as inside_marks
from tare_inside.serve import LISTENS

# A small HTTP/1.1 client on asyncio streams: one request at a time on a connection that is kept, each part timed.

REJECTED = (429, 503)  # a server that is full answers so
_COUNTED = ("ok", "good", "unstreamed", "errors", "timeouts", "rejected")
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


# When requests of an open loop come, and what they are: from a seed, or from the user's own files.

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "embeddings": "/v1/embeddings"}
_WORDS = "the load that is made here has words of no meaning at all and every one of them is as good as another"


def arrivals_s(kind: str, count: int, rate: float, seed: int, burst: int = 1, trace: Path | None = None) -> list[float]:
    """Seconds after the start at which each request is due; independent of how quick the answers are."""
    if kind == "trace":
        assert trace is not None
        times = recorded_s(trace)
        return [time - min(times) for time in sorted(times)][:count]
    if kind == "even":
        return [number / rate for number in range(count)]
    chance, together = random.Random(seed), burst if kind == "bursts" else 1
    # A Poisson process of which the number of events is known: so many times in the span, each anywhere in it. Drawn
    # gap by gap, the rate of a few hundred requests would be off by some percent, and with it the knee.
    times = sorted(chance.uniform(0, count / rate) for _ in range(math.ceil(count / together)))
    return [at for at in times for _ in range(together)][:count]


def recorded_s(trace: Path) -> list[float]:
    """The times of a recording, one at the start of each line; a `ValueError` names the line that has none."""
    times: list[float] = []
    for number, line in enumerate(trace.read_text().splitlines(), 1):
        first = line.split(",")[0]
        try:
            times += [float(first)] if line.strip() else []
            if not math.isfinite(sum(times[-1:])):
                raise ValueError
        except ValueError:
            raise ValueError(f"{trace}, line {number}: {first[:40]!r} is no time in seconds") from None
    if not times:
        raise ValueError(f"{trace} has no times: one in seconds on each line")
    return times


def requests_of(api: str, path: Path | None) -> list[Request]:
    """The requests, which are sent in this order, and again from the start when they are over."""
    if path is None:
        return [_request(api, "/" if api == "http" else _WORDS)]
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            found += [_request(api, _read(line))] if line.strip() else []
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {error}: {line[:60]}") from None
    if not found:
        raise ValueError(f"{path} has no requests: one on each line")
    return found


def _read(line: str) -> Any:
    """A JSON object, or the line itself: a path, or a prompt."""
    if not line.lstrip().startswith("{"):
        return line.strip()
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"it begins like JSON and is none ({error.msg}, column {error.colno})") from None


def _request(api: str, told: Any) -> Request:
    if api == "http":
        return _plain(told)
    body: dict[str, Any] = dict(told) if isinstance(told, dict) else _prompt(api, str(told))
    streams = api != "embeddings"
    if streams:
        body["stream"] = True
    return Request("POST", PATHS[api], _JSON, json.dumps(body).encode(), streams)


_JSON = {"Content-Type": "application/json"}


def _prompt(api: str, text: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "default"}
    if api == "embeddings":
        return asked | {"input": text}
    asked |= {"max_tokens": 32, "temperature": 0, "seed": 0}
    return asked | ({"prompt": text} if api == "completions" else {"messages": [{"role": "user", "content": text}]})


def _plain(told: Any) -> Request:
    """`/path`, or {"method", "path", "headers", "body"}: a body that is no text is sent as JSON."""
    if not isinstance(told, dict):
        return Request("GET", _path(told))
    body, headers = told.get("body"), dict(told.get("headers", {}))
    if body is not None and not isinstance(body, str):
        body, headers = json.dumps(body), {**_JSON, **headers}
    method = told.get("method") or ("GET" if body is None else "POST")
    return Request(str(method), _path(told.get("path", "/")), headers, (body or "").encode())


def _path(told: Any) -> str:
    if not str(told).startswith("/") or any(sign.isspace() for sign in str(told)):
        raise ValueError("neither JSON nor a path, which begins with / and has no blanks")
    return str(told)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many are not above; of nothing, 0."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


# The program that makes a load: `python -m tare.drivers.load ORDER`, ORDER being JSON.
#
# It runs on the device, outside of the platform whose server it drives, on cores of its own. A request is a `step`,
# from the moment at which it was due to the end of its answer: in an open loop a server that stalls delays no clock. Of
# a streamed answer `first_token` is marked, too. What failed is `failed`, and no step; what timed out is a step as long
# as it was waited for. How late the program itself was goes into the outcome, for the verdict to judge.

marks: Any = inside_marks  # what runs inside has no types: it is for old Pythons
write_whole: Callable[[str, object], None] = launch.write_whole
now_ns: Callable[[], int] = marks.now_ns

STEADY = 0.1  # warm-up ends when the medians of two windows in a row are as far apart, at most
_MARKS_A_REQUEST, _MARKS_APART = 8, 64
_TICK_S = 0.01
_AWAKE_S = 0.002  # before a request is due: an event loop wakes up to 1 ms late, an idle virtual core another 1 ms
_LOOK_EVERY_S = 0.005


class Load:
    """The requests of one order, and what came of each."""

    def __init__(self, order: dict[str, Any], requests: Sequence[Request]) -> None:
        self.order, self._requests = order, requests
        self._free: list[Connection] = []
        self._timeout_s, self._goal_s = order["timeout_s"], order["goal_s"]
        self.counts: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
        self.latencies_s: list[float] = []
        self.late_s: list[float] = []
        self.waited_s = 0.0  # awake, with nothing to do
        self._empty_s = math.inf  # a turn of the loop with nothing in it: of a longer one the rest is work
        self.due_ns: list[int] = []
        self.ends_ns: list[int] = []
        self.tokens = 0
        self.between_s: list[float] = []
        self.problem = ""  # the first request that failed, and how
        self.failures: Counter[str] = Counter()
        self.texts: dict[int, str] = {}

    async def one(self, number: int, due_ns: int, *, marked: bool = True) -> float:
        """Send a request that was due then, and mark it; its latency."""
        request = self._requests[number % len(self._requests)]
        connection = self._free.pop() if self._free else Connection("127.0.0.1", self.order["port"])
        sent_ns, kind, answer, why = now_ns(), "ok", None, ""
        try:
            answer = await asyncio.wait_for(connection.ask(request), self._timeout_s)
        except TimeoutError:
            kind, why = "timeouts", "timed out"
        except Broken as problem:
            kind, why = "errors", str(problem)[:80]
        end_ns = now_ns()
        self._free.append(connection)
        if answer is not None and answer.status >= 400:
            kind = "rejected" if answer.status in REJECTED else "errors"
            why = str(answer.status)
        if why and marked:
            self.problem = self.problem or f"{why} to {request.method} {request.path[:80]}"
            self.failures[why] += 1
        latency_s = (end_ns - due_ns) / 1e9
        if marked:
            self.late_s.append((sent_ns - due_ns) / 1e9)
            self._note(number, kind, answer, due_ns, end_ns)
        return latency_s

    def _note(self, number: int, kind: str, answer: Answer | None, due_ns: int, end_ns: int) -> None:
        self.counts[kind] += 1
        marks.interval("step" if kind in ("ok", "timeouts") else "failed", number, due_ns, end_ns)
        self.latencies_s.append((end_ns - due_ns) / 1e9)
        self.due_ns.append(due_ns)
        self.ends_ns.append(end_ns)
        judged_s = self.latencies_s[-1]
        if answer is not None and answer.tokens_ns:
            first_ns, *_ = times_ns = answer.tokens_ns
            marks.interval("first_token", number, due_ns, first_ns)
            self.tokens += len(times_ns)
            self.between_s += [(after - before) / 1e9 for before, after in pairwise(times_ns)]
            self.texts[number] = "".join(answer.text)
            if self.order["goal_of"] == "first_token":
                judged_s = (first_ns - due_ns) / 1e9
        elif kind == "ok" and self._requests[number % len(self._requests)].streams:
            self.counts["unstreamed"] += 1
            judged_s = math.inf if self.order["goal_of"] == "first_token" else judged_s
        if kind == "ok" and (self._goal_s is None or judged_s <= self._goal_s):
            self.counts["good"] += 1

    async def warm_up(self, most: int, concurrency: int) -> int:
        """Send requests without a mark until two windows in a row take as long, at most so many; how many."""
        window, sent, before = max(10, 2 * concurrency), 0, 0.0
        while sent < most:
            count = min(window, most - sent)
            took = await self._closed(count, concurrency, marked=False)
            sent += count
            if before and abs(median(took) - before) <= STEADY * before:
                break
            before = median(took)
        return sent

    async def _closed(self, count: int, concurrency: int, *, marked: bool) -> list[float]:
        numbers, took = iter(range(count)), []

        async def work() -> None:
            for number in numbers:
                took.append(await self.one(number, now_ns(), marked=marked))

        await asyncio.gather(*(work() for _ in range(min(concurrency, count))))
        return took

    async def closed(self, count: int, concurrency: int) -> None:
        """So many requests in flight: the next one when one is answered."""
        ticking = asyncio.ensure_future(self._tick())
        await self._closed(count, concurrency, marked=True)
        ticking.cancel()

    async def _tick(self) -> None:
        """How late a program with nothing else to do would be called: in a closed loop nothing else shows it."""
        while True:
            due_ns = now_ns() + int(_TICK_S * 1e9)
            await asyncio.sleep(_TICK_S)
            self.late_s.append(max(0.0, (now_ns() - due_ns) / 1e9))

    async def open(self, times_s: Sequence[float]) -> None:
        """Each request when it is due, whatever became of those before."""
        start_ns = now_ns() + int(0.02 * 1e9)
        running = []
        for number, at_s in enumerate(times_s):
            due_ns = start_ns + int(at_s * 1e9)
            await self._until(due_ns)
            running.append(asyncio.ensure_future(self.one(number, due_ns)))
        await asyncio.gather(*running)

    async def _until(self, due_ns: int) -> None:
        """Sleep, and on a core of our own stay awake for the last 2 ms: how late this is counts as latency."""
        awake_s = _AWAKE_S if self.order["cores"] else 0.0
        if (left_s := (due_ns - now_ns()) / 1e9 - awake_s) > 0:
            await asyncio.sleep(left_s)
        while (begin_ns := now_ns()) < due_ns:
            await asyncio.sleep(0)
            self._empty_s = min(self._empty_s, (now_ns() - begin_ns) / 1e9)
            self.waited_s += self._empty_s

    def close(self) -> None:
        for connection in self._free:
            connection.close()


async def drive(order: dict[str, Any], load: Load) -> dict[str, Any]:
    """Warm up, then the load; what came of it."""
    begin_ns = now_ns()
    warm_up = await load.warm_up(order["warm_up"], order["concurrency"])
    marks.interval("settling", -1, begin_ns, now_ns())
    load.counts.update(dict.fromkeys(load.counts, 0))
    gc.collect()  # what came before: here, and not somewhere between two requests
    gc.disable()
    marks.point("ready")
    used_s, begin_ns = time.process_time(), now_ns()
    closed = order["rate"] is None and order["arrivals"] != "trace"
    if closed:
        await load.closed(order["count"], order["concurrency"])
    else:
        trace = order["trace"] and Path(order["trace"])
        await load.open(
            arrivals_s(order["arrivals"], order["count"], order["rate"] or 1, order["seed"], order["burst"], trace)
        )
    seconds, used_s = (now_ns() - begin_ns) / 1e9, time.process_time() - used_s
    gc.enable()
    load.close()
    return outcome(load, seconds, used_s, closed=closed) | {"warm_up": warm_up}


def pace_per_s(times_ns: Sequence[int], whole_s: float) -> float:
    """How many of these come in a second, from an early one to a late one.

    Neither the wait for the first nor the answer to the last belongs to it: of a short load they make some percent.
    One of a hundred is left out at either end, since one late answer would make the load seem longer.
    """
    ordered, edge = sorted(times_ns), len(times_ns) // 100
    inner = ordered[edge : len(ordered) - edge]
    if len(inner) < 2 or inner[0] == inner[-1]:
        return len(times_ns) / whole_s
    return (len(inner) - 1) / (inner[-1] - inner[0]) * 1e9


def outcome(load: Load, seconds: float, used_s: float, *, closed: bool) -> dict[str, Any]:
    """Figures and counts, by the names that they have in a record; rates are of the time in which answers came."""
    sent = len(load.latencies_s)
    rates_s = seconds if closed or not sent else sent / pace_per_s(load.ends_ns, seconds)
    metrics = {
        "requests_per_s": load.counts["ok"] / rates_s,
        "goodput_per_s": load.counts["good"] / rates_s,
        "failed_share": 1 - load.counts["ok"] / sent if sent else 0.0,
        "load_late_p99_s": quantile(load.late_s, 0.99),
    }
    if not closed and sent:
        metrics |= {"offered_per_s": pace_per_s(load.due_ns, seconds)}
    if load.tokens:
        metrics |= {"tokens_per_s": load.tokens / rates_s}
    if load.between_s:
        metrics |= {
            "token_mean_s": fmean(load.between_s),
            "token_s": median(load.between_s),
            "token_p99_s": quantile(load.between_s, 0.99),
        }
    told = "\n".join(load.texts[number] for number in sorted(load.texts))
    digest = {"answers_digest": hashlib.sha256(told.encode()).hexdigest()} if load.texts else {}
    return digest | {
        "metrics": metrics,
        "load": {
            **load.counts,
            "sent": sent,
            "in_flight": load.order["concurrency"] if closed else None,
            "cores": len(load.order["cores"]),
            "problem": load.problem,
            "failures": dict(load.failures.most_common(4)),
            "seconds": seconds,
            "cpu_s": max(0.0, used_s - load.waited_s),
            "cpu_whole_s": time.process_time(),
            "late_p99_s": metrics["load_late_p99_s"],
            "latency_p50_s": quantile(load.latencies_s, 0.5),
        },
    }


def waited(folder: Path, look: Callable[[], None] = lambda: time.sleep(_LOOK_EVERY_S)) -> None:
    """Until the server listens; whoever started this ends it where that never happens."""
    while not (folder / LISTENS).exists():
        look()


def main(arguments: Sequence[str]) -> int:
    order = json.loads(arguments[0])
    if order["cores"]:
        os.sched_setaffinity(0, order["cores"])
    try:
        requests = requests_of(order["api"], order["requests"] and Path(order["requests"]))
        waited(Path(order["folder"]))
        marks.open_marks(order["marks"], _MARKS_A_REQUEST * order["count"] + _MARKS_APART)
        found = asyncio.run(drive(order, Load(order, requests)))
    except (OSError, ValueError) as problem:
        sys.stderr.write(f"tare: {problem}\n")
        return 1
    write_whole(order["outcome"], found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
