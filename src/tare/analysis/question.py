"""What was asked, in one line for people: `container (docker) vs bare metal, LeNet-5 training, batch 16`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tare.analysis.cells import text
from tare.records.model import Record

_PLATFORMS: Mapping[str, str] = {
    "bare": "bare metal",
    "docker": "container (docker)",
    "podman": "container (podman)",
    "runc": "container (runc)",
}
LISTED = 4


def question(levels: Sequence[str], against: str, by: str, records: Sequence[Record]) -> str:
    """Who against whom, and doing what."""
    spoken = [_spoken(level, by) for level in levels[:LISTED]]
    if len(levels) > LISTED:
        spoken.append(f"{len(levels) - LISTED} more")
    sides = " vs ".join(filter(None, (", ".join(spoken), _spoken(against, by))))
    prefix = "" if by == "platform" else f"{by}: "
    return ", ".join(part for part in (f"{prefix}{sides}", workload(records, by)) if part)


def workload(records: Sequence[Record], by: str = "") -> str:
    """What all records ran: the title that the trial stored, else from its settings."""
    titles = {str(record.facts["title"]) for record in records if record.facts.get("title")}
    if len(titles) == 1:
        return titles.pop()
    names = {text(record.settings.get("workload", "")) for record in records}
    if len(names) != 1:
        return ""
    details = [_detail(name, records) for name in ("model", "batch", "argv") if f"workload.{name}" != by]
    return " ".join([names.pop(), *(f"({known})" for known in [", ".join(filter(None, details))] if known)])


def _detail(name: str, records: Sequence[Record]) -> str:
    values = [record.settings.get(f"workload.{name}") for record in records]
    if not values or values[0] is None or any(value != values[0] for value in values):
        return ""
    words = " ".join(map(str, values[0])) if isinstance(values[0], list | tuple) else text(values[0])
    return words if name != "batch" else f"batch {words}"


def _spoken(level: str, by: str) -> str:
    return _PLATFORMS.get(level, level) if by == "platform" else level
