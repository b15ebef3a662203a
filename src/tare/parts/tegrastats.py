"""One line of NVIDIA's `tegrastats`, in base units: what the line does not have is absent.

Every JetPack prints it a little differently, and no release says how, so that nothing is expected at a fixed place:
each statistic is found by its own shape, and whatever has another shape is passed over.
"""

from __future__ import annotations

import re
from typing import Any

from tare.parts.module_power import module_total_w

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
