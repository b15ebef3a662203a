"""Sensors of a board, and meters beside it: rows of watts, volts and amperes, and who they are of."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from tare.base.host import Clock, Host
from tare.drivers.kernel_files import folders, text_of, whole

# The power monitors of a board (INA3221 and its kin), in the two ways in which kernels show them.
#
#     JetPack 5 and later    /sys/class/hwmon/hwmon*   in1_label, in1_input (mV), curr1_input (mA)
#     JetPack 4              iio:device* of the driver ina3221x   rail_name_0, in_voltage0_input, in_current0_input
#
# Power is voltage times current, read one after the other: the product that some drivers offer is averaged over a time
# that they do not tell.
#
# What a Jetson module draws in all, from its rails: by the names of the rails, for those are the board's own.
#
# Not what the socket gives: the carrier board, its regulators, a disk and a fan are not behind these sensors.
#
# One line of NVIDIA's `tegrastats`, in base units: what the line does not have is absent.
#
# Every JetPack prints it a little differently, and no release says how, so that nothing is expected at a fixed place:
# each statistic is found by its own shape, and whatever has another shape is passed over.

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
            reported = text_of(host, f"{path}/update_interval") or ""  # already with its number of samples
            window_ms = int(reported) if reported.isascii() and reported.isdecimal() else None
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


_TOTALS = ("VDD_IN", "POM_5V_IN", "VIN")  # TX1, TX2, Xavier NX, Orin NX and Nano; Nano; Thor
_SUMS = (  # boards without such a rail: all of these, and nothing else
    ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),  # AGX Xavier
    # AGX Orin: VIN_SYS_5V0 feeds the I/O and the memory, not the cores. VDDQ_VDD2_1V8AO is already in it.
    ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
)


def module_rails(names: Mapping[str, object]) -> tuple[str, ...]:
    """The rails whose sum is the module's power; none where no known board has such rails."""
    known = {name.upper(): name for name in names}
    for total in _TOTALS:
        if total in known:
            return (known[total],)
    for parts in _SUMS:
        if known.keys() >= set(parts):
            return tuple(known[part] for part in parts)
    return ()


def module_total_w(rails_w: Mapping[str, float]) -> float | None:
    """The module's power; None where the board is not known."""
    parts = module_rails(rails_w)
    return math.fsum(rails_w[name] for name in parts) if parts else None


def rails_beside_total_w(rails_w: Mapping[str, float]) -> float | None:
    """The sum of the rails that a total rail feeds, to be shown beside it; None where there is no such rail."""
    parts = module_rails(rails_w)
    if len(parts) != 1 or len(rails_w) < 2:
        return None
    return math.fsum(watts for name, watts in rails_w.items() if name != parts[0])


_NUMBER = r"-?\d{1,12}(?:\.\d{1,9})?"
# What tegrastats calls MB is a kernel's kB divided by 1024: a board of 8 GB has "7852MB".
_SIZE_BYTES = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_UNIT_W = {"uw": 1e6, "mw": 1e3, "": 1e3, "w": 1.0, "kw": 1e-3}  # so many make a watt; without a unit it is mW
_ABSENT_C = -100.0  # a sensor that is off says -256; no board works at such a cold

_MEMORY = r"(?<!\S){name}\s+(\d{{1,12}}(?:\.\d{{1,9}})?)/(\d{{1,12}}(?:\.\d{{1,9}})?)\s?([kMGT]?B)\b"
_RAM = re.compile(_MEMORY.format(name="RAM"), re.IGNORECASE)
_SWAP = re.compile(_MEMORY.format(name="SWAP"), re.IGNORECASE)
_CPUS = re.compile(r"(?<!\S)CPU\s*\[([^\][]*)\](?:@(\d{1,6}))?(?!\S)", re.IGNORECASE)
_CPU = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)%(?:@(\d{1,6}))?")
_CORES = re.compile(rf"\s*(?:{_CPU.pattern}|off)\s*(?:,\s*(?:{_CPU.pattern}|off)\s*)*", re.IGNORECASE)
_ENGINE = r"(?<!\S){name}(?:_FREQ)?\s+(?:(\d{{1,3}}(?:\.\d{{1,9}})?)%)?(?:@(?:(\d{{1,6}})|\[([\d,\s]*)\]))?(?!\S)"
_GPU = re.compile(_ENGINE.format(name="GR3D"), re.IGNORECASE)
_EMC = re.compile(_ENGINE.format(name="EMC"), re.IGNORECASE)
_TEMPERATURE = re.compile(rf"(?<!\S)([A-Za-z][\w.+-]*)@({_NUMBER})C(?:/{_NUMBER}C)*(?!\S)")
_POWER = rf"{_NUMBER}(?: ?[uUmMkK]?[wW])?"
_RAIL = re.compile(rf"(?<!\S)([A-Za-z][\w.+-]*)\s+({_POWER}(?:/{_POWER})*)(?!\S)")
_VALUE = re.compile(rf"({_NUMBER}) ?([A-Za-z]*)")
# Engines are printed as `APE 150` and `NVENC 115`, a clock: a lone number without a unit is power only of a rail.
_RAIL_NAME = re.compile(r"(VDD|VIN|POM_|SYS5V|SYS_)\w*|GPU|CPU|SOC|CV", re.IGNORECASE)


