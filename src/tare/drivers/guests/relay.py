"""A socket on the device whose connections come out at a socket inside a guest.

`tare_inside.agents.guest_jobs` is the other end and says what goes over the line. Each connection has two threads,
one for each direction, since both may wait: for the client, and for the program inside.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from tare.drivers.guests.channel import GuestGone, GuestSilent, Link, checked
from tare_inside.agents.guest_jobs import CHUNK_BYTES, WINDOW_BYTES

_FOR_EVER_S = threading.TIMEOUT_MAX / 2
_CONNECT_WITHIN_S = 60.0
_CLOSES_WITHIN_S = 5.0  # a guest that hangs keeps its threads, not us
_numbers = itertools.count(1)


@contextlib.contextmanager
def relayed(link: Link, path: str, folder: Path) -> Iterator[str]:
    """The path of a socket in `folder`, for us alone, that leads to `path` inside; all its connections end with it."""
    near = folder / f"reach-{next(_numbers)}"
    with socket.socket(socket.AF_UNIX) as door, contextlib.ExitStack() as stack:
        door.bind(str(near))
        stack.callback(near.unlink, missing_ok=True)
        near.chmod(0o600)  # nobody comes in before `listen`
        door.listen()
        relay = _Relay(link, path, door)
        stack.callback(relay.close)
        yield str(near)


class _Relay:
    """Lets clients in."""

    def __init__(self, link: Link, path: str, door: socket.socket) -> None:
        self._link = link
        self._path = path
        self._door = door
        self._lines: list[_Line] = []
        self._thread = threading.Thread(target=self._let_in, daemon=True)
        self._thread.start()

    def _let_in(self) -> None:
        with contextlib.suppress(OSError):  # the door was closed
            while True:
                client, _ = self._door.accept()
                self._lines = [line for line in self._lines if line.is_open()]
                self._lines.append(_Line(self._link, self._path, client))

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for line in self._lines:
            line.hang_up()
        for line in self._lines:
            line.wait(_CLOSES_WITHIN_S)


class _Line:
    """One client, and the connection inside that is made for it."""

    def __init__(self, link: Link, path: str, client: socket.socket) -> None:
        self._link = link
        self._path = path
        self._client = client
        self._news = link.number()  # of what was handed on inside
        self._number = link.begin("reach", path=path, news=self._news)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def is_open(self) -> bool:
        return self._thread.is_alive()

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):  # the client was quicker
            self._client.shutdown(socket.SHUT_RDWR)

    def wait(self, within_s: float) -> None:
        self._thread.join(within_s)

    def _serve(self) -> None:
        """Until both sides have ended; where nobody is to be reached inside, the client is sent away at once."""
        try:
            with self._client, contextlib.suppress(OSError, GuestGone):
                if not self._is_reached():
                    return
                outward = threading.Thread(target=self._outward, daemon=True)
                outward.start()
                try:
                    self._inward()
                finally:
                    self.hang_up()  # which ends the other direction too
                    outward.join()
        finally:
            self._link.forget(self._number)
            self._link.forget(self._news)

    def _is_reached(self) -> bool:
        try:
            checked(self._link.next(self._number, _CONNECT_WITHIN_S))
        except GuestSilent:
            self._link.tell("relay", stream=self._number, end="whole")  # in case it is reached later
            return False
        return True

    def _outward(self) -> None:
        """What the client says, and whether it has gone for good or only has no more to say."""
        on_the_way = 0
        with contextlib.suppress(GuestGone):
            while data := self._heard():
                self._link.tell("relay", data, stream=self._number)
                on_the_way += len(data)
                while on_the_way >= WINDOW_BYTES:
                    on_the_way -= int(self._link.next(self._news, _FOR_EVER_S).header["took"])
            if not self._gone_within(0):
                self._link.tell("relay", stream=self._number, end="half")
                self._gone_within(None)
            self._link.tell("relay", stream=self._number, end="whole")

    def _heard(self) -> bytes:
        try:
            return self._client.recv(CHUNK_BYTES)
        except OSError:
            return b""

    def _gone_within(self, milliseconds: int | None) -> bool:
        """Whether the client has closed its socket, and not one direction alone; None waits until it has."""
        poll = select.poll()
        poll.register(self._client, 0)  # that the other side has gone is told without being asked for
        return bool(poll.poll(milliseconds))

    def _inward(self) -> None:
        """What is said inside, until that connection is closed there."""
        while True:
            frame = self._link.next(self._number, _FOR_EVER_S)
            if frame.data:
                with contextlib.suppress(OSError):  # the client has gone, which `_outward` tells
                    self._client.sendall(frame.data)
                self._link.tell("relay", stream=self._number, took=len(frame.data))
            if "deaf" in frame.header:
                self._close_one(socket.SHUT_RD)
            if "ended" in frame.header:
                self._close_one(socket.SHUT_WR)
            if "closed" in frame.header:
                return

    def _close_one(self, direction: int) -> None:
        with contextlib.suppress(OSError):
            self._client.shutdown(direction)
