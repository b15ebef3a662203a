"""The load that tare makes: when requests come, what they are, how answers are read and counted."""

from __future__ import annotations

import asyncio
import json
import selectors
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import pairwise
from math import exp
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from tare.drivers import load as load_module
from tare.drivers.load import Load, arrivals_s, drive, outcome, pace_per_s, quantile, requests_of
from tare.testing import FakeClock
from tare_inside import marks

Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def order(**changes: Any) -> dict[str, Any]:
    return {
        "timeout_s": 2.0, "goal_s": None, "goal_of": "latency", "warm_up": 0, "concurrency": 1, "rate": None,
        "arrivals": "poisson", "count": 6, "seed": 3, "burst": 1, "trace": None, "api": "http",
        "cores": [],
    } | changes  # fmt: skip


@pytest.fixture(autouse=True)
def marked(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "marks.bin"
    marks.open_marks(str(path), 2000)
    yield path
    marks.close_marks()


async def serve(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"Content-Length" in line), 0)
            await handler(head + await reader.readexactly(size), writer)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


class Turns(selectors.DefaultSelector):
    """Each turn of the loop takes 10 us of the clock, and one in which nothing can be read the wait for a timer."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(None if timeout is None else 0)
        self._clock.advance(1e-5 if ready else max(1e-5, timeout or 0))
        return ready


def driven(
    handler: Handler, requests: Path | None = None, clock: FakeClock | None = None, **changes: Any
) -> dict[str, Any]:
    """What came of a load on a server that treats each request by `handler`, on a clock that no other work delays.

    What is written to a pair of sockets can be read at once: when a turn finds nothing, nothing is on its way.
    """
    clock, open_connection, serving = clock or FakeClock(), asyncio.open_connection, []

    async def connect(host: str, port: int, limit: int) -> Any:
        ours, theirs = socket.socketpair()
        serving.append(asyncio.ensure_future(serve(handler, *await open_connection(sock=theirs))))
        return await open_connection(sock=ours, limit=limit)

    def loop() -> asyncio.AbstractEventLoop:
        turning = asyncio.SelectorEventLoop(Turns(clock))
        turning.time = lambda: clock.ns / 1e9
        return turning

    asked = order(**changes, port=0)
    with pytest.MonkeyPatch.context() as patched, asyncio.Runner(loop_factory=loop) as runner:
        patched.setattr(load_module, "now_ns", clock.now_ns)
        patched.setattr(asyncio, "open_connection", connect)
        return runner.run(drive(asked, Load(asked, requests_of(asked["api"], requests))))


async def say_hello(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO)


def spans_ns(path: Path, name: str) -> list[int]:
    begins: dict[int, int] = {}
    found = []
    for t_ns, called, edge, step in marks.load(str(path))[0]:
        if called == name and edge == "begin":
            begins[step] = t_ns
        elif called == name and edge == "end":
            found.append(t_ns - begins[step])
    return found


def test_poisson_times_are_the_seeds_own_and_have_the_rate() -> None:
    times = arrivals_s("poisson", 4000, 50.0, 3)
    assert times == arrivals_s("poisson", 4000, 50.0, 3) != arrivals_s("poisson", 4000, 50.0, 4)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(80, rel=0.01)
    gaps = [after - before for before, after in pairwise(times)]
    assert fmean(gaps) == pytest.approx(1 / 50, rel=0.01)  # the rate itself, whatever the seed
    assert stdev(gaps) == pytest.approx(1 / 50, rel=0.1)  # and gaps as a Poisson process has them
    assert len([gap for gap in gaps if gap > 3 / 50]) == pytest.approx(4000 * exp(-3), rel=0.25)


def test_bursts_come_at_once_and_keep_the_mean_rate() -> None:
    times = arrivals_s("bursts", 4000, 50.0, 3, burst=8)
    assert set(Counter(times).values()) == {8}
    assert times[-1] == pytest.approx(80, rel=0.2)


def test_a_recorded_trace_is_taken_as_it_is_and_starts_at_zero(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text("100.5\n100.0, GET /\n\n103.25\n")
    assert arrivals_s("trace", 10, 1, 0, trace=trace) == [0.0, 0.5, 3.25]
    trace.write_text("\n")
    with pytest.raises(ValueError, match="has no times"):
        arrivals_s("trace", 10, 1, 0, trace=trace)


@pytest.mark.parametrize("wrong", ["GET /", "5s, 1", "nan", "inf"])
def test_a_line_of_a_trace_without_a_time_is_named(tmp_path: Path, wrong: str) -> None:
    trace = tmp_path / "trace"
    trace.write_text(f"0.5\n\n{wrong}\n")
    with pytest.raises(ValueError, match=r"line 3: .* is no time in seconds"):
        arrivals_s("trace", 10, 1, 0, trace=trace)


def test_a_file_of_requests_has_paths_bodies_and_prompts(tmp_path: Path) -> None:
    file = tmp_path / "requests"
    file.write_text('/a\n{"path": "/b", "body": {"x": 1}}\n{"path": "/c", "method": "PUT", "body": "text"}\n')
    first, second, third = requests_of("http", file)
    assert (first.method, first.path, first.body) == ("GET", "/a", b"")
    assert (second.method, second.body, second.headers["Content-Type"]) == ("POST", b'{"x": 1}', "application/json")
    assert (third.method, third.body) == ("PUT", b"text")

    file.write_text("once upon\n")
    (chat,) = requests_of("chat", file)
    assert json.loads(chat.body)["messages"] == [{"role": "user", "content": "once upon"}]
    assert chat.streams
    assert json.loads(chat.body)["stream"] is True
    assert not requests_of("embeddings", file)[0].streams
    for odd in ("hello", "GET /a", "/a b", '{"path": "a"}'):
        file.write_text(f"/a\n{odd}\n")
        with pytest.raises(ValueError, match="/requests, line 2: neither JSON nor a path, which begins with /"):
            requests_of("http", file)
    file.write_text('/a\n\n{"a": {]}\n')
    with pytest.raises(ValueError, match=r"/requests, line 3: it begins like JSON and is none \(.*, column 8\): "):
        requests_of("http", file)


def test_a_closed_loop_keeps_so_many_in_flight_and_marks_each(marked: Path) -> None:
    inside, most = 0, 0

    async def slow(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1
        writer.write(HELLO)

    found = driven(slow, count=12, concurrency=3)

    assert most == 3
    assert found["load"]["ok"] == found["load"]["good"] == found["load"]["sent"] == 12
    spans = spans_ns(marked, "step")
    assert len(spans) == 12
    assert min(spans) >= 9e6


def test_in_an_open_loop_a_stall_is_in_the_latency_of_those_that_were_due(marked: Path) -> None:
    """A server that stands still for 0.4 s: whoever counts from the sending alone would see one slow request."""
    lock, number = asyncio.Lock(), 0

    async def stalls(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        async with lock:
            number += 1
            await asyncio.sleep(0.4 if number == 1 else 0)
        writer.write(HELLO)

    driven(stalls, count=8, rate=50.0, arrivals="even")
    waited = [span / 1e9 for span in spans_ns(marked, "step")]
    assert sorted(waited)[3] > 0.2  # all but the last were due in the stall


def test_errors_rejections_and_timeouts_are_counted_and_no_answered_request_hides_them(marked: Path) -> None:
    number = 0

    async def moody(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        number += 1
        kind = number % 5
        if kind == 1:
            writer.write(b"HTTP/1.1 503 Full\r\nContent-Length: 0\r\n\r\n")
        elif kind == 2:
            writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
        elif kind == 3:
            await asyncio.sleep(0.6)  # the client has given up
        elif kind == 4:
            writer.write(b"nonsense\r\n\r\n")
        else:
            writer.write(HELLO)

    found = driven(moody, count=10, timeout_s=0.2)
    counted = {name: found["load"][name] for name in ("ok", "rejected", "errors", "timeouts", "sent")}

    assert counted == {"ok": 2, "rejected": 2, "errors": 4, "timeouts": 2, "sent": 10}
    assert found["metrics"]["failed_share"] == pytest.approx(0.8)
    assert found["load"]["problem"] == "503 to GET /"
    assert (found["load"]["failures"]["503"], found["load"]["failures"]["timed out"]) == (2, 2)
    assert len(spans_ns(marked, "step")) == 4  # answered, and timed out with the time that was waited
    assert len(spans_ns(marked, "failed")) == 6
    assert max(spans_ns(marked, "step")) >= 0.19e9


def test_goodput_counts_what_is_answered_in_time() -> None:
    number = 0

    async def every_other(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        number += 1
        await asyncio.sleep(0.3 if number % 2 else 0)
        writer.write(HELLO)

    found = driven(every_other, count=6, goal_s=0.15)
    assert (found["load"]["ok"], found["load"]["good"]) == (6, 3)
    assert found["metrics"]["goodput_per_s"] == pytest.approx(found["metrics"]["requests_per_s"] / 2)


def test_an_answer_that_is_not_streamed_meets_no_goal_of_the_first_token() -> None:
    for goal_of, good in (("first_token", 0), ("latency", 6)):
        load = driven(say_hello, api="chat", goal_s=1.5, goal_of=goal_of)["load"]
        assert (load["ok"], load["unstreamed"], load["good"]) == (6, 6, good)
    assert driven(say_hello)["load"]["unstreamed"] == 0


def test_the_rate_of_a_short_load_is_that_of_its_middle() -> None:
    """Each answer takes as long as forty requests come in: whoever counts to the last answer is 40 % too low."""

    async def late(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        writer.write(HELLO)

    found = driven(late, count=100, rate=200.0, arrivals="even")
    assert found["metrics"]["offered_per_s"] == pytest.approx(200, rel=0.001)
    assert found["metrics"]["requests_per_s"] == pytest.approx(200, rel=0.001)
    assert found["load"]["seconds"] > 0.69
    assert "offered_per_s" not in driven(say_hello, count=3)["metrics"]  # a closed loop offers what is answered


def test_a_pace_leaves_out_the_wait_for_the_first_and_one_late_answer() -> None:
    second = 10**9
    steady = [5 * second + number * second // 100 for number in range(400)]
    assert pace_per_s(steady, 60.0) == pytest.approx(100)
    assert pace_per_s([*steady[:-1], 60 * second], 60.0) == pytest.approx(100, rel=0.01)
    slow = [number * second // 40 for number in range(400)]  # an overloaded server answers at its own pace
    assert pace_per_s(slow, 10.0) == pytest.approx(40)
    assert pace_per_s([second] * 3, 1.5) == pytest.approx(2)  # one burst


def test_streamed_tokens_are_timed_one_by_one(marked: Path) -> None:
    async def stream(request: bytes, writer: asyncio.StreamWriter) -> None:
        assert json.loads(request.partition(b"\r\n\r\n")[2])["stream"] is True
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for word in ("a", " b", " c"):
            await asyncio.sleep(0.02)
            event = f"data: {json.dumps({'choices': [{'text': word}]})}\n\n".encode()
            for piece in (event[:9], event[9:]):  # an event may come in pieces
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        last = b"data: [DONE]\n\n"
        writer.write(f"{len(last):x}\r\n".encode() + last + b"\r\n0\r\n\r\n")

    found = driven(stream, api="completions", count=4, goal_s=10.0, goal_of="first_token")
    first, whole = spans_ns(marked, "first_token"), spans_ns(marked, "step")

    assert len(first) == len(whole) == 4
    assert all(ours < theirs for ours, theirs in zip(first, whole, strict=True))
    seconds = found["load"]["seconds"]
    assert found["metrics"]["tokens_per_s"] == pytest.approx(12 / seconds)
    assert 0.015 < found["metrics"]["token_mean_s"] < 60
    assert found["answers_digest"] == driven_digest("a b c", 4)
    assert found["load"]["good"] == 4


def driven_digest(text: str, count: int) -> str:
    import hashlib

    return hashlib.sha256("\n".join([text] * count).encode()).hexdigest()


def test_a_server_that_closes_after_each_answer_is_asked_again() -> None:
    async def closes(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        await writer.drain()
        writer.close()

    async def over_tcp() -> dict[str, Any]:
        server = await asyncio.start_server(partial(serve, closes), "127.0.0.1", 0)
        asked = order(count=5, timeout_s=60.0, port=server.sockets[0].getsockname()[1])
        try:
            return await drive(asked, Load(asked, requests_of("http", None)))
        finally:
            server.close()

    assert asyncio.run(over_tcp())["load"]["ok"] == 5


def test_warm_up_ends_when_two_windows_take_as_long() -> None:
    found = driven(say_hello, count=2, warm_up=500)
    assert found["warm_up"] == 20
    assert found["load"]["sent"] == 2  # nothing of it counts


def test_warm_up_goes_on_while_answers_get_quicker() -> None:
    """By convergence and not by count: forty slow requests, each ten quicker than those before."""
    number = 0

    async def settles(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        await asyncio.sleep(0.004 * 2 ** max(0, 4 - number // 10))
        number += 1
        writer.write(HELLO)

    found = driven(settles, count=2, warm_up=500)
    assert found["warm_up"] == 60


def test_who_makes_the_load_knows_how_late_it_was() -> None:
    clock = FakeClock()

    async def hogs(request: bytes, writer: asyncio.StreamWriter) -> None:
        clock.advance(0.05)  # in the same loop as the load, which is late for it
        writer.write(HELLO)

    assert driven(hogs, clock=clock, count=6, rate=100.0, arrivals="even")["load"]["late_p99_s"] > 0.03


@pytest.mark.parametrize(("cores", "least_s", "most_s"), [([], 0.0, 0.001), ([0], 0.059, 0.061)])
def test_on_a_core_of_its_own_it_stays_awake_before_a_request(
    cores: list[int], least_s: float, most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Load] = []
    closed = Load.close
    monkeypatch.setattr(Load, "close", lambda load: (seen.append(load), closed(load)))
    driven(say_hello, rate=50.0, arrivals="even", count=30, cores=cores)
    (load,) = seen
    assert least_s <= load.waited_s <= most_s  # 2 ms before each of 30 requests
    told = outcome(load, seconds=1.0, used_s=0.5, closed=False)["load"]
    assert told["cpu_s"] == pytest.approx(0.5 - load.waited_s)


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert quantile([], 0.5) == 0.0
