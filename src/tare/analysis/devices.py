"""Which device a record is of."""

from __future__ import annotations

from collections.abc import Mapping

from tare.records.model import Record

_KIND = ("board", "cpu", "machine")  # what makes two devices of one type
_NOT_BOARDS = ("linux,dummy-virt", "qemu")
DEVICE, TYPE = "device", "device.type"  # the settings that a fleet's trials have


def device_of(record: Record) -> str | None:
    """What tells this device from others: the fleet's name for it, its own name or serial, else board or processor."""
    known = _facts(record)
    told = (record.settings.get(DEVICE), *(known.get(key) for key in ("id", "serial", "name", "board", "cpu")))
    found = next((each for each in told if each), None)
    return None if found is None else str(found)


def kind_of_device(record: Record) -> tuple[str, ...] | None:
    """The type: board, or processor and architecture; None where the record does not say."""
    known = _facts(record)
    return tuple(str(known[key]) for key in _KIND if key in known) or None


def is_named(record: Record) -> bool:
    """Whether the device is told from others of its kind: twins have the same board and processor."""
    return bool(record.settings.get(DEVICE)) or any(_facts(record).get(key) for key in ("id", "serial", "name"))


def is_board(board: str) -> bool:
    """Whether this names an edge board: a server names none, a virtual machine with a device tree itself."""
    return bool(board) and not board.lower().startswith(_NOT_BOARDS)


def _facts(record: Record) -> Mapping[str, object]:
    facts = record.facts.get("device")
    return facts if isinstance(facts, Mapping) else {}
