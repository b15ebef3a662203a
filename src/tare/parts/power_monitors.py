"""The power monitors of a board (INA3221 and its kin), in the two ways in which kernels show them.

    JetPack 5 and later    /sys/class/hwmon/hwmon*   in1_label, in1_input (mV), curr1_input (mA)
    JetPack 4              iio:device* of the driver ina3221x   rail_name_0, in_voltage0_input, in_current0_input

Power is voltage times current, read one after the other: the product that some drivers offer is averaged over a time
that they do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tare.host import Host
from tare.parts.procfs import whole
from tare.parts.sensor_folders import folders, text_of

HWMON = "/sys/class/hwmon/hwmon{}"
_IIO = ("/sys/bus/iio/devices/iio:device{}", "/sys/bus/i2c/drivers/ina3221x/{}/iio:device{}")
_CHANNELS = 3  # of an INA3221; its in4 to in7 are drops over the shunts, in microvolts
_CHIPS = tuple(f"{bus}-{address:04x}" for bus in range(8) for address in range(0x40, 0x44))
_MOST_MILLIVOLTS, _MOST_MILLIAMPERES, _MOST_MICROWATTS = 60_000, 100_000, 2_000_000_000


class Source(NamedTuple):
    """A file with one whole number, and the most that it can be: more means that its unit is another."""

    path: str
    most: int


class Rail(NamedTuple):
    """One measured supply of the board: its files are multiplied, and scaled to watts."""

    name: str
    files: tuple[Source, ...]
    scale: float
    window_ms: int | None = None  # over which the chip averages, where it tells

    def watts(self, host: Host) -> float:
        """Raises OSError where a file cannot be read, and ValueError where it holds no such number."""
        return math.prod(_number(host, source) for source in self.files) * self.scale


def _number(host: Host, source: Source) -> int:
    value = whole(host.read(source.path))
    if value > source.most:
        raise ValueError(f"{value} is more than {source.path} can say")
    return value


def rails_of(host: Host) -> list[Rail]:
    """The rails that this board measures, by name; none on a machine without such monitors."""
    named: dict[str, Rail] = {}
    for rail in [*_hwmon(host)] or [*_iio(host)]:
        named.setdefault(rail.name, rail)
    return list(named.values())


def _hwmon(host: Host) -> Iterator[Rail]:
    for path, chip in folders(host, HWMON):
        if chip == "ina3221":
            told = text_of(host, f"{path}/update_interval") or ""  # already with its number of samples
            window_ms = int(told) if told.isascii() and told.isdecimal() else None
            for channel in range(1, _CHANNELS + 1):
                label = text_of(host, f"{path}/in{channel}_label")
                if label and label.upper() != "NC" and text_of(host, f"{path}/in{channel}_enable") != "0":
                    yield _product(label, f"{path}/in{channel}_input", f"{path}/curr{channel}_input", window_ms)
        elif chip.startswith("ina") and text_of(host, f"{path}/power1_input") is not None:
            name = text_of(host, f"{path}/power1_label") or text_of(host, f"{path}/label") or chip
            yield Rail(name, (Source(f"{path}/power1_input", _MOST_MICROWATTS),), 1e-6)


def _iio(host: Host) -> Iterator[Rail]:
    for path in _iio_folders(host):
        for channel in range(_CHANNELS):
            label = text_of(host, f"{path}/rail_name_{channel}")
            if not label or label.upper() == "NC":
                continue
            voltage, current = f"{path}/in_voltage{channel}_input", f"{path}/in_current{channel}_input"
            if text_of(host, voltage) is not None and text_of(host, current) is not None:
                yield _product(label, voltage, current)
            else:
                milliwatts = Source(f"{path}/in_power{channel}_input", _MOST_MICROWATTS // 1000)
                yield Rail(label, (milliwatts,), 1e-3)


def _iio_folders(host: Host) -> Sequence[str]:
    whole_class, of_driver = _IIO
    found = [path for path, _ in folders(host, whole_class, "rail_name_0")]
    chips = [of_driver.format(chip, "{}") for chip in _CHIPS]
    return found or [
        path.format(number)
        for path in chips
        for number in range(len(chips) // 4)
        if text_of(host, f"{path.format(number)}/rail_name_0") is not None
    ]


def _product(name: str, voltage: str, current: str, window_ms: int | None = None) -> Rail:
    files = (Source(voltage, _MOST_MILLIVOLTS), Source(current, _MOST_MILLIAMPERES))
    return Rail(name, files, 1e-6, window_ms)
