"""The levels of a setting: which of those that a row asks for was run, and what people call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.cells import text
from tare.analysis.papers.model import Scalar
from tare.records.model import Record

LEAST, MOST = "least", "most"
ABSENT = object()  # no level at all: null is one, of a setting that was left alone
_PLATFORM = "platform"
_CALLED: Mapping[tuple[str, Any], str] = {  # the name of a setting, and its value where that is a word of its own
    ("gpu_mhz", None): "GPU {} MHz", ("cpu_mhz", None): "CPU {} MHz", ("mem_mhz", None): "memory {} MHz",
    ("cores", None): "{} cores", ("cores", 1): "1 core", ("workers", None): "{} workers", ("workers", 1): "1 worker",
    ("items", None): "{} items", ("tenants", None): "{} tenants", ("tenants", 1): "1 tenant",
    ("leave_idle", None): "{} idle", ("pin", False): "vanilla", ("pin", True): "pinned",
    ("seccomp", False): "without seccomp", ("seccomp", True): "with seccomp",
}  # fmt: skip
_PLAIN = ("platform", "workload", "model", "mode", "emulate", "device", "state")  # levels that say what they are


def level_run(records: Sequence[Record], name: str, wanted: Sequence[Scalar]) -> Any:
    """The first of the wanted levels that was run; ABSENT where none was."""
    run: list[Any] = [setting(record, name) for record in records]
    numbers: list[Any] = [value for value in run if is_number(value)]
    ends: Mapping[Scalar, Any] = {LEAST: min(numbers), MOST: max(numbers)} if numbers else {}
    for level in wanted:
        if level in ends:
            return ends[level]
        if level not in (LEAST, MOST) and any(is_at(record, name, level) for record in records):
            return level
    return ABSENT


def setting(record: Record, name: str) -> Any:
    """A setting; one of the platform, of the outermost storey of a stack that has it (`platform.0.qemu.cores`)."""
    part, _, last = name.partition(".")
    if name in record.settings or part != _PLATFORM:
        return record.settings.get(name)
    storeys = sorted(key for key in record.settings if key.startswith(f"{_PLATFORM}.") and key.endswith(f".{last}"))
    return next((record.settings[key] for key in storeys if record.settings[key] is not None), None)


def is_at(record: Record, name: str, level: Scalar) -> bool:
    """Whether the trial has this level of a setting: numbers by value, all else as it is written; null: it has none."""
    value = setting(record, name)
    if value is None or level is None:
        return value is level
    return bool(value == level) if is_number(value) and is_number(level) else text(value) == text(level)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def called(name: str, value: Any) -> str:
    """`docker`, `2 workers`, `GPU 345 MHz`: a level as people call it."""
    last = name.rpartition(".")[2]
    shown = f"{value:g}" if is_number(value) else text(value)
    if last in _PLAIN or isinstance(value, str):  # as in `beside torch_infer`, where others have a number of tenants
        return shown
    words = _CALLED.get((last, value)) or _CALLED.get((last, None))
    return f"{last} {shown}" if words is None else words.format(shown)
