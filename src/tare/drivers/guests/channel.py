"""The one line to a guest's agent: questions and answers as frames, and jobs that answer several times.

`tare_inside.agents.guest_jobs` is the other end and says what a frame is.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tare.base.errors import TareError
from tare.base.untrusted import check_depth
from tare.parts.protocols import Json

_HEAD = struct.Struct(">II")
_ANSWER_WITHIN_S = 60.0
_LONGEST_FRAME_BYTES = 64 << 20  # the guest is not to be trusted with our memory


class Wire(Protocol):
    """A stream of bytes: a socket has these methods, and so have the pipes of an ssh."""

    def recv(self, size: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...
    def close(self) -> None: ...


class Frame(NamedTuple):
    """One answer."""

    header: dict[str, Any]
    data: bytes


class GuestGone(TareError):
    """The line is dead: the guest, or whoever ran it, has ended."""


class GuestSilent(TareError):
    """No answer in time: the guest hangs, or is stopped."""


class Link:
    """Frames by id: who asked gets the answer, whichever thread it was."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Frame | None]] = {0: queue.SimpleQueue()}
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._gone = False
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def hello(self, within_s: float) -> dict[str, Any]:
        """What the agent says first, once it is up."""
        return self.next(0, within_s).header

    def ask(self, do: str, data: bytes = b"", *, within_s: float = _ANSWER_WITHIN_S, **fields: Any) -> Frame:
        """One question, one answer; an error there is raised here, as the OSError that it was."""
        return self.answer(self.begin(do, data, **fields), within_s)

    def begin(self, do: str, data: bytes = b"", **fields: Any) -> int:
        """Ask, and do not wait; returns the id by which answers are taken."""
        number = next(self._numbers)
        with self._lock:
            self._waiting[number] = queue.SimpleQueue()
            if self._gone:
                self._waiting[number].put(None)
        self._send({"id": number, "do": do, **fields}, data, number)
        return number

    def tell(self, do: str) -> None:
        """Say what has no answer. On a dead line it is lost, as whoever waits for anything else there learns."""
        self._send({"id": 0, "do": do}, b"")

    def _send(self, header: Mapping[str, Any], data: bytes, number: int | None = None) -> None:
        text = json.dumps(header).encode()
        with self._sending:  # apart from the other lock: a guest that does not read must not keep us from reading
            try:
                self._wire.sendall(_HEAD.pack(len(text), len(data)) + text + data)
            except OSError:
                if number is not None:
                    self._waiting[number].put(None)

    def answer(self, number: int, within_s: float = _ANSWER_WITHIN_S) -> Frame:
        """The one answer to a question that was begun."""
        try:
            return checked(self.next(number, within_s))
        finally:
            self.forget(number)

    def forget(self, number: int) -> None:
        with self._lock:
            self._waiting.pop(number, None)

    def next(self, number: int, within_s: float) -> Frame:
        """The next answer with this id."""
        try:
            frame = self._waiting[number].get(timeout=max(0.0, within_s))
        except queue.Empty:
            raise GuestSilent(f"no answer within {within_s:g} s") from None
        if frame is None:
            self._waiting[number].put(None)  # gone once is gone for whoever asks next
            raise GuestGone("the line to it is dead")
        return frame

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._wire.close()

    def _take(self) -> None:
        """Read frames until the line ends, and then tell everyone who waits."""
        try:
            while True:
                head, body = _HEAD.unpack(self._exactly(_HEAD.size))
                if head + body > _LONGEST_FRAME_BYTES:
                    return
                header = json.loads(self._exactly(head))
                check_depth(header)
                self._deliver(Frame(header, self._exactly(body)))
        except (OSError, EOFError, ValueError, AttributeError, TypeError, RecursionError):
            return
        finally:
            with self._lock:
                self._gone = True
                for waiting in self._waiting.values():
                    waiting.put(None)

    def _deliver(self, frame: Frame) -> None:
        with self._lock:
            waiting = self._waiting.get(frame.header.get("id", -1))
        if waiting is not None:
            waiting.put(frame)

    def _exactly(self, size: int) -> bytes:
        kept = bytearray()
        while len(kept) < size:
            chunk = self._wire.recv(min(size - len(kept), 1 << 20))
            if not chunk:
                raise EOFError
            kept += chunk
        return bytes(kept)


def checked(frame: Frame) -> Frame:
    """The answer, or the error that it is."""
    if "error" in frame.header:
        raise OSError(frame.header.get("errno"), frame.header["error"])
    return frame


_ROUND_TRIPS = 16


@dataclass(frozen=True, slots=True)
class Sighting:
    """The guest's time at a moment of the device's; the moment is known to within `bound_ns` on either side."""

    device_ns: int
    guest_ns: int
    bound_ns: int

    @property
    def offset_ns(self) -> int:
        """What is added to guest time to get device time."""
        return self.device_ns - self.guest_ns


def sight(now_ns: Callable[[], int], ask_guest_ns: Callable[[], int], trips: int = _ROUND_TRIPS) -> Sighting:
    """Ask several times and keep the quickest answer: the guest read its clock somewhere between there and back."""
    best: Sighting | None = None
    for _ in range(trips):
        sent_ns = now_ns()
        guest_ns = ask_guest_ns()
        came_ns = now_ns()
        bound_ns = (came_ns - sent_ns + 1) // 2
        if best is None or bound_ns < best.bound_ns:
            best = Sighting(sent_ns + bound_ns, guest_ns, bound_ns)
    assert best is not None
    return best


class GuestClock:
    """The line through the sightings around a job."""

    def __init__(self) -> None:
        self._sightings: list[Sighting] = []

    def add(self, sighting: Sighting) -> None:
        """Keep the one before the job, and the latest."""
        self._sightings = [*self._sightings[-1:], sighting]

    @property
    def known(self) -> bool:
        return bool(self._sightings)

    def to_device_ns(self, guest_ns: int) -> int:
        """A time of the guest in device time: the offset runs in a straight line from one sighting to the other."""
        first, last = self._sightings[0], self._sightings[-1]
        passed_ns = last.guest_ns - first.guest_ns
        if passed_ns <= 0:
            return guest_ns + first.offset_ns
        share = (guest_ns - first.guest_ns) / passed_ns
        return guest_ns + first.offset_ns + round(share * (last.offset_ns - first.offset_ns))

    def facts(self) -> dict[str, Json]:
        """Offset, drift between the sightings, and how far off a moved mark can be."""
        first, last = self._sightings[0], self._sightings[-1]
        drift_ns = last.offset_ns - first.offset_ns
        reported: dict[str, Json] = {
            "offset_ns": last.offset_ns,
            "drift_ns": drift_ns,
            "bound_ns": max(first.bound_ns, last.bound_ns) + abs(drift_ns),
        }
        passed_ns = last.device_ns - first.device_ns
        return reported | (
            {"over_s": passed_ns / 1e9, "drift_ppm": 1e6 * drift_ns / passed_ns} if passed_ns > 0 else {}
        )
