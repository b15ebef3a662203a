"""Messages for people while something is done: to stderr, so that stdout holds nothing but data, or to a listener."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tare.base.text import safe_lines

Listener = Callable[[str], object]


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{safe_lines(text)}\n")  # a device, a file or a workload may be quoted in it
    sys.stderr.flush()


_listener: ContextVar[Listener] = ContextVar("listener", default=_to_stderr)


def say(text: str) -> None:
    """One message."""
    _listener.get()(text)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Meanwhile messages go to `listener`, and not to stderr."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
