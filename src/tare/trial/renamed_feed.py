"""A probe that watches one of several tenants: its channels carry the tenant's name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tare.parts.protocols import Feed, Reading


class Renamed:
    """A feed whose channels carry the name of its tenant."""

    def __init__(self, feed: Feed, prefix: str) -> None:
        self.feed, self._prefix = feed, prefix
        self.channels = tuple(replace(channel, name=f"{prefix}{channel.name}") for channel in feed.channels)

    def poll(self) -> Iterable[Reading]:
        return self._named(self.feed.poll())

    def close(self) -> Iterable[Reading]:
        return self._named(self.feed.close())

    def _named(self, readings: Iterable[Reading]) -> list[Reading]:
        return [reading._replace(channel=f"{self._prefix}{reading.channel}") for reading in readings]
