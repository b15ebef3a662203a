"""What a place takes over from the one that it stands in, so that a container in a virtual machine tells of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.host import Host
from tare.parts.protocols import Json

if TYPE_CHECKING:
    from tare.parts.guest_clock import GuestClock


def outer_facts(host: Host) -> dict[str, Json]:
    """What the host below says of itself, as a new dict to add to."""
    return dict(getattr(host, "facts", {}))


def outer_clock(host: Host) -> GuestClock | None:
    """The clock of the virtual machine below, if there is one: marks are in its time."""
    found: GuestClock | None = getattr(host, "guest_clock", None)
    return found


def desk_is_the_devices(host: Host) -> bool:
    """Whether a file on the desk is at once seen on both sides; in a virtual machine it travels after each command."""
    return bool(getattr(host, "desk_is_the_devices", True))
