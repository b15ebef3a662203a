"""How long the parts of opening and closing a place take: start-up cost is a finding, not a nuisance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tare.clock import Clock


class Phases(dict[str, float]):
    """Seconds by name, like `open.boot` or `close.stop`; the same name twice adds up."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begin_ns = self._clock.now_ns()
        try:
            yield
        finally:
            self[name] = self.get(name, 0.0) + (self._clock.now_ns() - begin_ns) / 1e9
