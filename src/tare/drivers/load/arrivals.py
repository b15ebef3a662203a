"""When requests of an open loop come, and what they are: from a seed, or from the user's own files."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tare.drivers.load.client import Request

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "embeddings": "/v1/embeddings"}
_WORDS = "the load that is made here has words of no meaning at all and every one of them is as good as another"


def arrivals_s(kind: str, count: int, rate: float, seed: int, burst: int = 1, trace: Path | None = None) -> list[float]:
    """Seconds after the start at which each request is due; independent of how quick the answers are."""
    if kind == "trace":
        assert trace is not None
        times = [float(line.split(",")[0]) for line in trace.read_text().splitlines() if line.strip()]
        if not times:
            raise ValueError(f"{trace} has no times: one in seconds on each line")
        return [time - min(times) for time in sorted(times)][:count]
    if kind == "even":
        return [number / rate for number in range(count)]
    chance, together = random.Random(seed), burst if kind == "bursts" else 1
    # A Poisson process of which the number of events is known: so many times in the span, each anywhere in it. Drawn
    # gap by gap, the rate of a few hundred requests would be off by some percent, and with it the knee.
    times = sorted(chance.uniform(0, count / rate) for _ in range(math.ceil(count / together)))
    return [at for at in times for _ in range(together)][:count]


def requests_of(api: str, path: Path | None) -> list[Request]:
    """The requests, which are sent in this order, and again from the start when they are over."""
    if path is None:
        return [_request(api, "/" if api == "http" else _WORDS)]
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path} has no requests: one on each line")
    return [_request(api, _read(line)) for line in lines]


def _read(line: str) -> Any:
    """A JSON object, or the line itself: a path, or a prompt."""
    if not line.lstrip().startswith("{"):
        return line.strip()
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"a line that begins like JSON is none ({error}): {line[:60]}") from None


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
        return Request("GET", str(told))
    body, headers = told.get("body"), dict(told.get("headers", {}))
    if body is not None and not isinstance(body, str):
        body, headers = json.dumps(body), {**_JSON, **headers}
    method = told.get("method") or ("GET" if body is None else "POST")
    return Request(str(method), str(told.get("path", "/")), headers, (body or "").encode())


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many are not above; of nothing, 0."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
