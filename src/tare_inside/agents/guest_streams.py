"""Connections to sockets in a virtual machine, carried over the one channel to the device, each under a number.

The device opens one with `do: reach`. What its own side says then comes as `do: relay`, with data, with `took` (so many
bytes of ours were handed on) and at last with `end`: `half` where it only has no more to say, `whole` where it is gone.
We answer under the number with data, `deaf` (nobody takes what is said), `ended` (no more will be said) and at last
`closed`; and under the number `news` with `took`. Neither side has more than `WINDOW_BYTES` on the way, so that a slow
reader stops its own writer and nobody else.
"""

import selectors
import socket

WINDOW_BYTES = 1 << 18
CHUNK_BYTES = 1 << 16


class _Stream:
    """One connection, and how far each of its directions has come."""

    def __init__(self, number, news, line):
        self.number = number
        self.news = news
        self.line = line
        self.kept = bytearray()  # what the device said and the socket has not taken
        self.on_the_way = 0  # what was sent and the device has not handed on
        self.end = None  # what the device said last
        self.deaf = False
        self.ended = False

    def is_over(self):
        said_all = self.end is not None and not self.kept
        return said_all and (self.ended or self.end == "whole")

    def events(self):
        wants_more = not self.ended and self.end != "whole" and self.on_the_way < WINDOW_BYTES
        return (selectors.EVENT_READ if wants_more else 0) | (selectors.EVENT_WRITE if self.kept else 0)


class Streams:
    """All connections; `watch` is the agent's own selector."""

    def __init__(self, channel, watch):
        self._channel = channel
        self._watch = watch
        self._open = {}

    def reach(self, header):
        """Connect to a socket here; an error is the caller's to tell."""
        line = socket.socket(socket.AF_UNIX)
        try:
            line.setblocking(False)
            line.connect(header["path"])
            stream = _Stream(header["id"], header["news"], line)
        except BaseException:
            line.close()
            raise
        self._open[stream.number] = stream
        self._watch_for(stream)

    def relay(self, header, data):
        """What the device's side of a connection said; one that is over here has nobody to tell."""
        stream = self._open.get(header["stream"])
        if stream is None:
            return
        stream.kept += data
        stream.on_the_way -= header.get("took", 0)
        stream.end = header.get("end", stream.end)
        self._go_on(stream)

    def _go_on(self, stream):
        """Move what can be moved without waiting."""
        if stream.number not in self._open:
            return  # it ended while the news of it was on its way through the agent's loop
        self._hand_on(stream)
        if stream.events() & selectors.EVENT_READ:
            self._fetch(stream)
        if stream.end is not None and stream.end != "whole" and not stream.kept and not stream.deaf:
            self._say_no_more(stream)
        self._watch_for(stream)
        if stream.is_over():
            del self._open[stream.number]
            stream.line.close()
            self._channel.send({"id": stream.number, "closed": True})

    def _hand_on(self, stream):
        taken = 0
        try:
            while stream.kept and not stream.deaf:
                count = stream.line.send(stream.kept[:CHUNK_BYTES])
                del stream.kept[:count]
                taken += count
        except BlockingIOError:
            pass
        except OSError:
            stream.deaf = True
            self._channel.send({"id": stream.number, "deaf": True})
        if stream.deaf:  # what nobody will take is let go of, or the device would wait for ever
            taken += len(stream.kept)
            stream.kept.clear()
        if taken:
            self._channel.send({"id": stream.news, "took": taken})

    def _fetch(self, stream):
        try:
            chunk = stream.line.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:  # whoever was there died with our words unread
            chunk = b""
        if chunk:
            stream.on_the_way += len(chunk)
            self._channel.send({"id": stream.number}, chunk)
        else:
            stream.ended = True
            self._channel.send({"id": stream.number, "ended": True})

    def _say_no_more(self, stream):
        """The other side of a half-closed connection: it may still answer."""
        stream.deaf = True  # nothing is left to be said
        try:
            stream.line.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone, which reading will show

    def _watch_for(self, stream):
        """Have the agent's loop look at what this connection waits for, and no more."""
        if stream.line in self._watch.get_map():
            self._watch.unregister(stream.line)
        if stream.events() and not stream.is_over():
            self._watch.register(stream.line, stream.events(), lambda _, stream=stream: self._go_on(stream))
