"""What may wake the device from a sleep: its network cards, on a magic packet or not at all; the clock's alarm is ours.

`idle: {state: suspended}` sets that alarm in the middle of a trial. It is part of the state here, so that one which a
killed run left behind is taken away with the rest. Cards are set by `ethtool`, by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from tare.base.errors import TareError
from tare.base.host import Host, LocalHost
from tare.base.rulings import Ruling, obstacle
from tare.base.units import OnOff
from tare.drivers.kernel_files import alarm_of, text_of, waking_clock
from tare.parts.protocols import Control, Json

ALARM = "alarm"
_ABLE = re.compile(r"Supports Wake-on: \S*g\S*\s+Wake-on: (\S+)")


class WakeOnLan(Control):
    """Lets a magic packet wake the device by every network card that can, or nothing that comes over the network."""

    short: ClassVar[str | None] = "state"
    example: ClassVar[Mapping[str, Json]] = {"state": "on"}

    state: OnOff
    """on: the cards listen for a magic packet while the device sleeps, which takes power; off: they do not."""

    def knob(self) -> str:
        return "wake_on_lan"

    def obstacles(self, host: Host) -> list[Ruling]:
        if not _listening(host):
            cards = ", ".join(_cards(host)) or "none"
            return [obstacle("needs.hardware", f"no network card here ({cards}) can wake the device, by `ethtool`.")]
        if isinstance(host, LocalHost) and os.geteuid() != 0:
            return [obstacle("needs.root", "setting what wakes a network card needs root.")]
        if at := alarm_of(host, waking_clock(host)):
            return [obstacle("needs.value", f"the clock's alarm is set already, for {at} s, by someone else.")]
        return []

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        return {ALARM: "", **dict.fromkeys(_listening(host), "g" if self.state == "on" else "d")}

    def read(self, host: Host) -> dict[str, str]:
        return {ALARM: alarm_of(host, waking_clock(host)), **_listening(host)}

    def detours(self, host: Host, state: Json) -> list[Json]:
        """There was no alarm when we came, so that whichever is set now is the one of a sleep that was cut off."""
        return [{**state, ALARM: at}] if (at := alarm_of(host, waking_clock(host))) else []

    def write(self, host: Host, state: Json) -> None:
        now = self.read(host)
        fits = isinstance(state, dict) and state.keys() == now.keys()
        if not fits or not all(re.fullmatch("[a-z]*|[0-9]*", str(text)) for text in state.values()):
            raise TareError(f"wake_on_lan: {state!r} is no state of this device's network cards")
        if now[ALARM] and not state[ALARM]:
            host.write(f"{waking_clock(host)}/wakealarm", "0")
        for card in [each for each in now if each != ALARM and state[each] != now[each]]:
            host.run(["ethtool", "-s", card, "wol", state[card]]).checked()


def _cards(host: Host) -> list[str]:
    """The network cards that are hardware, by name: those of containers and bridges have no device."""
    names = re.findall(r"^\s*([^\s:]+):", text_of(host, "/proc/net/dev") or "", re.MULTILINE)
    return [name for name in names if text_of(host, f"/sys/class/net/{name}/device/uevent") is not None]


def _listening(host: Host) -> dict[str, str]:
    """What wakes each card that a magic packet can wake, in ethtool's letters."""
    told = {card: _ABLE.search(host.run(["ethtool", card]).out) for card in _cards(host)}
    return {card: found[1] for card, found in told.items() if found}
