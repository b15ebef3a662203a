"""Why energy that was read is not claimed, in words."""

from __future__ import annotations

from collections.abc import Sequence

from tare.records.model import Record


def doubt_about_energy(records: Sequence[Record]) -> str:
    """Why the sensor that was there gave no energy: most often the trial was too short for it; empty without any."""
    read = [record.facts.get("energy") or {} for record in records]
    return next((doubt.rstrip(".") for facts in read if facts.get("source") for doubt in facts.get("doubts", ())), "")