def parse_line(line: str) -> dict[str, Any] | None:
    """What one line says; None if it is not one of tegrastats."""
    ram, cpus = _RAM.search(line), _CPUS.search(line)
    if ram is None and cpus is None:
        return None
    said: dict[str, Any] = {}
    if ram is not None:
        said |= {"ram_used_bytes": _bytes(ram[1], ram[3]), "ram_total_bytes": _bytes(ram[2], ram[3])}
    if (swap := _SWAP.search(line)) is not None:
        said["swap_used_bytes"] = _bytes(swap[1], swap[3])
    if cpus is not None and _CORES.fullmatch(cpus[1]):
        said["cpus"] = [_core(text, shared_mhz=cpus[2]) for text in cpus[1].split(",")]
    said |= _engine("gpu", _GPU, line)
    said |= {key: value for key, value in _engine("emc", _EMC, line).items() if key == "emc_util"}
    if temps := {name: float(value) for name, value in _TEMPERATURE.findall(line) if float(value) > _ABSENT_C}:
        said["temps_c"] = temps
    if rails := dict(_rails(line)):
        said["rails_w"] = rails
        if (total_w := module_total_w(rails)) is not None:
            said["power_total_w"] = total_w
    return said


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _SIZE_BYTES[unit.upper()])


def _core(text: str, *, shared_mhz: str | None) -> dict[str, float] | None:
    """Use and clock of a core; None for one that is off. Older releases print one clock for all, behind the list."""
    found = _CPU.fullmatch(text.strip())
    if found is None:
        return None
    mhz = found[2] or shared_mhz
    return {"util": float(found[1]) / 100} | ({} if mhz is None else {"hz": int(mhz) * 1_000_000})


def _engine(name: str, pattern: re.Pattern[str], line: str) -> dict[str, float]:
    """Use and clock of an engine, whichever of them are printed; of several clusters the fastest tells the clock."""
    found = pattern.search(line)
    if found is None:
        return {}
    clocks_mhz = [int(mhz) for mhz in re.findall(r"\d{1,6}", found[2] or found[3] or "")]
    said = {} if found[1] is None else {f"{name}_util": float(found[1]) / 100}
    return said | ({f"{name}_hz": max(clocks_mhz) * 1_000_000} if clocks_mhz else {})


def _rails(line: str) -> list[tuple[str, float]]:
    """Each rail with the first of its values, which is the instant one; average and peak may follow it."""
    rails = []
    for name, text in _RAIL.findall(line):
        values = [(number, unit.lower()) for number, unit in _VALUE.findall(text)]
        unit = next((unit for _, unit in values if unit), "")
        if unit or len(values) > 1 or _RAIL_NAME.fullmatch(name):
            rails.append((name, float(values[0][0]) / _UNIT_W[values[0][1] or unit]))
    return rails


# Rows of a power meter's table: watts from one column, and where there is a column for them, energy and the time.

UNIT_W = {"uW": 1e-6, "mW": 1e-3, "W": 1.0, "kW": 1e3}
UNIT_J = {"J": 1.0, "kJ": 1e3, "mWh": 3.6, "Wh": 3.6e3, "kWh": 3.6e6}
MOST_W, MOST_J = 1e6, 1e15
_WATTS = re.compile(r"\s*([0-9]{1,12}(?:[.][0-9]{0,12})?)\s*([a-zA-Z]+)?\s*")


