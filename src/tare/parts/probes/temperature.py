"""Temperatures of the device's thermal zones, and of a processor's own sensor where it has no zone."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel, PositiveSeconds, Seconds
from tare.drivers.kernel_files import (
    FileFeed,
    KernelFile,
    Sensor,
    make_reading,
    milli_celsius,
    sensors_by_word,
    sensors_of,
    within,
)
from tare.parts.protocols import Feed, Probe, Reading

_ANSWER_S = 3.0


class Temperature(Probe):
    """Temperature of each thermal zone. With it in a study, a trial starts as warm as the first one did."""

    period: PositiveSeconds = 1.0
    """How often they are read."""
    wait: Seconds = 120.0
    """At most so long a trial waits until every zone is back within 3 °C of what it was at the study's start."""
    limit_c: float | None = Field(None, gt=0)
    """A trial is ended when a zone is hotter; without it, 3 °C below where the device would switch itself off."""

    def obstacles(self, host: Host) -> list[Ruling]:
        try:
            found = within(_ANSWER_S, lambda: any(True for _ in sensors_of(host)))
        except TimeoutError:
            return [obstacle("device.silent", f"the sensors of {host.name} gave no answer within {_ANSWER_S:g} s.")]
        return (
            []
            if found
            else [obstacle("needs.hardware", f"{host.name} shows no temperatures (no thermal zones, no coretemp).")]
        )

    def open(self, host: Host, scope: Scope) -> Feed:
        files = [
            KernelFile(sensor.path, in_milli_celsius(_channel(word, sensor)), slow=True)
            for word, sensor in sensors_by_word(host).items()
        ]
        return FileFeed("temperature", host, files, round(self.period * 1e9))


def _channel(word: str, sensor: Sensor) -> Channel:
    critical = "" if sensor.critical_c is None else f", critical at {sensor.critical_c:g} °C"
    return Channel(f"temperature.{word}_c", "C", "gauge", f"{sensor.name}{critical}")


class MilliCelsius:
    """A file that is one temperature in thousandths of a degree."""

    def __init__(self, channel: Channel) -> None:
        self.channels = (channel,)

    def __call__(self, t_ns: int, text: str) -> list[Reading]:
        degrees = milli_celsius(text)
        return [] if degrees is None else [make_reading((t_ns, self.channels[0].name, degrees))]


def in_milli_celsius(channel: Channel) -> Callable[[str], MilliCelsius]:
    """`MilliCelsius`, in the shape that a kernel file wants."""
    return lambda _text: MilliCelsius(channel)
