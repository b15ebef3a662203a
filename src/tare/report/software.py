"""The software that each side ran, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.model import Weighing
from tare.records.model import Record
from tare.report.listing import flat_pairs
from tare.report.shown import Shown


@dataclass(frozen=True, slots=True)
class SoftwareLine:
    """One entry of the fingerprint: one value where all levels share it, else one for each level."""

    key: str
    shared: str
    apart: tuple[tuple[str, str], ...]  # (level, value)


def software_lines(shown: Sequence[Shown], records: Sequence[Record]) -> list[SoftwareLine]:
    """The fingerprint of the first trial of each level; what differs comes first."""
    prints = _fingerprints(shown, records)
    keys = dict.fromkeys(key for found in prints.values() for key in found)
    lines = [_line(key, {level: found.get(key, "none") for level, found in prints.items()}) for key in keys]
    return sorted(lines, key=lambda line: not line.apart)


def parity_sentence(weighing: Weighing, shown: Sequence[Shown], records: Sequence[Record]) -> str:
    """Whether the sides ran the same software, as far as it is known."""
    if any(each.tainted for each in weighing.comparisons) or any(each.matters for each in weighing.differences):
        return "The sides differ in more than the level: the effect cannot be blamed on it alone."
    fingerprinted = _fingerprints(shown, records)
    wanted = {level for each in weighing.comparisons for level in (each.against, each.level)}
    if not weighing.comparisons or not wanted <= fingerprinted.keys():
        return "Not every side left a software fingerprint, so it is not known whether they ran the same software."
    return "No difference that matters was found between the software of the sides."


def _fingerprints(shown: Sequence[Shown], records: Sequence[Record]) -> dict[str, dict[str, str]]:
    inside = {record.trial: record.facts.get("inside") for record in records}
    prints: dict[str, dict[str, str]] = {}
    for each in shown:
        found = inside.get(each.trial)
        if each.level not in prints and isinstance(found, Mapping) and found:
            prints[each.level] = dict(flat_pairs(found))
    return prints


def _line(key: str, values: Mapping[str, str]) -> SoftwareLine:
    if len(set(values.values())) == 1:
        return SoftwareLine(key, next(iter(values.values())), ())
    return SoftwareLine(key, "", tuple(values.items()))