@dataclass(frozen=True)
class Layout:
    """How a row is read; columns by their name in the first row, or by their number from 1."""

    column: str | int
    unit: str
    time: str | int | None = None
    separator: str = ","
    energy: str | int | None = None
    energy_unit: str = "Wh"

    def needs_header(self) -> bool:
        return any(isinstance(column, str) for column in (self.column, self.time, self.energy))

    def placed(self, header: str) -> Layout:
        """The same with numbers in place of names. Raises ValueError, with the names that there are."""
        names = [cell.strip().strip('"') for cell in header.split(self.separator)]
        time, energy = (None if each is None else _place(each, names) for each in (self.time, self.energy))
        return replace(self, column=_place(self.column, names), time=time, energy=energy)

    def cells(self, row: str) -> list[str]:
        return [cell.strip().strip('"') for cell in row.split(self.separator)]

    def watts(self, row: str) -> float:
        """Raises ValueError where there is no such column, or no power in it; a unit in the cell itself counts."""
        return self._value(row, self.column, UNIT_W, self.unit, MOST_W)

    def joules(self, row: str) -> float:
        """What the meter has counted so far; raises as `watts` does."""
        return self._value(row, self.energy, UNIT_J, self.energy_unit, MOST_J)

    def _value(self, row: str, column: str | int | None, units: Mapping[str, float], unit: str, most: float) -> float:
        text = _cell(self.cells(row), column)
        found = _WATTS.fullmatch(text.replace(",", ".") if self.separator != "," else text)
        if found is None or (found[2] or unit) not in units:
            raise ValueError(f"{text!r} is not a number of {unit}")
        value = float(found[1]) * units[found[2] or unit]
        if value > most:
            raise ValueError(f"{text!r} is more than any device draws")
        return value

    def wall_s(self, row: str) -> float:
        """The row's time as seconds of the wall clock: UNIX seconds (or ms), or a date and time in any ISO form."""
        text = _cell(self.cells(row), self.time)
        try:
            number = float(text)
        except ValueError:
            return datetime.fromisoformat(text).timestamp()
        if not math.isfinite(number) or number <= 0:
            raise ValueError(f"{text!r} is not a time")
        return number / 1000 if number > 1e11 else number


def _place(column: str | int, names: Sequence[str]) -> int:
    if not isinstance(column, str):
        return column
    if column not in names:
        raise ValueError(f"no column {column!r}. Available: {', '.join(names)}")
    return names.index(column) + 1


def _cell(cells: Sequence[str], column: str | int | None) -> str:
    if not isinstance(column, int) or len(cells) < column:
        raise ValueError("the row is too short")
    return cells[column - 1]


MOST_ZONE_W = 5_000.0  # of one zone: a step that would need more was no work, but a reset
_SLACK_UJ = 20_000_000  # counters are written in lumps, up to some milliseconds late


class EnergyCounter:
    """Microjoules since the first reading. An interval whose energy cannot be known is dropped and counted."""

    def __init__(self, range_uj: int | None) -> None:
        self._range_uj = range_uj  # the counter starts again at zero beyond it; None: it is not known
        self._last: tuple[int, int] | None = None  # t_ns, and what the counter said
        self._total_uj = 0
        self.dropped = 0  # intervals
        self.dropped_s = 0.0

    def __call__(self, t_ns: int, raw_uj: int) -> float | None:
        """Joules since the first reading; None at the end of an interval that had to be dropped."""
        last, self._last = self._last, (t_ns, raw_uj)
        if last is None:
            return 0.0
        seconds = (t_ns - last[0]) / 1e9
        step_uj = self._step_uj(raw_uj - last[1])
        if step_uj is None or step_uj > MOST_ZONE_W * 1e6 * seconds + _SLACK_UJ:
            self.dropped += 1
            self.dropped_s += seconds
            return None
        self._total_uj += step_uj
        return self._total_uj / 1e6

    def _step_uj(self, difference_uj: int) -> int | None:
        if difference_uj >= 0:
            return difference_uj
        if self._range_uj is None or difference_uj < -self._range_uj:
            return None
        return difference_uj + self._range_uj


MOST_LINES = 10_000  # kept while nobody asks for them
MOST_LINE_BYTES = 65_536
_LINGER_S = 2.0


class LineChild:
    """The program while it runs, in a group of its own; each line has the time at which it came."""

    def __init__(self, argv: Sequence[str], clock: Clock) -> None:
        self._clock = clock
        self._lines: deque[tuple[int, str]] = deque(maxlen=MOST_LINES)
        self._came = threading.Event()
        self._child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def lines(self) -> list[tuple[int, str]]:
        """What came since the last time: (t_ns, line)."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._lines.popleft())
        return taken

    def wait_for_a_line(self, limit_s: float) -> None:
        """Until the first line is there, or the program has ended, or the limit is over."""
        self._came.wait(limit_s)

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs, or while what it said is still on its way."""
        return None if self._thread.is_alive() else self._child.poll()

    def close(self) -> None:
        """End it and its children; it is gone when this returns, unless even SIGKILL does not reach it."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_LINGER_S)
        self._thread.join(_LINGER_S)

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as pipe:
            while line := pipe.readline(MOST_LINE_BYTES):
                self._lines.append((self._clock.now_ns(), line.decode("utf-8", "replace").rstrip("\n")))
                self._came.set()
        self._child.wait()
        self._came.set()
