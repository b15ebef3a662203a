"""A guest's clock against the device's: seen before and after a job, so that marks can be moved to device time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tare.parts.protocols import Json

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
        said: dict[str, Json] = {
            "offset_ns": last.offset_ns,
            "drift_ns": drift_ns,
            "bound_ns": max(first.bound_ns, last.bound_ns) + abs(drift_ns),
        }
        passed_ns = last.device_ns - first.device_ns
        return said | ({"over_s": passed_ns / 1e9, "drift_ppm": 1e6 * drift_ns / passed_ns} if passed_ns > 0 else {})
