"""Folders of sensors in /sys, which the kernel numbers anew at each boot: found by what is written in them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from tare.base.host import Host

MOST_FOLDERS = 96  # numbers have holes where a driver was unbound, so that all of them are tried

T = TypeVar("T")


class Folder(NamedTuple):
    """One numbered folder, and the name that its driver gave it."""

    path: str
    name: str


def folders(host: Host, pattern: str, names_file: str = "name") -> Iterator[Folder]:
    """Those of `/sys/class/hwmon/hwmon{}` and the like that exist, in the order of their numbers."""
    for number in range(MOST_FOLDERS):
        path = pattern.format(number)
        if (name := text_of(host, f"{path}/{names_file}")) is not None:
            yield Folder(path, name)


def text_of(host: Host, path: str) -> str | None:
    """The text of a small file without its ends; None where it cannot be read."""
    try:
        return host.read(path).strip().strip("\0")
    except OSError:
        return None


def channel_word(name: str) -> str:
    """A sensor's name as a part of a channel's: `CPU-therm` is `cpu_therm`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "unnamed"


def told_apart(names: Iterable[str]) -> list[str]:
    """The names as words of channels; a second one of the same name gets a number."""
    words: list[str] = []
    for word in map(channel_word, names):
        same_name = sum(other == word or re.fullmatch(rf"{re.escape(word)}_\d+", other) is not None for other in words)
        words.append(word if not same_name else f"{word}_{same_name + 1}")
    return words


def within(limit_s: float, ask: Callable[[], T]) -> T:
    """What `ask` returns; TimeoutError where it takes longer. A sensor that hangs holds a thread then, but not us."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append((ask(), None))
        except Exception as error:
            answer.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not answer:
        raise TimeoutError(f"no answer within {limit_s:g} s")
    value, error = answer[0]
    if error is not None:
        raise error
    found: T = value
    return found


ZONES = "/sys/class/thermal/thermal_zone{}"
_HWMON = "/sys/class/hwmon/hwmon{}"
_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_MOST_SENSORS = 16  # of one chip: the package and its first cores
_MOST_TRIPS = 16
_ABSENT_MILLI_C = -100_000  # a zone that is switched off says -256000
_LEAST_MILLI_C, _MOST_MILLI_C = 200, 200_000  # nearer to zero it is in degrees, beyond it is no temperature


class Sensor(NamedTuple):
    """Where one temperature is read, in thousandths of a degree, and what it is called."""

    path: str
    name: str
    critical_c: float | None  # where the device saves itself


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


def sensors_by_word(host: Host) -> dict[str, Sensor]:
    """Every sensor by the word in its channel. Looking for them takes hundreds of files: keep what this returns."""
    sensors = list(sensors_of(host))
    return dict(zip(told_apart(sensor.name for sensor in sensors), sensors, strict=True))


def temperatures_c(host: Host, sensors: Mapping[str, Sensor]) -> dict[str, float]:
    """The temperatures now; one that cannot be read is absent."""
    now = {word: _celsius(text_of(host, sensor.path)) for word, sensor in sensors.items()}
    return {word: degrees for word, degrees in now.items() if degrees is not None}
