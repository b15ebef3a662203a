"""Temperatures of the device's thermal zones, and of a processor's own sensor where it has no zone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pydantic import Field

from tare.host import Host, Scope
from tare.measures import Channel, PositiveSeconds, Seconds
from tare.parts.file_feed import FileFeed, KernelFile
from tare.parts.procfs import make_reading
from tare.parts.protocols import Feed, Probe, Reading
from tare.parts.sensor_folders import folders, text_of, told_apart, within

ZONES = "/sys/class/thermal/thermal_zone{}"
_HWMON = "/sys/class/hwmon/hwmon{}"
_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_MOST_SENSORS = 16  # of one chip: the package and its first cores
_MOST_TRIPS = 16
_ANSWER_S = 3.0
_ABSENT_MILLI_C = -100_000  # a zone that is switched off says -256000
_LEAST_MILLI_C, _MOST_MILLI_C = 200, 200_000  # nearer to zero it is in degrees, beyond it is no temperature


class Sensor(NamedTuple):
    """Where one temperature is read, in thousandths of a degree, and what it is called."""

    path: str
    name: str
    critical_c: float | None  # where the device saves itself


class Temperature(Probe):
    """Temperature of each thermal zone. With it in a study, a trial starts as warm as the first one did."""

    period: PositiveSeconds = 1.0
    """How often they are read."""
    wait: Seconds = 120.0
    """At most so long a trial waits until every zone is back within 3 °C of what it was at the study's start."""
    limit_c: float | None = Field(None, gt=0)
    """A trial is ended when a zone is hotter; without it, 3 °C below where the device would switch itself off."""

    def obstacles(self, host: Host) -> list[str]:
        try:
            found = within(_ANSWER_S, lambda: any(True for _ in sensors_of(host)))
        except TimeoutError:
            return [f"temperature: the sensors of {host.name} gave no answer within {_ANSWER_S:g} s."]
        return [] if found else [f"temperature: {host.name} shows no temperatures (no thermal zones, no coretemp)."]

    def open(self, host: Host, scope: Scope) -> Feed:
        files = [
            KernelFile(sensor.path, in_milli_celsius(_channel(word, sensor)), slow=True)
            for word, sensor in sensors_by_word(host).items()
        ]
        return FileFeed("temperature", host, files, round(self.period * 1e9))


def _channel(word: str, sensor: Sensor) -> Channel:
    critical = "" if sensor.critical_c is None else f", critical at {sensor.critical_c:g} °C"
    return Channel(f"temperature.{word}_c", "C", "gauge", f"{sensor.name}{critical}")


def sensors_of(host: Host) -> Iterator[Sensor]:
    """The thermal zones; a processor's own sensors where no zone is there."""
    zones = [*folders(host, ZONES, "type")]
    for path, name in zones:
        # The PMIC's zone says 100 °C on every board that has one: it only has a threshold to tell of.
        if not name.upper().startswith("PMIC"):
            yield Sensor(f"{path}/temp", name, _critical_c(host, path))
    for path, chip in folders(host, _HWMON) if not zones else ():
        if chip in _CHIPS:
            for number in range(1, _MOST_SENSORS + 1):
                if text_of(host, f"{path}/temp{number}_input") is not None:
                    label = text_of(host, f"{path}/temp{number}_label") or f"temp{number}"
                    critical = _celsius(text_of(host, f"{path}/temp{number}_crit"))
                    yield Sensor(f"{path}/temp{number}_input", f"{chip} {label}", critical)


def _critical_c(host: Host, zone: str) -> float | None:
    """The lowest trip point at which the kernel switches the device off."""
    trips = [f"{zone}/trip_point_{number}" for number in range(_MOST_TRIPS)]
    deadly = [trip for trip in trips if text_of(host, f"{trip}_type") in ("critical", "hot")]
    degrees = [_celsius(text_of(host, f"{trip}_temp")) for trip in deadly]
    return min((each for each in degrees if each is not None), default=None)


def _celsius(text: str | None) -> float | None:
    try:
        return None if text is None else milli_celsius(text)
    except ValueError:
        return None


def milli_celsius(text: str) -> float | None:
    """Degrees from thousandths; None for a sensor that is switched off. Raises ValueError for garbage."""
    value = int(text)
    if value <= _ABSENT_MILLI_C:
        return None
    if not _LEAST_MILLI_C <= abs(value) <= _MOST_MILLI_C:
        raise ValueError(f"{value} is not a temperature in thousandths of a degree")
    return value / 1000


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


def sensors_by_word(host: Host) -> dict[str, Sensor]:
    """Every sensor by the word in its channel. Looking for them takes hundreds of files: keep what this returns."""
    sensors = list(sensors_of(host))
    return dict(zip(told_apart(sensor.name for sensor in sensors), sensors, strict=True))


def temperatures_c(host: Host, sensors: Mapping[str, Sensor]) -> dict[str, float]:
    """The temperatures now; one that cannot be read is absent."""
    now = {word: _celsius(text_of(host, sensor.path)) for word, sensor in sensors.items()}
    return {word: degrees for word, degrees in now.items() if degrees is not None}
