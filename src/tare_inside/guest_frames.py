"""Frames between the device and the first process of a virtual machine.

A frame is two u32 (big-endian: length of the header, length of the data), a header in JSON, and data. The device asks
with `{"id": 7, "do": "read", ...}`; an answer carries the same id, and an error is `{"id", "error", "errno"}`. A job
(`do: spawn`) answers several times: `stream` with output, `ended` with its code, then `closed`. So does a connection
(`do: reach`); `guest_streams` says how.
"""

import json
import os
import struct

_HEAD = struct.Struct(">II")


class Channel:
    """Frames to and from the device; a write blocks until the device has taken it, and the device always does."""

    def __init__(self, descriptor, says=None):
        self._descriptor = descriptor
        self._says = descriptor if says is None else says  # two pipes, where there is no line for both ways
        self._kept = bytearray()

    def fileno(self):
        return self._descriptor

    def send(self, header, data=b""):
        text = json.dumps(header).encode("utf-8")
        left = memoryview(_HEAD.pack(len(text), len(data)) + text + bytes(data))
        while left:
            left = left[self._write(left) :]

    def _write(self, left):
        """As much of it as goes now; how much that was."""
        return os.write(self._says, left)

    def receive(self):
        """The frames that are whole now; None when the device has gone."""
        chunk = os.read(self._descriptor, 1 << 20)
        if not chunk:
            return None
        self._kept += chunk
        return list(self._frames())

    def _frames(self):
        while len(self._kept) >= _HEAD.size:
            head, body = _HEAD.unpack_from(self._kept)
            end = _HEAD.size + head + body
            if len(self._kept) < end:
                return
            header = json.loads(self._kept[_HEAD.size : _HEAD.size + head].decode("utf-8"))
            yield header, bytes(self._kept[_HEAD.size + head : end])
            del self._kept[:end]
